//! What is written into the status of a Pod, and when no more.

use dragoman_accounting::claim::allocation::{Device, DeviceResult};
use dragoman_accounting::claim::contribution::{Contribution, Line, Source};
use dragoman_accounting::claim::footprint::{
    AccountingPolicy, Basis, DeviceCost, Mapping, ResourceFootprint,
};
use dragoman_accounting::cluster::{self, ClaimName, ClaimsOfPod, ClusterLedger, PodClaim, Rules};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_crds::wire::Pod;
use dragoman_machinery::controller::Keeps;
use dragoman_quantity::Decimal;
use serde_json::{Value, json};

use super::index::{PodStatuses, recorded};
use super::plan::{Conflict, Mine, Plan, plan};

const NOW: i64 = 1_000_000;

fn claims() -> ClaimsOfPod {
    let line = Line::mapping(Resource::Cpu, Decimal::from(2));
    let of = Contribution { source: Source::claim("gpu"), lines: vec![line], ..Contribution::default() };
    ClaimsOfPod { contributions: vec![of], unaccounted: Vec::new() }
}

fn mine(times: usize) -> Mine {
    Mine { recorded: Some(7), times, at: NOW, ..Mine::default() }
}

fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).expect("Pod")
}

#[test]
fn a_pod_with_an_extended_resource_alone_is_concerned() {
    let pod = |status: Value| {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "p"},
            "spec": {"nodeName": "n", "containers": []}, "status": status}))
        .expect("Pod")
    };
    let mut index = PodStatuses::default();
    assert_eq!(Keeps::<Pod>::project(&mut index, &pod(json!({}))), None, "it has no claim");
    let extended = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}});
    assert_eq!(Keeps::<Pod>::project(&mut index, &pod(extended)), Some(None), "nothing is recorded yet");
}

#[test]
fn a_pod_without_entries_gets_them_once() {
    assert_eq!(plan(None, Some(claims()), None, NOW), Plan::Write(claims().contributions));
    assert_eq!(plan(Some(7), Some(claims()), Some(&mine(1)), NOW), Plan::Rest);
}

#[test]
fn what_another_writer_wrote_first_is_left_alone() {
    assert_eq!(plan(Some(1), Some(claims()), None, NOW), Plan::Rest);
}

#[test]
fn half_of_the_amounts_is_not_written() {
    let unread = Unaccounted { object: "o".into(), field: "f".into(), resource: None, why: "w".into() };
    let half = ClaimsOfPod { unaccounted: vec![unread], ..claims() };
    assert!(matches!(plan(None, Some(half), None, NOW), Plan::Wait(_)));
    assert!(matches!(plan(None, None, None, NOW), Plan::Wait(_)), "the ledger does not know the Pod yet");
}

#[test]
fn claims_that_take_nothing_have_no_entry() {
    let nothing = Contribution { source: Source::claim("gpu"), ..Contribution::default() };
    let claims = ClaimsOfPod { contributions: vec![nothing], unaccounted: Vec::new() };
    assert_eq!(plan(None, Some(claims), None, NOW), Plan::Rest);
}

#[test]
fn erased_entries_are_put_back_with_an_end() {
    assert_eq!(plan(None, Some(claims()), Some(&mine(1)), NOW), Plan::Wait(1_000));
    assert_eq!(plan(None, Some(claims()), Some(&mine(1)), NOW + 1_000), Plan::Write(claims().contributions));
    assert_eq!(plan(None, Some(claims()), Some(&mine(3)), NOW + 59_999), Plan::Wait(1));
    assert_eq!(plan(None, Some(claims()), Some(&mine(4)), NOW + 60_000), Plan::Stop(Conflict::Erased));
}

#[test]
fn a_second_writer_ends_it() {
    assert_eq!(plan(Some(8), Some(claims()), Some(&mine(1)), NOW), Plan::Stop(Conflict::Replaced));
    let stopped = Mine { stopped: true, ..mine(1) };
    for recorded in [None, Some(7), Some(8)] {
        assert_eq!(plan(recorded, Some(claims()), Some(&stopped), NOW), Plan::Rest);
    }
}

