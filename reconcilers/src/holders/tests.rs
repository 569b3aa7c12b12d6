//! Content of holder Pods, and the times of their changes.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::per_resource::{Sums, Units};
use dragoman_accounting::resource::Resource;
use dragoman_machinery::controller::{Fed, ObjectKey, Whole as _};
use dragoman_machinery::watch::decode_item;
use dragoman_machinery::write::{Action, Guard};
use dragoman_objects::{Node, Pod, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::index::{HolderFacts, Holders, is_holder};
use super::plan::{LINGER, Owner, Plan, Snapshot, create, names_of, nominate, plan, surplus};
use crate::cluster::Charged;
use crate::indexes::Indexes;

fn units(cpu: i64, memory: i64) -> Units {
    let mut units = Units::default();
    units.set(Resource::Cpu, cpu);
    units.set(Resource::Memory, memory);
    units
}

const MI: i64 = 1 << 20;

/// A holder of node `n` that is counted.
fn holder(name: &str, requests: Units) -> HolderFacts {
    let guard = Guard { uid: "u".to_owned(), resource_version: "1".to_owned() };
    HolderFacts {
        name: name.into(),
        node: "n".into(),
        guard,
        deleting: false,
        is_over: false,
        is_bound: false,
        is_nominated: true,
        seen_by: "first".into(),
        requests,
    }
}

const A: &str = "holder-n-a";
const B: &str = "holder-n-b";
/// Late enough for times before it.
static NOW: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_hours(1));

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn seen<'a>(required: Option<Units>, holders: &[&'a HolderFacts]) -> Snapshot<'a> {
    static OURS: LazyLock<BTreeSet<String>> = LazyLock::new(|| BTreeSet::from(["u".to_owned()]));
    let (holders, scheduler) = (holders.to_vec(), "first".into());
    Snapshot {
        has_node: true,
        required,
        is_uncertain: false,
        holders,
        idle: None,
        leaving: None,
        is_awaited: false,
        has_waiting: false,
        ours: &OURS,
        scheduler,
        made: None,
    }
}

fn planned(required: Option<Units>, holders: &[&HolderFacts]) -> Plan {
    plan("n", &seen(required, holders), *NOW)
}

fn idle_since(since: Instant, required: Option<Units>, holders: &[&HolderFacts]) -> Plan {
    plan("n", &Snapshot { idle: Some(since), ..seen(required, holders) }, *NOW)
}

#[test]
fn a_holder_is_made_when_claims_take_something_and_counts_once_it_is_nominated() {
    assert_eq!(planned(Some(units(0, 0)), &[]), Plan::Rest);
    assert_eq!(planned(None, &[]), Plan::Rest, "it is not known whether kube-scheduler sees it");
    // It keeps its QoS class: a request of nothing would be another one.
    let required = || Some(units(3_000, 0));
    assert_eq!(planned(required(), &[]), Plan::Create(A.to_owned(), units(3_000, 1)));
    assert_eq!(plan("n", &Snapshot { has_node: false, ..seen(required(), &[]) }, *NOW), Plan::Rest);
    let born = HolderFacts { is_nominated: false, ..holder(A, units(3_000, 1)) };
    assert!(!born.holds(&units(1, 0)));
    assert_eq!(planned(required(), &[&born]), Plan::Nominate(A.to_owned()));
    assert_eq!(planned(required(), &[&holder(A, units(3_000, 1))]), Plan::Rest);
}

/// kube-scheduler 1.36 forgets the nominations of Pods with gates when it is started anew.
#[test]
fn a_holder_is_nominated_anew_for_another_process_of_kube_scheduler() {
    let known = holder(A, units(3_000, 1));
    let other = Snapshot { scheduler: "second".into(), ..seen(Some(units(3_000, 0)), &[&known]) };
    assert_eq!(plan("n", &other, *NOW), Plan::Nominate(A.to_owned()));
    let unknown = Snapshot { scheduler: "second".into(), ..seen(None, &[&known]) };
    assert_eq!(
        plan("n", &unknown, *NOW),
        Plan::Nominate(A.to_owned()),
        "also while nothing is known of claims"
    );
    let Action::Apply { body, .. } = nominate("kube-system", &known, "second", "now").action else {
        panic!("apply")
    };
    assert_eq!(body["status"]["nominatedNodeName"], json!("n"));
    assert_eq!(body["status"]["conditions"][0]["message"], json!("second"));
}

