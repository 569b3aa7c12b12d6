//! Conversions between the generations: round trips, and what each loses.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use dragoman_accounting::claim::footprint::{
    AccountingPolicy, Basis, DeviceFootprint, Mapping, Overhead, ResourceFootprint,
};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::wire::device::{
    Loss, Warning, from_1_36, from_1_37, from_draft, to_1_36, to_1_37, to_draft,
};
use dragoman_quantity::Decimal;
use proptest::prelude::*;

fn decimal() -> impl Strategy<Value = Decimal> {
    // What a quantity can hold: nothing below a billionth.
    (1..1_000_000_i128, -9..12).prop_map(|(mantissa, exponent)| Decimal::new(mantissa, exponent).unwrap())
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let basis = prop_oneof![Just(Basis::PerDevice), "[a-z]{1,8}".prop_map(|key| Basis::Capacity(key.into()))];
    (basis, decimal()).prop_map(|(basis, multiplier)| Mapping { basis, multiplier })
}

fn overhead() -> impl Strategy<Value = Overhead> {
    let both = (prop::option::of(decimal()), prop::option::of(decimal()));
    both.prop_filter_map("one of the two", |(per_pod, per_container)| {
        (per_pod.is_some() || per_container.is_some()).then_some(Overhead { per_pod, per_container })
    })
}

fn footprint() -> impl Strategy<Value = ResourceFootprint> {
    let policy = prop_oneof![Just(AccountingPolicy::Max), Just(AccountingPolicy::ConsumeFrom)];
    let parts = (
        prop::option::of(mapping()),
        prop::option::of(overhead()),
        prop::option::of(decimal()),
        prop::option::of(policy),
    );
    parts
        .prop_map(|(mapping, overhead, reservation, policy)| ResourceFootprint {
            mapping,
            overhead,
            reservation,
            policy,
        })
        .prop_filter("says something", |f| {
            f.mapping.is_some() || f.overhead.is_some() || f.reservation.is_some()
        })
}

fn device() -> impl Strategy<Value = DeviceFootprint> {
    let resource = prop_oneof![
        Just(Resource::Cpu),
        Just(Resource::Memory),
        Just(Resource::EphemeralStorage),
        Just(Resource::of("hugepages-2Mi").unwrap())
    ];
    prop::collection::btree_map(resource, footprint(), 0..4)
        .prop_map(|resources: BTreeMap<_, _>| DeviceFootprint { resources })
}

/// Without what the generations from 1.36 on have in common not to say.
fn said(device: &DeviceFootprint, keep: impl Fn(&mut ResourceFootprint)) -> DeviceFootprint {
    let mut device = device.clone();
    device.resources.values_mut().for_each(|footprint| {
        footprint.policy = None;
        keep(footprint);
    });
    device.resources.retain(|_, f| f.mapping.is_some() || f.overhead.is_some() || f.reservation.is_some());
    device
}

proptest! {
    #[test]
    fn what_1_37_can_say_survives_and_the_rest_is_named(device in device()) {
        for reservations in [true, false] {
            let (wire, losses) = to_1_37(&device, reservations);
            let json = serde_json::to_string(&wire).unwrap();
            let back = from_1_37(&serde_json::from_str(&json).unwrap()).unwrap();
            let expected = said(&device, |f| if !reservations { f.reservation = None });
            prop_assert_eq!(&back, &expected);
            prop_assert_eq!(losses.is_empty(), back == device);
        }
    }

    #[test]
    fn what_1_36_can_say_survives_and_the_rest_is_named(device in device()) {
        let (wire, losses) = to_1_36(&device);
        let json = serde_json::to_string(&wire).unwrap();
        let (back, warnings) = from_1_36(&serde_json::from_str(&json).unwrap()).unwrap();
        prop_assert!(warnings.is_empty());
        for (&resource, footprint) in &device.resources {
            let read = back.resources.get(&resource).and_then(|f| f.mapping.clone());
            match (&footprint.mapping, footprint.overhead.and_then(|o| o.per_pod)) {
                (Some(mapping), _) => prop_assert_eq!(read.as_ref(), Some(mapping)),
                (None, Some(per_pod)) => {
                    prop_assert_eq!(read.map(|m| m.multiplier), Some(per_pod));
                    prop_assert!(losses.contains(&Loss::OverheadPerPodMapped(resource)));
                }
                (None, None) => prop_assert_eq!(read, None),
            }
        }
        prop_assert_eq!(losses.is_empty(), back == device);
    }

    #[test]
    fn what_the_draft_can_say_survives_and_the_rest_is_named(device in device()) {
        let (wire, losses) = to_draft(&device);
        let json = serde_json::to_string(&wire).unwrap();
        let back = from_draft(&serde_json::from_str(&json).unwrap()).unwrap();
        prop_assert_eq!(losses.is_empty(), back == device);
        for (&resource, footprint) in &back.resources {
            prop_assert_eq!(&footprint.mapping, &device.resources.get(&resource).unwrap().mapping);
        }
    }
}

#[test]
fn a_missing_multiplier_is_one_in_1_36_and_refused_later() {
    let (footprint, warnings) = from_1_36(&serde_json::from_str(r#"{"cpu": {}}"#).unwrap()).unwrap();
    let mapping = Mapping { basis: Basis::PerDevice, multiplier: Decimal::from(1) };
    assert_eq!(footprint.resources.get(&Resource::Cpu).unwrap().mapping, Some(mapping));
    assert_eq!(warnings, [Warning::MultiplierMissing(Resource::Cpu)]);
    let refused =
        from_1_37(&serde_json::from_str(r#"{"cpu": {"mapping": {"capacityKey": "cores"}}}"#).unwrap());
    assert_eq!(refused.unwrap_err().field, "[cpu].mapping");
}

#[test]
fn definitions_that_make_no_sense_are_refused_whole_with_the_field() {
    for (json, field) in [
        (r#"{"cpu": {}}"#, "[cpu]"),
        (r#"{"cpu": {"mapping": {}}}"#, "[cpu].mapping"),
        (
            r#"{"cpu": {"mapping": {"deviceMultiplier": "1", "capacityKey": "a", "capacityMultiplier": "1"}}}"#,
            "[cpu].mapping",
        ),
        (r#"{"cpu": {"mapping": {"deviceMultiplier": "0"}}}"#, "[cpu].mapping.deviceMultiplier"),
        (r#"{"cpu": {"mapping": {"deviceMultiplier": "-1"}}}"#, "[cpu].mapping.deviceMultiplier"),
        (r#"{"cpu": {"overhead": {}}}"#, "[cpu].overhead"),
        (r#"{"cpu": {"overhead": {"perPod": "1e4000"}}}"#, "[cpu].overhead.perPod"),
        (r#"{"cpu": {"reservation": {}}}"#, "[cpu].reservation"),
        (r#"{"pods": {"overhead": {"perPod": "1"}}}"#, "[pods]"),
        (
            r#"{"memory": {"overhead": {"perPod": "1"}}, "cpu": {"overhead": {"perPod": "many"}}}"#,
            "[cpu].overhead.perPod",
        ),
    ] {
        assert_eq!(from_1_37(&serde_json::from_str(json).unwrap()).unwrap_err().field, field, "{json}");
    }
}