/// An apply conflicts with a manager that owns the field and has no entries in it.
#[test]
fn a_field_that_another_manager_owns_is_tried_four_times_and_said() {
    let refused = |times| Mine { recorded: None, owned: true, ..mine(times) };
    assert_eq!(plan(None, Some(claims()), Some(&refused(1)), NOW), Plan::Wait(1_000));
    assert_eq!(plan(None, Some(claims()), Some(&refused(4)), NOW), Plan::Stop(Conflict::Owned));
    // Its entries were on their way: they were there first.
    assert_eq!(plan(Some(8), Some(claims()), Some(&refused(1)), NOW), Plan::Rest);
}

#[test]
fn a_policy_that_the_field_has_no_place_for_is_said() {
    let mut pooled = claims();
    pooled.contributions[0].lines[0].policy = Some(AccountingPolicy::ConsumeFrom);
    assert_eq!(plan(None, Some(pooled), None, NOW), Plan::Stop(Conflict::Inexpressible));
}

#[test]
fn a_clock_that_is_put_back_delays_nothing() {
    assert_eq!(plan(None, Some(claims()), Some(&mine(1)), NOW - 5), Plan::Write(claims().contributions));
}

#[test]
fn a_mapped_claim_of_several_pods_is_written_into_none() {
    let claim = cluster::Claim {
        namespace: "ns".into(),
        name: "gpu".into(),
        uid: "c".into(),
        results: Some(vec![DeviceResult { driver: "d".into(), ..DeviceResult::default() }]),
        unread: None,
    };
    let costs = ResourceFootprint {
        mapping: Some(Mapping { basis: Basis::PerDevice, multiplier: Decimal::from(2) }),
        ..ResourceFootprint::default()
    };
    let device =
        Device { cost: DeviceCost { resources: [(Resource::Cpu, costs)].into() }, ..Device::default() };
    let device = cluster::SliceDevice { device, ..cluster::SliceDevice::default() };
    let mut ledger = ClusterLedger::new(Rules::default());
    ledger.put_slice(cluster::Slice {
        driver: "d".into(),
        devices: vec![device],
        ..cluster::Slice::default()
    });
    ledger.put_claim(claim);
    let pod = |uid: &str| cluster::Pod {
        view: PodSpecView {
            namespace: "ns".into(),
            name: uid.into(),
            uid: uid.into(),
            ..PodSpecView::default()
        },
        node: Some("n".into()),
        claims: vec![PodClaim { claim: ClaimName::Named("gpu".into()), ..PodClaim::default() }],
        ..cluster::Pod::default()
    };
    ledger.put_pod(pod("a"));
    assert!(matches!(plan(None, ledger.claims_of_pod("a"), None, NOW), Plan::Write(_)));
    ledger.put_pod(pod("b"));
    for uid in ["a", "b"] {
        assert!(matches!(plan(None, ledger.claims_of_pod(uid), None, NOW), Plan::Wait(_)), "{uid}");
    }
}

#[test]
fn every_generation_and_a_field_that_does_not_decode_is_an_entry() {
    assert_eq!(recorded(&pod(&json!({}))), None);
    assert_eq!(recorded(&pod(&json!({"nodeAllocatableResourceClaimStatuses": []}))), None);
    let of = |status: Value| recorded(&pod(&status)).expect("an entry");
    let v1_36 = of(json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "gpu", "resources": {"cpu": "2"}}]}));
    let v1_37 = of(json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "gpu", "mapping": [{"name": "cpu", "quantity": "2"}]}]}));
    let other = of(json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "gpu", "mapping": [{"name": "cpu", "quantity": "3"}]}]}));
    let unreadable = of(json!({"nodeAllocatableResourceClaimStatuses": "none"}));
    assert!(v1_36 != v1_37 && v1_37 != other && unreadable != other);
}
