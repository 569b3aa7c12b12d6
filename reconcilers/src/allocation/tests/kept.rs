//! Pods and claims that the allocator keeps: those that take something or wait for something.

use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::driver_owner::DriverOwner;
use dragoman_machinery::controller::{Index as _, Keeps};
use dragoman_machinery::kind::POD;
use dragoman_objects::{
    DeviceClass, DeviceTaintRule, Pod, PodGroup, ResourceClaim, ResourceSlice, StorageClass,
};
use serde_json::json;

use super::passes::{World, no_answers};
use super::{applied, claim, cluster, comes, name, pod};
use crate::allocation::index::Allocation;
use crate::allocation::pass::Purpose;

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

/// Nothing is allocated while a kind is not there that every search needs. An API server without DeviceTaintRules has no taints; where the
/// right to read them is missing, there may be any.
#[test]
fn a_kind_that_every_search_needs_is_missed() {
    let mut index = cluster(1, 3);
    assert_eq!(index.missing_kind(), None);
    Keeps::<StorageClass>::forbidden(&mut index);
    Keeps::<DeviceTaintRule>::unserved(&mut index);
    Keeps::<DriverOwner>::unserved(&mut index);
    assert_eq!(index.missing_kind(), None);
    let mut missed = |forbid: fn(&mut Allocation), list: fn(&mut Allocation)| {
        forbid(&mut index);
        let missing = index.missing_kind().map(|kind| kind.plural);
        list(&mut index);
        assert_eq!(index.missing_kind(), None);
        missing
    };
    macro_rules! missed {
        ($kind:ty) => {
            missed(
                |index| drop(Keeps::<$kind>::forbidden(index)),
                |index| drop(Keeps::<$kind>::listed(index)),
            )
        };
    }
    assert_eq!(missed!(ResourceSlice), Some("resourceslices"));
    assert_eq!(missed!(DeviceClass), Some("deviceclasses"));
    assert_eq!(missed!(DeviceFootprint), Some("devicefootprints"));
    assert_eq!(missed!(DeviceTaintRule), Some("devicetaintrules"));
    assert_eq!(missed!(DriverOwner), Some("driverowners"));
    Keeps::<DeviceTaintRule>::forbidden(&mut index);
    Keeps::<DeviceTaintRule>::unserved(&mut index);
    assert_eq!(index.missing_kind(), None, "it is not served any more");
}

/// Whether its Pods are placed together is not known.
#[test]
fn a_pod_of_a_group_waits_where_groups_may_not_be_read() {
    let mut world = World::of(cluster(1, 1));
    comes(&mut world.index, 0, "1");
    let mut member = pod(0, "1");
    member["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    applied::<Pod>(&mut world.index, &member);
    Keeps::<PodGroup>::forbidden(&mut world.index);
    let waits = world.look(0, no_answers()).expect("it waits");
    assert!(waits.purposes().iter().all(|purpose| *purpose == Purpose::Verdict), "{:?}", waits.purposes());
    Keeps::<PodGroup>::unserved(&mut world.index);
    Keeps::<PodGroup>::listed(&mut world.index);
    let entries: Vec<_> = (0..1_025).map(|number| json!({"name": format!("e{number}")})).collect();
    let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g", "resourceVersion": "1"},
        "spec": {"resourceClaims": entries}});
    applied::<PodGroup>(&mut world.index, &group);
    let waits = world.look(0, no_answers()).expect("it waits");
    assert!(waits.purposes().iter().all(|purpose| *purpose == Purpose::Verdict), "{:?}", waits.purposes());
    comes(&mut world.index, 1, "1");
    assert!(world.look(1, no_answers()).expect("it is decided on").purposes().len() > 1, "others do not");
}
