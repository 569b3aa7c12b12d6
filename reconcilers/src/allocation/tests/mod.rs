//! Decisions on an index fed with ordinary API objects, and what they cost in a large cluster.

mod doubt;
mod held;
mod in_flight;
mod kept;
mod large;
mod near;
mod passes;
mod ranks;
mod sharers;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dragoman_allocator::Policy;
use dragoman_crds::{device_footprint::DeviceFootprint, driver_owner::DriverOwner};
use dragoman_machinery::controller::{Fed, ObjectKey};
use dragoman_machinery::kind::Watchable;
use dragoman_machinery::watch::decode_item;
use dragoman_objects::{DeviceClass, DeviceTaintRule, Node, Pod, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::decide::{Attempted, Decision, Question, Tried, decide, left_out};
use super::in_flight::InFlightAllocations;
use super::index::{Allocation, NamedClaim};
use super::rank::{Ranking, Tally};
use super::shapes::Around;
use dragoman_cluster::placement::SchedulingConstraints;

/// Devices of a node, each of which takes three of its 26 cpus: kube-scheduler alone would fill all eight.
const DEVICES: usize = 8;
/// The Pods of one device that have room on a node.
pub(super) const ROOM: usize = 8;
const DRIVER: &str = "gpu.example.com";

pub(super) fn applied<T: Watchable>(index: &mut Allocation, object: &Value) -> Vec<ObjectKey>
where
    Allocation: Fed<T, Key = ObjectKey>,
{
    Fed::<T>::applied(index, &decode_item(object.to_string().as_bytes()).expect("metadata"))
}

pub(super) fn name(node: usize) -> String {
    format!("node-{node:05}")
}

fn node(number: usize, cpu: &str) -> Value {
    let allocatable = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
    json!({"metadata": {"name": name(number), "uid": name(number), "resourceVersion": "1"}, "status": {"allocatable": allocatable}})
}

fn slice(number: usize) -> Value {
    let devices: Vec<Value> = (0..DEVICES).map(|device| json!({"name": format!("gpu-{device}")})).collect();
    json!({"metadata": {"name": name(number), "uid": format!("slice-{number}"), "resourceVersion": "1"},
        "spec": {"driver": DRIVER, "nodeName": name(number), "devices": devices,
            "pool": {"name": name(number), "generation": 1, "resourceSliceCount": 1}}})
}

pub(super) fn claim(number: usize, status: &Value) -> Value {
    json!({"metadata": {"namespace": "ns", "name": format!("c-{number}"), "uid": format!("claim-{number}"),
            "resourceVersion": "2", "labels": {"dragoman.dev/allocator": "dragoman"}},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly":
            {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}},
        "status": status})
}

pub(super) fn pod(number: usize, cpu: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": format!("p-{number}"), "uid": format!("pod-{number}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulingGates": [{"name": "dragoman.dev/claims"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": format!("c-{number}")}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}, "claims": [{"name": "gpu"}]}}]}})
}

