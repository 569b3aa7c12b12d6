//! Devices that do not lead to a release (P7 in docs/protocol.md).

use std::time::Duration;

use dragoman_machinery::api::Live;
use dragoman_machinery::controller::Outcome;
use dragoman_machinery::refusal::Refusal;

use super::passes::{Answers, Carried, World, held, live, no_answers};
use super::*;
use crate::allocation::pass::{Notice, Purpose};

const WHILE: Duration = Duration::from_mins(5);

/// Looks at the Pod 0, whose gate is closed where the API server is asked.
fn looked(world: &mut World) -> Carried {
    world.look(0, (Answers::new(), [Ok(live(0, "pod-0", true))].into())).expect("it has devices")
}

/// A Pod with another claim, named by the spec or made from a template.
fn with_claim(name: Option<&str>) -> Value {
    let mut pod = pod(0, "1");
    let entry = match name {
        Some(name) => json!({"name": "other", "resourceClaimName": name}),
        None => json!({"name": "other", "resourceClaimTemplateName": "t"}),
    };
    pod["spec"]["resourceClaims"].as_array_mut().expect("entries").push(entry);
    pod
}

/// One claim has devices; the other was deleted, or was never made. Whether it comes is not for the allocator to know.
#[test]
fn a_pod_that_lacks_a_claim_keeps_its_devices_for_a_while() {
    for other in [Some("gone"), None] {
        let mut world = World::of(cluster(1, 1));
        applied::<ResourceClaim>(&mut world.index, &held(0, &json!({})));
        applied::<Pod>(&mut world.index, &with_claim(other));
        assert_eq!(looked(&mut world).then, Outcome::After(WHILE));
        world.now += WHILE;
        let alone = looked(&mut world);
        assert_eq!((alone.purposes(), alone.then), (vec![], Outcome::After(Duration::from_secs(10))));
        comes(&mut world.index, 1, "99");
        world.look(1, no_answers()).expect("it is refused");
        let back = looked(&mut world);
        assert_eq!((back.purposes(), back.said), (vec![Purpose::GiveBack], vec![Notice::GaveBack]));
    }
}

/// A Pod without the gate may run with what it has.
#[test]
fn a_pod_without_the_gate_gives_nothing_back() {
    let mut world = World::of(cluster(1, 1));
    applied::<ResourceClaim>(&mut world.index, &held(0, &json!({})));
    let mut open = with_claim(Some("gone"));
    open["spec"]["schedulingGates"] = Value::Null;
    applied::<Pod>(&mut world.index, &open);
    comes(&mut world.index, 1, "99");
    world.look(1, no_answers()).expect("it is refused");
    world.now += WHILE;
    assert!(world.look(0, no_answers()).is_none());
}

/// An allocator before ours in the order of the Pod has lost its claim, while ours has one of two.
#[test]
fn a_pod_that_waits_for_another_allocator_keeps_a_part_for_a_while() {
    let mut world = World::of(cluster(1, 1));
    applied::<ResourceClaim>(&mut world.index, &held(0, &json!({})));
    let mut theirs = claim(7, &json!({}));
    theirs["metadata"]["labels"] = json!({"dragoman.dev/allocator": "another"});
    applied::<ResourceClaim>(&mut world.index, &theirs);
    applied::<ResourceClaim>(&mut world.index, &claim(8, &json!({})));
    let mut pod = pod(0, "1");
    let entries = ["c-7", "c-0", "c-8"].map(|name| json!({"name": name, "resourceClaimName": name}));
    pod["spec"]["resourceClaims"] = json!(entries);
    applied::<Pod>(&mut world.index, &pod);
    assert_eq!(looked(&mut world).then, Outcome::After(WHILE));
    world.now += WHILE;
    comes(&mut world.index, 1, "99");
    world.look(1, no_answers()).expect("it is refused");
    assert_eq!(looked(&mut world).purposes(), vec![Purpose::GiveBack]);
}

/// The claim of another allocator is lost again and again: the devices are kept twice as long each time.
#[test]
fn a_pod_that_gave_back_keeps_its_devices_longer_the_next_time() {
    let mut world = World::of(cluster(1, 1));
    let mut theirs = claim(7, &json!({}));
    theirs["metadata"]["labels"] = json!({"dragoman.dev/allocator": "another"});
    applied::<ResourceClaim>(&mut world.index, &theirs);
    let mut pod = pod(0, "1");
    pod["spec"]["resourceClaims"] =
        json!(["c-7", "c-0"].map(|name| json!({"name": name, "resourceClaimName": name})));
    applied::<Pod>(&mut world.index, &pod);
    comes(&mut world.index, 1, "99");
    world.look(1, no_answers()).expect("it is refused");
    let versioned = |mut claim: Value, version: u32| {
        claim["metadata"]["resourceVersion"] = json!(version.to_string());
        claim
    };
    let keeps = |world: &mut World, version| {
        applied::<ResourceClaim>(&mut world.index, &versioned(held(0, &json!({})), version));
        let Outcome::After(kept) = looked(world).then else { panic!("it keeps them") };
        world.now += kept;
        assert_eq!(looked(world).purposes(), vec![Purpose::GiveBack]);
        applied::<ResourceClaim>(&mut world.index, &versioned(claim(0, &json!({})), version + 1));
        world.look(0, no_answers());
        kept
    };
    assert_eq!((keeps(&mut world, 10), keeps(&mut world, 20)), (WHILE, 2 * WHILE));
}

