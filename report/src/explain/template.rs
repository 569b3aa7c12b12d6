//! Whether a template can be used, and which Pods use it.

use dragoman_objects::{ClaimEntry, ClaimSpec, Pod, Request};
use jiff::Timestamp;

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
    let trouble = absent(facts, namespace, name).or_else(|| not_understood(facts, namespace, name));
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

/// Reports a part of a template that this version does not understand: Dragoman's allocator gives no devices to its claims.
fn not_understood(facts: &Facts, namespace: &str, name: &str) -> Option<Verdict> {
    let template = facts.templates.get(&(namespace.to_owned(), name.to_owned()))?;
    let read = serde_json::from_str::<ClaimSpec>(template.spec.spec.as_ref()?.get());
    let of_request =
        |request: &Request| Some(format!("request {}: {}", request.name, request.unreadable.as_ref()?));
    let why = match read {
        Err(why) => Some(why.to_string()),
        Ok(ClaimSpec { devices }) => devices
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
