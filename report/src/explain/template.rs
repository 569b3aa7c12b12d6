//! Whether a template can be used, and which Pods use it.

use std::sync::Arc;

use dragoman_allocator::input::{Claim, Cluster};
use dragoman_allocator::{Gates, Object, PodClaims, Snapshot};
use dragoman_objects::{ClaimEntry, ClaimSpec, Pod, Request};
use jiff::Timestamp;

use super::devices::correction;
use super::{Answer, Verdict, count, link};
use crate::facts::Facts;

/// Explains a template.
pub fn explain(facts: &Facts, namespace: &str, name: &str, _now: Timestamp) -> Answer {
    let uses = |pod: &&Pod| {
        let entries = &pod.spec.resource_claims;
        *pod.metadata.namespace == *namespace
            && entries.iter().any(|entry| entry.resource_claim_template_name.as_deref() == Some(name))
    };
    let pods: Vec<&str> = facts.pods.values().filter(uses).map(|pod| &*pod.metadata.name).collect();
    let of_pods = count(pods.len(), "Pod", "Pods");
    let trouble = absent(facts, namespace, name)
        .or_else(|| not_understood(facts, namespace, name))
        .or_else(|| invalid(facts, namespace, name));
    let verdict = trouble.map_or_else(
        || Verdict::fine("TemplateReady", format!("template {namespace}/{name} is used by {of_pods}")),
        |verdict| {
            let waiting = facts.pods.values().filter(uses).filter(|pod| waits(pod, name)).count();
            let wait = if waiting == 1 { "waits" } else { "wait" };
            let of_pods = count(waiting, "Pod", "Pods");
            Verdict { sentence: format!("{}; {of_pods} {wait} for it", verdict.sentence), ..verdict }
        },
    );
    let chain = pods.iter().take(20).map(|pod| link(0, format!("Pod {pod}"), "uses it")).collect();
    Answer {
        object: format!("ResourceClaimTemplate {namespace}/{name}"),
        is_missing: verdict.reason == "TemplateMissing",
        verdict,
        chain,
        lacks: facts.partial(),
    }
}

/// Whether a Pod has no claim of the template yet.
fn waits(pod: &Pod, template: &str) -> bool {
    let has_ended = matches!(&*pod.status.phase, "Succeeded" | "Failed");
    let is_made =
        |entry: &ClaimEntry| pod.status.resource_claim_statuses.iter().any(|made| made.name == entry.name);
    let mut entries = pod.spec.resource_claims.iter();
    !has_ended
        && entries.any(|of| of.resource_claim_template_name.as_deref() == Some(template) && !is_made(of))
}

/// Reports an error that no claim of a template can be allocated with, on whatever node: a class that is missing, a selector that
/// does not compile.
fn invalid(facts: &Facts, namespace: &str, name: &str) -> Option<Verdict> {
    // Files without any class are a part of a cluster.
    let classes = &facts.cluster.classes;
    if facts.lacks("deviceclasses") || (facts.from_files && classes.is_empty()) {
        return None;
    }
    let template = facts.templates.get(&(namespace.to_owned(), name.to_owned()))?;
    let spec: ClaimSpec = serde_json::from_str(template.spec.spec.as_ref()?.get()).ok()?;
    let claim =
        Claim { namespace: namespace.into(), name: name.into(), devices: spec.devices, ..Claim::default() };
    let snapshot = Snapshot::default().with(Cluster { classes: classes.clone(), ..Cluster::default() });
    let error = PodClaims::new(&snapshot, vec![Arc::new(claim)], Gates::SERVED).error()?;
    // What follows the first line points into the expression.
    let message = error.message.lines().next().unwrap_or_default();
    let (sentence, advice) = match &error.object {
        Object::Claim(..) => (
            format!("template {namespace}/{name}: spec.{}: {message}", error.field),
            "create the template anew with the correction, or create the class that it names; claims that were made from it keep the error"
                .to_owned(),
        ),
        object => (format!("{object}: {}: {message}", error.field), correction(object)),
    };
    Some(Verdict::blocked("TemplateInvalid", sentence, advice))
}

/// Reports a part of a template that this version does not understand: Dragoman's allocator gives no devices to its claims.
fn not_understood(facts: &Facts, namespace: &str, name: &str) -> Option<Verdict> {
    let template = facts.templates.get(&(namespace.to_owned(), name.to_owned()))?;
    let read = serde_json::from_str::<ClaimSpec>(template.spec.spec.as_ref()?.get());
    let of_request =
        |request: &Request| Some(format!("request {}: {}", request.name, request.unreadable.as_ref()?));
    let why = match read {
        Err(why) => Some(why.to_string()),
        Ok(ClaimSpec { devices, .. }) => devices
            .unreadable
            .map(|why| why.to_string())
            .or_else(|| devices.requests.iter().find_map(of_request)),
    };
    why.map(|why| {
        Verdict::blocked(
            "TemplateUndecidable",
            format!("a part of template {namespace}/{name} is not understood: {why}"),
            "correct the field if it is misspelt; where a newer API server has stored it, a newer version of Dragoman reads it",
        )
    })
}

/// Why a template cannot be used; `None` where it can, or where it could not be read for lack of a right.
pub(super) fn absent(facts: &Facts, namespace: &str, name: &str) -> Option<Verdict> {
    if facts.templates.contains_key(&(namespace.to_owned(), name.to_owned())) {
        return None;
    }
    if let Some(why) = facts.why_unreadable("ResourceClaimTemplate", namespace, name) {
        return Some(Verdict::blocked(
            "TemplateUnreadable",
            format!("template {namespace}/{name} does not decode: {why}"),
            "correct the template",
        ));
    }
    let is_unknown = facts.lacks("resourceclaimtemplates");
    (!is_unknown).then(|| {
        Verdict::blocked(
            "TemplateMissing",
            format!("template {namespace}/{name} {}", facts.absence()),
            "create it, or correct resourceClaimTemplateName in the Pod",
        )
    })
}
