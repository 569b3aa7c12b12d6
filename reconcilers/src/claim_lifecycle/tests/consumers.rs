use std::collections::{BTreeMap, BTreeSet};

use dragoman_machinery::kind::POD;
use dragoman_objects::{MAX_CONSUMERS, Name};

use super::super::claim_name::{Generation, claim_name};
use super::super::plan_consumer::{ConsumerPlan, Trouble, plan_consumer, publication, reservation};
use super::super::snapshot::ConsumerSnapshot;
use super::*;

fn snapshot(cluster: &Cluster) -> ConsumerSnapshot {
    ConsumerSnapshot::of_pod(&cluster.state, "ns", "pod").expect("pod")
}

fn plan(cluster: &Cluster) -> ConsumerPlan {
    plan_consumer(&snapshot(cluster), &BTreeSet::new(), &BTreeSet::new())
}

fn troubles(plan: &ConsumerPlan) -> Vec<Trouble> {
    plan.notes.iter().map(|note| note.trouble.clone()).collect()
}

fn settled(plan: &ConsumerPlan) -> Vec<(&str, &str)> {
    plan.settled.iter().map(|(entry, claim)| (&**entry, &**claim)).collect()
}

#[test]
fn a_claim_is_created_once_its_template_is_there() {
    let mut cluster = Cluster::synced();
    let dirty = cluster.pod(pod("u"));
    assert_eq!(dirty.len(), 1);
    assert_eq!(troubles(&plan(&cluster)), [Trouble::NoTemplate("one".into())]);
    let dirty = cluster.apply(WatchedKind::Templates, template());
    assert!(dirty.iter().any(|key| &*key.name == "pod"), "the late template wakes nobody");
    let plan = plan(&cluster);
    assert_eq!(plan.create.len(), 1);
    assert_eq!(plan.create[0].predecessor, None);
}

#[test]
fn a_done_pod_gets_nothing() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(succeeded("u"));
    assert_eq!(plan(&cluster), ConsumerPlan::default());
    // Neither after its claim was deleted, whose deletion wakes it.
    cluster.pod(publishes(succeeded("u"), "c"));
    cluster.claim(generated("c", "u"));
    cluster.delete(WatchedKind::Claims, generated("c", "u"));
    assert_eq!(plan(&cluster), ConsumerPlan::default());
}

#[test]
fn a_claim_that_was_created_but_not_published_is_found_again() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(pod("u"));
    let dirty = cluster.claim(generated("pod-gpu-x", "u"));
    assert!(dirty.iter().any(|key| &*key.name == "pod"));
    let plan = plan(&cluster);
    assert!(plan.create.is_empty());
    assert_eq!(settled(&plan), [("gpu", "pod-gpu-x")]);
}

#[test]
fn a_terminating_claim_is_never_adopted() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(pod("u"));
    cluster.claim(with(generated("c", "u"), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")));
    let plan = plan(&cluster);
    assert_eq!(plan.create[0].predecessor.as_deref(), Some("c"));
    assert!(plan.settled.is_empty());
}

#[test]
fn of_several_claims_the_one_in_use_is_adopted() {
    let adopted = |claims: Vec<Value>| {
        let mut cluster = Cluster::synced();
        cluster.apply(WatchedKind::Templates, template());
        cluster.pod(running("u"));
        claims.into_iter().for_each(|claim| drop(cluster.claim(claim)));
        plan(&cluster).settled.values().map(ToString::to_string).collect::<Vec<_>>()
    };
    let ours = claim_name("pod", "u", "gpu", Generation::default());
    let claim = |name: &str| generated(name, "u");
    assert_eq!(adopted(vec![claim("a"), claim(&ours)]), [&*ours]);
    assert_eq!(adopted(vec![claim("a"), claim(&ours), in_use(claim("y"), &[])]), ["y"]);
    assert_eq!(adopted(vec![claim("a"), in_use(claim("y"), &[]), in_use(claim("z"), &["u"])]), ["z"]);
    assert_eq!(adopted(vec![claim("b"), claim("a")]), ["a"]);
}

#[test]
fn a_published_claim_that_the_index_lacks_is_asked_for_before_it_is_replaced() {
    let mut cluster = Cluster::synced();
    let first = claim_name("pod", "u", "gpu", Generation::default());
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(publishes(pod("u"), &first));
    assert_eq!(plan(&cluster).confirm, [Name::from(&*first)]);
    let consumer = snapshot(&cluster);
    let lost = BTreeSet::from([Name::from(&*first)]);
    let found = plan_consumer(&consumer, &BTreeSet::new(), &lost);
    assert_eq!(found, ConsumerPlan::default());
    let gone = plan_consumer(&consumer, &lost, &BTreeSet::new());
    assert_eq!(gone.create[0].predecessor.as_deref(), Some(&*first));
}

#[test]
fn a_claim_of_somebody_else_is_replaced_not_touched() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(publishes(pod("u"), "c"));
    cluster.claim(plain("c"));
    assert_eq!(plan(&cluster).create.len(), 1);
}

