//! The ledger of a cluster, event by event: which nodes an event changes, and that the end of every
//! history follows from the objects that are left.

mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_accounting::claim::allocation::{Device, DeviceResult, Judgement};
use dragoman_accounting::claim::footprint::{Basis, DeviceCost, Mapping, Overhead, ResourceFootprint};
use dragoman_accounting::cluster::{
    Account, Claim, ClaimName, ClusterLedger, DeviceFootprint, Node, NodeNames, Pod, PodClaim, Rules, Slice,
    SliceDevice,
};
use dragoman_accounting::ledger::fit::{Fit, Headroom};
use dragoman_accounting::ledger::{Bucket, Charging, NodeLedger};
use dragoman_accounting::pod::requests::Variant;
use dragoman_accounting::pod::{Container, PodSpecView};
use dragoman_accounting::resource::Resource;
use dragoman_objects::Name;
use dragoman_quantity::Decimal;
use proptest::prelude::*;
use scratch::history::{amount, doubt, event, puts, removals, view};
use scratch::{Objects, Seen, from_scratch};

fn rules() -> impl Strategy<Value = Rules> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(peak, in_tree, upstream)| Rules {
        variant: if peak { Variant::Peak } else { Variant::WholeLife },
        charging: if in_tree { Charging::InTree } else { Charging::PerClaim },
        judgement: if upstream { Judgement::Upstream } else { Judgement::Ours },
    })
}

/// The nodes whose account is not the same.
fn differing(before: &BTreeMap<Name, Account>, after: &BTreeMap<Name, Account>) -> NodeNames {
    let nodes: BTreeSet<&str> = before.keys().chain(after.keys()).map(|node| &**node).collect();
    nodes.into_iter().filter(|node| before.get(*node) != after.get(*node)).map(Arc::from).collect()
}

