//! Pods of a PodGroup with a claim of the group.

use std::time::Duration;

use dragoman_machinery::controller::Outcome;

use super::passes::{Answers, World, merge};
use super::*;
use crate::gates::pass::Purpose;

/// A Pod of group `g` whose claim is that of Pod `a`.
fn member(world: &mut World, name: &str, version: u64, change: &Value) {
    let mut pod = json!({"spec": {"schedulingGroup": {"podGroupName": "g"},
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "a-gpu"}]}});
    merge(&mut pod, change);
    world.pod(name, version, &pod);
}

/// Two Pods with a claim that is reserved for their group; its device takes so many of the ten cpus of the node.
fn world(cost: &str) -> World {
    let mut world = World::with_node(Some(cost));
    member(&mut world, "a", 1, &json!({}));
    member(&mut world, "b", 1, &json!({}));
    let group = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]);
    world.claim("a", 1, &json!({"status": {"reservedFor": group}}));
    world
}

fn purposes(world: &mut World, name: &str) -> Vec<Purpose> {
    world.look(name, Answers::new()).purposes()
}

#[test]
fn what_is_reserved_for_a_group_is_reserved_for_its_pods() {
    for name in ["a", "b"] {
        assert_eq!(purposes(&mut world("2"), name), vec![Purpose::Nominate(Some("n".into()))], "{name}");
    }
    let mut world = world("2");
    member(&mut world, "b", 2, &json!({"spec": {"schedulingGroup": {"podGroupName": "other"}}}));
    world.look("b", Answers::new());
    world.now += Duration::from_secs(2);
    assert_eq!(purposes(&mut world, "b"), vec![Purpose::Condition], "it is not reserved for this one");
}

/// The others would lose their devices to a Pod that has no room.
#[test]
fn a_group_gives_a_claim_back_while_no_gate_is_open_and_none_of_its_pods_has_room() {
    let mut refused = world("10");
    let out = |confirms| {
        let confirms = std::iter::repeat_n(Purpose::Confirm, confirms);
        let rejected = std::iter::once(Purpose::Reject("a-claim".into())).chain(confirms);
        rejected.chain([Purpose::TakeOut("a-claim".into())]).collect::<Vec<_>>()
    };
    let waits = refused.look("b", Answers::new());
    assert_eq!((waits.purposes(), waits.said), (vec![], vec![]), "the others are looked at first");
    assert!(matches!(waits.then, Outcome::After(_)), "no event comes");
    refused.now += Duration::from_secs(2);
    let rejected = refused.look("b", Answers::new());
    assert_eq!(rejected.purposes(), out(2));
    let Some((_, write)) = rejected.sent.last() else { panic!("a write") };
    let Action::Patch { operations, .. } = &write.action else { panic!("a patch") };
    assert_eq!(operations[0], json!({"op": "test", "path": "/status/reservedFor/0/uid", "value": "g"}));
    // Until that has ended, no other one is released with the claim.
    refused.now += Duration::from_secs(2);
    assert_eq!(purposes(&mut refused, "a"), vec![], "another Pod takes it back");
    // It has ended with a write of another party.
    let group = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]);
    refused.claim("a", 95, &json!({"status": {"reservedFor": group}}));
    assert_eq!(purposes(&mut refused, "b"), out(2));

    let mut released = world("10");
    member(&mut released, "b", 2, &json!({"spec": {"schedulingGates": null}}));
    purposes(&mut released, "a");
    released.now += Duration::from_secs(2);
    assert_eq!(purposes(&mut released, "a"), vec![Purpose::Condition], "the other one may run");
    // It has ended.
    member(
        &mut released,
        "b",
        3,
        &json!({"spec": {"schedulingGates": null}, "status": {"phase": "Succeeded"}}),
    );
    assert_eq!(purposes(&mut released, "a"), out(1));
}

/// Whichever of them is looked at first.
#[test]
fn a_pod_without_room_leaves_the_claim_to_one_that_has_room() {
    let mut world = world("2");
    let large =
        json!([{"name": "main", "resources": {"requests": {"cpu": "9"}, "claims": [{"name": "gpu"}]}}]);
    member(&mut world, "a", 2, &json!({"spec": {"containers": large}}));
    assert_eq!(purposes(&mut world, "a"), vec![], "the others are looked at first");
    assert_eq!(purposes(&mut world, "b"), vec![Purpose::Nominate(Some("n".into()))]);
    world.now += Duration::from_mins(1);
    assert_eq!(purposes(&mut world, "a"), vec![Purpose::Condition], "it says that it has no room");
}

/// Pod `a` had room when Pod `b` had none.
#[test]
fn a_pod_is_not_released_with_a_claim_that_another_one_takes_back() {
    let mut world = world("2");
    let large =
        json!([{"name": "main", "resources": {"requests": {"cpu": "9"}, "claims": [{"name": "gpu"}]}}]);
    member(&mut world, "b", 2, &json!({"spec": {"containers": large}}));
    purposes(&mut world, "b");
    world.now += Duration::from_secs(2);
    assert_eq!(purposes(&mut world, "b").last(), Some(&Purpose::TakeOut("a-claim".into())));
    assert_eq!(purposes(&mut world, "a"), vec![], "the answer is on its way");
}
