use super::super::ended::HowEnded;
use super::super::evidence::Presence;
use super::super::plan_claim::{ClaimPlan, ClaimStep, Confirmed, plan_claim};
use super::super::reclaim::At;
use super::super::snapshot::ClaimSnapshot;
use super::*;

fn plan_after(cluster: &Cluster, name: &str, last: Option<ClaimStep>) -> ClaimPlan {
    let claim = ClaimSnapshot::take(&cluster.state, "ns", name).expect("claim");
    plan_claim(&claim, &Confirmed::new(), last, &At::default())
}

fn plan(cluster: &Cluster, name: &str) -> ClaimPlan {
    plan_after(cluster, name, None)
}

/// The step and what it patches.
fn step(plan: ClaimPlan) -> (ClaimStep, Vec<String>) {
    match plan {
        ClaimPlan::Send { step, write, .. } => (step, operations(&write)),
        other => panic!("no write: {other:?}"),
    }
}

const ALLOCATION: &str = "remove /status/allocation";

#[test]
fn a_live_pod_keeps_its_claim_and_a_completed_one_gives_it_back() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(running("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    let dirty = cluster.pod(publishes(succeeded("u"), "c"));
    assert!(dirty.iter().any(|key| &*key.name == "c"));
    assert_eq!(
        step(plan(&cluster, "c")),
        (ClaimStep::Release, vec!["remove /status/reservedFor/0".into(), ALLOCATION.into()])
    );
}

#[test]
fn status_then_finalizer_then_delete() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(succeeded("u"), "c"));
    let mut claim = in_use(generated("c", "u"), &["u"]);
    claim["status"] = json!({});
    cluster.claim(claim.clone());
    let (first, patch) = step(plan_after(&cluster, "c", Some(ClaimStep::Release)));
    assert_eq!((first, patch), (ClaimStep::Unprotect, vec!["remove /metadata/finalizers/0".into()]));
    claim["metadata"]["finalizers"] = json!([]);
    cluster.claim(claim.clone());
    assert_eq!(step(plan(&cluster, "c")), (ClaimStep::Delete, vec!["delete".into()]));
    cluster.claim(with(claim, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")));
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
}

#[test]
fn an_allocated_claim_is_never_deleted_first() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(succeeded("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &[]));
    assert_eq!(step(plan(&cluster, "c")), (ClaimStep::Deallocate, vec![ALLOCATION.into()]));
}

#[test]
fn one_of_two_consumers_leaves_without_the_allocation() {
    let mut cluster = Cluster::synced();
    cluster.pod(with(
        running("u"),
        "/spec/resourceClaims",
        json!([{"name": "gpu", "resourceClaimName": "c"}]),
    ));
    cluster.delete(WatchedKind::Pods, with(pod("gone"), "/metadata/name", json!("pod")));
    cluster.claim(in_use(plain("c"), &["gone", "u"]));
    cluster.relist(WatchedKind::Pods, vec![running("u")]);
    assert_eq!(
        step(plan(&cluster, "c")),
        (ClaimStep::Unreserve, vec!["remove /status/reservedFor/0".into()])
    );
}

#[test]
fn positions_are_removed_from_the_end() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("c"), &["a", "b"]));
    cluster.relist(WatchedKind::Pods, vec![]);
    let (_, patch) = step(plan(&cluster, "c"));
    assert_eq!(patch, ["remove /status/reservedFor/1", "remove /status/reservedFor/0", ALLOCATION]);
}

