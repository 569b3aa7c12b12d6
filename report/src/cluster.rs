//! From the objects of a dump to the ledgers of its cluster.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_accounting::cluster::{self, ClusterLedger, Rules};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_cluster::placement::{
    Neighbourhood, Neighbours, NodeView, PodKind, SchedulingConstraints, Seeker,
};
use dragoman_objects::Name;

use crate::devices::Devices;
use crate::objects::{Claim, Object, Objects, ReadPod};

/// The objects that a note names; the others are counted.
const NAMED: usize = 3;

/// A Pod that waits for a node.
pub(crate) struct Waiting {
    pub(crate) pod: cluster::Pod,
    pub(crate) placement: SchedulingConstraints,
    /// The Pod as others see it.
    kind: PodKind,
    /// Extended resources for which it has no claim yet: what they take is not known.
    pub(crate) extended: Vec<Name>,
}

/// The reason why a Pod waits for no node.
pub(crate) enum Settled {
    /// A binding to this node.
    Bound(Name),
    Ended,
}

/// The cluster of a dump, as far as it could be read.
pub(crate) struct Dump {
    pub(crate) ledger: ClusterLedger,
    /// The Pods that wait for a node, by what messages call them.
    pub(crate) waiting: BTreeMap<String, Waiting>,
    /// Namespace and name of every Pod, with why it waits for no node, if that is known.
    pub(crate) pods: BTreeMap<(Name, Name), Option<Settled>>,
    /// Namespace and name of the claims that have devices.
    pub(crate) allocated: BTreeSet<(Name, Name)>,
    /// Namespace and name of every claim.
    pub(crate) claims: BTreeSet<(Name, Name)>,
    /// Nodes by name, with the properties other than amounts that a scheduler looks at.
    pub(crate) sites: BTreeMap<String, NodeView>,
    /// The Pods of all nodes, as other Pods see them.
    neighbours: Neighbours,
    /// The devices, where a claim has none yet.
    pub(crate) devices: Option<Devices>,
    /// Objects that do not decode, each with the reason.
    pub(crate) unreadable: Vec<String>,
    /// Notes for the reader of the dump, for example about objects that it lacks or has twice.
    pub(crate) notes: Vec<String>,
}

impl Dump {
    /// Reads the objects, counted by `rules`.
    pub(crate) fn of(mut objects: Objects, rules: Rules) -> Self {
        let mut dump = Self {
            ledger: ClusterLedger::new(rules),
            waiting: BTreeMap::new(),
            pods: BTreeMap::new(),
            allocated: BTreeSet::new(),
            claims: BTreeSet::new(),
            sites: BTreeMap::new(),
            neighbours: Neighbours::default(),
            devices: None,
            unreadable: Vec::new(),
            notes: Vec::new(),
        };
        dump.note(
            "in several versions, of which the one of the highest resourceVersion counts, or the last",
            std::mem::take(&mut objects.twice),
        );
        let alike = objects.give_uids();
        dump.note("without a uid of their own, so that namespace and name tell them apart", alike);
        dump.note(
            "reserved for a Pod that is not in the dump, so that it is gone or was not printed",
            objects.held_from_outside(),
        );
        if objects.has_unallocated() {
            match Devices::of(&objects) {
                Ok(devices) => dump.devices = devices,
                Err(why) => dump.notes.push(format!("devices were not looked at: {why}")),
            }
        }
        // Pods come last: each is computed once.
        let pods = objects.pods();
        for ((kind, _, _), words, object) in objects.into_iter() {
            match object {
                Object::Unreadable { node, why } => dump.unread(kind, &words, node, &why),
                other => dump.take(&words, other),
            }
        }
        for ((kind, namespace, name), words, object) in pods.into_iter() {
            let settled = match object {
                Object::Pod(pod) => {
                    let accounted = &pod.pod;
                    let bound = accounted.node.clone().map(Settled::Bound);
                    let settled = if accounted.done { Some(Settled::Ended) } else { bound };
                    dump.take_pod(words, *pod);
                    settled
                }
                Object::Unreadable { node, why } => {
                    dump.unread(kind, &words, node, &why);
                    None
                }
                _ => None,
            };
            dump.pods.insert((namespace, name), settled);
        }
        dump
    }

    /// Notes what is true of some objects.
    fn note(&mut self, what: &str, objects: BTreeSet<String>) {
        let others = objects.len().saturating_sub(NAMED);
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        let named: Vec<String> = objects.into_iter().take(NAMED).collect();
        if !named.is_empty() {
            self.notes.push(format!("{}{others}: {what}", named.join(", ")));
        }
    }

    /// Takes in an object that is no Pod.
    fn take(&mut self, words: &str, object: Object) {
        match object {
            Object::Node(node) => {
                let (node, site, _) = *node;
                self.sites.insert(node.name.to_string(), site);
                self.ledger.put_node(node);
            }
            Object::Claim(Claim { accounted: claim, .. }) => {
                if claim.results.is_some() {
                    self.allocated.insert((claim.namespace.clone(), claim.name.clone()));
                }
                self.claims.insert((claim.namespace.clone(), claim.name.clone()));
                self.ledger.put_claim(claim);
            }
            Object::Slice(slice, _) => drop(self.ledger.put_slice(slice)),
            Object::Footprint(footprint, refused) => {
                self.unreadable.extend(refused.map(|why| format!("{words}: {why}")));
                self.ledger.put_footprint(footprint);
            }
            Object::Pod(_) | Object::Class(_) | Object::TaintRule(_) | Object::Unreadable { .. } => {}
        }
    }

    /// The meaning of the Pods of all nodes for a Pod that waits.
    pub(crate) fn around(&self, Waiting { placement, kind, .. }: &Waiting) -> Neighbourhood {
        self.neighbours.around(Seeker { kind, constraints: placement }, &[], &self.sites)
    }

    fn take_pod(&mut self, words: String, ReadPod { pod, placement, kind, extended }: ReadPod) {
        let placement = placement.map(|placement| *placement).unwrap_or_default();
        match &pod.node {
            _ if pod.done => {}
            None => drop(self.waiting.insert(words, Waiting { pod, placement, kind, extended })),
            Some(node) => {
                let kind = self.neighbours.shared(kind);
                self.neighbours.add(node, &kind);
                if let Some(site) = self.sites.get_mut(&**node) {
                    site.add(&placement);
                }
                self.ledger.put_pod(pod);
            }
        }
    }

    /// Counts an object that does not decode as an unknown cost.
    fn unread(&mut self, kind: &str, name: &str, node: Option<Name>, why: &str) {
        let unread = Unaccounted { object: name.into(), field: "".into(), resource: None, why: why.into() };
        match kind {
            "Pod" if node.is_some() => drop(self.ledger.put_pod(unreadable(name, node, unread))),
            // It may cost any node something, or the one it names.
            "ResourceSlice" | "DeviceFootprint" | "ResourceClaim" => {
                self.ledger.put_unread(name, vec![(node, unread)]);
            }
            // A Node that is not listed is unknown, and so are Pods whose claim is not.
            _ => {}
        }
        self.unreadable.push(format!("{name}: {why}"));
    }
}

/// A Pod that takes an unknown amount from its node.
fn unreadable(name: &str, node: Option<Name>, unaccounted: Unaccounted) -> cluster::Pod {
    let view = PodSpecView { uid: name.into(), ..PodSpecView::default() };
    cluster::Pod { view, node, unaccounted: vec![unaccounted], ..cluster::Pod::default() }
}