/// A leader whose API server does not serve the devices for a moment knows less of what claims take, not that they take less.
#[test]
fn a_holder_stays_while_facts_are_not_known() {
    let (large, small) = (holder(A, units(3_000, 1)), holder(B, units(1_000, 1)));
    let uncertain = |required: i64, holders: &[&HolderFacts]| {
        let since = Some(*NOW - LINGER);
        let snapshot =
            Snapshot { is_uncertain: true, idle: since, ..seen(Some(units(required, 0)), holders) };
        plan("n", &snapshot, *NOW)
    };
    assert_eq!(uncertain(0, &[&large]), Plan::Rest);
    assert_eq!(uncertain(1_000, &[&large]), Plan::Rest);
    assert_eq!(uncertain(1_000, &[&large, &small]), Plan::Rest);
    assert_eq!(uncertain(4_000, &[&large]), Plan::Raise(A.to_owned(), units(4_000, 1)), "this is certain");
    assert_eq!(uncertain(4_000, &[]), Plan::Create(A.to_owned(), units(4_000, 1)));
}

/// The leader before may have seen nothing to hold any more, and its deletion may still be on its way.
#[test]
fn a_new_leader_writes_a_holder_before_pods_count_on_it() {
    let (known, none) = (holder(A, units(3_000, 1)), BTreeSet::new());
    let waits = || Snapshot { has_waiting: true, ..seen(Some(units(3_000, 0)), &[&known]) };
    assert_eq!(plan("n", &Snapshot { ours: &none, ..waits() }, *NOW), Plan::Nominate(A.to_owned()));
    assert_eq!(plan("n", &waits(), *NOW), Plan::Rest);
    let larger = holder(B, units(5_000, 1));
    let two = Snapshot { ours: &none, ..seen(Some(units(3_000, 0)), &[&known, &larger]) };
    assert_eq!(plan("n", &two, *NOW), Plan::Nominate(A.to_owned()), "before the other one goes");
    let more = Snapshot { has_waiting: true, ..seen(Some(units(4_000, 1)), &[&known]) };
    assert_eq!(plan("n", &more, *NOW), Plan::Raise(A.to_owned(), units(4_000, 1)), "a raise is such a write");
}

#[test]
fn a_holder_is_raised_at_once() {
    let known = holder(A, units(3_000, 5 * MI));
    // What is not more stays for now.
    assert_eq!(
        planned(Some(units(4_000, 2 * MI)), &[&known]),
        Plan::Raise(A.to_owned(), units(4_000, 5 * MI))
    );
    assert_eq!(planned(Some(units(3_000, 5 * MI)), &[&known]), Plan::Rest);
}

/// kube-scheduler looks at no waiting Pod again for a smaller request, and would bind Pods into the room of a holder that is
/// deleted first.
#[test]
fn a_holder_gives_way_to_a_smaller_one_that_counts_already() {
    let (known, required) = (holder(A, units(3_000, 5 * MI)), || Some(units(1_000, 5 * MI)));
    assert_eq!(idle_since(*NOW, required(), &[&known]), Plan::Wait(LINGER));
    let since = *NOW - LINGER;
    assert_eq!(idle_since(since, required(), &[&known]), Plan::Create(B.to_owned(), units(1_000, 5 * MI)));
    let born = HolderFacts { is_nominated: false, ..holder(B, units(1_000, 5 * MI)) };
    assert_eq!(idle_since(since, required(), &[&known, &born]), Plan::Nominate(B.to_owned()));
    let smaller = holder(B, units(1_000, 5 * MI));
    assert_eq!(idle_since(since, required(), &[&known, &smaller]), Plan::Delete(A.to_owned()));
    // The claims take more again meanwhile.
    assert_eq!(planned(Some(units(2_000, 0)), &[&known, &smaller]), Plan::Delete(B.to_owned()));
    // A Pod waits for the room.
    let awaited = Snapshot { idle: Some(*NOW), is_awaited: true, ..seen(required(), &[&known]) };
    assert_eq!(plan("n", &awaited, *NOW), Plan::Create(B.to_owned(), units(1_000, 5 * MI)));
}

