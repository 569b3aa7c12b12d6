//! Allocators that ignore refusals, and Pods of one second.

use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::controller::Outcome;
use serde_json::json;

use super::passes::{Answers, Carried, World};
use crate::gates::pass::{Notice, Purpose};
use crate::gates::plan::Reason;
use crate::gates::stubborn::Stubborn;

/// The allocator comes back to the node at once. From the second time on it gets its answer later and later.
#[test]
fn an_allocator_that_ignores_refusals_is_answered_later() {
    let mut world = World::with_node(Some("10"));
    world.pod("p", 1, &json!({}));
    let refused = |time: &str| {
        let last = json!([{"node": "n", "reason": "full", "revision": 1, "time": time}]).to_string();
        json!({"metadata": {"annotations": {"dragoman.dev/rejections": last}}})
    };
    let is_refused = |looked: &Carried| looked.purposes().contains(&Purpose::Reject("p-claim".into()));
    // The writes of each refusal leave version 90.
    for version in [1, 91, 191] {
        world.claim("p", version, &refused("2026-01-01T00:59:49Z"));
        assert!(is_refused(&world.look("p", Answers::new())), "it has left the node out for ten seconds");
    }
    world.claim("p", 291, &refused("2026-01-01T00:59:55Z"));
    assert!(is_refused(&world.look("p", Answers::new())), "the first time");
    world.claim("p", 391, &refused("2026-01-01T00:59:55Z"));
    let waits = world.look("p", Answers::new());
    assert!(!is_refused(&waits) && world.assumed.len() == 0);
    assert_eq!(waits.then, Outcome::After(Duration::from_secs(1)));
    world.now += Duration::from_secs(1);
    assert!(is_refused(&world.look("p", Answers::new())));
}

/// A claim that waits to be refused keeps no device from another one, although its Pod is older.
#[test]
fn what_is_to_be_refused_counts_against_no_other_claim() {
    let mut world = World::with_node(None);
    let older = json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"}, "spec": {"containers": [
        {"name": "main", "resources": {"requests": {"cpu": "11"}, "claims": [{"name": "gpu"}]}}]}});
    world.pod("old", 1, &older);
    let last =
        json!([{"node": "n", "reason": "full", "revision": 1, "time": "2026-01-01T00:59:59Z"}]).to_string();
    let ignored = json!({"metadata": {"annotations": {"dragoman.dev/rejections": last}}});
    world.claim("old", 1, &ignored);
    world.look("old", Answers::new());
    world.claim("old", 91, &ignored);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    let rejects = Purpose::Reject("p-claim".into());
    assert!(world.look("p", Answers::new()).purposes().contains(&rejects), "an older Pod has the device");
    world.claim("p", 91, &json!({}));
    assert_eq!(world.look("old", Answers::new()).sent.len(), 0, "its refusal waits");
    assert!(!world.look("p", Answers::new()).purposes().contains(&rejects));
}

#[test]
fn what_waited_to_be_refused_counts_when_it_is_looked_at_again() {
    let mut stubborn = Stubborn::default();
    let (pod, claim) = (World::key("p"), Arc::<str>::from("ns/c"));
    stubborn.postpone(&pod, [Arc::clone(&claim)].into_iter());
    assert!(stubborn.is_to_refuse(&claim));
    stubborn.looks_again(&pod);
    assert!(!stubborn.is_to_refuse(&claim));
}

/// A creation time has no fractions of a second; a watch has the Pods in the order in which they were created.
#[test]
fn of_two_pods_of_one_second_the_older_one_keeps_the_device() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut world = World::with_node(None);
        for pod in [first, second] {
            world.pod(pod, 1, &json!({}));
            world.claim(pod, 1, &json!({}));
        }
        world.pod(first, 2, &json!({}));
        let is_refused = |looked: &Carried| {
            looked.said.iter().any(|said| matches!(said, Notice::Warning(Reason::PromisedTwice, ..)))
        };
        assert!(!is_refused(&world.look(first, Answers::new())), "{first} was first");
        assert!(is_refused(&world.look(second, Answers::new())));
    }
}
