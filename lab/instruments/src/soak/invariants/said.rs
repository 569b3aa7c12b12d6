//! The Events that must exist. Faults may lose Events, so that only runs without faults are judged.

use std::sync::Arc;

use dragoman_simcluster::{ApiServer, HistoryStep};
use serde_json::Value;

use super::{
    CLAIMS, EVENTS, MOST_CONSUMERS, PODS, TEMPLATES, all, by_name, consumers, has_node, is_deleting,
    is_garbled, is_reserved_for, items, may_run, text,
};

/// The first Event that is missing.
pub(super) fn broken(server: &ApiServer, chronicle: &[HistoryStep]) -> Option<String> {
    let events = server.all(EVENTS);
    let [pods, claims, templates] = [PODS, CLAIMS, TEMPLATES].map(|kind| all(server, kind));
    let waits = |pod: &&Arc<Value>| may_run(pod) && !is_deleting(pod) && !is_garbled(pod);
    pods.iter()
        .filter(waits)
        .find_map(|pod| in_the_way(pod, &claims, &templates, &events))
        .or_else(|| vanished(chronicle, &events))
}

fn is_said(events: &[Arc<Value>], reason: &str, regarding: &Value, word: &str) -> bool {
    events.iter().any(|event| {
        event["reason"] == *reason
            && event["regarding"]["uid"] == regarding["metadata"]["uid"]
            && event["note"].as_str().is_some_and(|note| note.contains(word))
    })
}

/// Checks the Event about a missing template, or about a claim that takes no more consumers.
fn in_the_way(
    pod: &Value,
    claims: &[Arc<Value>],
    templates: &[Arc<Value>],
    events: &[Arc<Value>],
) -> Option<String> {
    // While the PodGroup is missing the owner of the claims is unknown, and the Event is about that instead.
    if !pod["spec"]["schedulingGroup"].is_null() {
        return None;
    }
    items(&pod["spec"]["resourceClaims"]).find_map(|entry| {
        let template = entry["resourceClaimTemplateName"].as_str();
        let missing = template.filter(|name| by_name(templates, name).is_none());
        let full = entry["resourceClaimName"].as_str().filter(|name| {
            let is_full = |claim: &&Arc<Value>| consumers(claim).count() >= MOST_CONSUMERS;
            let shut = by_name(claims, name).filter(is_full);
            has_node(pod) && shut.is_some_and(|claim| !is_reserved_for(claim, &pod["metadata"]["uid"]))
        });
        let word = missing.or(full)?;
        (!is_said(events, "FailedResourceClaimCreation", pod, word))
            .then(|| format!("unsaid: {} waits for {word} without a word", text(pod, "name")))
    })
}

/// Checks the Event about a Pod that was removed while it may have been running and then lost its
/// reservation.
fn vanished(chronicle: &[HistoryStep], events: &[Arc<Value>]) -> Option<String> {
    let gone = chronicle.iter().filter(|step| step.resource == PODS && step.after.is_none());
    let abruptly: Vec<&Value> = gone
        .filter_map(|step| step.before.as_deref())
        .filter(|pod| has_node(pod) && may_run(pod) && !is_garbled(pod))
        .collect();
    chronicle.iter().filter(|step| step.resource == CLAIMS).find_map(|step| {
        let (before, after) = (step.before.as_ref()?, step.after.as_ref()?);
        let lost = abruptly.iter().find(|pod| {
            let uid = &pod["metadata"]["uid"];
            is_reserved_for(before, uid) && !is_reserved_for(after, uid)
        })?;
        (!is_said(events, "ConsumerVanished", after, text(lost, "uid"))).then(|| {
            format!("unsaid: {} was released for {}, which vanished", text(after, "name"), text(lost, "name"))
        })
    })
}
