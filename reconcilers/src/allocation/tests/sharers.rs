//! Pods that share a claim.

use dragoman_objects::{Pod, ResourceClaim};
use std::collections::VecDeque;
use std::time::Duration;

use dragoman_machinery::controller::{Fed, Outcome};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::watch::decode_item;
use dragoman_machinery::write::Action;
use serde_json::{Value, json};

use super::passes::{Carried, World, no_answers};
use super::{applied, claim, cluster, key, pod};
use crate::allocation::decide::Question;
use crate::allocation::pass::{Notice, Purpose};

/// A claim that has its device on the only node, with these consumers.
fn allocated(number: usize, consumers: &Value) -> Value {
    let result = json!({"request": "gpu", "driver": "gpu.example.com", "pool": "node-00000", "device": format!("gpu-{number}")});
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-00000"]}]});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}});
    let mut claim = claim(number, &json!({"allocation": allocation, "reservedFor": consumers}));
    claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    claim
}

/// A Pod that names claim 0, and these claims besides.
fn sharer(number: usize, cpu: &str, others: &[usize]) -> Value {
    let mut pod = pod(number, cpu);
    pod["spec"]["resourceClaims"][0]["resourceClaimName"] = json!("c-0");
    let entries = pod["spec"]["resourceClaims"].as_array_mut().expect("entries");
    entries.extend(
        others
            .iter()
            .map(|other| json!({"name": format!("n-{other}"), "resourceClaimName": format!("c-{other}")})),
    );
    pod
}

fn world() -> World {
    let mut index = cluster(1, 0);
    applied::<ResourceClaim>(
        &mut index,
        &allocated(0, &json!([{"resource": "pods", "name": "x", "uid": "x"}])),
    );
    World::of(index)
}

/// The Pods that a look has reserved claims for, in order.
fn reserved(outcome: &Carried) -> Vec<String> {
    let operations = outcome.sent.iter().flat_map(|(_, write)| match &write.action {
        Action::Patch { operations, .. } => operations.clone(),
        _ => Vec::new(),
    });
    operations.filter_map(|of| Some(of["value"]["name"].as_str()?.to_owned())).collect()
}

#[test]
fn pods_that_lack_one_reservation_get_it_in_one_write() {
    let mut world = world();
    applied::<ResourceClaim>(&mut world.index, &claim(7, &json!({})));
    applied::<ResourceClaim>(
        &mut world.index,
        &allocated(6, &json!([{"resource": "pods", "name": "p-2", "uid": "pod-2"}])),
    );
    for pod in [
        sharer(0, "1", &[]),
        sharer(1, "1", &[]),
        sharer(2, "1", &[6]),
        // It lacks another claim, too; it has no room; it has no gate.
        sharer(3, "1", &[7]),
        sharer(4, "99", &[]),
    ] {
        applied::<Pod>(&mut world.index, &pod);
    }
    let mut ungated = sharer(5, "1", &[]);
    ungated["spec"]["schedulingGates"] = json!([]);
    applied::<Pod>(&mut world.index, &ungated);
    let first = world.look(1, no_answers()).expect("it needs a reservation");
    assert_eq!(reserved(&first), ["p-1", "p-0", "p-2"]);
    assert_eq!(first.said.iter().filter(|said| **said == Notice::AllAllocated).count(), 3);
    // Their room is theirs: three of 26 cpus are taken.
    assert!([0, 1, 2].iter().all(|number| world.decided.assumed.node_of(&key(*number)).is_some()));
    // The watch has not brought it.
    let second = world.look(0, no_answers()).expect("it waits");
    assert_eq!((second.purposes(), second.then), (vec![], Outcome::After(Duration::from_secs(2))));
}

#[test]
fn a_pod_writes_once_the_write_of_another_has_ended() {
    let mut world = world();
    for number in 0..2 {
        // There is room for one of them: the other is not taken along.
        applied::<Pod>(&mut world.index, &sharer(number, "20", &[]));
    }
    let transient = ([Err(Refusal::Transient("lost".to_owned()))].into(), VecDeque::new());
    world.look(0, transient).expect("it needs a reservation");
    assert_eq!(world.look(1, no_answers()).expect("it waits").purposes(), vec![]);
    // The first Pod is gone.
    let mut gone = sharer(0, "20", &[]);
    gone["status"] = json!({"phase": "Succeeded"});
    gone["metadata"]["resourceVersion"] = json!("2");
    applied::<Pod>(&mut world.index, &gone);
    assert!(world.look(0, no_answers()).is_none());
    let second = world.look(1, no_answers()).expect("it has its turn");
    assert!(matches!(second.purposes()[..], [Purpose::Allocate(..)]), "{:?}", second.purposes());
}

#[test]
fn one_write_reserves_a_claim_for_sixty_four_pods_and_the_one_that_writes() {
    let mut world = world();
    for number in 0..70 {
        applied::<Pod>(&mut world.index, &sharer(number, "10m", &[]));
    }
    let first = world.look(0, no_answers()).expect("it needs a reservation");
    assert_eq!(reserved(&first).len(), 65);
}

