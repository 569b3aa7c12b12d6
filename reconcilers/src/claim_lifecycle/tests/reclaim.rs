//! Devices that no consumer uses, and devices that a node may still hold.

use std::time::Duration;

use dragoman_objects::Node;

use super::super::ended::HowEnded;
use super::super::evidence::Presence;
use super::super::plan_claim::{ClaimPlan, ClaimStep, Confirmed, plan_claim};
use super::super::reclaim::{At, Reclaim, Vanished};
use super::super::snapshot::ClaimSnapshot;
use super::*;

const GUARD: i64 = 300;

/// A cluster in which claims are held for Pods that vanish, with a node.
fn guarded() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.state.guard();
    for watched in [WatchedKind::Pods, WatchedKind::Claims, WatchedKind::Templates, WatchedKind::Groups] {
        cluster.relist(watched, Vec::new());
    }
    applied::<Node>(&mut cluster.state, &node(&[]));
    cluster
}

fn node(taints: &[&str]) -> Value {
    let taints: Vec<Value> =
        taints.iter().map(|key| json!({"key": key, "effect": "NoExecute", "value": "x"})).collect();
    json!({"metadata": {"name": "node", "uid": "n", "resourceVersion": "1"}, "spec": {"taints": taints}})
}

/// Returns the options with the guard on, so many seconds after everything was read.
fn at(seconds: i64) -> At {
    let guard = Some(Duration::from_secs(GUARD.unsigned_abs()));
    At { chosen: Reclaim { guard, ..Reclaim::default() }, now: after(seconds) }
}

fn plan(cluster: &Cluster, at: &At) -> ClaimPlan {
    let claim = ClaimSnapshot::take(&cluster.state, "ns", "c").expect("claim");
    plan_claim(&claim, &Confirmed::new(), None, at)
}

/// Returns the known facts about the end of the Pod of [`vanished`].
fn on_node() -> Vanished {
    Vanished { at: NOW, node: Some("node".into()), is_node_out: false }
}

fn is_release(plan: &ClaimPlan) -> bool {
    matches!(plan, ClaimPlan::Send { step: ClaimStep::Release, .. })
}

fn held() -> ClaimPlan {
    ClaimPlan::Hold { until: after(GUARD), consumers: vec![0] }
}

