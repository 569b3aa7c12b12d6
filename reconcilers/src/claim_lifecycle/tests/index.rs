use std::time::Duration;

use tokio::time::Instant;

use super::super::ended::HowEnded;
use super::super::key::Subject;
use super::super::quota::CreationOutcome;
use super::*;

fn names(keys: &[Key], subject: Subject) -> Vec<String> {
    let mut names: Vec<_> =
        keys.iter().filter(|k| k.subject == subject).map(|k| k.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn a_change_that_nobody_reads_wakes_nobody() {
    let mut cluster = Cluster::synced();
    assert_eq!(cluster.pod(running("u")).len(), 1);
    assert!(cluster.pod(with(running("u"), "/metadata/labels", json!({"a": "b"}))).is_empty());
    assert!(cluster.pod(json!({"metadata": {"name": "plain", "uid": "p"}})).is_empty());
}

#[test]
fn a_reservation_wakes_those_it_concerns_not_all_who_share_the_claim() {
    let mut cluster = Cluster::synced();
    for i in 0..256 {
        let pod = with(running(&format!("u{i}")), "/metadata/name", json!(format!("p{i}")));
        cluster.pod(with(pod, "/spec/resourceClaims", json!([{"name": "gpu", "resourceClaimName": "c"}])));
    }
    let reserved = |names: &[&str]| {
        let mut claim = in_use(plain("c"), &[]);
        claim["status"]["reservedFor"] =
            names.iter().map(|n| json!({"resource": "pods", "name": n, "uid": n})).collect();
        claim
    };
    assert_eq!(names(&cluster.claim(reserved(&["p1"])), Subject::Pod).len(), 256);
    assert_eq!(names(&cluster.claim(reserved(&["p1", "p2"])), Subject::Pod), ["p2"]);
    assert_eq!(names(&cluster.claim(reserved(&["p2"])), Subject::Pod), ["p1"]);
}

#[test]
fn room_in_a_full_claim_wakes_whoever_waits_for_it() {
    let mut cluster = Cluster::synced();
    cluster.pod(with(
        running("u"),
        "/spec/resourceClaims",
        json!([{"name": "gpu", "resourceClaimName": "c"}]),
    ));
    let reserved = |count: usize| {
        let mut claim = in_use(plain("c"), &[]);
        claim["status"]["reservedFor"] = (0..count)
            .map(|n| json!({"resource": "pods", "name": format!("p{n}"), "uid": format!("u{n}")}))
            .collect();
        claim
    };
    cluster.claim(reserved(256));
    assert!(names(&cluster.claim(reserved(255)), Subject::Pod).contains(&"pod".to_owned()));
    assert_eq!(names(&cluster.claim(reserved(254)), Subject::Pod), ["p254"]);
}

#[test]
fn a_replaced_pod_frees_what_its_predecessor_held() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(generated("c", "old"), &["old"]));
    cluster.pod(publishes(running("old"), "c"));
    let dirty = cluster.pod(pod("new"));
    assert_eq!(names(&dirty, Subject::Claim), ["c"]);
    assert_eq!(names(&dirty, Subject::Pod), ["pod"]);
    assert!(cluster.state.evidence.ended("old").is_some());
}

#[test]
fn the_end_of_a_pod_that_nobody_can_read_frees_what_is_reserved_for_it() {
    let mut cluster = Cluster::synced();
    let shares =
        with(running("u"), "/spec/resourceClaims", json!([{"name": "gpu", "resourceClaimName": "c"}]));
    let unreadable = with(shares.clone(), "/status/resourceClaimStatuses", json!("?"));
    cluster.claim(in_use(plain("c"), &["u"]));
    cluster.claim(in_use(plain("other"), &["v"]));
    cluster.pod(shares);
    cluster.pod(unreadable.clone());
    assert_eq!(names(&cluster.delete(WatchedKind::Pods, unreadable), Subject::Claim), ["c"]);
}

