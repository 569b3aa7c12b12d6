//! Events on Pods whose devices are unhealthy. kubelet writes the health into the status of the Pod, and no Event about it.
//!
//! A Pod is told once an hour about a device, however often its health changes: a device that flaps, or a driver that is restarted
//! again and again, does not fill the namespaces of its users. The name of an Event has the hour in it, so that a second one of
//! that hour is refused.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::Driver;
use crate::claim::ClaimReference;
use crate::health::{Health, Healthy};
use crate::prepare::{Claims, Preparer};

/// The most Events about a claim: it may be reserved for 256 Pods.
const CONSUMERS: usize = 16;
/// A device that broke before its claim was prepared, or while the API server did not answer, is told so long after.
const LOOK: Duration = Duration::from_secs(60);
/// The longest that a request may take: one that is never answered does not end the others.
const PATIENCE: Duration = Duration::from_secs(10);
const HOUR: i64 = 3600;

/// Where Events are written.
pub(crate) trait Events {
    /// Writes an Event of `events.k8s.io/v1`; one of its name may be there.
    fn write(&self, event: &Value) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// The claims and devices that were told about in an hour.
#[derive(Default)]
struct Told {
    hour: i64,
    pairs: BTreeSet<(String, String, String)>,
}

/// Driver and node that Events come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter<'a> {
    pub(crate) driver: &'a str,
    pub(crate) node: &'a str,
}

/// Tells the Pods of unhealthy devices, for as long as it is polled.
pub(crate) async fn tell<D: Driver, C: Claims>(
    preparer: &Preparer<D, C>,
    events: &impl Events,
    reporter: Reporter<'_>,
) {
    let mut health = preparer.driver.health();
    let mut told = Told::default();
    loop {
        let all = health.borrow_and_update().clone();
        for of in all.iter().filter(|of| of.healthy == Healthy::No) {
            for claim in preparer.holders(&of.pool, &of.device) {
                let time = jiff::Timestamp::now();
                if told.knows(&claim, of, time) {
                    continue;
                }
                match told_about(preparer, events, &claim, of, reporter, time).await {
                    Ok(()) => told.add(&claim, of),
                    Err(error) => {
                        tracing::warn!(%claim, device = of.device, "its Pods are not told: {error:#}");
                    }
                }
            }
        }
        tokio::select! {
            // A driver that says nothing about health has closed its channel.
            Ok(()) = health.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

async fn told_about<D: Driver, C: Claims>(
    preparer: &Preparer<D, C>,
    events: &impl Events,
    reference: &ClaimReference,
    of: &Health,
    reporter: Reporter<'_>,
    time: jiff::Timestamp,
) -> anyhow::Result<()> {
    let read = tokio::time::timeout(PATIENCE, preparer.read(reference));
    let Some(claim) = read.await.context("the API server does not answer")?? else { return Ok(()) };
    for event in about(&claim, reference, of, reporter, time) {
        let written = tokio::time::timeout(PATIENCE, events.write(&event));
        written.await.context("the API server does not answer")??;
    }
    Ok(())
}

impl Told {
    fn knows(&mut self, claim: &ClaimReference, of: &Health, time: jiff::Timestamp) -> bool {
        let hour = time.as_second() / HOUR;
        if hour != self.hour {
            *self = Self { hour, pairs: BTreeSet::new() };
        }
        self.pairs.contains(&Self::pair(claim, of))
    }

    fn add(&mut self, claim: &ClaimReference, of: &Health) {
        self.pairs.insert(Self::pair(claim, of));
    }

    fn pair(claim: &ClaimReference, of: &Health) -> (String, String, String) {
        (claim.uid.clone(), of.pool.clone(), of.device.clone())
    }
}

/// An Event for each Pod that the claim is reserved for, and one for the claim where a PodGroup is. None if the claim is another
/// one by now.
fn about(
    claim: &Value,
    reference: &ClaimReference,
    of: &Health,
    Reporter { driver, node }: Reporter<'_>,
    time: jiff::Timestamp,
) -> Vec<Value> {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if text(claim, "/metadata/uid") != reference.uid {
        return Vec::new();
    }
    let of_claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "namespace": reference.namespace, "name": reference.name, "uid": reference.uid});
    let consumers = claim.pointer("/status/reservedFor").and_then(Value::as_array);
    let (pods, others): (Vec<&Value>, Vec<&Value>) =
        consumers.into_iter().flatten().partition(|consumer| text(consumer, "/resource") == "pods");
    let of_pod = |pod: &&Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": reference.namespace, "name": text(pod, "/name"),
            "uid": text(pod, "/uid")})
    };
    let of_others = (!others.is_empty()).then(|| of_claim.clone());
    let regarding = pods.iter().map(of_pod).take(CONSUMERS).chain(of_others);
    let message = if of.message.is_empty() { "its driver says so" } else { cut(&of.message, 256) };
    let words = format!("device {}/{} of {reference} is unhealthy: {message}", of.pool, of.device);
    let event = |regarding: Value| {
        let name = text(&regarding, "/name");
        let mut hasher = DefaultHasher::new();
        (&reference.uid, &of.pool, &of.device, text(&regarding, "/uid"), time.as_second() / HOUR)
            .hash(&mut hasher);
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "type": "Warning", "reason": "DeviceUnhealthy",
            "metadata": {"namespace": reference.namespace, "name": format!("{}.{:016x}", cut(&name, 236), hasher.finish())},
            "action": "Watch", "note": cut(&words, 1024), "eventTime": format!("{time:.6}"),
            "reportingController": driver, "reportingInstance": cut(node, 128),
            "regarding": regarding, "related": of_claim,
        })
    };
    regarding.map(event).collect()
}

