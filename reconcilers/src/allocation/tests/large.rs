//! Claims whose requests are too long to keep.

use dragoman_machinery::write::Action;
use dragoman_objects::{Pod, ResourceClaim};
use serde_json::{Value, json};

use super::passes::{World, no_answers};
use super::{applied, claim, cluster, comes, key, pod};
use crate::allocation::large::READ;
use crate::allocation::look::Begun;

/// A claim with parameters of this length for its driver.
fn with_parameters(number: usize, bytes: usize) -> Value {
    let mut claim = claim(number, &json!({}));
    claim["spec"]["devices"]["config"] =
        json!([{"opaque": {"driver": "d", "parameters": {"text": "x".repeat(bytes)}}}]);
    claim
}

fn read(claim: &Value) -> ResourceClaim {
    serde_json::from_value(claim.clone()).expect("a claim")
}

/// The number of requests and configurations that the index keeps of claim 0, and whether they are in doubt.
fn kept(world: &World) -> (usize, usize, bool) {
    let devices = &world.index.snapshot.claim("claim-0").expect("it exists").devices;
    (devices.requests.len(), devices.config.len(), devices.unreadable.is_some())
}

fn lacks(world: &mut World, number: usize) -> bool {
    world.at(|look| matches!(look.begin(&key(number)), Begun::Lacks(_))).0
}

#[test]
fn long_requests_are_read_for_a_search_and_forgotten() {
    let mut world = World::of(cluster(1, 1));
    let long = with_parameters(0, 3_000);
    applied::<ResourceClaim>(&mut world.index, &long);
    applied::<Pod>(&mut world.index, &pod(0, "1"));
    assert_eq!(kept(&world), (0, 0, true));
    assert!(lacks(&mut world, 0));
    world.index.lend(&read(&long));
    world.index.lend(&read(&long));
    let mut again = long.clone();
    again["metadata"]["resourceVersion"] = json!("3");
    applied::<ResourceClaim>(&mut world.index, &again);
    assert_eq!(kept(&world), (1, 1, false), "a change in between takes nothing away");
    world.index.take_back(&"claim-0".into());
    assert_eq!(kept(&world), (1, 1, false), "another search uses them");
    let decided = world.look(0, no_answers()).expect("it is decided on");
    let (_, write) = decided.sent.last().expect("an allocation");
    let Action::Patch { operations, .. } = &write.action else { panic!("{write:?}") };
    let allocation = operations.iter().find(|of| of["path"] == "/status/allocation").expect("an allocation");
    let config = &allocation["value"]["devices"]["config"];
    assert_eq!(config[0]["opaque"], long["spec"]["devices"]["config"][0]["opaque"]);
    world.index.take_back(&"claim-0".into());
    assert_eq!(kept(&world), (0, 0, true));
}

#[test]
fn what_is_usual_is_kept() {
    let mut world = World::of(cluster(1, 1));
    applied::<ResourceClaim>(&mut world.index, &with_parameters(0, 1_000));
    applied::<Pod>(&mut world.index, &pod(0, "1"));
    assert_eq!(kept(&world), (1, 1, false));
    assert!(!lacks(&mut world, 0));
}

/// A search needs the requests of every claim at once.
#[test]
fn more_than_is_read_for_one_pod_is_said() {
    let mut world = World::of(cluster(1, 1));
    let long = with_parameters(0, READ);
    applied::<ResourceClaim>(&mut world.index, &long);
    applied::<Pod>(&mut world.index, &pod(0, "1"));
    let said = world.look(0, no_answers()).expect("it is told");
    let (_, write) = said.sent.last().expect("a verdict");
    let Action::Merge { annotations, .. } = &write.action else { panic!("{write:?}") };
    let verdict = annotations.iter().find_map(|(_, text)| text.as_deref()).expect("a verdict");
    assert!(verdict.contains("TooLong") && verdict.contains("for one Pod 4096 are read"), "{verdict}");
}

/// A Pod whose claim is read late, or by another search, is not decided on without its requests.
#[test]
fn nothing_is_allocated_for_requests_that_are_not_there() {
    let mut world = World::of(cluster(1, 1));
    comes(&mut world.index, 1, "1");
    let long = with_parameters(0, 3_000);
    applied::<ResourceClaim>(&mut world.index, &long);
    applied::<Pod>(&mut world.index, &pod(0, "1"));
    world.index.lend(&read(&long));
    let key = key(0);
    let (search, _) = world.at(|look| match look.begin(&key) {
        Begun::Search(search) => search,
        other => panic!("{other:?}"),
    });
    world.index.take_back(&"claim-0".into());
    assert!(matches!(world.searched(&search), crate::allocation::turns::Looked::Waits));
}

/// A Pod that names more claims than are read: `claim_lifecycle` makes none for it either.
#[test]
fn a_pod_with_too_many_entries_gets_nothing() {
    let mut world = World::of(cluster(1, 1));
    (0..257).for_each(|number| drop(applied::<ResourceClaim>(&mut world.index, &claim(number, &json!({})))));
    let mut many = pod(0, "1");
    let entry =
        |number: usize| json!({"name": format!("e{number}"), "resourceClaimName": format!("c-{number}")});
    many["spec"]["resourceClaims"] = (0..257).map(entry).collect();
    applied::<Pod>(&mut world.index, &many);
    assert!(world.look(0, no_answers()).is_none());
    many["spec"]["resourceClaims"].as_array_mut().expect("entries").pop();
    applied::<Pod>(&mut world.index, &many);
    assert!(world.look(0, no_answers()).is_some());
}