#[test]
fn the_end_of_a_pod_frees_what_is_reserved_for_it_whatever_it_names() {
    let mut cluster = Cluster::synced();
    cluster.pod(running("u"));
    cluster.claim(in_use(plain("c"), &["u"]));
    assert_eq!(names(&cluster.pod(succeeded("u")), Subject::Claim), ["c"]);
    // Not what was: reservations come and go, and claims with them.
    cluster.claim(in_use(plain("c"), &["v"]));
    assert!(names(&cluster.delete(WatchedKind::Pods, succeeded("u")), Subject::Claim).is_empty());
    cluster.pod(running("v"));
    cluster.delete(WatchedKind::Claims, in_use(plain("c"), &["v"]));
    assert!(names(&cluster.delete(WatchedKind::Pods, running("v")), Subject::Claim).is_empty());
}

#[test]
fn groups_that_come_back_wake_whoever_waits_for_one() {
    let mut cluster = Cluster::synced();
    let group = json!({"metadata": {"name": "g", "uid": "g"}, "spec": {}});
    cluster.apply(WatchedKind::Groups, group.clone());
    let held = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]);
    cluster.claim(with(in_use(plain("c"), &[]), "/status/reservedFor", held));
    cluster.groups_unserved();
    cluster.pod(with(running("u"), "/spec/schedulingGroup", json!({"podGroupName": "g"})));
    // It is the same as ever, and yet everything about it is new.
    let dirty = cluster.relist(WatchedKind::Groups, vec![group.clone()]);
    assert_eq!(names(&dirty, Subject::Pod), ["pod"]);
    assert_eq!(names(&dirty, Subject::Claim), ["c"]);
    assert!(cluster.relist(WatchedKind::Groups, vec![group]).is_empty(), "nothing is new");
}

#[test]
fn how_a_pod_ended_is_what_it_may_have_been_doing() {
    for (last, how) in [
        (running("u"), HowEnded::Abruptly),
        (succeeded("u"), HowEnded::Orderly),
        (lost("u"), HowEnded::Abruptly),
        (pod("u"), HowEnded::Orderly),
    ] {
        let mut cluster = Cluster::synced();
        cluster.pod(last.clone());
        cluster.delete(WatchedKind::Pods, last);
        assert_eq!(cluster.state.evidence.ended("u"), Some(how));
    }
}

#[test]
fn the_end_of_a_pod_wakes_the_claim_of_its_extended_resources() {
    let mut cluster = Cluster::synced();
    let extended = |pod| with(pod, "/status/extendedResourceClaimStatus", json!({"resourceClaimName": "e"}));
    let plain = |pod| with(pod, "/spec/resourceClaims", json!([]));
    cluster.pod(extended(plain(running("u"))));
    let woken = names(&cluster.pod(extended(plain(succeeded("u")))), Subject::Claim);
    assert!(woken.contains(&"e".to_owned()), "{woken:?}");
}

#[test]
fn the_level_timer_asks_about_everything_that_can_need_something() {
    let mut cluster = Cluster::synced();
    cluster.claim(plain("c"));
    cluster.apply(WatchedKind::Groups, json!({"metadata": {"name": "g", "uid": "g"}, "spec": {}}));
    let named = |pod, name: &str| with(pod, "/metadata/name", json!(name));
    cluster.pod(named(running("u"), "runs"));
    cluster.pod(named(succeeded("v"), "done"));
    cluster.pod(with(named(running("w"), "without"), "/spec/resourceClaims", json!([])));
    let keys = cluster.state.all_keys();
    assert_eq!(names(&keys, Subject::Claim), ["c"]);
    assert_eq!(names(&keys, Subject::PodGroup), ["g"]);
    assert_eq!(names(&keys, Subject::Pod), ["runs"]);
}

#[test]
fn what_is_not_complete_is_named() {
    let mut cluster = Cluster::default();
    let missing = ["pods", "resourceclaims", "resourceclaimtemplates", "podgroups"];
    assert_eq!(cluster.state.missing(), missing);
    cluster.relist(WatchedKind::Pods, Vec::new());
    assert_eq!(cluster.state.missing(), missing[1..]);
    // Nothing is missing of what is not served.
    cluster.groups_unserved();
    assert_eq!(cluster.state.missing(), missing[1..3]);
    cluster.relist(WatchedKind::Claims, Vec::new());
    cluster.relist(WatchedKind::Templates, Vec::new());
    assert!(cluster.state.missing().is_empty());
}