#[test]
fn a_published_claim_that_is_terminating_is_waited_for() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(publishes(pod("u"), "c"));
    cluster.claim(with(generated("c", "u"), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")));
    let plan = plan(&cluster);
    assert!(plan.create.is_empty(), "its successor comes when it is gone");
    assert_eq!(settled(&plan), [("gpu", "c")]);
}

#[test]
fn another_claim_of_an_entry_is_news() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(pod("u"), "c"));
    let settled = |claim: &str| BTreeMap::from([("gpu".into(), claim.into())]);
    assert!(publication(POD, &snapshot(&cluster), &settled("c")).is_none());
    assert!(publication(POD, &snapshot(&cluster), &settled("d")).is_some());
}

#[test]
fn what_a_stranger_publishes_does_not_decide_the_name_of_the_claim() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    // Ours may be there, and only the index may lack it.
    cluster.pod(publishes(pod("u"), "c"));
    let plan = plan_consumer(&snapshot(&cluster), &BTreeSet::from([Name::from("c")]), &BTreeSet::new());
    assert_eq!(plan.create[0].predecessor, None);
}

#[test]
fn an_unreadable_claim_or_template_blocks_its_entry() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(publishes(pod("u"), "c"));
    cluster.claim(with(generated("c", "u"), "/status", json!("?")));
    assert_eq!(troubles(&plan(&cluster)), [Trouble::UnreadableClaim("c".into())]);
    let mut cluster = Cluster::synced();
    cluster.pod(pod("u"));
    cluster.apply(WatchedKind::Templates, with(template(), "/spec", json!(5)));
    assert_eq!(troubles(&plan(&cluster)), [Trouble::UnreadableTemplate("one".into())]);
}

#[test]
fn unknown_entries_are_said_and_do_not_hold_up_the_others() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    let entries = json!([{"name": "new", "fromTheFuture": 1}, {"name": "gpu", "resourceClaimTemplateName": "one"},
        {"name": "both", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}]);
    cluster.pod(with(pod("u"), "/spec/resourceClaims", entries));
    let plan = plan(&cluster);
    assert_eq!(troubles(&plan), [Trouble::UnknownApi, Trouble::UnknownApi]);
    assert_eq!(plan.create.len(), 1);
}

#[test]
fn an_entry_decided_not_to_need_a_claim_gets_none() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(with(pod("u"), "/status/resourceClaimStatuses", json!([{"name": "gpu"}])));
    assert_eq!(plan(&cluster), ConsumerPlan::default());
}

#[test]
fn names_are_published_even_for_a_terminating_pod() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(with(running("u"), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")));
    assert!(plan(&cluster).create.is_empty());
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    assert_eq!(settled(&plan(&cluster)), [("gpu", "c")]);
}

// Publication.

fn statuses(write: &Write) -> Vec<(String, String)> {
    let Action::Apply { body, .. } = &write.action else { panic!("{write:?}") };
    assert_eq!(body["metadata"]["uid"], "u", "an apply without uid reaches a namesake");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = body["status"]["resourceClaimStatuses"].as_array().expect("list");
    list.iter().map(|s| (text(&s["name"]), text(&s["resourceClaimName"]))).collect()
}

#[test]
fn the_status_is_always_complete_and_sorted_and_not_sent_twice() {
    let mut cluster = Cluster::synced();
    cluster.pod(with(
        pod("u"),
        "/status/resourceClaimStatuses",
        json!([{"name": "z", "resourceClaimName": "cz"}, {"name": "none"}]),
    ));
    let consumer = snapshot(&cluster);
    let news = BTreeMap::from([(Name::from("a"), Name::from("ca"))]);
    let write = publication(POD, &consumer, &news).expect("write");
    assert_eq!(statuses(&write), [("a".into(), "ca".into()), ("z".into(), "cz".into())]);
    let known = BTreeMap::from([(Name::from("z"), Name::from("cz"))]);
    assert_eq!(publication(POD, &consumer, &known), None);
    assert_eq!(publication(POD, &consumer, &BTreeMap::new()), None);
}

// Reservations.

fn by_name(uid: &str, claims: &[&str]) -> Value {
    let entries: Vec<_> = claims.iter().map(|c| json!({"name": c, "resourceClaimName": c})).collect();
    with(running(uid), "/spec/resourceClaims", json!(entries))
}

fn wanted(plan: &ConsumerPlan) -> Vec<&str> {
    plan.reserve.iter().map(|r| &*r.claim).collect()
}

#[test]
fn a_missing_claim_does_not_hold_up_the_reservation_of_the_others() {
    let mut cluster = Cluster::synced();
    cluster.pod(by_name("u", &["missing", "a", "unallocated", "mine"]));
    cluster.claim(in_use(plain("a"), &["other"]));
    cluster.claim(plain("unallocated"));
    cluster.claim(in_use(plain("mine"), &["u"]));
    assert_eq!(wanted(&plan(&cluster)), ["a"]);
}

/// A tenant could have a claim reserved for a Pod that never starts.
#[test]
fn nothing_is_reserved_before_every_claim_is_made_from_its_template() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("a"), &["other"]));
    let by_name = json!({"name": "a", "resourceClaimName": "a"});
    let by_template = json!({"name": "gpu", "resourceClaimTemplateName": "one"});
    for entries in [[&by_name, &by_template], [&by_template, &by_name]] {
        cluster.pod(with(running("u"), "/spec/resourceClaims", json!(entries)));
        assert!(wanted(&plan(&cluster)).is_empty());
    }
    cluster.apply(WatchedKind::Templates, template());
    let pod = with(running("u"), "/spec/resourceClaims", json!([by_name, by_template]));
    cluster.pod(publishes(pod, "c"));
    cluster.claim(generated("c", "u"));
    assert_eq!(wanted(&plan(&cluster)), ["a"], "made, and not allocated yet");
}

