//! Whether a template can be used, and which Pods use it.

use jiff::Timestamp;

use super::{Answer, Verdict, count, link};
use crate::facts::Facts;

/// Explains a template.
pub fn explain(facts: &Facts, namespace: &str, name: &str, _now: Timestamp) -> Answer {
    let uses = |pod: &&dragoman_objects::Pod| {
        let entries = &pod.spec.resource_claims;
        *pod.metadata.namespace == *namespace
            && entries.iter().any(|entry| entry.resource_claim_template_name.as_deref() == Some(name))
    };
    let pods: Vec<&str> = facts.pods.values().filter(uses).map(|pod| &*pod.metadata.name).collect();
    let of_pods = count(pods.len(), "Pod", "Pods");
    let verdict = absent(facts, namespace, name).map_or_else(
        || Verdict::fine("TemplateReady", format!("template {namespace}/{name} is used by {of_pods}")),
        |verdict| {
            let wait = if pods.len() == 1 { "waits" } else { "wait" };
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
