//! Allocators that ignore refusals, and Pods of one second.

use std::time::Duration;

use dragoman_machinery::controller::Outcome;
use dragoman_objects::Name;
use serde_json::json;

use super::passes::{Answers, Carried, World};
use crate::gates::pass::{Notice, Purpose};
use crate::gates::plan::Reason;
use crate::gates::stubborn::Stubborn;

fn is_refused(looked: &Carried, claim: &str) -> bool {
    looked.purposes().contains(&Purpose::Reject(claim.into()))
}

/// A Pod that fits nowhere, with a claim on the node; and the claim again, without its devices.
fn refused(world: &mut World, pod: &str, version: u64) {
    world.claim(pod, version, &json!({}));
    assert!(is_refused(&world.look(pod, Answers::new()), &format!("{pod}-claim")), "{version}");
    // The writes of each refusal leave version 90.
    world.claim(pod, version + 91, &json!({"status": {"allocation": null, "reservedFor": []}}));
    world.look(pod, Answers::new());
}

/// The allocator comes back to the node at once. From the second time on it gets its answer later and later.
#[test]
fn an_allocator_that_ignores_refusals_is_answered_later() {
    let mut world = World::with_node(Some("10"));
    world.pod("p", 1, &json!({}));
    for version in [1, 201, 401] {
        refused(&mut world, "p", version);
        world.now += Duration::from_secs(9);
    }
    refused(&mut world, "p", 601);
    refused(&mut world, "p", 801);
    world.claim("p", 1001, &json!({}));
    let waits = world.look("p", Answers::new());
    assert!(!is_refused(&waits, "p-claim") && world.assumed.len() == 0);
    assert_eq!(waits.then, Outcome::After(Duration::from_secs(1)));
    world.now += Duration::from_secs(1);
    assert!(is_refused(&world.look("p", Answers::new()), "p-claim"));
}

/// Writes that fail are repeated, and a tenant writes annotations: neither tells anything of the allocator.
#[test]
fn what_the_allocator_has_not_done_does_not_count() {
    let mut world = World::with_node(Some("10"));
    world.pod("p", 1, &json!({}));
    let last =
        json!([{"node": "n", "reason": "full", "revision": 1, "time": "2026-01-01T00:59:59Z"}]).to_string();
    for version in [1, 101, 201, 301] {
        world.claim("p", version, &json!({"metadata": {"annotations": {"dragoman.dev/rejections": last}}}));
        assert!(is_refused(&world.look("p", Answers::new()), "p-claim"), "{version}");
    }
}

/// A claim that waits to be refused keeps no device from another one, although its Pod is older; unless another Pod has it, too.
#[test]
fn what_is_to_be_refused_counts_against_no_other_claim() {
    let mut world = World::with_node(None);
    let older = json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"}, "spec": {"containers": [
        {"name": "main", "resources": {"requests": {"cpu": "11"}, "claims": [{"name": "gpu"}]}}]}});
    world.pod("old", 1, &older);
    refused(&mut world, "old", 1);
    refused(&mut world, "old", 201);
    world.claim("old", 401, &json!({}));
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    assert!(is_refused(&world.look("p", Answers::new()), "p-claim"), "an older Pod has the device");
    world.claim("p", 91, &json!({}));
    assert_eq!(world.look("old", Answers::new()).sent.len(), 0, "its refusal waits");
    assert!(!is_refused(&world.look("p", Answers::new()), "p-claim"));
    let both = ["old", "runs"].map(|name| json!({"resource": "pods", "name": name, "uid": name}));
    world.claim("old", 402, &json!({"status": {"reservedFor": both}}));
    world.claim("p", 92, &json!({}));
    assert!(is_refused(&world.look("p", Answers::new()), "p-claim"), "another Pod may run with it");
}

#[test]
fn what_waited_to_be_refused_counts_when_it_is_looked_at_again() {
    let (mut stubborn, pod, claim) = (Stubborn::default(), World::key("p"), Name::from("claim"));
    stubborn.postpone(&pod, [claim.clone()].into_iter());
    assert!(stubborn.is_to_refuse(&pod, &claim) && !stubborn.is_to_refuse(&World::key("q"), &claim));
    stubborn.looks_again(&pod);
    assert!(!stubborn.is_to_refuse(&pod, &claim));
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