#[test]
fn a_foreign_consumer_holds_the_claim_but_not_the_others() {
    let mut cluster = Cluster::synced();
    let mut claim = in_use(plain("c"), &["a"]);
    claim["status"]["reservedFor"]
        .as_array_mut()
        .expect("list")
        .push(json!({"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "j"}));
    cluster.claim(claim.clone());
    cluster.relist(WatchedKind::Pods, vec![]);
    assert_eq!(step(plan(&cluster, "c")).0, ClaimStep::Unreserve);
    claim["status"]["reservedFor"].as_array_mut().expect("list").remove(0);
    cluster.claim(claim);
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
}

#[test]
fn the_claim_of_a_done_pod_stays_for_a_foreign_consumer() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(succeeded("u"), "c"));
    let mut claim = in_use(generated("c", "u"), &["u"]);
    let job = json!({"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "j"});
    claim["status"]["reservedFor"] = json!([job]);
    cluster.claim(claim);
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
}

/// kube-controller-manager ends the Pods of a node that is gone or out of service; no kubelet said that
/// their containers have.
#[test]
fn the_claim_of_a_lost_pod_is_released_and_said_to_be() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(lost("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    let ClaimPlan::Send { step, abrupt, .. } = plan(&cluster, "c") else { panic!("nothing is done") };
    assert_eq!((step, abrupt), (ClaimStep::Release, vec![0]));
    // Once it is released it goes as that of any Pod that has ended.
    cluster.claim(with(in_use(generated("c", "u"), &[]), "/status/allocation", Value::Null));
    assert!(matches!(plan(&cluster, "c"), ClaimPlan::Send { abrupt, .. } if abrupt.is_empty()));
}

// Absence is no proof.

#[test]
fn a_pod_that_the_index_lacks_is_asked_for() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("c"), &["u"]));
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Confirm(vec![0]));
    let claim = ClaimSnapshot::take(&cluster.state, "ns", "c").expect("claim");
    let answered =
        |presence| plan_claim(&claim, &Confirmed::from([("u".to_owned(), presence)]), None, &At::default());
    assert_eq!(answered(Presence::Alive), ClaimPlan::Rest);
    assert_eq!(answered(Presence::Unreadable), ClaimPlan::Rest);
    assert_eq!(step(answered(Presence::Gone(HowEnded::Orderly))).0, ClaimStep::Release);
    assert_eq!(step(answered(Presence::Done)).0, ClaimStep::Release);
}

#[test]
fn a_list_begun_before_the_claim_was_read_proves_nothing() {
    let mut cluster = Cluster::synced();
    cluster.began(WatchedKind::Pods);
    cluster.claim(in_use(plain("c"), &["u"]));
    cluster.completed(WatchedKind::Pods, "900");
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Confirm(vec![0]));
    cluster.relist(WatchedKind::Pods, vec![]);
    assert_eq!(step(plan(&cluster, "c")).0, ClaimStep::Release);
}

#[test]
fn a_new_reservation_makes_old_lists_worthless_and_other_changes_do_not() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("c"), &["u"]));
    cluster.relist(WatchedKind::Pods, vec![]);
    cluster.claim(with(in_use(plain("c"), &["u"]), "/metadata/labels", json!({"a": "b"})));
    assert_eq!(step(plan(&cluster, "c")).0, ClaimStep::Release);
    cluster.claim(in_use(plain("c"), &["v"]));
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Confirm(vec![0]));
}

#[test]
fn a_namesake_in_a_stale_index_proves_nothing() {
    let mut cluster = Cluster::synced();
    // The index still has the old Pod; the claim is already reserved for the new one.
    cluster.pod(publishes(succeeded("old"), "c"));
    cluster.claim(in_use(generated("c", "new"), &["new"]));
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Confirm(vec![0]));
    // Its owner has not been seen either: the valid claim must not be deleted.
    let mut unused = generated("d", "new");
    unused["metadata"]["uid"] = json!("d");
    cluster.claim(unused);
    assert_eq!(plan(&cluster, "d"), ClaimPlan::Rest);
}

