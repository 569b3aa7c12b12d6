//! Decisions that the index does not show yet.

use super::{cluster, comes, decided, key};
use crate::allocation::decide::Decision;
use crate::allocation::in_flight::InFlightAllocations;
use crate::allocation::index::{Allocation, ClaimFacts, NamedClaim};

/// Decides for the first Pod of a cluster. Returns all decisions, the claims of the Pod as the index has
/// them, and this decision.
fn in_flight(index: &mut Allocation) -> (InFlightAllocations, Vec<NamedClaim>, Decision) {
    comes(index, 0, "1");
    let mut in_flight = InFlightAllocations::default();
    let decision = decided(index, &in_flight, 0).expect("there is room");
    let (_, pod) = index.pod(&key(0)).expect("it waits");
    let claims = index.claims_of("ns", &pod).expect("claims");
    in_flight.put(&key(0), &"pod-0".into(), &claims, &decision);
    (in_flight, claims, decision)
}

#[test]
fn a_decision_stands_until_the_index_shows_what_became_of_it() {
    let mut index = cluster(1, 1);
    let (mut decided, claims, decision) = in_flight(&mut index);
    let named = |version: &str, is_allocated: bool| -> Vec<NamedClaim> {
        let NamedClaim { name, uid, facts, group } = claims.first().expect("a claim").clone();
        let facts = ClaimFacts { version: version.into(), is_allocated, ..ClaimFacts::clone(&facts) };
        vec![NamedClaim { name, uid, facts: facts.into(), group }]
    };
    // The answer was lost, and the watch has brought nothing.
    decided.compare(&key(0), &named("2", false));
    let again = decided.standing(&key(0)).expect("it stands");
    assert_eq!((again.node, again.allocations), (decision.node.clone(), decision.allocations.clone()));
    // It was written.
    let mut shown = InFlightAllocations::default();
    shown.put(&key(0), &"pod-0".into(), &claims, &decision);
    shown.compare(&key(0), &named("3", true));
    assert!(shown.overlay.assumes("claim-0").is_none(), "the index counts it");
    // Another writer was faster, and the claim has no allocation.
    decided.compare(&key(0), &named("3", false));
    assert!(decided.standing(&key(0)).is_none());
    assert!(decided.overlay.assumes("claim-0").is_none(), "the device is free");
}

#[test]
fn a_claim_that_was_replaced_holds_no_decision() {
    let mut index = cluster(1, 1);
    let (mut decided, claims, _) = in_flight(&mut index);
    let NamedClaim { name, facts, group, .. } = claims.first().expect("a claim").clone();
    decided.compare(&key(0), &[NamedClaim { name, uid: "another-uid".into(), facts, group }]);
    assert!(decided.standing(&key(0)).is_none());
    assert!(decided.overlay.assumes("claim-0").is_none());
}

#[test]
fn a_claim_is_decided_on_for_one_pod_at_a_time() {
    let mut index = cluster(1, 1);
    let (mut decided, _, _) = in_flight(&mut index);
    assert!(decided.is_for_another(&key(1), "claim-0"), "another Pod shares it");
    assert!(!decided.is_for_another(&key(0), "claim-0"));
    assert!(!decided.is_for_another(&key(1), "claim-1"));
    assert_eq!(decided.forget(&key(0)).as_deref(), Some("node-00000"), "it has room again");
    assert!(!decided.is_for_another(&key(1), "claim-0"));
}

#[test]
fn a_pod_does_not_inherit_from_its_namesake() {
    let mut index = cluster(1, 1);
    let (decided, _, _) = in_flight(&mut index);
    assert!(decided.is_of_namesake(&key(0), "another-uid"));
    assert!(!decided.is_of_namesake(&key(0), "pod-0"));
    assert!(!decided.is_of_namesake(&key(1), "pod-1"));
}

/// Devices under way count against their node until the index shows them, or they are not given.
#[test]
fn devices_under_way_are_counted_once() {
    let flying = |decided: &InFlightAllocations| decided.flying.of("node-00000", None);
    let ends: [fn(&mut InFlightAllocations); 3] = [
        |decided| drop(decided.forget(&key(0))),
        |decided| decided.refused(&key(0), &"claim-0".into()),
        |decided| decided.compare(&key(0), &[]),
    ];
    for end in ends {
        let mut index = cluster(1, 1);
        let (mut decided, claims, decision) = in_flight(&mut index);
        assert_eq!(flying(&decided), 1);
        decided.put(&key(0), &"pod-0".into(), &claims, &decision);
        assert_eq!(flying(&decided), 1, "it is the same decision");
        end(&mut decided);
        assert_eq!(flying(&decided), 0);
    }
}

/// A write of metadata came between: the decision stands until its own write is known.
#[test]
fn a_decision_that_is_written_on_a_newer_version_stands_on_it() {
    let mut index = cluster(1, 1);
    let (mut decided, claims, _) = in_flight(&mut index);
    let NamedClaim { name, uid, facts, group } = claims.first().expect("a claim").clone();
    decided.writes_on(&key(0), &uid, &"5".into());
    let facts = ClaimFacts { version: "5".into(), ..ClaimFacts::clone(&facts) };
    decided.compare(&key(0), &[NamedClaim { name, uid, facts: facts.into(), group }]);
    assert!(decided.standing(&key(0)).is_some());
}

#[test]
fn devices_that_several_nodes_have_confine_no_pod() {
    let mut index = cluster(1, 1);
    let (mut decided, claims, mut decision) = in_flight(&mut index);
    assert!(!decided.is_anywhere(&key(0)));
    decision.allocations.iter_mut().for_each(|(_, devices)| devices.node_selector = None);
    decided.put(&key(0), &"pod-0".into(), &claims, &decision);
    assert!(decided.is_anywhere(&key(0)));
}

#[test]
fn the_dump_names_decisions_under_way_and_charges() {
    let mut index = cluster(1, 1);
    let (decided, ..) = in_flight(&mut index);
    assert_eq!(
        decided.describe(),
        [
            "charged to node node-00000: Pod ns/p-0",
            "in flight: claim claim-0 on node node-00000 for Pod ns/p-0"
        ]
    );
}