/// A Pod with `nodeName` has got past the gate of its claim, and kubelet does not start it without the reservation.
#[test]
fn a_claim_with_a_closed_release_gate_is_not_reserved() {
    let mut cluster = Cluster::synced();
    cluster.pod(by_name("u", &["a"]));
    let gate = json!({"release-gates.dragoman.dev/quota": "no budget left"});
    let held = with(in_use(plain("a"), &[]), "/metadata/annotations", gate);
    cluster.claim(held.clone());
    let held_up = plan(&cluster);
    assert!(wanted(&held_up).is_empty());
    assert_eq!(troubles(&held_up), [Trouble::ReleaseGateClosed("a".into())]);
    let facts: dragoman_objects::ResourceClaim = decode(cluster.stamp(held)).expect("claim");
    let open = in_use(plain("a"), &[]);
    assert!(cluster.claim(open).iter().any(|key| &*key.name == "pod"), "the Pod is looked at again");
    let consumer = plan(&cluster).reserve[0].reference.clone();
    assert!(
        reservation("ns", "a", "a-uid", &(&facts).into(), &consumer).is_none(),
        "the gate is closed again"
    );
}

#[test]
fn only_pods_with_a_node_that_go_on_are_reserved_for() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("a"), &[]));
    for pod in [
        with(by_name("u", &["a"]), "/spec/nodeName", json!("")),
        with(by_name("u", &["a"]), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        with(by_name("u", &["a"]), "/status/phase", json!("Failed")),
    ] {
        cluster.pod(pod);
        assert!(wanted(&plan(&cluster)).is_empty());
    }
}

#[test]
fn what_goes_or_is_somebody_elses_is_not_reserved() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(publishes(running("u"), "c"));
    cluster.claim(in_use(generated("c", "another"), &[]));
    assert!(wanted(&plan(&cluster)).is_empty());
    let own = in_use(generated("c", "u"), &[]);
    cluster.claim(with(own.clone(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")));
    assert!(wanted(&plan(&cluster)).is_empty());
    cluster.claim(own);
    assert_eq!(wanted(&plan(&cluster)), ["c"]);
}

#[test]
fn a_full_claim_is_said_not_tried() {
    let mut cluster = Cluster::synced();
    cluster.pod(by_name("u", &["a"]));
    let others: Vec<_> = (0..MAX_CONSUMERS).map(|i| format!("o{i}")).collect();
    cluster.claim(in_use(plain("a"), &others.iter().map(String::as_str).collect::<Vec<_>>()));
    let plan = plan(&cluster);
    assert_eq!(troubles(&plan), [Trouble::TooManyConsumers("a".into())]);
    assert!(plan.reserve.is_empty());
}

#[test]
fn a_reservation_is_added_to_what_was_read_live_or_not_at_all() {
    let mut cluster = Cluster::synced();
    cluster.pod(by_name("u", &["a"]));
    cluster.claim(in_use(plain("a"), &[]));
    let consumer = plan(&cluster).reserve[0].reference.clone();
    let mut live = |claim: Value| {
        let facts: dragoman_objects::ResourceClaim = decode(cluster.stamp(claim)).expect("claim");
        reservation("ns", "a", "a-uid", &(&facts).into(), &consumer).map(|write| operations(&write))
    };
    assert_eq!(live(in_use(plain("a"), &[])), Some(vec!["add /status/reservedFor".into()]));
    assert_eq!(live(in_use(plain("a"), &["x"])), Some(vec!["add /status/reservedFor/-".into()]));
    assert_eq!(live(in_use(plain("a"), &["u"])), None);
    assert_eq!(live(plain("a")), None);
}

// PodGroups.

fn group() -> Value {
    json!({"metadata": {"name": "g", "uid": "g"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}})
}

fn member() -> Value {
    with(pod("u"), "/spec/schedulingGroup", json!({"podGroupName": "g"}))
}

#[test]
fn a_matching_entry_is_the_groups_and_another_the_pods_own() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    let entries = json!([{"name": "gpu", "resourceClaimTemplateName": "one"},
        {"name": "gpu2", "resourceClaimTemplateName": "one"}]);
    cluster.pod(with(member(), "/spec/resourceClaims", entries));
    assert_eq!(troubles(&plan(&cluster)), [Trouble::NoGroup("g".into())]);
    let dirty = cluster.apply(WatchedKind::Groups, group());
    assert!(dirty.iter().any(|key| &*key.name == "pod"), "the late group wakes no member");
    let created: Vec<_> = plan(&cluster).create.iter().map(|c| c.entry).collect();
    assert_eq!(created, [1], "the group's claim is made for the group");
    let mut claim = generated("shared", "g");
    claim["metadata"]["ownerReferences"][0] = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "g", "controller": true});
    cluster.claim(claim);
    assert_eq!(settled(&plan(&cluster)), [("gpu", "shared")]);
}