fn seen(ledger: &ClusterLedger) -> BTreeMap<Name, Seen> {
    let seen = |(name, node): (&Arc<str>, &NodeLedger)| {
        (Name::from(&**name), Seen::of(node, ledger.notices(name).map(ToString::to_string)))
    };
    ledger.nodes().map(seen).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn an_event_names_exactly_the_nodes_that_it_changes(
        rules in rules(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut ledger = ClusterLedger::new(rules);
        for event in &events {
            let before = ledger.accounts();
            let changed = event.told(&mut ledger);
            prop_assert_eq!(changed, differing(&before, &ledger.accounts()), "{:?}", event);
            prop_assert!(event.told(&mut ledger).is_empty(), "told twice: {event:?}");
        }
    }

    #[test]
    fn histories_end_where_the_objects_do(
        rules in rules(),
        events in prop::collection::vec(event(), 1..60),
        order in any::<u64>(),
    ) {
        let (mut ledger, mut objects) = (ClusterLedger::new(rules), Objects::default());
        for event in &events {
            event.told(&mut ledger);
            event.happen(&mut objects);
        }
        prop_assert!(ledger.nodes().all(|(_, node)| node.is_consistent()));
        prop_assert_eq!(seen(&ledger), from_scratch(&objects, rules));
        let listed = ClusterLedger::of(&objects.cluster(), rules).accounts();
        prop_assert_eq!(ledger.accounts(), listed.clone());
        // The order in which the objects come makes no difference.
        let mut again = ClusterLedger::new(rules);
        let (mut puts, mut removals) = (puts(&objects), removals());
        let mut rng = fastrand::Rng::with_seed(order);
        rng.shuffle(&mut puts);
        for put in puts {
            put.told(&mut again);
        }
        prop_assert_eq!(again.accounts(), listed);
        // Nothing is left of what is gone, links included.
        rng.shuffle(&mut removals);
        for removal in removals {
            removal.told(&mut ledger);
        }
        prop_assert_eq!(format!("{ledger:?}"), format!("{:?}", ClusterLedger::new(rules)));
    }
}

// Stories.

fn names(nodes: &[&str]) -> NodeNames {
    nodes.iter().map(|node| Arc::from(*node)).collect()
}

fn listed(name: &str) -> Node {
    Node { name: name.into(), allocatable: amount(16), ..Node::default() }
}

/// A Pod that requests one cpu and names a claim.
fn bound(uid: &str, node: &str, claim: &str) -> Pod {
    let claim = PodClaim {
        claim: ClaimName::Named(claim.into()),
        containers: std::iter::once("c".into()).collect(),
        extended: false,
    };
    Pod { view: view("ns", uid, 1), node: Some(node.into()), claims: vec![claim], ..Pod::default() }
}

/// A claim that was given the device of a node.
fn allocated(name: &str, node: &str) -> Claim {
    let result =
        DeviceResult { driver: "d".into(), pool: node.into(), device: "0".into(), ..DeviceResult::default() };
    let uid = format!("uid-{name}").into();
    let results = Some(vec![result]);
    Claim { namespace: "ns".into(), name: name.into(), uid, results, ..Claim::default() }
}

/// The slice of a node with a device that is `cpu` cpus.
fn published(node: &str, generation: i64, cpu: i64) -> Slice {
    let mapping = Some(Mapping { basis: Basis::PerDevice, multiplier: Decimal::from(cpu) });
    let costs = ResourceFootprint { mapping, ..ResourceFootprint::default() };
    let cost = DeviceCost { resources: [(Resource::Cpu, costs)].into() };
    let device = Device { cost, ..Device::default() };
    let devices = vec![SliceDevice { name: "0".into(), device, ..SliceDevice::default() }];
    let node: Name = node.into();
    Slice {
        name: node.clone(),
        driver: "d".into(),
        pool: node.clone(),
        generation,
        node: Some(node),
        devices,
        counters: Vec::new(),
    }
}

/// Two nodes, each with a device of four cpus and a Pod that uses it.
fn two_nodes() -> ClusterLedger {
    let mut ledger = ClusterLedger::new(Rules::default());
    for node in ["one", "two"] {
        ledger.put_node(listed(node));
        ledger.put_slice(published(node, 1, 4));
        ledger.put_claim(allocated(&format!("claim-{node}"), node));
        ledger.put_pod(bound(&format!("pod-{node}"), node, &format!("claim-{node}")));
    }
    ledger
}

fn left(ledger: &ClusterLedger, node: &str) -> Option<Headroom> {
    Some(ledger.node(node)?.headroom(Resource::Cpu))
}

const UNKNOWN: Option<Headroom> = Some(Headroom::Unknown);

const fn cpu(milli: i128) -> Headroom {
    Headroom::Left(milli)
}

#[test]
fn objects_come_in_any_order() {
    let mut ledger = ClusterLedger::new(Rules::default());
    assert_eq!(ledger.put_pod(bound("pod", "one", "c")), names(&["one"]));
    assert_eq!(left(&ledger, "one"), UNKNOWN, "neither its Node nor its claim is there");
    assert_eq!(ledger.put_slice(published("one", 1, 4)), names(&[]), "no claim has its device");
    assert_eq!(ledger.put_node(listed("one")), names(&["one"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(15_000)), "it waits for its claim, which takes nothing yet");
    assert_eq!(ledger.put_claim(allocated("c", "one")), names(&["one"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(11_000)));
    assert_eq!(ledger.put_claim(allocated("c", "one")), names(&[]), "it is known");
    assert_eq!(ledger.remove_claim("ns", "c"), names(&["one"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(15_000)));
    // Another one under the same name.
    let again = Claim { uid: "again".into(), ..allocated("c", "one") };
    assert_eq!(ledger.put_claim(again), names(&["one"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(11_000)));
    // It is on its way to another node, and done there.
    assert_eq!(ledger.put_pod(bound("pod", "two", "c")), names(&["one", "two"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(16_000)));
    let done = Pod { done: true, ..bound("pod", "two", "c") };
    assert_eq!((ledger.put_pod(done), left(&ledger, "two")), (names(&["two"]), None));
}

/// A Pod that does not name all its claims takes what those do that are reserved for it.
#[test]
fn a_claim_that_a_pod_does_not_name_counts_once_it_is_reserved_for_it() {
    let mut ledger = two_nodes();
    let more = Pod { left_out: 1, ..bound("more", "two", "none") };
    assert_eq!(ledger.put_pod(more.clone()), names(&["two"]));
    assert_eq!(left(&ledger, "two"), Some(cpu(10_000)));
    let reserved = |name: &str, uid: &str| {
        let slice =
            Slice { name: name.into(), pool: name.into(), node: Some("two".into()), ..published(name, 1, 3) };
        let claim =
            Claim { reserved_for: std::iter::once(Name::from(uid)).collect(), ..allocated(name, name) };
        (slice, claim)
    };
    let (slice, claim) = reserved("last", "more");
    ledger.put_slice(slice);
    assert_eq!(ledger.put_claim(claim.clone()), names(&["two"]));
    assert_eq!(left(&ledger, "two"), Some(cpu(7_000)));
    assert_eq!(ledger.put_claim(claim.clone()), names(&[]), "it is known");
    // For another Pod, or in another namespace, it is another matter.
    let others = Claim { reserved_for: std::iter::once(Name::from("pod-two")).collect(), ..claim.clone() };
    assert_eq!((ledger.put_claim(others), left(&ledger, "two")), (names(&["two"]), Some(cpu(10_000))));
    let elsewhere = Claim { namespace: "other".into(), ..claim.clone() };
    assert_eq!(ledger.put_claim(elsewhere.clone()), names(&[]));
    // The claim may come before the Pod, and the status of the Pod may lose the name.
    ledger.put_claim(claim.clone());
    assert_eq!((ledger.put_claim(elsewhere), left(&ledger, "two")), (names(&[]), Some(cpu(7_000))));
    ledger.remove_pod("more");
    assert_eq!(ledger.put_pod(more.clone()), names(&["two"]));
    assert_eq!(left(&ledger, "two"), Some(cpu(7_000)));
    let nameless = vec![PodClaim::default()];
    assert_eq!(ledger.put_pod(Pod { left_out: 0, claims: nameless, ..more.clone() }), names(&["two"]));
    assert_eq!(left(&ledger, "two"), Some(cpu(7_000)));
    // The overhead of each container counts: any of those that name a claim may use it.
    let naming = |name: &str| Container { name: name.into(), names_claims: true, ..Container::default() };
    let view = PodSpecView {
        containers: vec![naming("c"), naming("d"), Container::default()],
        ..view("ns", "more", 0)
    };
    let overhead = Some(Overhead { per_pod: None, per_container: Some(Decimal::from(1)) });
    let mut slice = published("last", 2, 3);
    (slice.name, slice.node) = ("last".into(), Some("two".into()));
    for device in &mut slice.devices {
        device.device.cost.resources.values_mut().for_each(|of| of.overhead = overhead);
    }
    ledger.put_slice(slice);
    ledger.put_pod(Pod { view, ..more.clone() });
    assert_eq!(left(&ledger, "two"), Some(cpu(6_000)), "three for the device and two for its overhead");
    // A claim that does not decode any more is that of its last consumers.
    let claim = Claim { uid: "uid-last".into(), ..claim };
    let unread = Claim {
        reserved_for: std::iter::empty().collect(),
        results: None,
        unread: Some("broken".into()),
        ..claim.clone()
    };
    ledger.put_claim(unread);
    assert_eq!(left(&ledger, "two"), UNKNOWN);
    ledger.put_claim(claim);
    ledger.put_pod(Pod { left_out: 0, ..more });
    assert_eq!(left(&ledger, "two"), Some(cpu(10_000)), "it names all its claims");
}

/// A tenant makes any number of claims without devices. They cost nothing, and no event about them looks at the Pod.
#[test]
fn a_claim_without_devices_that_a_pod_does_not_name_is_none_of_its_claims() {
    let mut ledger = two_nodes();
    ledger.put_pod(Pod { left_out: 1, ..bound("more", "two", "none") });
    let reserved = |results: Option<Vec<DeviceResult>>| Claim {
        reserved_for: std::iter::once(Name::from("more")).collect(),
        results,
        ..allocated("last", "two")
    };
    let pods = |ledger: &ClusterLedger| ledger.pods_of("ns/last").count();
    for (results, expected) in
        [(None, 0), (Some(Vec::new()), 0), (allocated("last", "two").results, 1), (Some(Vec::new()), 0)]
    {
        ledger.put_claim(reserved(results.clone()));
        assert_eq!(pods(&ledger), expected, "{results:?}");
    }
}

/// The kubelet of a node may write any pool and any generation into slices with the name of its node.
#[test]
fn what_a_node_says_counts_for_its_own_devices_only() {
    let mut ledger = two_nodes();
    let lie = Slice { name: "lie".into(), node: Some("one".into()), ..published("two", 999, 1) };
    assert_eq!(ledger.put_slice(lie), names(&[]));
    assert_eq!((left(&ledger, "one"), left(&ledger, "two")), (Some(cpu(11_000)), Some(cpu(11_000))));
    // Nor does it say what a Pod of another node reads of its device; "a" sorts before the name of that slice.
    let said = |name: &str, node: &str, attributes: &str| {
        let mut slice = Slice { name: name.into(), node: Some(node.into()), ..published("two", 1, 4) };
        slice.devices.iter_mut().for_each(|device| device.attributes = attributes.into());
        slice
    };
    let mut told = two_nodes();
    told.put_slice(said("two", "two", "true"));
    told.put_slice(said("a", "one", "false"));
    told.put_claim(Claim { node: Some("two".into()), ..allocated("claim-two", "two") });
    let read = |ledger: &ClusterLedger| {
        let devices = ledger.allocated_for("ns", "claim-two", "");
        devices.iter().map(|device| device.attributes.map(ToOwned::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(read(&told), [Some("true".to_owned())]);
    let of_pods: Vec<_> =
        told.devices_of_pods().filter(|of| of.node == "two").map(|of| of.device.attributes).collect();
    assert_eq!(of_pods, [Some("true")]);
    told.remove_slice("two");
    assert_eq!(read(&told), [None], "what another node says is nothing");
    // Slices without a node are written by those who may write all.
    let all = Slice { name: "all".into(), node: None, ..published("two", 1_000, 2) };
    assert_eq!(ledger.put_slice(all), names(&["two"]));
    assert_eq!(left(&ledger, "two"), Some(cpu(13_000)));
    assert_eq!(ledger.remove_slice("all"), names(&["two"]));
    assert_eq!(left(&ledger, "two"), Some(cpu(11_000)));
    assert_eq!(ledger.remove_slice("lie"), names(&[]));
}

#[test]
fn a_slice_is_edited_and_withdrawn_while_it_is_in_use() {
    let mut ledger = two_nodes();
    assert_eq!(ledger.put_slice(published("one", 1, 6)), names(&["one"]));
    assert_eq!((left(&ledger, "one"), left(&ledger, "two")), (Some(cpu(9_000)), Some(cpu(11_000))));
    let other = |generation, cpu| Slice { name: "other".into(), ..published("one", generation, cpu) };
    assert_eq!(ledger.put_slice(other(0, 8)), names(&[]), "an older generation does not count");
    assert_eq!(ledger.put_slice(other(1, 6)), names(&["one"]), "they say the same, but which counts?");
    assert_eq!(left(&ledger, "one"), UNKNOWN);
    assert_eq!(ledger.put_slice(other(2, 8)), names(&["one"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(7_000)));
    let empty = Slice { devices: Vec::new(), ..other(2, 8) };
    assert_eq!(ledger.put_slice(empty), names(&["one"]));
    assert_eq!(left(&ledger, "one"), UNKNOWN, "the device is in no slice");
    assert_eq!(ledger.remove_slice("other"), names(&["one"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(9_000)), "the generation before counts again");
    assert_eq!(ledger.remove_slice("two"), names(&["two"]));
    assert_eq!((left(&ledger, "one"), left(&ledger, "two")), (Some(cpu(9_000)), UNKNOWN));
}

#[test]
fn a_footprint_is_edited_while_its_devices_are_in_use() {
    let footprint = |driver: &str, memory: i64| {
        let costs =
            ResourceFootprint { reservation: Some(Decimal::from(memory)), ..ResourceFootprint::default() };
        let cost = DeviceCost { resources: [(Resource::Memory, costs)].into() };
        DeviceFootprint { name: "f".into(), driver: driver.into(), selector: None, cost }
    };
    let mut ledger = two_nodes();
    let held = |ledger: &ClusterLedger| {
        ["one", "two"].map(|node| ledger.node(node).unwrap().charged(Bucket::Reservation, Resource::Memory))
    };
    assert_eq!(ledger.put_footprint(footprint("d", 5)), names(&["one", "two"]));
    assert_eq!(held(&ledger), [5, 5]);
    assert_eq!(ledger.put_footprint(footprint("d", 7)), names(&["one", "two"]));
    assert_eq!(held(&ledger), [7, 7]);
    // A claim holds its device without a Pod, and without a Node.
    ledger.remove_pod("pod-one");
    ledger.remove_node("one");
    assert_eq!(held(&ledger), [7, 7]);
    assert_eq!(ledger.put_footprint(footprint("e", 7)), names(&["one", "two"]));
    assert_eq!(ledger.nodes().map(|(node, _)| &**node).collect::<Vec<_>>(), ["two"]);
    assert_eq!(ledger.remove_footprint("f"), names(&[]));
}

#[test]
fn a_node_goes_and_comes_back_under_its_name() {
    let mut ledger = two_nodes();
    assert_eq!(ledger.remove_node("one"), names(&["one"]));
    assert_eq!(left(&ledger, "one"), UNKNOWN);
    assert_eq!(ledger.node("one").unwrap().requested(Resource::Cpu), 5_000);
    assert_eq!(ledger.put_node(listed("one")), names(&["one"]));
    assert_eq!(left(&ledger, "one"), Some(cpu(11_000)));
    assert_eq!(ledger.put_node(listed("one")), names(&[]));
    ledger.remove_node("one");
    assert_eq!(ledger.remove_pod("pod-one"), names(&["one"]));
    assert!(ledger.node("one").is_none());
    assert_eq!(ledger.remove_pod("pod-one"), names(&[]));
}

#[test]
fn what_cannot_be_read_concerns_nodes_that_come_later() {
    let mut ledger = ClusterLedger::new(Rules::default());
    assert_eq!(ledger.put_unread("ResourceClaim ns/c", vec![(None, doubt("c"))]), names(&[]));
    assert_eq!(ledger.put_node(listed("one")), names(&["one"]));
    assert_eq!(ledger.put_node(listed("two")), names(&["two"]));
    assert_eq!((left(&ledger, "one"), left(&ledger, "two")), (UNKNOWN, UNKNOWN));
    let about = vec![(Some("two".into()), doubt("c"))];
    assert_eq!(ledger.put_unread("ResourceClaim ns/c", about), names(&["one"]));
    assert_eq!((left(&ledger, "one"), left(&ledger, "two")), (Some(cpu(16_000)), UNKNOWN));
    assert_eq!(ledger.remove_unread("ResourceClaim ns/c"), names(&["two"]));
    assert_eq!(left(&ledger, "two"), Some(cpu(16_000)));
}

#[test]
fn a_pod_that_waits_is_asked_about_and_causes_have_names() {
    let mut ledger = two_nodes();
    ledger.put_claim(Claim { namespace: "ns".into(), name: "free".into(), ..Claim::default() });
    let waiting = Pod { node: None, ..bound("waiting", "", "free") };
    assert_eq!(ledger.put_pod(waiting.clone()), names(&[]), "it takes nothing yet");
    assert!(matches!(ledger.fits(&waiting, "one"), Some(Fit::Refused(_))), "its claim is not allocated");
    assert_eq!(ledger.fits(&waiting, "three"), None);
    let plain = Pod { claims: Vec::new(), ..waiting };
    assert_eq!(ledger.fits(&plain, "one"), Some(Fit::Yes));
    let causes: Vec<String> = ledger
        .node("one")
        .unwrap()
        .who_has(Resource::Cpu)
        .iter()
        .map(|held| held.cause.to_string())
        .collect();
    assert_eq!(causes, ["devices of ResourceClaim ns/claim-one", "Pod ns/pod-one"]);
}