/// The cost of one write is bounded, whatever a tenant makes: a Pod with many entries waits for its own turn.
#[test]
fn a_pod_with_many_entries_is_not_taken_along() {
    let mut world = world();
    for number in 1..8 {
        let reserved = json!([{"resource": "pods", "name": "p-1", "uid": "pod-1"},
            {"resource": "pods", "name": "p-2", "uid": "pod-2"}]);
        applied::<ResourceClaim>(&mut world.index, &allocated(number, &reserved));
    }
    applied::<Pod>(&mut world.index, &sharer(0, "1", &[]));
    let entries = |most: usize| (1..most).map(|entry| 1 + entry % 7).collect::<Vec<_>>();
    applied::<Pod>(&mut world.index, &sharer(1, "1", &entries(16)));
    applied::<Pod>(&mut world.index, &sharer(2, "1", &entries(17)));
    let first = world.look(0, no_answers()).expect("it needs a reservation");
    assert_eq!(reserved(&first), ["p-0", "p-1"]);
    let own = world.look(2, no_answers()).expect("it waits for the write");
    assert_eq!(own.then, Outcome::After(Duration::from_secs(2)));
}

/// Two Pods that share a claim whose allocation was refused would each take room that the other one needs.
#[test]
fn a_pod_behind_another_takes_no_room_for_what_was_not_written() {
    let mut index = cluster(1, 0);
    applied::<ResourceClaim>(&mut index, &claim(0, &json!({})));
    let mut world = World::of(index);
    for number in 0..2 {
        applied::<Pod>(&mut world.index, &sharer(number, "1", &[]));
    }
    let refused = ([Ok(json!({})), Err(Refusal::NotFound)].into(), VecDeque::new());
    world.look(1, refused).expect("it needs a device");
    assert!(world.decided.assumed.node_of(&key(1)).is_some());
    // The Pod before it found no node.
    let (_, pod) = world.index.pod(&key(0)).expect("it waits");
    let known = world.index.snapshot.claim("claim-0").cloned().into_iter().collect();
    let shape = Question::new(&key(0), &pod, known, &world.index, &world.decided).equivalence_class();
    world.index.shapes.wait(shape, pod.queue_position(&key(0)));
    world.look(1, no_answers()).expect("it waits behind that one");
    assert_eq!(world.decided.assumed.node_of(&key(1)), None);
}

#[test]
fn a_pod_whose_claim_is_gone_takes_no_room() {
    let mut index = cluster(1, 0);
    applied::<ResourceClaim>(&mut index, &claim(0, &json!({})));
    let mut world = World::of(index);
    applied::<Pod>(&mut world.index, &sharer(0, "1", &[]));
    world.index.shapes.wait(7, world.index.pod(&key(0)).expect("it waits").1.queue_position(&key(0)));
    world.look(0, no_answers()).expect("it needs a device");
    world.index.shapes.wait(7, world.index.pod(&key(0)).expect("it waits").1.queue_position(&key(0)));
    assert!(world.decided.is_decided(&key(0)) && world.decided.assumed.node_of(&key(0)).is_some());
    // The author of the Pod names another claim for a moment: the write may have been done.
    let mut also = sharer(0, "1", &[7]);
    also["metadata"]["resourceVersion"] = json!("2");
    applied::<Pod>(&mut world.index, &also);
    assert!(world.look(0, no_answers()).is_none());
    assert!(world.decided.is_decided(&key(0)));
    let gone = decode_item::<ResourceClaim>(claim(0, &json!({})).to_string().as_bytes()).expect("metadata");
    let woken = Fed::<ResourceClaim>::deleted(&mut world.index, gone.meta());
    assert!(woken.contains(&key(0)), "{woken:?}");
    assert!(world.look(0, no_answers()).is_none());
    assert!(!world.decided.is_decided(&key(0)));
    assert_eq!(world.decided.assumed.node_of(&key(0)), None);
    assert_eq!(world.index.shapes.waiting(), 0, "others of its class do not wait behind it");
}

#[test]
fn a_claim_that_has_all_its_consumers_is_written_for_none() {
    let mut index = cluster(1, 0);
    let consumers: Vec<Value> = (0..255)
        .map(|of| json!({"resource": "pods", "name": format!("x-{of}"), "uid": format!("x-{of}")}))
        .collect();
    applied::<ResourceClaim>(&mut index, &allocated(0, &json!(consumers)));
    let mut world = World::of(index);
    for number in 0..2 {
        applied::<Pod>(&mut world.index, &sharer(number, "1", &[]));
    }
    let last = world.look(0, no_answers()).expect("there is a place");
    assert_eq!(reserved(&last), ["p-0"], "there is one place");
    let all = [consumers, vec![json!({"resource": "pods", "name": "p-0", "uid": "pod-0"})]].concat();
    let mut full = allocated(0, &json!(all));
    full["metadata"]["resourceVersion"] = json!("3");
    applied::<ResourceClaim>(&mut world.index, &full);
    let waits = world.look(1, no_answers()).expect("it waits");
    assert_eq!((waits.purposes(), waits.then), (vec![], Outcome::Done), "an event comes");
}