#[test]
fn a_claim_that_a_group_names_itself_is_reserved_for_the_group() {
    let entries = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Groups, with(group(), "/spec/resourceClaims", entries.clone()));
    let running = with(member(), "/spec/nodeName", json!("node"));
    cluster.pod(with(running, "/spec/resourceClaims", entries));
    cluster.claim(in_use(plain("c"), &[]));
    let reserve = &plan(&cluster).reserve;
    assert_eq!(reserve.len(), 1);
    assert_eq!((&*reserve[0].claim, &*reserve[0].reference.uid), ("c", "g"));
}

#[test]
fn the_claim_of_a_group_is_reserved_for_the_group() {
    let mut cluster = Cluster::synced();
    cluster.apply(
        WatchedKind::Groups,
        with(
            group(),
            "/status/resourceClaimStatuses",
            json!([{"name": "gpu", "resourceClaimName": "shared"}]),
        ),
    );
    let running = with(with(member(), "/spec/nodeName", json!("node")), "/status/phase", json!("Pending"));
    cluster.pod(publishes(running.clone(), "shared"));
    let mut claim = in_use(generated("shared", "g"), &[]);
    claim["metadata"]["ownerReferences"][0] = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "g", "controller": true});
    cluster.claim(claim);
    let reserve = &plan(&cluster).reserve;
    assert_eq!(reserve.len(), 1);
    assert_eq!((&*reserve[0].reference.resource, &*reserve[0].reference.uid), ("podgroups", "g"));
    // A stranger has put another claim in its place: that one is not given back.
    cluster.pod(publishes(running, "theirs"));
    cluster.claim(in_use(plain("theirs"), &["x"]));
    assert!(wanted(&plan(&cluster)).is_empty());
}

/// The member may have used the claim since before its group had such an entry.
#[test]
fn a_member_keeps_a_claim_of_its_own() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.apply(WatchedKind::Groups, group());
    cluster.pod(publishes(with(member(), "/spec/nodeName", json!("node")), "own"));
    cluster.claim(in_use(generated("own", "u"), &[]));
    let plan = plan(&cluster);
    assert_eq!(settled(&plan), [("gpu", "own")]);
    assert_eq!((wanted(&plan), &*plan.reserve[0].reference.resource), (vec!["own"], "podgroups"));
}

#[test]
fn while_groups_are_unknown_nothing_is_created_for_their_members() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.apply(WatchedKind::Groups, group());
    cluster.pod(member());
    let dirty = cluster.groups_unserved();
    assert_eq!(dirty.len(), 1);
    assert_eq!(troubles(&plan(&cluster)), [Trouble::GroupsUnserved("g".into())]);
    assert!(plan(&cluster).create.is_empty());
}

#[test]
fn a_group_makes_its_claims_and_none_while_it_goes() {
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.apply(WatchedKind::Groups, group());
    let of_group = |cluster: &Cluster| {
        let consumer = ConsumerSnapshot::of_group(&cluster.state, "ns", "g").expect("group");
        plan_consumer(&consumer, &BTreeSet::new(), &BTreeSet::new())
    };
    assert_eq!(of_group(&cluster).create.len(), 1);
    cluster.apply(
        WatchedKind::Groups,
        with(group(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    );
    assert_eq!(of_group(&cluster), ConsumerPlan::default());
    cluster.apply(WatchedKind::Groups, group());
    cluster.state.evidence.proven_gone("g", NOW);
    assert_eq!(of_group(&cluster), ConsumerPlan::default(), "it is gone, and only the index does not know");
}
