//! The decisions of a kubelet on one Pod, on plain data.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::meta;
use crate::standins::extended;

/// A Pod with this annotation runs until the annotation is removed, or until its grace period ends after
/// deletion.
pub const HOLD: &str = "simcluster.dragoman.dev/hold";

/// A Pod with this annotation is deleted as soon as it has succeeded, as by an owner that keeps no finished
/// Pods.
pub const REAP: &str = "simcluster.dragoman.dev/reap";

/// The next act of a kubelet on a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Start,
    Finish,
    Remove,
}

/// Returns the next act on a Pod, or `None` if it is not on a node, is held, or has finished.
pub(super) fn next_act(pod: &Value) -> Option<Act> {
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return None;
    }
    if meta::is_deleting(pod) {
        return Some(Act::Remove);
    }
    let annotated = |annotation: &str| !pod["metadata"]["annotations"][annotation].is_null();
    match pod["status"]["phase"].as_str() {
        Some("Pending") => Some(Act::Start),
        Some("Running") if !annotated(HOLD) && !pauses(pod) => Some(Act::Finish),
        Some("Succeeded") if annotated(REAP) => Some(Act::Remove),
        _ => None,
    }
}

/// Returns how long a Pod keeps running after it is told to stop.
pub(super) fn unwilling(pod: &Value) -> Duration {
    let runs_on = pod["status"]["phase"] == "Running" && !pod["metadata"]["annotations"][HOLD].is_null();
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().filter(|_| runs_on);
    Duration::from_secs(grace.unwrap_or_default())
}

/// Whether a Pod has no terminal phase yet, which a kubelet writes before it removes the Pod.
pub(super) fn is_unfinished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Running"))
}

/// Returns the patch of a Pod's status for a phase. The uid makes it fail on another Pod of that name.
pub(super) fn status(pod: &Value, phase: &str) -> Value {
    let ready = if phase == "Running" { "True" } else { "False" };
    json!({
        "metadata": {"uid": pod["metadata"]["uid"]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// Whether a Pod runs the pause image, which does nothing and does not end.
fn pauses(pod: &Value) -> bool {
    let mut containers = meta::items(&pod["spec"]["containers"]);
    containers.any(|container| container["image"].as_str().is_some_and(|image| image.contains("/pause:")))
}

/// Returns the claim of an entry: the named one, or the one in the status of the Pod.
pub(in crate::standins) fn claim_name<'a>(pod: &'a Value, entry: &'a Value) -> Option<&'a str> {
    entry["resourceClaimName"].as_str().or_else(|| {
        let mut statuses = meta::items(&pod["status"]["resourceClaimStatuses"]);
        statuses.find(|status| status["name"] == entry["name"])?["resourceClaimName"].as_str()
    })
}

/// Returns the claims of a Pod, that for extended resources among them, or `None` if one has no name yet.
pub(super) fn claims(pod: &Value) -> Option<Vec<&str>> {
    let entries = meta::items(&pod["spec"]["resourceClaims"]).map(|entry| claim_name(pod, entry));
    entries.chain(extended::made(pod).map(Some)).collect()
}

/// Whether a claim is allocated, and reserved for a Pod or for its PodGroup.
pub(super) fn is_ready(claim: &Value, pod: &Value) -> bool {
    let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str();
    let is_mine = |consumer: &Value| {
        consumer["uid"] == pod["metadata"]["uid"]
            || (consumer["resource"] == "podgroups" && group.is_some() && consumer["name"].as_str() == group)
    };
    !claim["status"]["allocation"].is_null() && meta::items(&claim["status"]["reservedFor"]).any(is_mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, annotations: &Value) -> Value {
        json!({
            "metadata": {"uid": "u", "annotations": annotations}, "spec": {"nodeName": "node"},
            "status": {"phase": phase},
        })
    }

    #[test]
    fn the_next_act_follows_from_phase_and_annotations() {
        let act = |phase, annotations| next_act(&pod(phase, &annotations));
        assert_eq!(act("Pending", json!({HOLD: ""})), Some(Act::Start));
        assert_eq!(act("Running", json!({HOLD: ""})), None);
        assert_eq!(act("Running", json!({REAP: ""})), Some(Act::Finish));
        assert_eq!(act("Succeeded", json!({})), None);
        assert_eq!(act("Succeeded", json!({REAP: ""})), Some(Act::Remove));
        assert_eq!(act("Failed", json!({REAP: ""})), None);
    }

    #[test]
    fn a_pod_that_is_deleted_is_removed_from_its_node_only() {
        let mut pod = pod("Pending", &json!({}));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(next_act(&pod), Some(Act::Remove));
        pod["spec"]["nodeName"] = json!("");
        assert_eq!(next_act(&pod), None);
    }

    #[test]
    fn only_a_held_pod_uses_its_grace_period() {
        let grace = |phase, annotations| {
            let mut pod = pod(phase, &annotations);
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(7);
            unwilling(&pod).as_secs()
        };
        assert_eq!(grace("Running", json!({HOLD: ""})), 7);
        assert_eq!(grace("Running", json!({})), 0);
        assert_eq!(grace("Pending", json!({HOLD: ""})), 0);
    }

    #[test]
    fn every_entry_and_the_extended_resources_need_a_claim() {
        let mut pod = pod("Pending", &json!({}));
        pod["spec"]["resourceClaims"] = json!([
            {"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "one"},
        ]);
        assert_eq!(claims(&pod), None);
        pod["status"]["resourceClaimStatuses"] = json!([{"name": "b", "resourceClaimName": "made"}]);
        pod["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "extended"});
        assert_eq!(claims(&pod), Some(vec!["shared", "made", "extended"]));
    }

    #[test]
    fn a_claim_is_ready_when_it_is_allocated_and_reserved_for_the_pod_or_its_group() {
        let mut pod = pod("Pending", &json!({}));
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "group"});
        let ready = |allocation: Value, consumer: Value| {
            is_ready(&json!({"status": {"allocation": allocation, "reservedFor": [consumer]}}), &pod)
        };
        let mine = || json!({"resource": "pods", "name": "pod", "uid": "u"});
        assert!(ready(json!({}), mine()));
        assert!(!ready(Value::Null, mine()));
        assert!(!ready(json!({}), json!({"resource": "pods", "name": "pod", "uid": "v"})));
        assert!(ready(json!({}), json!({"resource": "podgroups", "name": "group", "uid": "g"})));
        assert!(!ready(json!({}), json!({"resource": "podgroups", "name": "other", "uid": "g"})));
        // A Pod may have the name of the group.
        assert!(!ready(json!({}), json!({"resource": "pods", "name": "group", "uid": "v"})));
    }
}
