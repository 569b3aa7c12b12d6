//! The proof of a second writer rests on what tenants cannot write.

use super::*;
use crate::claim_lifecycle::second_writer::Stop;

/// A time well after this process began to lead.
const LATER: Timestamp = Timestamp::constant(1100, 0);

fn leading() -> Cluster {
    let mut cluster = Cluster::synced();
    cluster.state.witnesses.on_elected(NOW);
    cluster.apply(WatchedKind::Templates, template());
    cluster
}

fn created(claim: Value, at: Timestamp) -> Value {
    with(claim, "/metadata/creationTimestamp", json!(at.to_string()))
}

fn noticed(cluster: &Cluster) -> bool {
    cluster.state.witnesses.stops("ns", NOW)
}

/// A claim that another process made and the Pod names.
fn by_another(cluster: &mut Cluster) {
    cluster.pod(pod("u"));
    cluster.claim(created(generated("pod-gpu-aaaaa", "u"), LATER));
    cluster.pod(publishes(pod("u"), "pod-gpu-aaaaa"));
}

#[test]
fn a_published_name_that_is_not_ours_proves_a_second_writer() {
    let mut cluster = leading();
    by_another(&mut cluster);
    assert!(noticed(&cluster));
    assert!(!cluster.state.witnesses.stops("elsewhere", NOW), "one namespace proves nothing about others");
    assert_eq!(cluster.state.witnesses.stop(NOW), Stop::Namespaces(1));
    let unsaid: Vec<_> = cluster.state.witnesses.unsaid().into_iter().map(|found| found.claim).collect();
    assert_eq!(unsaid, ["pod-gpu-aaaaa".into()]);
    // It is tried again after a while.
    assert!(!cluster.state.witnesses.stops("ns", after(600)));
}

#[test]
fn the_claim_may_be_seen_after_its_name() {
    let mut cluster = leading();
    cluster.pod(publishes(pod("u"), "pod-gpu-aaaaa"));
    assert!(!noticed(&cluster));
    cluster.claim(created(generated("pod-gpu-aaaaa", "u"), LATER));
    assert!(noticed(&cluster));
}

#[test]
fn a_forged_claim_proves_nothing() {
    let mut cluster = leading();
    // Of an invented Pod, of a Pod that names another, and of one that names none.
    cluster.claim(created(generated("pod-gpu-aaaaa", "invented"), LATER));
    cluster.pod(pod("u"));
    cluster.claim(created(generated("pod-gpu-aaaab", "u"), LATER));
    let ours = claim_name("pod", "u", "gpu", Generation::default());
    cluster.claim(created(generated(&ours, "u"), LATER));
    cluster.pod(publishes(pod("u"), &ours));
    cluster.claim(created(generated("pod-gpu-aaaac", "u"), LATER));
    assert!(!noticed(&cluster));
}

#[test]
fn a_forged_claim_that_dragoman_itself_adopted_proves_nothing() {
    let mut cluster = leading();
    cluster.pod(pod("u"));
    cluster.claim(created(generated("pod-gpu-aaaaa", "u"), LATER));
    cluster.state.witnesses.publishing("u", "gpu", "pod-gpu-aaaaa");
    cluster.pod(publishes(pod("u"), "pod-gpu-aaaaa"));
    assert!(!noticed(&cluster));
}

#[test]
fn old_claims_foreign_claims_and_the_schedulers_prove_nothing() {
    let mut cluster = leading();
    cluster.pod(pod("u"));
    let annotations = json!({"resource.kubernetes.io/pod-claim-name": "gpu", "resource.kubernetes.io/extended-resource-claim": "true"});
    for claim in [
        created(generated("pod-gpu-aaaaa", "u"), after(-5)),
        // Clocks differ by some seconds.
        created(generated("pod-gpu-aaaaa", "u"), after(10)),
        created(plain("pod-gpu-aaaaa"), LATER),
        created(generated("pod-gpu-aaaaa", "another"), LATER),
        with(created(generated("pod-gpu-aaaaa", "u"), LATER), "/metadata/annotations", annotations),
    ] {
        cluster.claim(claim.clone());
        cluster.pod(publishes(pod("u"), "pod-gpu-aaaaa"));
        assert!(!noticed(&cluster), "{claim}");
        cluster.pod(pod("u"));
        cluster.delete(WatchedKind::Claims, claim);
    }
}

#[test]
fn proofs_in_several_namespaces_stop_everything() {
    use crate::claim_lifecycle::second_writer::{NamedBy, Witnesses};
    let claim = created(generated("pod-gpu-aaaaa", "u"), LATER);
    let facts = ClaimFacts::from(&decode::<ResourceClaim>(claim).expect("claim"));
    let mut witnesses = Witnesses::default();
    witnesses.on_elected(NOW);
    let mut prove = |namespace: &str, now| {
        let by = NamedBy { namespace: &namespace.into(), uid: "u", entry: "gpu" };
        witnesses.named(by, &"pod-gpu-aaaaa".into(), &facts, now);
        witnesses.stop(now)
    };
    assert_eq!(prove("a", LATER), Stop::Namespaces(1));
    assert_eq!(prove("a", LATER), Stop::Namespaces(1), "the same proof again is not another one");
    assert_eq!(prove("b", LATER), Stop::Namespaces(2));
    assert_eq!(prove("c", after(700)), Stop::Namespaces(1), "the first two are over");
    assert_eq!(prove("a", after(701)), Stop::Namespaces(2));
    assert_eq!(prove("b", after(702)), Stop::Everything(3));
    assert!(witnesses.stops("any", after(703)));
}
