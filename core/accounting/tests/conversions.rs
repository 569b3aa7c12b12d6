//! Conversions between the generations: round trips, and the losses of each.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use dragoman_accounting::claim::contribution::{Contribution, Line, Source};
use dragoman_accounting::claim::footprint::{
    AccountingPolicy, Basis, DeviceCost, Mapping, Overhead, ResourceFootprint,
};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::wire::device::{
    DeviceFields, Loss, Warning, from_1_36, from_1_37, from_draft, read as device_read, to_1_36, to_1_37,
    to_draft,
};
use dragoman_accounting::wire::pod_status::{self, Recorded};
use dragoman_objects::{Name, NodeAllocatableResources};
use dragoman_quantity::Decimal;
use proptest::prelude::*;

fn decimal() -> impl Strategy<Value = Decimal> {
    // Quantities have nothing below a billionth.
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
            local: false,
        })
        .prop_filter("says something", |f| {
            f.mapping.is_some() || f.overhead.is_some() || f.reservation.is_some()
        })
}

fn resource() -> impl Strategy<Value = Resource> {
    prop_oneof![
        Just(Resource::Cpu),
        Just(Resource::Memory),
        Just(Resource::EphemeralStorage),
        Just(Resource::of("hugepages-2Mi").unwrap())
    ]
}

fn device() -> impl Strategy<Value = DeviceCost> {
    prop::collection::btree_map(resource(), footprint(), 0..4)
        .prop_map(|resources: BTreeMap<_, _>| DeviceCost { resources })
}