#[test]
fn a_holder_of_nothing_is_deleted() {
    let known = holder(A, units(3_000, 5 * MI));
    assert_eq!(idle_since(*NOW - ms(1_000), Some(units(0, 0)), &[&known]), Plan::Wait(ms(9_000)));
    assert_eq!(idle_since(*NOW - LINGER, Some(units(0, 0)), &[&known]), Plan::Delete(A.to_owned()));
    assert_eq!(
        idle_since(*NOW - LINGER, None, &[&known]),
        Plan::Rest,
        "it is not known whether it is of use"
    );
    let gone = Snapshot { has_node: false, ..seen(None, &[&known]) };
    assert_eq!(plan("n", &gone, *NOW), Plan::Delete(A.to_owned()), "the node is gone");
}

/// Otherwise a smaller one would be made for ever.
#[test]
fn a_holder_that_requests_what_it_has_to_holds_nothing_too_much() {
    let surplus = |requests, required| {
        let mut counted = Sums::default();
        counted.add(&holder(A, requests).requests);
        surplus(&counted, &required)
    };
    assert_eq!(surplus(units(3_000, 1), units(3_000, 0)), units(0, 0), "the least of the other resource");
    assert_eq!(surplus(units(3_000, MI), units(2_000, MI)), units(1_000, 0));
    assert_eq!(surplus(units(3_000, 1), units(0, 0)), units(3_000, 1));
}

#[test]
fn a_holder_that_ended_is_made_again_ever_later() {
    let required = || Some(units(3_000, 0));
    let over = HolderFacts { is_over: true, ..holder(A, units(3_000, MI)) };
    assert_eq!(planned(required(), &[&over]), Plan::Delete(A.to_owned()));
    assert!(!over.holds(&units(1, 0)));
    let deleting = HolderFacts { deleting: true, ..holder(A, units(3_000, MI)) };
    assert_eq!(planned(required(), &[&deleting]), Plan::Create(B.to_owned(), units(3_000, 1)));
    assert!(!deleting.holds(&units(1, 0)));
    let again = |times| plan("n", &Snapshot { made: Some((*NOW, times)), ..seen(required(), &[]) }, *NOW);
    assert_eq!([again(0), again(3), again(30)], [1_000, 8_000, 64_000].map(|wait| Plan::Wait(ms(wait))));
}

/// An index with these holders of node `n`, all of them written by this process.
fn index(holders: &[(&str, i64)]) -> Holders {
    let mut index = Holders::default();
    index.namespace = "kube-system".into();
    for (name, cpu) in holders {
        let owner = Owner { kind: ("v1".to_owned(), "Node"), uid: "o".to_owned() };
        let write = create("kube-system", "n", (*name).to_owned(), &owner, &units(*cpu, 1));
        let Action::Create { body } = &write.action else { panic!("{write:?}") };
        let mut pod: Value = serde_json::from_str(body).expect("a Pod");
        pod["metadata"]["uid"] = json!(name);
        pod["metadata"]["resourceVersion"] = json!("1");
        pod["status"] = json!({"nominatedNodeName": "n"});
        let pod = decode_item(pod.to_string().as_bytes()).expect("metadata");
        Fed::<Pod>::applied(&mut index, &pod);
        index.ours.insert((*name).to_owned());
    }
    index
}

/// The deletion of a holder takes as long as the API server takes. In between, a Pod with the same needs is placed.
#[test]
fn no_gate_is_opened_because_of_a_holder_that_is_about_to_be_deleted() {
    let needs = units(3_000, 0);
    let mut idle = index(&[(A, 3_000)]);
    assert!(idle.holds("n", &needs));
    assert!(idle.give_up("n", A, Some(&units(0, 0))), "claims take nothing");
    assert!(!idle.holds("n", &needs), "it may be gone when the Pod starts");
    let mut needed = index(&[(A, 3_000)]);
    assert!(!needed.give_up("n", A, Some(&needs)), "a gate was opened since");
    assert!(needed.holds("n", &needs));
    let mut two = index(&[(A, 5_000), (B, 3_000)]);
    assert!(two.give_up("n", A, Some(&needs)), "the other one is enough");
    assert!(two.holds("n", &needs) && !two.holds("n", &units(4_000, 0)));
    let mut small = index(&[(A, 5_000), (B, 2_000)]);
    assert!(!small.give_up("n", A, Some(&needs)), "the other one is not enough");
    assert!(small.give_up("n", B, Some(&needs)), "the larger one is enough");
    let mut unknown = index(&[(A, 3_000)]);
    assert!(!unknown.give_up("n", A, None), "it is not known what kube-scheduler sees");
    let mut foreign = index(&[(A, 5_000), (B, 3_000)]);
    foreign.ours.remove(B);
    assert!(!foreign.give_up("n", A, Some(&needs)), "another leader may be about to delete the other one");
}