#[test]
fn a_seen_deletion_is_proof_and_says_how() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(running("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    let dirty = cluster.delete(WatchedKind::Pods, running("u"));
    assert_eq!(dirty.len(), 1);
    match plan(&cluster, "c") {
        ClaimPlan::Send { step: ClaimStep::Release, abrupt, .. } => assert_eq!(abrupt, [0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn five_thousand_pods_that_go_while_the_watch_is_cut_need_no_question() {
    let mut cluster = Cluster::synced();
    let named = |i: usize| with(running(&format!("u{i}")), "/metadata/name", json!(format!("p{i}")));
    for i in 0..5000 {
        cluster.pod(named(i));
        let mut claim = in_use(plain(&format!("c{i}")), &[&format!("u{i}")]);
        claim["status"]["reservedFor"][0]["name"] = json!(format!("p{i}"));
        cluster.claim(claim);
    }
    cluster.relist(WatchedKind::Pods, vec![named(7)]);
    let mut released = 0;
    for i in 0..5000 {
        match plan(&cluster, &format!("c{i}")) {
            ClaimPlan::Send { step: ClaimStep::Release, .. } => released += 1,
            ClaimPlan::Rest => assert_eq!(i, 7),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(released, 4999);
}

#[test]
fn five_thousand_deletions_that_were_seen_need_no_question() {
    let mut cluster = Cluster::synced();
    let named = |i: usize| {
        let pod = with(
            publishes(running(&format!("u{i}")), &format!("c{i}")),
            "/metadata/name",
            json!(format!("p{i}")),
        );
        with(pod, "/status/phase", json!("Running"))
    };
    for i in 0..5000 {
        cluster.pod(named(i));
        let mut claim = in_use(plain(&format!("c{i}")), &[&format!("u{i}")]);
        claim["status"]["reservedFor"][0]["name"] = json!(format!("p{i}"));
        cluster.claim(claim);
    }
    (0..5000).for_each(|i| drop(cluster.delete(WatchedKind::Pods, named(i))));
    for i in 0..5000 {
        assert_eq!(step(plan(&cluster, &format!("c{i}"))).0, ClaimStep::Release, "{i}");
    }
}

// Unreadable is not absent.

#[test]
fn an_unreadable_pod_blocks_the_release_of_its_claims() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(running("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    let broken = with(running("u"), "/spec/resourceClaims", json!("from the future"));
    cluster.pod(broken.clone());
    assert_eq!(cluster.state.index.pods.count().1, 1);
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    cluster.relist(WatchedKind::Pods, vec![broken]);
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    let dirty = cluster.relist(WatchedKind::Pods, vec![]);
    assert!(dirty.iter().any(|key| &*key.name == "c"), "{dirty:?}");
    match plan(&cluster, "c") {
        // Its end was not seen, so nothing is said about it.
        ClaimPlan::Send { step: ClaimStep::Release, abrupt, .. } => assert!(abrupt.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_that_is_not_served_makes_its_consumers_unknown_not_gone() {
    let mut cluster = Cluster::synced();
    let group = json!({"metadata": {"name": "g", "uid": "g"}, "spec": {}});
    cluster.apply(WatchedKind::Groups, group.clone());
    let mut claim = in_use(plain("c"), &["g"]);
    claim["status"]["reservedFor"] =
        json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]);
    cluster.claim(claim);
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    cluster.groups_unserved();
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    // Nor is one gone of which nothing was known before.
    let mut unknown = Cluster::default();
    for kept in [WatchedKind::Pods, WatchedKind::Claims, WatchedKind::Templates] {
        unknown.relist(kept, Vec::new());
    }
    unknown.groups_unserved();
    unknown.claim(with(
        plain("c"),
        "/status",
        json!({"allocation": {}, "reservedFor": [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]}),
    ));
    assert_eq!(plan(&unknown, "c"), ClaimPlan::Rest);
    cluster.relist(WatchedKind::Groups, vec![group.clone()]);
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    cluster.delete(WatchedKind::Groups, group);
    assert_eq!(step(plan(&cluster, "c")).0, ClaimStep::Release);
}

// Claims that are not ours to end.

#[test]
fn an_allocated_unreserved_live_claim_is_left_alone() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(running("u"), "c"));
    cluster.claim(in_use(generated("c", "u"), &[]));
    cluster.claim(in_use(plain("d"), &[]));
    // Until it is idle by its age.
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Later(after(3600)));
    assert_eq!(plan(&cluster, "d"), ClaimPlan::Later(after(3600)));
}

#[test]
fn a_protected_live_claim_is_about_to_be_allocated_a_terminating_one_is_not() {
    let mut cluster = Cluster::synced();
    let mut claim = in_use(plain("c"), &[]);
    claim["status"] = json!({});
    cluster.claim(claim.clone());
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    cluster.claim(with(claim, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")));
    assert_eq!(step(plan(&cluster, "c")).0, ClaimStep::Unprotect);
    let doomed = with(in_use(plain("d"), &[]), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    cluster.claim(doomed);
    assert_eq!(step(plan(&cluster, "d")).0, ClaimStep::Deallocate);
}

#[test]
fn an_unscheduled_pod_that_is_deleted_is_done_and_a_scheduled_one_is_not() {
    let mut cluster = Cluster::synced();
    let deleting =
        |pod| with(publishes(pod, "c"), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    cluster.pod(deleting(running("u")));
    assert_eq!(plan(&cluster, "c"), ClaimPlan::Rest);
    cluster.pod(deleting(pod("u")));
    assert_eq!(step(plan(&cluster, "c")).0, ClaimStep::Release);
}
