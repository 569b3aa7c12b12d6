//! Histories of few objects, so that they meet.

use std::collections::BTreeMap;

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::allocation::{Device, DeviceResult};
use dragoman_accounting::claim::contribution::{Contribution, Generation, Line, Source};
use dragoman_accounting::claim::footprint::{
    AccountingPolicy, Basis, DeviceCost, Mapping, Overhead, ResourceFootprint,
};
use dragoman_accounting::cluster::{
    Claim, ClaimName, ClusterLedger, DeviceFootprint, Node, NodeNames, Pod, PodClaim, Slice, SliceDevice,
};
use dragoman_accounting::pod::{Container, PodSpecView, Resources};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_objects::Name;
use dragoman_quantity::Decimal;
use proptest::prelude::*;

use super::Objects;

/// A change of an object.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    PutNode(Node),
    RemoveNode(&'static str),
    PutPod(Box<Pod>),
    RemovePod(&'static str),
    PutClaim(Claim),
    RemoveClaim(&'static str, &'static str),
    PutSlice(Slice),
    RemoveSlice(&'static str),
    PutFootprint(DeviceFootprint),
    RemoveFootprint(&'static str),
    PutUnread(&'static str, Vec<(Option<Name>, Unaccounted)>),
    RemoveUnread(&'static str),
}

impl Event {
    pub(crate) fn told(&self, ledger: &mut ClusterLedger) -> NodeNames {
        match self.clone() {
            Self::PutNode(node) => ledger.put_node(node),
            Self::RemoveNode(name) => ledger.remove_node(name),
            Self::PutPod(pod) => ledger.put_pod(*pod),
            Self::RemovePod(uid) => ledger.remove_pod(uid),
            Self::PutClaim(claim) => ledger.put_claim(claim),
            Self::RemoveClaim(namespace, name) => ledger.remove_claim(namespace, name),
            Self::PutSlice(slice) => ledger.put_slice(slice),
            Self::RemoveSlice(name) => ledger.remove_slice(name),
            Self::PutFootprint(footprint) => ledger.put_footprint(footprint),
            Self::RemoveFootprint(name) => ledger.remove_footprint(name),
            Self::PutUnread(object, unread) => ledger.put_unread(object, unread),
            Self::RemoveUnread(object) => ledger.remove_unread(object),
        }
    }

    pub(crate) fn happen(&self, objects: &mut Objects) {
        match self.clone() {
            Self::PutNode(node) => drop(objects.nodes.insert(node.name.clone(), node)),
            Self::RemoveNode(name) => drop(objects.nodes.remove(name)),
            Self::PutPod(pod) => drop(objects.pods.insert(pod.view.uid.clone(), *pod)),
            Self::RemovePod(uid) => drop(objects.pods.remove(uid)),
            Self::PutClaim(claim) => {
                objects.claims.insert((claim.namespace.clone(), claim.name.clone()), claim);
            }
            Self::RemoveClaim(namespace, name) => {
                objects.claims.remove(&(Name::from(namespace), Name::from(name)));
            }
            Self::PutSlice(slice) => drop(objects.slices.insert(slice.name.clone(), slice)),
            Self::RemoveSlice(name) => drop(objects.slices.remove(name)),
            Self::PutFootprint(footprint) => {
                objects.footprints.insert(footprint.name.clone(), footprint);
            }
            Self::RemoveFootprint(name) => drop(objects.footprints.remove(name)),
            Self::PutUnread(object, unread) => drop(objects.unread.insert(object.into(), unread)),
            Self::RemoveUnread(object) => drop(objects.unread.remove(object)),
        }
    }
}

/// The events that lead straight to the objects.
pub(crate) fn puts(objects: &Objects) -> Vec<Event> {
    let unread = |name: &'static str| Some(Event::PutUnread(name, objects.unread.get(name)?.clone()));
    let mut puts: Vec<Event> = objects.nodes.values().cloned().map(Event::PutNode).collect();
    puts.extend(objects.pods.values().cloned().map(|pod| Event::PutPod(Box::new(pod))));
    puts.extend(objects.claims.values().cloned().map(Event::PutClaim));
    puts.extend(objects.slices.values().cloned().map(Event::PutSlice));
    puts.extend(objects.footprints.values().cloned().map(Event::PutFootprint));
    puts.extend(UNREAD.into_iter().filter_map(unread));
    puts
}

/// The events after which there is nothing.
pub(crate) fn removals() -> Vec<Event> {
    let mut removals: Vec<Event> = NODES.map(Event::RemoveNode).into();
    removals.extend(PODS.map(|(uid, _)| Event::RemovePod(uid)));
    for namespace in NAMESPACES {
        removals.extend(CLAIMS.map(|name| Event::RemoveClaim(namespace, name)));
    }
    removals.extend(SLICES.map(Event::RemoveSlice));
    removals.extend(FOOTPRINTS.map(Event::RemoveFootprint));
    removals.extend(UNREAD.map(Event::RemoveUnread));
    removals
}

// Random objects: few names, so that they meet.

const NODES: [&str; 3] = ["one", "two", "three"];
const NAMESPACES: [&str; 2] = ["ns", "other"];
const PODS: [(&str, &str); 4] = [("p", "ns"), ("q", "ns"), ("r", "ns"), ("s", "other")];
const CLAIMS: [&str; 3] = ["a", "b", "c"];
const SLICES: [&str; 4] = ["s1", "s2", "s3", "s4"];
const DRIVERS: [&str; 2] = ["d", "e"];
const POOLS: [&str; 2] = ["x", "y"];
const DEVICES: [&str; 3] = ["0", "1", "2"];
const FOOTPRINTS: [&str; 3] = ["f", "g", "h"];
const UNREAD: [&str; 3] = ["ResourceClaim ns/a", "ResourceSlice s1", "DeviceFootprint f"];

fn name(names: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(names)
}

pub(crate) fn amount(cpu: i64) -> Amounts {
    [(Resource::Cpu, Decimal::from(cpu))].into_iter().collect()
}

pub(crate) fn doubt(object: &str) -> Unaccounted {
    Unaccounted { object: object.into(), field: "field".into(), resource: None, why: "why".into() }
}

fn node() -> impl Strategy<Value = Node> {
    (name(&NODES), 1..64_i64, prop::bool::weighted(0.2)).prop_map(|(name, cpu, broken)| Node {
        name: name.into(),
        allocatable: amount(cpu),
        unaccounted: broken.then(|| doubt(name)).into_iter().collect(),
    })
}

fn cost() -> impl Strategy<Value = DeviceCost> {
    let part = || prop::option::of(1..4_i64);
    let costs = (part(), part(), part(), prop::bool::weighted(0.3));
    let costs = costs.prop_map(|(mapping, per_pod, reservation, shared)| ResourceFootprint {
        mapping: mapping.map(|units| Mapping { basis: Basis::PerDevice, multiplier: Decimal::from(units) }),
        overhead: per_pod.map(|units| Overhead { per_pod: Some(Decimal::from(units)), per_container: None }),
        reservation: reservation.map(Decimal::from),
        policy: shared.then_some(AccountingPolicy::AddPerClaim),
        local: false,
    });
    let resource = prop_oneof![Just(Resource::Cpu), Just(Resource::Memory)];
    prop::collection::btree_map(resource, costs, 0..3)
        .prop_map(|resources: BTreeMap<_, _>| DeviceCost { resources })
}

fn slice_device() -> impl Strategy<Value = SliceDevice> {
    let node = prop::option::weighted(0.2, name(&NODES));
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.2), prop::bool::weighted(0.5));
    let parts = (name(&DEVICES), node, cost(), flags);
    parts.prop_map(|(name, node, cost, (refused, noticed, big))| SliceDevice {
        name: name.into(),
        node: node.map(Name::from),
        device: Device { cost, ..Device::default() },
        attributes: if big { "big".into() } else { Name::default() },
        allow_multiple_allocations: false,
        notices: noticed.then(|| Name::from("look at it")).into_iter().collect(),
        refused,
        counters: std::sync::Arc::default(),
    })
}

fn slice() -> impl Strategy<Value = Slice> {
    let node = prop::option::weighted(0.8, name(&NODES));
    let devices = prop::collection::vec(slice_device(), 0..4);
    let parts = (name(&SLICES), name(&DRIVERS), name(&POOLS), 1..4_i64, node, devices);
    parts.prop_map(|(name, driver, pool, generation, node, devices)| Slice {
        name: name.into(),
        driver: driver.into(),
        pool: pool.into(),
        generation,
        node: node.map(Name::from),
        devices,
        counters: Vec::new(),
    })
}

fn footprint() -> impl Strategy<Value = DeviceFootprint> {
    let selector = prop_oneof![8 => Just(None), 1 => Just(Some("unevaluated")), 2 => Just(Some("big"))];
    let parts = (name(&FOOTPRINTS), name(&DRIVERS), selector, cost());
    parts.prop_map(|(name, driver, selector, cost)| DeviceFootprint {
        name: name.into(),
        driver: driver.into(),
        selector: selector.map(super::selector),
        cost,
    })
}

fn claim() -> impl Strategy<Value = Claim> {
    let result = (name(&DRIVERS), name(&POOLS), name(&DEVICES), prop::bool::weighted(0.1));
    let result = result.prop_map(|(driver, pool, device, admin_access)| DeviceResult {
        driver: driver.into(),
        pool: pool.into(),
        device: device.into(),
        admin_access,
        ..DeviceResult::default()
    });
    let results = prop::option::weighted(0.9, prop::collection::vec(result, 0..4));
    let reserved_for = prop::collection::vec(prop::sample::select(PODS.to_vec()), 0..3);
    let parts = (name(&NAMESPACES), name(&CLAIMS), 0..2_u8, results, reserved_for);
    parts.prop_map(|(namespace, name, instance, results, reserved_for)| Claim {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("{namespace}-{name}-{instance}").into(),
        reserved_for: reserved_for.into_iter().map(|(uid, _)| Name::from(uid)).collect(),
        results,
        ..Claim::default()
    })
}

/// An entry of the status of a Pod about a claim.
fn recorded() -> impl Strategy<Value = Contribution> {
    (name(&CLAIMS), 1..4_i64).prop_map(|(name, cpu)| Contribution {
        source: Source::claim(name),
        containers: ["c".into()].into(),
        lines: vec![Line::mapping(Resource::Cpu, Decimal::from(cpu))],
        recorded: Some(Generation::V1_37),
        ..Contribution::default()
    })
}

fn pod_claim() -> impl Strategy<Value = PodClaim> {
    let claim = prop_oneof![
        1 => Just(ClaimName::NotYet),
        1 => Just(ClaimName::None),
        8 => name(&CLAIMS).prop_map(|name| ClaimName::Named(name.into())),
    ];
    let containers = prop::collection::btree_set(prop_oneof![Just("c"), Just("d")], 0..3);
    (claim, containers).prop_map(|(claim, containers)| PodClaim {
        claim,
        containers: containers.into_iter().map(Name::from).collect(),
        extended: false,
    })
}

fn pod() -> impl Strategy<Value = Pod> {
    let node = prop::option::weighted(0.9, name(&NODES));
    let claims = prop::collection::vec(pod_claim(), 0..4);
    let recorded = prop::collection::vec(recorded(), 0..2);
    let parts = (prop::sample::select(PODS.to_vec()), node, 0..3_i64, claims, recorded);
    let states = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (parts, states).prop_map(|(((uid, namespace), node, cpu, claims, recorded), (done, broken, long))| Pod {
        view: PodSpecView { contributions: recorded.clone(), recorded, ..view(namespace, uid, cpu) },
        node: node.map(Name::from),
        done,
        left_out: usize::from(long),
        claims,
        unaccounted: broken.then(|| doubt(uid)).into_iter().collect(),
        ..Pod::default()
    })
}

pub(crate) fn view(namespace: &str, uid: &str, cpu: i64) -> PodSpecView {
    let resources = Resources { requests: amount(cpu), limits: Amounts::default() };
    PodSpecView {
        namespace: namespace.into(),
        name: uid.into(),
        uid: uid.into(),
        containers: vec![Container { name: "c".into(), resources, ..Container::default() }],
        ..PodSpecView::default()
    }
}

fn unread() -> impl Strategy<Value = Event> {
    let about = prop::collection::vec(prop::option::of(name(&NODES)), 1..3);
    (name(&UNREAD), about).prop_map(|(object, about)| {
        let unread = about.into_iter().map(|node| (node.map(Name::from), doubt(object)));
        Event::PutUnread(object, unread.collect())
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let put = prop_oneof![
        2 => node().prop_map(Event::PutNode),
        6 => pod().prop_map(|pod| Event::PutPod(Box::new(pod))),
        4 => claim().prop_map(Event::PutClaim),
        4 => slice().prop_map(Event::PutSlice),
        1 => footprint().prop_map(Event::PutFootprint),
        1 => unread(),
    ];
    prop_oneof![3 => put, 1 => prop::sample::select(removals())]
}