#[test]
fn a_holder_that_is_still_there_is_deleted_once_more() {
    let leaving = HolderFacts { deleting: true, ..holder(A, units(5_000, MI)) };
    let kept = holder(B, units(3_000, 1));
    let since = |since, holders: &[&HolderFacts]| {
        plan("n", &Snapshot { leaving: Some(since), ..seen(Some(units(3_000, 1)), holders) }, *NOW)
    };
    assert_eq!(since(*NOW - ms(400), &[&leaving, &kept]), Plan::Wait(ms(600)));
    assert_eq!(since(*NOW - ms(1_000), &[&leaving, &kept]), Plan::Delete(A.to_owned()));
    let grows = Plan::Create(B.to_owned(), units(3_000, 1));
    assert_eq!(since(*NOW, &[&leaving]), grows, "another one does not wait for its end");
    let running = HolderFacts { is_bound: true, ..leaving };
    assert_eq!(since(*NOW - ms(1_000), &[&running, &kept]), Plan::Rest, "its kubelet ends it");
}

/// Earlier versions made Pods that ran.
#[test]
fn a_holder_that_runs_gives_way_to_one_that_does_not() {
    let runs = HolderFacts { is_bound: true, is_nominated: false, ..holder("holder-n", units(3_000, MI)) };
    let required = || Some(units(3_000, 0));
    assert!(runs.holds(&units(3_000, 0)));
    assert_eq!(planned(required(), &[&runs]), Plan::Create(A.to_owned(), units(3_000, 1)));
    let next = holder(A, units(3_000, 1));
    assert_eq!(planned(required(), &[&next, &runs]), Plan::Delete("holder-n".to_owned()));
}

#[test]
fn a_holder_is_found_by_its_node_and_belongs_to_what_is_published_of_it() {
    let owner = Owner {
        kind: ("dragoman.dev/v1alpha1".to_owned(), "NodeAllocatableDRAClaimState"),
        uid: "o".to_owned(),
    };
    let write = create("kube-system", "n", A.to_owned(), &owner, &units(1_500, 3 * MI));
    let Action::Create { body } = &write.action else { panic!("{write:?}") };
    let body: Value = serde_json::from_str(body).expect("a Pod");
    assert_eq!(
        body["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "1500m", "memory": "3Mi"})
    );
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], json!("o"));
    assert_eq!(body["spec"]["schedulingGates"], json!([{"name": "dragoman.dev/holder"}]));
    let pod: Pod = serde_json::from_value(body).expect("a Pod");
    assert!(is_holder(&pod, "kube-system"));
    assert!(!is_holder(&pod, "tenant"), "a tenant's Pod takes what it requests");
    assert_eq!(pod.spec.affinity.node().map(AsRef::as_ref), Some("n"));
    assert_eq!(names_of("n"), [A, B, "holder-n"]);
    let (long, other) = (names_of(&"n".repeat(253)), names_of(&format!("{}m", "n".repeat(252))));
    assert!(long.iter().all(|name| name.len() == 253));
    let all: BTreeSet<&String> = long.iter().chain(&other).collect();
    assert_eq!(all.len(), 6);
}