/// Nodes with devices, of which each takes `cores` cpus.
pub(super) fn cluster(nodes: usize, cores: usize) -> Allocation {
    let mut index = Allocation::default();
    let class = json!({"metadata": {"name": "gpu", "uid": "class", "resourceVersion": "1"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]}});
    applied::<DeviceClass>(&mut index, &class);
    let footprint = json!({"metadata": {"name": "cores", "uid": "cores", "resourceVersion": "1"},
        "spec": {"driver": DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": cores.to_string()}}}}});
    if cores > 0 {
        applied::<DeviceFootprint>(&mut index, &footprint);
    }
    for number in 0..nodes {
        applied::<Node>(&mut index, &node(number, "26"));
        applied::<ResourceSlice>(&mut index, &slice(number));
    }
    index
}

/// Lets a Pod with a claim come.
pub(super) fn comes(index: &mut Allocation, number: usize, cpu: &str) {
    applied::<ResourceClaim>(index, &claim(number, &json!({})));
    applied::<Pod>(index, &pod(number, cpu));
}

pub(super) fn key(number: usize) -> ObjectKey {
    ObjectKey { namespace: "ns".into(), name: format!("p-{number}").into() }
}

/// Decides about a Pod; returns the decision or why there is none.
pub(super) fn decided(
    index: &mut Allocation,
    decided: &InFlightAllocations,
    number: usize,
) -> Result<Decision, Vec<String>> {
    let mut tried = Tried::default();
    loop {
        match turn(index, decided, number, &mut tried) {
            Attempted::Decided(decision) => return Ok(decision),
            Attempted::Refused(why) => return Err(why),
            Attempted::More => {}
            Attempted::Aside(long) => panic!("{long:?}"),
        }
    }
}

/// Takes a turn of a Pod.
fn turn(
    index: &mut Allocation,
    decided: &InFlightAllocations,
    number: usize,
    tried: &mut Tried,
) -> Attempted {
    let key = key(number);
    let (_, pod) = index.pod(&key).expect("it waits");
    let claims = index.claims_of("ns", &pod).expect("claims");
    let claims =
        claims.iter().filter_map(|NamedClaim { uid, .. }| index.snapshot.claim(uid).cloned()).collect();
    let question = Question::new(&key, &pod, claims, index, decided);
    decide(&question, index, decided, &BTreeSet::new(), Policy::Pack, tried, &mut || "share".into())
}

/// A long search goes on aside, without the index. Its result counts if nothing has changed, and its
/// evaluations are remembered in any case.
#[tokio::test]
async fn long_searches_go_on_aside() {
    let limit = std::time::Duration::from_mins(1);
    let (mut index, mut given) = (cluster(1, 3), InFlightAllocations::default());
    comes(&mut index, 0, "1");
    for number in [1, 2] {
        let mut dear = claim(number, &json!({}));
        let loops = format!("lists.range(900).all(x, x + {number} >= 0)");
        dear["spec"]["devices"]["requests"][0]["exactly"]["selectors"] =
            json!([{"cel": {"expression": loops}}]);
        applied::<ResourceClaim>(&mut index, &dear);
        applied::<Pod>(&mut index, &pod(number, "1"));
    }
    let mut tried = Tried::default();
    let Attempted::Aside(long) = turn(&mut index, &given, 1, &mut tried) else { panic!("it is costly") };
    tried.ended = Some(long.run(limit).await);
    let Attempted::Decided(decision) = turn(&mut index, &given, 1, &mut tried) else {
        panic!("nothing has changed")
    };
    let claims = index.claims_of("ns", &index.pod(&key(1)).expect("it waits").1).expect("claims");
    let mut tried = Tried::default();
    let Attempted::Aside(long) = turn(&mut index, &given, 2, &mut tried) else { panic!("it is costly") };
    given.put(&key(1), &"pod-1".into(), &claims, &decision);
    tried.ended = Some(long.run(limit).await);
    let Attempted::Decided(other) = turn(&mut index, &given, 2, &mut tried) else {
        panic!("it is remembered")
    };
    let device = |decision: &Decision| decision.allocations[0].1.devices.results[0].device.clone();
    assert_ne!(device(&other), device(&decision), "it was given while the search was aside");
}

/// The rest that the leader before began goes on, and the next one is longer. No verdict makes a Pod rest for ever.
#[test]
fn a_rest_goes_on_across_leaders() {
    let (key, mut decided, began) = (key(0), InFlightAllocations::default(), tokio::time::Instant::now());
    let (ms, at) = (Duration::from_millis, |seconds| began + Duration::from_secs(seconds));
    decided.rests_on(&key, ms(4_000), ms(3_000), at(11));
    assert_eq!(decided.rests(&key, at(11)), Some(ms(3_000)));
    decided.rests_on(&key, ms(60_000), ms(60_000), at(20));
    assert_eq!(decided.rests(&key, at(20)), None, "what this leader knows counts");
    assert_eq!(decided.keeps_part(&key, at(19)), Some(ms(2_000)));
    decided.rests_again(&key, at(20), 0.0);
    assert_eq!(decided.rests(&key, at(20)), Some(ms(8_000)));
    assert_eq!(decided.keeps_part(&key, at(21)), None, "a rest keeps no part of the devices longer");
    let mut other = InFlightAllocations::default();
    other.rests_on(&key, ms(60_000), ms(0), at(20));
    assert_eq!(other.rests(&key, at(20)), None, "it is over");
    other.rests_again(&key, at(20), 0.0);
    assert_eq!(other.rests(&key, at(20)), Some(ms(60_000)), "the next one is as long");
}

/// A search that is given no time comes to no end, and says whether it comes further the next time.
#[tokio::test]
async fn a_search_without_time_comes_further_as_long_as_it_evaluates() {
    let mut index = cluster(1, 3);
    let mut dear = claim(0, &json!({}));
    let loops = "lists.range(900).all(x, x >= 0)";
    dear["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = json!([{"cel": {"expression": loops}}]);
    applied::<ResourceClaim>(&mut index, &dear);
    applied::<Pod>(&mut index, &pod(0, "1"));
    let mut tried = Tried::default();
    let Attempted::Aside(long) = turn(&mut index, &InFlightAllocations::default(), 0, &mut tried) else {
        panic!("it is costly")
    };
    let ended = long.run(std::time::Duration::ZERO).await;
    assert!(!ended.comes_further(), "nothing was evaluated");
    tried.ended = Some(ended);
    let Attempted::Refused(why) = turn(&mut index, &InFlightAllocations::default(), 0, &mut tried) else {
        panic!("it is given up")
    };
    assert_eq!(why, ["node-00000: the search for devices was given up: it is too expensive"]);
}

/// Writes a decision as the API server would show it, with the Pod on its node.
pub(super) fn shown(index: &mut Allocation, number: usize, decision: &Decision, cpu: &str) {
    let (_, devices) = decision.allocations.first().expect("a claim");
    let status = json!({"allocation": devices,
        "reservedFor": [{"resource": "pods", "name": format!("p-{number}"), "uid": format!("pod-{number}")}]});
    let mut claim = claim(number, &status);
    claim["metadata"]["resourceVersion"] = json!("3");
    applied::<ResourceClaim>(index, &claim);
    let mut pod = pod(number, cpu);
    pod["spec"]["nodeName"] = json!(&*decision.node);
    pod["spec"]["schedulingGates"] = Value::Null;
    pod["metadata"]["resourceVersion"] = json!("2");
    applied::<Pod>(index, &pod);
}

#[test]
fn cpu_is_not_promised_beyond_what_a_node_has() {
    // Eight devices of five cpus and a Pod of one on 26 cpus: four have room.
    let mut index = cluster(1, 5);
    let mut in_flight = InFlightAllocations::default();
    for number in 0..5 {
        comes(&mut index, number, "1");
        let outcome = decided(&mut index, &in_flight, number);
        if number < 4 {
            let decision = outcome.expect("there is room");
            let (_, pod) = index.pod(&key(number)).expect("it waits");
            let claims = index.claims_of("ns", &pod).expect("claims");
            // Two are in flight, which the index does not show.
            if number < 2 {
                in_flight.put(&key(number), &"uid".into(), &claims, &decision);
            } else {
                shown(&mut index, number, &decision, "1");
            }
        } else {
            let why = outcome.expect_err("the node is full");
            assert_eq!(why, ["node-00000: 4 of cpu is missing (6 needed, 2 of 26 left)"]);
        }
    }
}

#[test]
fn tenants_read_no_name_of_others() {
    let mut index = cluster(1, 1);
    for number in 0..DEVICES {
        comes(&mut index, number, "0");
        let decision =
            decided(&mut index, &InFlightAllocations::default(), number).expect("there is a device");
        shown(&mut index, number, &decision, "0");
    }
    comes(&mut index, DEVICES, "0");
    let why =
        decided(&mut index, &InFlightAllocations::default(), DEVICES).expect_err("there is none").concat();
    let expected = "node-00000: request gpu of claim 1 wants 1 device, 0 suitable; all 8 devices: ";
    let rest = why.strip_prefix(expected).unwrap_or_else(|| panic!("{why}"));
    assert!(!rest.contains("c-") && !rest.contains("ns/"), "{rest}");
}

#[test]
fn large_verdicts_are_not_kept() {
    let mut index = cluster(1, 1);
    let mut kept = |length: usize| {
        let verdict = json!({"reason": "NoNode", "message": "m".repeat(length), "nodes": 1, "time": ""});
        let mut claim = claim(0, &json!({}));
        claim["metadata"]["resourceVersion"] = json!(length.to_string());
        claim["metadata"]["annotations"] = json!({"dragoman.dev/verdict": verdict.to_string()});
        applied::<ResourceClaim>(&mut index, &claim);
        applied::<Pod>(&mut index, &pod(0, "1"));
        let (_, pod) = index.pod(&key(0)).expect("it waits");
        let claims = index.claims_of("ns", &pod).expect("claims");
        claims.first().expect("a claim").facts.verdict.clone()
    };
    assert_eq!(kept(100).map(|verdict| verdict.message.len()), Some(100));
    assert_eq!(kept(200_000), None);
}

#[test]
fn no_pod_waits_behind_one_of_another_namespace() {
    let mut index = cluster(1, 1);
    let shape = |index: &mut Allocation, namespace: &str| {
        let place = |mut object: Value| {
            object["metadata"]["namespace"] = json!(namespace);
            object["metadata"]["uid"] = json!(format!("{namespace}-{}", object["metadata"]["name"]));
            object
        };
        applied::<ResourceClaim>(index, &place(claim(0, &json!({}))));
        applied::<Pod>(index, &place(pod(0, "1")));
        let key = ObjectKey { namespace: namespace.into(), name: "p-0".into() };
        let (_, pod) = index.pod(&key).expect("it waits");
        let claims = index.claims_of(namespace, &pod).expect("claims");
        let claims =
            claims.iter().filter_map(|NamedClaim { uid, .. }| index.snapshot.claim(uid).cloned()).collect();
        Question::new(&key, &pod, claims, index, &InFlightAllocations::default()).equivalence_class()
    };
    let one = shape(&mut index, "one");
    assert_eq!(one, shape(&mut index, "one"));
    assert_ne!(one, shape(&mut index, "two"));
}

/// Fills a cluster. Every Pod gets the first node by name that has room, as if all were tried; a Pod that
/// no node takes costs an attempt on each, and the next one like it none.
#[test]
fn a_cluster_is_filled_in_the_plain_order() {
    let nodes: usize = std::env::var("NODES").ok().and_then(|nodes| nodes.parse().ok()).unwrap_or(40);
    let began = Instant::now();
    let mut index = cluster(nodes, 3);
    let listed = began.elapsed();
    let all = nodes * ROOM;
    let (mut deciding, none) = (std::time::Duration::ZERO, InFlightAllocations::default());
    for number in 0..all {
        comes(&mut index, number, "250m");
        let began = Instant::now();
        let decision = decided(&mut index, &none, number).expect("there is room");
        deciding += began.elapsed();
        assert_eq!(*decision.node, name(number / ROOM), "Pod {number}");
        shown(&mut index, number, &decision, "250m");
    }
    let rate = all as u128 * 1_000_000 / deciding.as_micros().max(1);
    println!("{nodes} nodes listed in {listed:?}; {all} Pods decided on in {deciding:?}, {rate} a second");
    // Full: the first one that waits learns it from every node, the others from the first one.
    let mut each = Vec::new();
    for number in all..all + 3 {
        comes(&mut index, number, "250m");
        let began = Instant::now();
        let why = decided(&mut index, &none, number).expect_err("it is full");
        each.push(began.elapsed());
        assert!(why.concat().contains("all 8 devices"), "{why:?}");
    }
    println!("a Pod in vain: {each:?}");
    // A node changes: it alone is tried.
    applied::<Node>(&mut index, &node(nodes / 2, "64"));
    let shape = {
        let (_, pod) = index.pod(&key(all)).expect("it waits");
        let claims = index.claims_of("ns", &pod).expect("claims");
        let claims =
            claims.iter().filter_map(|NamedClaim { uid, .. }| index.snapshot.claim(uid).cloned()).collect();
        Question::new(&key(all), &pod, claims, &index, &none).equivalence_class()
    };
    let (pod, flying) = (SchedulingConstraints::default(), Tally::default());
    let ranking = Ranking { pod: &pod, drivers: None, flying: &flying, policy: Policy::Pack };
    let (open, more) = index.candidates(shape, ranking, &BTreeSet::new(), Around::Nothing);
    assert_eq!((open.concat(), more), (name(nodes / 2), false));
}

/// A rejection without a node says nothing about any node: the Pod rests, like a Pod whose devices another
/// party has taken.
#[test]
fn a_rejection_without_a_node_leaves_no_node_out() {
    let rejected = |node: &str| {
        let said = json!([{"node": node, "reason": "x", "revision": 1, "time": "2026-01-01T00:00:00Z"}]);
        json!({"annotations": {"dragoman.dev/rejections": said.to_string()}})
    };
    let at: jiff::Timestamp = "2026-01-01T00:00:01Z".parse().expect("a time");
    for (node, nodes) in [("n-0", 1), ("", 0)] {
        let (mut index, mut claim) = (cluster(1, 1), claim(0, &json!({})));
        claim["metadata"]["annotations"] = rejected(node)["annotations"].clone();
        applied::<ResourceClaim>(&mut index, &claim);
        applied::<Pod>(&mut index, &pod(0, "1"));
        let (_, pod) = index.pod(&key(0)).expect("a Pod");
        let claims = index.claims_of(&key(0).namespace, &pod).expect("its claim");
        let (refused, again) = left_out(&claims, at);
        assert_eq!((refused.len(), again), (nodes, Some(Duration::from_secs(9))));
        let before = at - Duration::from_mins(1);
        let (refused, again) = left_out(&claims, before);
        assert_eq!(
            (refused.len(), again),
            (nodes, Some(Duration::from_secs(10))),
            "of a clock that goes fast"
        );
    }
}

#[test]
fn devices_are_given_back_after_a_while_and_taken_again_ever_later() {
    let (mut decided, began) = (InFlightAllocations::default(), tokio::time::Instant::now());
    let ms = Duration::from_millis;
    assert_eq!(decided.keeps_part(&key(0), began), Some(ms(2_000)));
    assert_eq!(decided.keeps_part(&key(0), began + ms(1_500)), Some(ms(500)));
    assert_eq!(decided.keeps_part(&key(0), began + ms(2_000)), None);
    let mut now = began + ms(2_000);
    let mut rests = Vec::new();
    for _ in 0..8 {
        decided.gave_back(&key(0), now, 0.0);
        let rest = decided.rests(&key(0), now).expect("it rests");
        rests.push(rest.as_millis());
        now += rest;
        assert_eq!(decided.rests(&key(0), now), None);
    }
    assert_eq!(rests, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    assert_eq!(decided.keeps_part(&key(0), now), Some(ms(2_000)), "from the beginning");
    decided.is_rested(&key(0));
    decided.gave_back(&key(0), now, 0.5);
    assert_eq!(decided.rests(&key(0), now), Some(ms(1_500)));
}

fn owner(driver: &str, account: &str) -> Value {
    json!({"metadata": {"name": driver, "uid": "owner", "resourceVersion": "1"},
        "spec": {"owners": [{"namespace": "kube-system", "name": account}]}})
}

#[test]
fn devices_of_a_driver_with_other_owners_are_left_out() {
    let mut index = cluster(1, 3);
    comes(&mut index, 0, "1");
    applied::<DriverOwner>(&mut index, &owner(DRIVER, "example"));
    assert!(
        decided(&mut index, &InFlightAllocations::default(), 0).is_ok(),
        "the API server was not asked yet"
    );
    index.is_user("system:serviceaccount:kube-system:dragoman-allocator".into());
    assert!(decided(&mut index, &InFlightAllocations::default(), 0).is_err());
    assert!(index.left_out().is_some_and(|why| why.contains(DRIVER) && why.contains("dragoman-allocator")));
    applied::<DriverOwner>(&mut index, &owner("other.example.com", "example"));
    applied::<DriverOwner>(&mut index, &owner(DRIVER, "dragoman-allocator"));
    assert!(decided(&mut index, &InFlightAllocations::default(), 0).is_ok());
    assert_eq!(index.left_out(), None, "no device of the other driver is there");
    applied::<DriverOwner>(
        &mut index,
        &json!({"metadata": owner(DRIVER, "")["metadata"], "spec": {"owners": "?"}}),
    );
    assert!(
        decided(&mut index, &InFlightAllocations::default(), 0).is_err(),
        "one that cannot be read names no owner"
    );
    let gone = decode_item::<DriverOwner>(owner(DRIVER, "").to_string().as_bytes()).expect("metadata");
    Fed::<DriverOwner>::deleted(&mut index, gone.meta());
    assert!(decided(&mut index, &InFlightAllocations::default(), 0).is_ok());
}

/// A slice of one node whose devices take so many cpus each.
fn priced(cores: &[u32]) -> Value {
    let mut slice = slice(0);
    let device = |(number, cores): (usize, &u32)| {
        json!({"name": format!("gpu-{number}"),
            "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": cores.to_string()}}}})
    };
    slice["spec"]["devices"] = cores.iter().enumerate().map(device).collect();
    slice
}

fn given(index: &mut Allocation, count: usize) -> Result<Vec<String>, Vec<String>> {
    let mut claim = claim(0, &json!({}));
    claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(count);
    applied::<ResourceClaim>(index, &claim);
    applied::<Pod>(index, &pod(0, "1"));
    let decision = decided(index, &InFlightAllocations::default(), 0)?;
    let results = decision.allocations.iter().flat_map(|(_, devices)| &devices.devices.results);
    Ok(results.map(|result| result.device.to_string()).collect())
}

/// The API server has stored the compatibility groups of the newest generation: a gate that is off by default is on here. A device of
/// the generation before is published no more.
#[test]
fn fields_that_an_api_server_has_stored_were_served() {
    let mut index = cluster(1, 0);
    comes(&mut index, 0, "1");
    let mut newest = slice(0);
    newest["metadata"]["name"] = json!("newest");
    newest["spec"]["pool"]["generation"] = json!(2);
    newest["spec"]["sharedCounters"] = json!([{"name": "set", "counters": {"c": {"value": "4"}}}]);
    newest["spec"]["devices"] = json!([{"name": "grouped", "consumesCounters": [
        {"counterSet": "set", "counters": {"c": {"value": "1"}}, "compatibilityGroups": ["one"]}]}]);
    applied::<ResourceSlice>(&mut index, &newest);
    assert_eq!(given(&mut index, 1), Ok(vec!["grouped".to_owned()]));
}

#[test]
fn devices_are_found_for_which_the_node_has_room() {
    let mut index = cluster(1, 0);
    applied::<ResourceSlice>(&mut index, &priced(&[30, 1]));
    assert_eq!(given(&mut index, 1), Ok(vec!["gpu-1".to_owned()]), "the node has 26 cpus");
    applied::<ResourceSlice>(&mut index, &priced(&[20, 20, 20, 5, 5]));
    assert_eq!(given(&mut index, 2), Ok(vec!["gpu-0".to_owned(), "gpu-3".to_owned()]));
    assert_eq!(
        given(&mut index, 3).map_err(|why| why.join("; ")),
        Err("node-00000: the node is too small: cpu (it has 26)".to_owned())
    );
    let many: Vec<u32> = std::iter::repeat_n(9, 40).chain([1, 1, 1]).collect();
    applied::<ResourceSlice>(&mut index, &priced(&many));
    assert_eq!(
        given(&mut index, 4),
        Ok(["gpu-0", "gpu-1", "gpu-40", "gpu-41"].map(str::to_owned).to_vec()),
        "dear devices of one kind are tried once"
    );
}

/// The amounts that an unreadable claim takes from the node of its Pod are unknown to the allocator, as they
/// are to the operator.
#[test]
fn a_node_with_a_pod_whose_claim_does_not_decode_takes_no_other() {
    for status in [json!({"allocation": {"devices": {"results": {"no": "list"}}}}), json!("no object")] {
        let mut index = cluster(1, 3);
        let mut bound = pod(7, "1");
        bound["spec"]["nodeName"] = json!(name(0));
        applied::<ResourceClaim>(&mut index, &claim(7, &status));
        applied::<Pod>(&mut index, &bound);
        comes(&mut index, 0, "1");
        let why = decided(&mut index, &InFlightAllocations::default(), 0).map(drop).unwrap_err().join("; ");
        assert!(why.contains("c-7") || why.contains("not known"), "{why}");
        applied::<ResourceClaim>(&mut index, &claim(7, &json!({})));
        assert!(decided(&mut index, &InFlightAllocations::default(), 0).is_ok(), "it is readable again");
    }
}