/// A part of the devices is given back after two seconds, where no node takes the Pod for the rest.
#[test]
fn a_part_without_the_rest_is_given_back_after_two_seconds() {
    let mut world = World::of(cluster(1, 1));
    applied::<ResourceClaim>(&mut world.index, &held(0, &json!({})));
    applied::<ResourceClaim>(&mut world.index, &claim(8, &json!({})));
    let mut both = pod(0, "1");
    both["spec"]["resourceClaims"] =
        json!(["c-0", "c-8"].map(|name| json!({"name": name, "resourceClaimName": name})));
    both["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "99"});
    applied::<Pod>(&mut world.index, &both);
    let kept = looked(&mut world);
    assert!(!kept.purposes().contains(&Purpose::GiveBack), "{:?}", kept.purposes());
    assert!(matches!(kept.then, Outcome::After(left) if left <= Duration::from_secs(2)), "{:?}", kept.then);
    world.now += Duration::from_secs(2);
    assert_eq!(looked(&mut world).purposes(), vec![Purpose::GiveBack]);
}

/// A Pod that holds its devices behind a closed gate: others that wait for devices get them after a while.
#[test]
fn devices_behind_a_gate_go_back_once_others_wait() {
    let held_back = json!({"annotations": {"release-gates.dragoman.dev/x": "closed"}});
    let mut world = World::of(cluster(1, 1));
    applied::<ResourceClaim>(&mut world.index, &held(0, &held_back));
    applied::<Pod>(&mut world.index, &pod(0, "1"));
    let keeps = |world: &mut World| world.look(0, no_answers()).expect("it has its devices");
    assert_eq!(keeps(&mut world).then, Outcome::After(Duration::from_mins(5)));
    world.now += Duration::from_mins(5);
    let alone = keeps(&mut world);
    assert_eq!((alone.purposes(), alone.then), (vec![], Outcome::After(Duration::from_secs(10))));
    // A Pod that no node takes waits for devices.
    comes(&mut world.index, 1, "99");
    let waits = world.look(1, no_answers()).expect("it is refused");
    assert_eq!(waits.purposes(), vec![Purpose::Verdict]);
    // Its gate may have been opened meanwhile: the API server is asked.
    for answer in [live(0, "pod-0", false), live(0, "another", true), Live::NotFound] {
        let opened = world.look(0, (Answers::new(), [Ok(answer)].into())).expect("it has its devices");
        assert_eq!((opened.reads, opened.purposes(), opened.said), (1, vec![], vec![]));
    }
    // What the API server refuses is no verdict about a claim.
    let no = Refusal::Rbac("no".to_owned());
    let refused = world.look(0, ([Err(no)].into(), [Ok(live(0, "pod-0", true))].into())).expect("devices");
    assert_eq!((refused.purposes(), refused.said), (vec![Purpose::GiveBack], vec![]));
    let back = world.look(0, (Answers::new(), [Ok(live(0, "pod-0", true))].into())).expect("devices");
    assert_eq!((back.purposes(), back.said), (vec![Purpose::GiveBack], vec![Notice::GaveBack]));
    let silent = Err(Refusal::Transient("silent".to_owned()));
    world.now += Duration::from_hours(3);
    world.look(0, no_answers());
    world.now += Duration::from_hours(3);
    let silent = world.look(0, (Answers::new(), [silent].into())).expect("devices");
    assert!(silent.purposes().is_empty() && matches!(silent.then, Outcome::Failed(_)));
}

/// With a Pod that has its devices the minimum of its gang may be there.
#[test]
fn a_pod_that_has_its_devices_wakes_its_group_once() {
    let mut world = World::of(cluster(1, 1));
    for number in [0, 1] {
        applied::<ResourceClaim>(&mut world.index, &held(number, &json!({})));
        let mut member = pod(number, "1");
        member["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        applied::<Pod>(&mut world.index, &member);
    }
    let first = world.look(0, no_answers()).expect("it has its devices");
    assert!(first.woken.contains(&key(1)), "{:?}", first.woken);
    assert_eq!(world.decided.assumed.node_of(&key(0)).map(|node| &**node), Some("node-00000"));
    assert!(world.look(0, no_answers()).expect("it has its devices").woken.is_empty());
}

/// The claim whose gate is closed goes first: where the gate was opened meanwhile, the guard refuses that write, and the rest stays.
#[test]
fn the_claim_with_the_closed_gate_goes_back_first() {
    let mut world = World::of(cluster(1, 1));
    let closed = json!({"annotations": {"release-gates.dragoman.dev/x": "closed"}});
    let mut second = held(8, &closed);
    second["status"]["reservedFor"] = held(0, &json!({}))["status"]["reservedFor"].clone();
    second["status"]["allocation"]["devices"]["results"][0]["device"] = json!("gpu-1");
    applied::<ResourceClaim>(&mut world.index, &held(0, &json!({})));
    applied::<ResourceClaim>(&mut world.index, &second);
    let mut both = pod(0, "1");
    both["spec"]["resourceClaims"] =
        json!(["c-0", "c-8"].map(|name| json!({"name": name, "resourceClaimName": name})));
    applied::<Pod>(&mut world.index, &both);
    looked(&mut world);
    world.now += WHILE;
    comes(&mut world.index, 1, "99");
    world.look(1, no_answers()).expect("it is refused");
    let reads = [Ok(live(0, "pod-0", true)), Ok(live(0, "pod-0", true))];
    let back = world.look(0, (Answers::new(), reads.into())).expect("it has devices");
    let names: Vec<&str> = back.sent.iter().map(|(_, write)| &*write.name).collect();
    assert_eq!(names, ["c-8", "c-0"]);
}
