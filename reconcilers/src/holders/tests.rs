//! What a holder Pod carries, and when.

use dragoman_accounting::per_resource::Units;
use dragoman_accounting::resource::Resource;
use dragoman_crds::wire::Pod;
use dragoman_machinery::write::{Action, Guard};
use serde_json::{Value, json};

use super::index::{HolderFacts, is_holder};
use super::plan::{LINGER, Owner, Plan, Snapshot, carries_too_much, create, name_of, plan};

fn units(cpu: i64, memory: i64) -> Units {
    let mut units = Units::default();
    units.set(Resource::Cpu, cpu);
    units.set(Resource::Memory, memory);
    units
}

const MI: i64 = 1 << 20;

fn holder(carries: Units) -> HolderFacts {
    let guard = Guard { uid: "u".to_owned(), resource_version: "1".to_owned() };
    HolderFacts { node: "n".into(), guard, deleting: false, is_over: false, carries }
}

fn planned(wants: Option<Units>, holder: Option<&HolderFacts>, idle: Option<i64>) -> Plan {
    plan(&Snapshot { has_node: true, wants, holder, idle, made: None }, 100_000)
}

#[test]
fn a_holder_is_made_when_claims_take_something() {
    assert_eq!(planned(Some(units(0, 0)), None, None), Plan::Rest);
    assert_eq!(planned(None, None, None), Plan::Rest, "it is not known whether kube-scheduler sees it");
    // It keeps its QoS class: a request of nothing would be another one.
    assert_eq!(planned(Some(units(3_000, 0)), None, None), Plan::Create(units(3_000, MI)));
    let gone = Snapshot { has_node: false, wants: Some(units(1, 1)), holder: None, idle: None, made: None };
    assert_eq!(plan(&gone, 0), Plan::Rest, "there is no such node");
}

#[test]
fn a_holder_is_raised_at_once_and_lowered_later() {
    let known = holder(units(3_000, 5 * MI));
    // What is not more stays for now.
    assert_eq!(planned(Some(units(4_000, 2 * MI)), Some(&known), None), Plan::Resize(units(4_000, 5 * MI)));
    assert_eq!(planned(Some(units(3_000, 5 * MI)), Some(&known), None), Plan::Rest);
    assert_eq!(planned(Some(units(1_000, 5 * MI)), Some(&known), Some(100_000)), Plan::Wait(LINGER));
    let since = Some(100_000 - LINGER);
    assert_eq!(planned(Some(units(1_000, 5 * MI)), Some(&known), since), Plan::Resize(units(1_000, 5 * MI)));
    assert_eq!(planned(Some(units(0, 0)), Some(&known), Some(99_000)), Plan::Wait(LINGER - 1_000));
    assert_eq!(planned(Some(units(0, 0)), Some(&known), since), Plan::Delete);
    assert_eq!(planned(None, Some(&known), since), Plan::Rest, "it is not known whether it is of use");
}

/// Otherwise it would be lowered without a wait once it carries too much.
#[test]
fn a_holder_that_carries_what_it_has_to_is_not_idle() {
    let known = holder(units(3_000, MI));
    assert!(!carries_too_much(&known, &units(3_000, 0)), "it requests the least of the other resource");
    assert!(carries_too_much(&known, &units(2_000, 0)));
    assert!(carries_too_much(&known, &units(0, 0)));
    assert!(!carries_too_much(&known, &units(4_000, 0)));
}

#[test]
fn a_holder_that_ended_is_made_again_ever_later() {
    let over = HolderFacts { is_over: true, ..holder(units(3_000, MI)) };
    assert_eq!(planned(Some(units(3_000, 0)), Some(&over), None), Plan::Delete);
    assert!(!over.carries(&units(1, 0)));
    let deleting = HolderFacts { deleting: true, ..holder(units(3_000, MI)) };
    assert_eq!(planned(Some(units(3_000, 0)), Some(&deleting), None), Plan::Rest);
    assert!(!deleting.carries(&units(1, 0)));
    let again = |times| {
        let made = Some((100_000, times));
        let wants = Some(units(3_000, 0));
        plan(&Snapshot { has_node: true, wants, holder: None, idle: None, made }, 100_000)
    };
    assert_eq!([again(0), again(3), again(30)], [1_000, 8_000, 64_000].map(Plan::Wait));
}

#[test]
fn a_holder_is_found_by_its_node_and_belongs_to_what_is_published_of_it() {
    let owner = Owner {
        kind: ("dragoman.dev/v1alpha1".to_owned(), "NodeAllocatableDRAClaimState"),
        uid: "o".to_owned(),
    };
    let write = create("kube-system", "n", &owner, "pause", &units(1_500, 3 * MI));
    let Action::Create { body } = &write.action else { panic!("{write:?}") };
    let body: Value = serde_json::from_str(body).expect("a Pod");
    assert_eq!(
        body["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "1500m", "memory": "3Mi"})
    );
    assert_eq!(
        (&body["spec"]["nodeName"], &body["metadata"]["ownerReferences"][0]["uid"]),
        (&json!("n"), &json!("o"))
    );
    let pod: Pod = serde_json::from_value(body).expect("a Pod");
    assert!(is_holder(&pod, "kube-system"));
    assert!(!is_holder(&pod, "tenant"), "a tenant's Pod takes what it requests");
    let long = "n".repeat(253);
    assert_eq!((name_of("n"), name_of(&long).len()), ("holder-n".to_owned(), 253));
    assert_ne!(name_of(&long), name_of(&format!("{}m", "n".repeat(252))));
}