/// Without what the generations from 1.36 on have in common not to say.
fn said(device: &DeviceCost, keep: impl Fn(&mut ResourceFootprint)) -> DeviceCost {
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

fn line() -> impl Strategy<Value = Line> {
    let parts =
        (resource(), prop::option::of(decimal()), prop::option::of(decimal()), prop::option::of(decimal()));
    let says = parts.prop_filter("says something", |(_, m, p, c)| m.is_some() || p.is_some() || c.is_some());
    let named =
        (says, prop_oneof![Just(""), Just("d.example.com")], prop::option::of(Just(AccountingPolicy::Max)));
    named.prop_map(|((resource, mapping, per_pod, per_container), driver, policy)| Line {
        driver: driver.into(),
        policy,
        mapping,
        per_pod,
        per_container,
        ..Line::empty(resource)
    })
}

fn contributions() -> impl Strategy<Value = Vec<Contribution>> {
    let containers = prop::collection::btree_set("[a-z]{1,3}".prop_map(Name::from), 0..3);
    let each = (prop::bool::weighted(0.8), containers, prop::collection::vec(line(), 1..4));
    prop::collection::vec(each, 0..4).prop_map(|all| {
        let each = all.into_iter().enumerate();
        let each = each.map(|(i, (is_claim, containers, lines))| {
            let name = format!("source-{i}");
            let other =
                || Source { api_group: "example.com".into(), kind: "Pool".into(), ..Source::claim(&*name) };
            let source = if is_claim { Source::claim(&*name) } else { other() };
            Contribution { source, containers, lines, legacy_total: false, recorded: None }
        });
        each.collect()
    })
}

/// The contribution with one line for each resource, without drivers and policies.
fn collapsed(contribution: &Contribution) -> Contribution {
    let mut lines: BTreeMap<Resource, Line> = BTreeMap::new();
    for line in &contribution.lines {
        let known = lines.entry(line.resource).or_insert_with(|| Line::empty(line.resource));
        let add = |sum: &mut Option<Decimal>, more: Option<Decimal>| {
            *sum = match (*sum, more) {
                (Some(a), Some(b)) => Some(a.checked_add(b).unwrap()),
                (a, b) => a.or(b),
            };
        };
        add(&mut known.mapping, line.mapping);
        add(&mut known.per_pod, line.per_pod);
        add(&mut known.per_container, line.per_container);
    }
    Contribution { lines: lines.into_values().collect(), ..contribution.clone() }
}

fn reading(status: &serde_json::Value) -> Vec<Contribution> {
    let read = |field: &str| status[field].clone();
    let native: Vec<_> = serde_json::from_value(read("native")).unwrap_or_default();
    let statuses: Vec<_> = serde_json::from_value(read("statuses")).unwrap_or_default();
    let additional: Vec<_> = serde_json::from_value(read("additional")).unwrap_or_default();
    let mut unaccounted = Vec::new();
    let recorded = Recorded { native: &native, statuses: &statuses, additional: &additional };
    let read = pod_status::read(recorded, "Pod", &mut unaccounted);
    assert_eq!((unaccounted, read.conflicts), (vec![], vec![]));
    let unmarked = |read: Contribution| Contribution { recorded: None, ..read };
    let mut contributions: Vec<_> = read.contributions.into_iter().map(unmarked).collect();
    contributions.sort_by(|a, b| a.source.name.cmp(&b.source.name));
    contributions
}

proptest! {
    #[test]
    fn what_a_pods_status_can_say_survives_and_the_rest_is_named(all in contributions()) {
        let claims: Vec<Contribution> =
            all.iter().filter(|c| *c.source.kind == *"ResourceClaim").map(collapsed).collect();
        let every: Vec<Contribution> = all.iter().map(collapsed).collect();
        let lines = all.iter().flat_map(|c| &c.lines).any(|line| !line.driver.is_empty() || line.policy.is_some());
        // 1.38 has a place for every source.
        let (entries, losses) = pod_status::to_1_38(&all).unwrap();
        prop_assert_eq!(reading(&serde_json::json!({"additional": entries})), every);
        prop_assert_eq!(losses.is_empty(), !lines);
        // 1.37 has a place for claims only.
        let (entries, losses) = pod_status::to_1_37(&all).unwrap();
        prop_assert_eq!(&reading(&serde_json::json!({"statuses": entries})), &claims);
        let others = losses.iter().filter(|loss| matches!(loss, pod_status::Loss::Source(..))).count();
        prop_assert_eq!(others, all.len() - claims.len());
        // Earlier generations have one total for each resource.
        let totals: Vec<_> = claims.iter().map(|c| c.total().unwrap()).collect();
        let split = claims.iter().flat_map(|c| &c.lines).any(|l| l.per_pod.or(l.per_container).is_some());
        let (old, losses) = pod_status::to_1_36(&all).unwrap();
        let splits = losses.iter().any(|loss| matches!(loss, pod_status::Loss::Split(_)));
        let (draft, _) = pod_status::to_draft(&all).unwrap();
        prop_assert_eq!(splits, split);
        for status in [serde_json::json!({"statuses": old}), serde_json::json!({"native": draft})] {
            let read = reading(&status);
            prop_assert!(read.iter().all(|c| c.legacy_total));
            prop_assert_eq!(read.iter().map(|c| c.total().unwrap()).collect::<Vec<_>>(), totals.clone());
            prop_assert!(read.iter().zip(&claims).all(|(read, claim)| read.containers == claim.containers));
        }
    }
}

#[test]
fn a_mapping_of_nothing_has_no_place_in_1_37() {
    let zero = r#"{"cpu": {"allocationMultiplier": "0"}, "memory": {"allocationMultiplier": "1"}}"#;
    let (footprint, _) = from_1_36(&serde_json::from_str(zero).unwrap()).unwrap();
    let (wire, losses) = to_1_37(&footprint, true);
    assert_eq!(losses, [Loss::MappingOfNothing(Resource::Cpu)]);
    assert_eq!(from_1_37(&wire).unwrap().resources.keys().collect::<Vec<_>>(), [&Resource::Memory]);
}

#[test]
fn the_same_resource_twice_adds_up_in_the_draft_and_is_refused_in_definitions() {
    let twice = serde_json::json!({"native": [{"claimInfo": {"name": "a"}, "resources": [
        {"resourceName": "cpu", "quantity": "1"}, {"resourceName": "cpu", "quantity": 2},
    ]}]});
    assert_eq!(reading(&twice)[0].total().unwrap().get(Resource::Cpu), Decimal::from(3));
    let definition = r#"{"cpu": {"overhead": {"perPod": 1}}, "cpu": {"overhead": {"perPod": 2}}}"#;
    let refused = serde_json::from_str::<NodeAllocatableResources>(definition).unwrap_err();
    assert!(refused.to_string().contains("[cpu] is defined twice"), "{refused}");
}

#[test]
fn of_several_generations_in_one_device_the_newest_counts() {
    let read = |json: &str| device_read(&serde_json::from_str::<DeviceFields>(json).unwrap());
    let both = r#"{
        "nativeResourceMappings": {"cpu": {"quantityFrom": {"perInstanceQuantity": 1}}, "memory": {"quantityFrom": {"capacity": "mem"}}},
        "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": 2}},
        "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": 2}}}
    }"#;
    let (footprint, warnings) = read(both).unwrap();
    let cpu = footprint.resources[&Resource::Cpu].mapping.clone().unwrap();
    assert_eq!(cpu.multiplier, Decimal::from(2));
    assert!(footprint.resources.contains_key(&Resource::Memory));
    let superseded = Warning::Superseded(Resource::Cpu, "nodeAllocatableResources", "nativeResourceMappings");
    assert_eq!(warnings, [superseded]);
    let refused = read(r#"{"nodeAllocatableResources": {"cpu": {}}}"#).unwrap_err();
    assert_eq!(refused.field, "nodeAllocatableResources[cpu]");
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
