//! Events on Pods whose devices break. kubelet writes the health into the status of the Pod, and no Event about it.

use serde_json::{Value, json};

use crate::health::{Health, Healthy};
use crate::prepare::{Claims, Preparer};
use crate::{Driver, claim};

/// The most Pods of a claim that get an Event: a claim may be reserved for 256.
const PODS: usize = 16;

/// Where Events are written.
pub(crate) trait Events {
    /// Writes an Event of `events.k8s.io/v1`.
    fn write(&self, event: &Value) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Tells Pods when one of their devices becomes unhealthy. An Event that cannot be written is logged, and is lost.
pub(crate) async fn tell<D: Driver, C: Claims>(
    preparer: &Preparer<D, C>,
    events: &impl Events,
    (driver, node): (&str, &str),
) {
    let mut health = preparer.driver.health();
    // What was broken before this process began has been told.
    let mut before = health.borrow_and_update().clone();
    while health.changed().await.is_ok() {
        let now = health.borrow_and_update().clone();
        for of in broken(&before, &now) {
            for reference in preparer.holders(&of.pool, &of.device) {
                let read = preparer.read(&reference).await;
                let claim = read.unwrap_or_else(|error| {
                    tracing::warn!(claim = %reference, "no Pod is told that {} is unhealthy: {error:#}", of.device);
                    None
                });
                let time = jiff::Timestamp::now();
                let about = claim.map(|claim| about(&claim, &reference, of, (driver, node), time));
                for event in about.unwrap_or_default() {
                    if let Err(error) = events.write(&event).await {
                        tracing::warn!(claim = %reference, "an Event was not written: {error:#}");
                    }
                }
            }
        }
        before = now;
    }
    // A driver that says nothing about health.
    std::future::pending::<()>().await;
}

/// The devices that are unhealthy, and were not before.
fn broken<'a>(before: &[Health], now: &'a [Health]) -> Vec<&'a Health> {
    let was = |of: &Health| {
        let mut same = before.iter().filter(|old| (&old.pool, &old.device) == (&of.pool, &of.device));
        same.any(|old| old.healthy == Healthy::No)
    };
    now.iter().filter(|of| of.healthy == Healthy::No && !was(of)).collect()
}

/// An Event for each Pod that the claim is reserved for. None if the claim is another one by now.
fn about(
    claim: &Value,
    reference: &claim::ClaimReference,
    of: &Health,
    (driver, node): (&str, &str),
    time: jiff::Timestamp,
) -> Vec<Value> {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if text(claim, "/metadata/uid") != reference.uid {
        return Vec::new();
    }
    let consumers = claim.pointer("/status/reservedFor").and_then(Value::as_array);
    let pods = consumers.into_iter().flatten().filter(|consumer| text(consumer, "/resource") == "pods");
    let because = if of.message.is_empty() { String::new() } else { format!(": {}", of.message) };
    let words = format!(
        "device {}/{} of {reference}, which this Pod uses, is unhealthy{because}",
        of.pool, of.device
    );
    let event = |pod: &Value| {
        let name = text(pod, "/name");
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "type": "Warning", "reason": "DeviceUnhealthy",
            "metadata": {"namespace": reference.namespace, "name": format!("{name}.{:x}", time.as_nanosecond())},
            "action": "Watch", "note": words.chars().take(NOTE).collect::<String>(),
            "eventTime": format!("{time:.6}"), "reportingController": driver, "reportingInstance": node,
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": reference.namespace, "name": name,
                "uid": text(pod, "/uid")},
            "related": {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "namespace": reference.namespace, "name": reference.name, "uid": reference.uid},
        })
    };
    pods.take(PODS).map(event).collect()
}

/// The longest note that the API server takes is 1 024 bytes; a character has four at most.
const NOTE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimReference;

    fn health(device: &str, healthy: Healthy) -> Health {
        Health { pool: "n".to_owned(), device: device.to_owned(), healthy, message: "it is hot".to_owned() }
    }

    #[test]
    fn only_what_broke_is_told() {
        let before = [health("a", Healthy::Yes), health("b", Healthy::No)];
        let now = [health("a", Healthy::No), health("b", Healthy::No), health("c", Healthy::Yes)];
        let names: Vec<&str> = broken(&before, &now).iter().map(|of| &*of.device).collect();
        assert_eq!(names, ["a"]);
        assert!(broken(&now, &before).is_empty());
    }

    #[test]
    fn every_pod_of_the_claim_is_told_and_nothing_else() {
        let reference =
            ClaimReference { namespace: "ns".to_owned(), name: "c".to_owned(), uid: "u".to_owned() };
        let consumer = |number: usize| json!({"resource": "pods", "name": format!("p-{number}"), "uid": format!("u-{number}")});
        let mut consumers: Vec<Value> = (0..40).map(consumer).collect();
        consumers.insert(
            0,
            json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}),
        );
        let claim = json!({"metadata": {"uid": "u"}, "status": {"reservedFor": consumers}});
        let time = jiff::Timestamp::UNIX_EPOCH;
        let all = about(&claim, &reference, &health("a", Healthy::No), ("d", "node"), time);
        assert_eq!(all.len(), PODS);
        let first = &all[0];
        assert_eq!(first["regarding"]["name"], "p-0");
        assert_eq!(
            first["note"],
            "device n/a of ResourceClaim ns/c, which this Pod uses, is unhealthy: it is hot"
        );
        assert_eq!(first["eventTime"], "1970-01-01T00:00:00.000000Z");
        let other = json!({"metadata": {"uid": "v"}, "status": {"reservedFor": consumers}});
        assert!(about(&other, &reference, &health("a", Healthy::No), ("d", "node"), time).is_empty());
    }
}
