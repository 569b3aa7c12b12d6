//! Pods and claims that the allocator keeps: those that take something or wait for something.

use dragoman_machinery::controller::Index as _;
use dragoman_machinery::kind::POD;
use dragoman_objects::{Pod, ResourceClaim};
use serde_json::json;

use super::{applied, claim, cluster, name, pod};
use crate::allocation::index::Allocation;

fn pods(index: &Allocation) -> usize {
    index.store_of(POD).map_or(0, |(_, store)| store.count().0)
}

#[test]
fn a_pod_that_has_ended_is_kept_no_more() {
    let mut index = cluster(1, 3);
    applied::<Pod>(&mut index, &pod(0, "1"));
    assert_eq!(pods(&index), 1);
    let mut bound = pod(0, "1");
    bound["spec"]["nodeName"] = json!(name(0));
    applied::<Pod>(&mut index, &bound);
    assert_eq!(pods(&index), 1, "it takes something from its node");
    bound["status"]["phase"] = json!("Succeeded");
    applied::<Pod>(&mut index, &bound);
    assert_eq!(pods(&index), 0);
}

#[test]
fn a_pod_without_claims_and_a_node_is_kept_for_its_group_alone() {
    let mut index = cluster(1, 3);
    let mut plain = pod(0, "1");
    plain["spec"]["resourceClaims"] = json!([]);
    applied::<Pod>(&mut index, &plain);
    assert_eq!(pods(&index), 0);
    plain["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    applied::<Pod>(&mut index, &plain);
    assert_eq!(pods(&index), 1, "a gang counts its Pods");
    plain["status"]["phase"] = json!("Failed");
    applied::<Pod>(&mut index, &plain);
    assert_eq!(pods(&index), 0);
}

/// Claims that this allocator does not allocate cost it no memory, whatever a tenant writes into them.
#[test]
fn the_spec_of_a_claim_of_another_allocator_is_not_kept() {
    let mut index = cluster(1, 3);
    index.allocator = Some("dragoman".into());
    let requests = |index: &mut Allocation, allocator: Option<&str>| {
        let mut claim = claim(0, &json!({}));
        let labels = allocator.map_or_else(|| json!({}), |name| json!({"dragoman.dev/allocator": name}));
        claim["metadata"]["labels"] = labels;
        applied::<ResourceClaim>(index, &claim);
        index.snapshot.claim("claim-0").expect("it exists").devices.requests.len()
    };
    assert_eq!(requests(&mut index, Some("dragoman")), 1);
    assert_eq!(requests(&mut index, Some("other")), 0);
    assert_eq!(requests(&mut index, None), 0);
    assert_eq!(requests(&mut index, Some("dragoman")), 1, "it names this one after all");
}