/// A Pod ran, and is gone from one moment to the next.
fn vanished() -> Cluster {
    let mut cluster = guarded();
    cluster.pod(publishes(running("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    cluster.delete(WatchedKind::Pods, running("u"));
    cluster
}

#[test]
fn a_claim_is_held_for_a_pod_that_vanished_until_the_guard_time_has_passed() {
    let cluster = vanished();
    assert_eq!(plan(&cluster, &at(0)), held());
    assert_eq!(plan(&cluster, &at(GUARD - 1)), held());
    assert!(is_release(&plan(&cluster, &at(GUARD))));
    // Where the guard is off.
    assert!(is_release(&plan(&cluster, &At::default())));
}

#[test]
fn an_end_that_was_seen_holds_nothing() {
    let mut cluster = guarded();
    cluster.pod(publishes(running("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    cluster.pod(publishes(succeeded("u"), "c"));
    assert!(is_release(&plan(&cluster, &at(0))));
    cluster.delete(WatchedKind::Pods, succeeded("u"));
    assert!(is_release(&plan(&cluster, &at(0))));
}

#[test]
fn a_node_that_is_gone_or_out_of_service_holds_nothing_any_more() {
    let mut out = vanished();
    out.state.held.insert(&"ns".into(), &"c".into(), &"u".into(), on_node());
    let woken = applied::<Node>(&mut out.state, &node(&["node.kubernetes.io/unreachable"]));
    assert_eq!((woken.len(), plan(&out, &at(1))), (0, held()));
    let woken = applied::<Node>(&mut out.state, &node(&["node.kubernetes.io/out-of-service"]));
    assert_eq!(woken.len(), 1);
    let ClaimPlan::Send { step: ClaimStep::Release, abrupt, .. } = plan(&out, &at(1)) else { panic!("held") };
    assert_eq!(abrupt, Vec::<usize>::new(), "no warning about a node on which nothing runs");
    let mut gone = vanished();
    gone.state.held.insert(&"ns".into(), &"c".into(), &"u".into(), on_node());
    assert_eq!(Fed::<Node>::deleted(&mut gone.state, &meta(&node(&[]))).len(), 1);
    assert!(is_release(&plan(&gone, &at(1))));
}

/// After a restart the node and the end are unknown. The claim is not released at once because of that.
#[test]
fn an_end_that_no_process_saw_holds_the_claim_from_its_first_sight_on() {
    let mut cluster = guarded();
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    let claim = ClaimSnapshot::take(&cluster.state, "ns", "c").expect("claim");
    assert_eq!(plan(&cluster, &at(0)), ClaimPlan::Confirm(vec![0]));
    let gone = Confirmed::from([("u".to_owned(), Presence::Gone(HowEnded::Unseen))]);
    assert_eq!(plan_claim(&claim, &gone, None, &at(0)), held());
    assert!(is_release(&plan_claim(&claim, &gone, None, &at(GUARD))));
    assert!(is_release(&plan_claim(&claim, &gone, None, &At::default())));
}

/// Another tenant ends more Pods than ends are remembered, and others join the claim.
#[test]
fn a_hold_that_began_goes_on_to_its_end_and_no_longer() {
    let mut cluster = vanished();
    cluster.state.held.insert(&"ns".into(), &"c".into(), &"u".into(), on_node());
    for number in 0..40_000 {
        cluster.state.evidence.proven_gone(&format!("other-{number}"), NOW);
    }
    cluster.state.at(after(100));
    let mut claim = in_use(generated("c", "u"), &["u"]);
    claim["status"]["reservedFor"] = json!([
        {"resource": "pods", "name": "pod", "uid": "u"}, {"resource": "pods", "name": "late", "uid": "l"}]);
    cluster.claim(claim);
    let claim = ClaimSnapshot::take(&cluster.state, "ns", "c").expect("claim");
    let known = Confirmed::from([
        ("u".to_owned(), Presence::Gone(HowEnded::Unseen)),
        ("l".to_owned(), Presence::Alive),
    ]);
    assert_eq!(plan_claim(&claim, &known, None, &at(GUARD - 1)), held());
    let plan = plan_claim(&claim, &known, None, &at(GUARD));
    assert!(matches!(plan, ClaimPlan::Send { step: ClaimStep::Unreserve, .. }), "{plan:?}");
    assert_eq!(claim.vanished[0].node.as_deref(), Some("node"));
}

/// One Pod that vanished holds the claim; those that ended leave it.
#[test]
fn others_leave_a_claim_that_is_held() {
    let mut cluster = guarded();
    cluster.pod(running("u"));
    cluster.claim(in_use(plain("c"), &["u", "v"]));
    cluster.delete(WatchedKind::Pods, running("u"));
    let ended = Confirmed::from([("v".to_owned(), Presence::Done)]);
    let claim = ClaimSnapshot::take(&cluster.state, "ns", "c").expect("claim");
    let plan = plan_claim(&claim, &ended, None, &at(0));
    let ClaimPlan::Send { step: ClaimStep::Unreserve, write, abrupt } = plan else { panic!("{plan:?}") };
    assert_eq!((operations(&write), abrupt), (vec!["remove /status/reservedFor/1".to_owned()], vec![]));
}

fn idle(seconds: i64, release: bool) -> At {
    At { chosen: Reclaim { release, ..Reclaim::default() }, now: after(seconds) }
}

#[test]
fn an_idle_claim_is_reported_and_released_where_that_is_chosen() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("c"), &[]));
    assert_eq!(plan(&cluster, &idle(3599, true)), ClaimPlan::Later(after(3600)));
    assert_eq!(plan(&cluster, &idle(3600, false)), ClaimPlan::Idle(NOW));
    let plan = plan(&cluster, &idle(3600, true));
    let ClaimPlan::Send { step: ClaimStep::Reclaim, write, .. } = plan else { panic!("{plan:?}") };
    assert_eq!(operations(&write), ["remove /status/allocation"]);
}

#[test]
fn after_a_reclaim_the_finalizer_goes_and_the_claim_stays() {
    let mut cluster = Cluster::synced();
    let mut claim = in_use(plain("c"), &[]);
    claim["status"] = json!({});
    cluster.claim(claim);
    let claim = ClaimSnapshot::take(&cluster.state, "ns", "c").expect("claim");
    let plan = plan_claim(&claim, &Confirmed::new(), Some(ClaimStep::Reclaim), &idle(3600, true));
    assert!(matches!(plan, ClaimPlan::Send { step: ClaimStep::Unprotect, .. }), "{plan:?}");
}

#[test]
fn a_claim_with_any_consumer_is_never_idle() {
    let mut cluster = Cluster::synced();
    cluster.pod(running("u"));
    cluster.claim(in_use(plain("c"), &["u"]));
    assert_eq!(plan(&cluster, &idle(100_000, true)), ClaimPlan::Rest);
    let foreign = json!([{"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "j"}]);
    cluster.claim(with(in_use(plain("c"), &[]), "/status/reservedFor", foreign));
    assert_eq!(plan(&cluster, &idle(100_000, true)), ClaimPlan::Rest);
    // It begins anew once the last one has left.
    cluster.claim(in_use(plain("c"), &[]));
    assert_eq!(plan(&cluster, &idle(10, true)), ClaimPlan::Later(after(3600)));
}