/// A gated Pod on node `n`, whose claim takes three cpus, and what is charged for it.
fn charged() -> Indexes {
    let mut all = Indexes::default();
    let apply = |object: &Value| object.to_string();
    let node = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": "10", "memory": "8Gi", "pods": "110"}}});
    Fed::<Node>::applied(&mut all.cluster, &decode_item(apply(&node).as_bytes()).expect("metadata"));
    let device =
        json!({"name": "gpu", "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "3"}}}});
    let slice = json!({"metadata": {"name": "s", "uid": "s", "resourceVersion": "1"},
        "spec": {"driver": "d", "nodeName": "n", "devices": [device],
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}});
    Fed::<ResourceSlice>::applied(
        &mut all.cluster,
        &decode_item(apply(&slice).as_bytes()).expect("metadata"),
    );
    let result = json!({"request": "r", "driver": "d", "pool": "n", "device": "gpu"});
    let claim = json!({"metadata": {"namespace": "ns", "name": "c", "uid": "c", "resourceVersion": "1"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}}});
    Fed::<ResourceClaim>::applied(
        &mut all.cluster,
        &decode_item(apply(&claim).as_bytes()).expect("metadata"),
    );
    let pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "p"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}], "containers": [{"name": "main",
            "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}]}});
    let pod: Pod = serde_json::from_value(pod).expect("a Pod");
    let charge = all.cluster.ledger().candidate(&(&pod).into(), "n").pod;
    all.assumed.put(&gated(), "n", charge);
    all
}

fn gated() -> ObjectKey {
    ObjectKey { namespace: "ns".into(), name: "p".into() }
}

/// Keys that were made dirty for other controllers: the controller, and the name of the key.
fn woken(all: &mut Indexes) -> Vec<String> {
    all.take_woken().iter().map(|(controller, key)| format!("{controller} {}", key.name)).collect()
}

#[test]
fn a_gated_pod_is_woken_once_the_holders_of_its_node_suit() {
    let (by, node) = (Scheduler::Unaware, Arc::from("n"));
    let mut all = charged();
    woken(&mut all);
    let let_in = |all: &mut Indexes| {
        let Indexes { holders, cluster, assumed, .. } = all;
        holders.let_in(Charged { cluster, assumed }, &node, &gated(), by)
    };
    let wake = |all: &mut Indexes| {
        let Indexes { holders, cluster, assumed, .. } = all;
        holders.wake(Charged { cluster, assumed }, &node, by);
    };
    assert!(let_in(&mut all), "holders are off");
    assert!(woken(&mut all).is_empty());
    all.holders = index(&[(A, 2_000)]);
    all.holders.is_on = true;
    assert!(!let_in(&mut all), "three cpus are to be held");
    assert!(all.holders.has_waiting("n"));
    assert_eq!(woken(&mut all), ["holders n"], "its holder is to be raised");
    wake(&mut all);
    assert!(woken(&mut all).is_empty(), "it is not raised yet");
    let gated_pods = std::mem::take(&mut all.holders.gated);
    all.holders = index(&[(A, 3_000)]);
    (all.holders.is_on, all.holders.gated) = (true, gated_pods);
    wake(&mut all);
    assert_eq!(woken(&mut all), ["gates p"]);
    assert!(!all.holders.has_waiting("n") && let_in(&mut all));
    let Indexes { holders, assumed, .. } = &mut all;
    holders.forget(assumed, &gated());
    assert_eq!(woken(&mut all), ["holders n"], "its node has to hold less");
}

#[test]
fn a_pod_that_waits_for_the_account_of_a_node_is_woken_when_it_changes() {
    let mut all = charged();
    woken(&mut all);
    all.gates.waits_for(Some(&"n".into()), &gated());
    assert!(woken(&mut all).is_empty(), "nothing has changed");
    let bound = json!({"metadata": {"namespace": "ns", "name": "b", "uid": "b", "resourceVersion": "1"},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}});
    let bound = decode_item(bound.to_string().as_bytes()).expect("metadata");
    Fed::<Pod>::applied(&mut all.cluster, &bound);
    assert_eq!(woken(&mut all), ["gates p"]);
    assert!(woken(&mut all).is_empty(), "once for each change");
    all.gates.waits_for(None, &gated());
    assert!(all.gates.turn_of_waiting_for("n").is_empty(), "it has gone on, or is gone");
    (0..100).for_each(|pod| {
        let key = ObjectKey { namespace: "ns".into(), name: format!("p-{pod}").into() };
        all.gates.waits_for(Some(&"n".into()), &key);
    });
    let turns: Vec<Vec<ObjectKey>> = (0..4).map(|_| all.gates.turn_of_waiting_for("n")).collect();
    assert!(turns.iter().all(|turn| turn.len() == 32), "a part of many at a time");
    let all_woken: BTreeSet<&ObjectKey> = turns.iter().flatten().collect();
    assert_eq!(all_woken.len(), 100, "each has its turn, although none goes on");
}