/// The beginning of a text, of at most so many bytes: longer ones are refused.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Reporter<'_> = Reporter { driver: "d", node: "node" };

    fn health(device: &str, message: &str) -> Health {
        let text = |text: &str| text.to_owned();
        Health { pool: text("n"), device: text(device), healthy: Healthy::No, message: text(message) }
    }

    fn reference() -> ClaimReference {
        ClaimReference { namespace: "ns".to_owned(), name: "c".to_owned(), uid: "u".to_owned() }
    }

    fn consumers(pods: usize, pod: &str) -> Value {
        let of = |number: usize| json!({"resource": "pods", "name": format!("{pod}-{number}"), "uid": format!("u-{number}")});
        let all: Vec<Value> = (0..pods).map(of).collect();
        json!({"metadata": {"uid": "u"}, "status": {"reservedFor": all}})
    }

    fn at(seconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn a_device_that_flaps_is_told_once_an_hour() {
        let (claim, of, mut told) = (reference(), health("a", "it is hot"), Told::default());
        assert!(!told.knows(&claim, &of, at(10)));
        told.add(&claim, &of);
        assert!(told.knows(&claim, &of, at(3599)) && !told.knows(&claim, &health("b", ""), at(3599)));
        assert!(!told.knows(&claim, &of, at(3600)));
        // After a restart of the driver the API server refuses the second Event of an hour by its name.
        let name = |time: i64, of: &Health| {
            about(&consumers(1, "p"), &claim, of, D, at(time))[0]["metadata"]["name"].clone()
        };
        assert_eq!(name(10, &of), name(3599, &of));
        assert!(name(10, &of) != name(3600, &of) && name(10, &of) != name(10, &health("b", "")));
    }

    #[test]
    fn every_pod_of_the_claim_is_told_and_for_a_group_the_claim() {
        let of = health("a", "it is hot");
        let mut claim = consumers(40, "p");
        let group =
            json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"});
        claim["status"]["reservedFor"].as_array_mut().expect("consumers").insert(0, group);
        let all = about(&claim, &reference(), &of, D, at(0));
        assert_eq!(all.len(), CONSUMERS + 1);
        assert_eq!(
            (&all[0]["regarding"]["name"], &all[CONSUMERS]["regarding"]["kind"]),
            (&json!("p-0"), &json!("ResourceClaim"))
        );
        assert_eq!(all[0]["note"], "device n/a of ResourceClaim ns/c is unhealthy: it is hot");
        assert_eq!(all[0]["eventTime"], "1970-01-01T00:00:00.000000Z");
        claim["metadata"]["uid"] = json!("v");
        assert!(about(&claim, &reference(), &of, D, at(0)).is_empty());
    }

    #[test]
    fn no_event_is_refused_for_its_length() {
        let (pod, of) = ("p".repeat(251), health("a", &"é".repeat(4000)));
        let all = about(
            &consumers(1, &pod),
            &reference(),
            &of,
            Reporter { driver: "d", node: &"n".repeat(253) },
            at(0),
        );
        let length = |pointer: &str| all[0].pointer(pointer).and_then(Value::as_str).expect("a text").len();
        assert!(
            length("/metadata/name") <= 253 && length("/note") <= 1024 && length("/reportingInstance") <= 128
        );
        assert!(all[0]["note"].as_str().is_some_and(|note| note.contains("is unhealthy: é")));
    }
}