#[test]
fn links_do_not_outlive_their_pods() {
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(running("u"), "c"));
    cluster.delete(WatchedKind::Pods, running("u"));
    assert!(names(&cluster.claim(plain("c")), Subject::Pod).is_empty());
    assert!(cluster.apply(WatchedKind::Templates, template()).is_empty());
}

#[test]
fn nothing_wakes_a_pod_that_is_done() {
    // Each time another template.
    let template = |number: u32| with(template(), "/spec/spec/devices", json!({ "number": number }));
    let mut cluster = Cluster::synced();
    cluster.pod(publishes(running("u"), "c"));
    let dirty = cluster.pod(publishes(succeeded("u"), "c"));
    assert!(names(&dirty, Subject::Claim).contains(&"c".to_owned()), "its end wakes its claim");
    assert!(names(&cluster.claim(plain("c")), Subject::Pod).is_empty());
    assert!(cluster.apply(WatchedKind::Templates, template(1)).is_empty());
    // Deleted before it had a node it counts as done; a node that comes all the same is told.
    let deleting = |pod| with(pod, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    cluster.pod(deleting(publishes(pod("late"), "c")));
    assert!(cluster.apply(WatchedKind::Templates, template(2)).is_empty());
    assert_eq!(names(&cluster.pod(deleting(publishes(running("late"), "c"))), Subject::Pod), ["pod"]);
    assert_eq!(names(&cluster.apply(WatchedKind::Templates, template(3)), Subject::Pod), ["pod"]);
}

#[test]
fn links_of_one_template_are_told_apart() {
    let mut cluster = Cluster::synced();
    for i in 0..100 {
        cluster.pod(with(pod(&format!("u{i}")), "/metadata/name", json!(format!("p{i}"))));
    }
    cluster.delete(WatchedKind::Pods, with(pod("u7"), "/metadata/name", json!("p7")));
    let dirty = names(&cluster.apply(WatchedKind::Templates, template()), Subject::Pod);
    assert_eq!(dirty.len(), 99);
    assert!(!dirty.contains(&"p7".to_owned()));
    // A name that begins like another is another, and so is one that comes before it.
    let before = with(template(), "/metadata/name", json!("on"));
    assert!(cluster.apply(WatchedKind::Templates, before).is_empty());
    let other = with(
        template(),
        "/metadata/name",
        json!(format!("{}-b", template()["metadata"]["name"].as_str().expect("name"))),
    );
    assert!(cluster.apply(WatchedKind::Templates, other).is_empty());
}

#[test]
fn a_template_wakes_its_users_only_if_their_claims_would_differ() {
    let mut cluster = Cluster::synced();
    cluster.pod(pod("u"));
    assert_eq!(cluster.apply(WatchedKind::Templates, template()).len(), 1);
    let annotated = with(template(), "/metadata/annotations", json!({"touched": "again"}));
    assert!(cluster.apply(WatchedKind::Templates, annotated).is_empty());
    let other = with(template(), "/spec/spec/devices", json!({"requests": []}));
    assert_eq!(cluster.apply(WatchedKind::Templates, other).len(), 1);
}

#[test]
fn a_claim_that_goes_wakes_the_oldest_that_waits_for_a_quota() {
    let mut cluster = Cluster::synced();
    let [oldest, other] = ["oldest", "other"].map(|name| Key::new(Subject::Pod, "ns", name));
    let refused =
        || CreationOutcome { created: 0, waits: [("one".into(), Some("exceeded quota".to_owned()))].into() };
    let at = Instant::now();
    cluster.state.quota.note(&oldest, refused(), at);
    cluster.state.quota.note(&other, refused(), at);
    // It has been refused several times, and would wait for half a minute.
    for after in [10_000, 20_000, 40_000, 70_000] {
        cluster.state.quota.note(&oldest, refused(), at + Duration::from_millis(after));
    }
    cluster.claim(plain("c"));
    let dirty = cluster.delete(WatchedKind::Claims, plain("c"));
    assert!(dirty.contains(&oldest) && !dirty.contains(&other), "{dirty:?}");
}
