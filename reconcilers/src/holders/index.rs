//! The holder Pods, and the nodes that there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_accounting::per_resource::{Sums, Units};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::resource::Resource;
use dragoman_machinery::controller::{self, Keeps, ObjectKey, Place};
use dragoman_machinery::kind::{Kind, LEASE, NODE, POD};
use dragoman_machinery::lease::Lease;
use dragoman_machinery::watch::{Store, StoreState};
use dragoman_machinery::write::Guard;
use dragoman_objects::{Name, Node, Pod};

use super::plan::names_of;
use super::room::GatedPods;
use crate::cluster::node_key;
use crate::indexes::Indexes;

/// The label of our objects that says what they are, and its value for holder Pods.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "holder");

/// The condition of a holder that says for which process of kube-scheduler it was nominated.
pub(super) const NOMINATED: &str = "dragoman.dev/Nominated";

/// The Lease of kube-scheduler: namespace and name.
pub const SCHEDULER: (&str, &str) = ("kube-system", "kube-scheduler");

/// Whether a Pod is a holder of the installation in `namespace`. Tenants make no Pods there.
pub fn is_holder(pod: &Pod, namespace: &str) -> bool {
    let (label, value) = COMPONENT;
    let meta = &pod.metadata;
    *meta.namespace == *namespace && meta.labels.get(label).is_some_and(|known| **known == *value)
}

/// A holder Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderFacts {
    /// Name of the holder Pod.
    pub(super) name: Name,
    /// The node whose room it holds.
    pub(super) node: Name,
    /// Uid and version of the holder Pod.
    pub(super) guard: Guard,
    /// Whether it is being deleted.
    pub(super) deleting: bool,
    /// Whether it has ended: its node did not admit it, or it was evicted.
    pub(super) is_over: bool,
    /// Whether it has a node: an earlier version made it, or its gate was removed.
    pub(super) is_bound: bool,
    /// Whether it is nominated for its node.
    pub(super) is_nominated: bool,
    /// For which process of kube-scheduler it was nominated: the message of its condition.
    pub(super) seen_by: Name,
    /// Requests of the holder Pod: cpu and memory.
    pub(super) requests: Units,
}

impl HolderFacts {
    fn of(pod: &Pod) -> Self {
        let containers = PodSpecView::of(pod, &mut Vec::new()).containers;
        let mut requests = Units::default();
        for container in &containers {
            for (resource, amount) in container.resources.requests.iter() {
                let units = amount.rounded_up(resource.unit()).unwrap_or_default();
                requests.set(resource, i64::try_from(units).unwrap_or(i64::MAX));
            }
        }
        let (spec, status) = (&pod.spec, &pod.status);
        let is_bound = !spec.node_name.is_empty();
        let seen = status.conditions.iter().find(|of| &*of.r#type == NOMINATED);
        let pinned = || spec.affinity.node().cloned().unwrap_or_default();
        let node = if is_bound { spec.node_name.clone() } else { pinned() };
        Self {
            name: pod.metadata.name.clone(),
            guard: Guard::of(&pod.metadata),
            deleting: pod.metadata.deleting,
            is_over: matches!(&*status.phase, "Succeeded" | "Failed"),
            is_bound,
            is_nominated: status.nominated_node_name == node,
            seen_by: seen.map(|of| of.message.clone()).unwrap_or_default(),
            node,
            requests,
        }
    }

    /// Whether it is being deleted and no kubelet has to end it first.
    pub(super) fn is_leaving(&self) -> bool {
        self.deleting && !self.is_bound
    }

    /// Whether kube-scheduler counts it on its node.
    pub(super) fn is_counted(&self) -> bool {
        !self.deleting && !self.is_over && (self.is_bound || self.is_nominated)
    }

    /// Whether it holds so much at least.
    pub(super) fn holds(&self, required: &Units) -> bool {
        let is_enough = |resource: Resource| self.requests.get(resource) >= required.get(resource);
        self.is_counted() && is_enough(Resource::Cpu) && is_enough(Resource::Memory)
    }
}

/// The index.
#[derive(Debug, Default)]
pub struct Holders {
    pods: Store<Arc<HolderFacts>>,
    nodes: Store<()>,
    /// Leases with the name of that of kube-scheduler, by their holders.
    leases: Store<Name>,
    /// The uids of the holders that this process has written since it leads. A write of the leader before it that is still on its way
    /// is guarded by an older version of these.
    pub(super) ours: BTreeSet<String>,
    /// Our own namespace.
    pub(super) namespace: Arc<str>,
    /// Whether the controller of holders runs.
    pub(super) is_on: bool,
    /// The gated Pods that wait for holders.
    pub(super) gated: GatedPods,
}

impl controller::Index for Holders {
    type Key = ObjectKey;
    type Whole = Indexes;

    fn key_of(object: ObjectKey) -> Option<ObjectKey> {
        Some(object)
    }

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        let stores: [(Kind, &dyn StoreState); 3] =
            [(POD, &self.pods), (NODE, &self.nodes), (LEASE, &self.leases)];
        stores.into_iter()
    }

    fn all_keys(&self) -> Vec<ObjectKey> {
        let of_pods = self.pods.iter().filter_map(|(_, _, record)| record.readable());
        let of_pods = of_pods.map(|facts| Arc::from(&*facts.node));
        let nodes = self.nodes.iter().map(|(_, name, _)| Arc::clone(name));
        let names: BTreeSet<Arc<str>> = nodes.chain(of_pods).collect();
        names.iter().map(node_key).collect()
    }
}

impl Holders {
    /// The holders of a node: one, two while it gets a smaller one, and those that an earlier version has made.
    pub(super) fn of(&self, node: &str) -> Vec<&Arc<HolderFacts>> {
        let found =
            names_of(node).into_iter().filter_map(|name| self.pods.get(&self.namespace, &name)?.readable());
        found.filter(|facts| *facts.node == *node).collect()
    }

    /// Sums up the requests of the holders of a node that kube-scheduler counts.
    pub(super) fn counted(&self, node: &str) -> Sums {
        let mut sums = Sums::default();
        self.of(node).iter().filter(|facts| facts.is_counted()).for_each(|facts| sums.add(&facts.requests));
        sums
    }

    /// Whether a holder of a node holds so much at least that no other leader removes, or nothing has to be held.
    pub(super) fn holds(&self, node: &str, required: &Units) -> bool {
        let is_safe = |facts: &HolderFacts| facts.holds(required) && self.ours.contains(&facts.guard.uid);
        required.is_empty() || self.of(node).iter().any(|facts| is_safe(facts))
    }

    /// Gives a holder up that is to be deleted, unless the others of its node do not hold `required`: what was decided about it may be
    /// older than that. From then on no gate is opened because of it. The deletion may arrive much later. `None`: it is not known what
    /// has to be held.
    pub(super) fn give_up(&mut self, node: &str, uid: &str, required: Option<&Units>) -> bool {
        let is_counted = self.of(node).iter().any(|of| of.guard.uid == uid && of.is_counted());
        // Another holder counts as it does for a gate: a leader before this one may be about to delete it.
        let is_safe = |of: &&Arc<HolderFacts>, required: &Units| {
            of.guard.uid != uid && of.holds(required) && self.ours.contains(&of.guard.uid)
        };
        let is_held_by_others = required.is_some_and(|required| {
            required.is_empty() || self.of(node).iter().any(|of| is_safe(of, required))
        });
        let is_given_up = !is_counted || is_held_by_others;
        if is_given_up {
            self.ours.remove(uid);
        }
        is_given_up
    }

    /// The number of nodes with a holder.
    pub(super) fn count(&self) -> usize {
        let facts = self.pods.iter().filter_map(|(_, _, record)| record.readable());
        facts.map(|facts| &*facts.node).collect::<BTreeSet<&str>>().len()
    }

    /// The process that leads as kube-scheduler; empty where it has no Lease.
    pub(super) fn scheduler(&self) -> Name {
        let (namespace, name) = SCHEDULER;
        self.leases.get(namespace, name).and_then(|record| record.readable().cloned()).unwrap_or_default()
    }

    /// Whether a node is there.
    pub(super) fn has_node(&self, node: &str) -> bool {
        self.nodes.get("", node).is_some()
    }
}

impl Keeps<Pod> for Holders {
    type Projection = Arc<HolderFacts>;

    fn store_mut(&mut self) -> &mut Store<Self::Projection> {
        &mut self.pods
    }

    fn project(&mut self, pod: &Pod) -> Option<Self::Projection> {
        is_holder(pod, &self.namespace).then(|| Arc::new(HolderFacts::of(pod)))
    }

    fn changed(
        &mut self,
        _pod: &Place,
        old: Option<&Self::Projection>,
        new: Option<&Self::Projection>,
    ) -> Vec<ObjectKey> {
        if let (Some(gone), None) = (old, new) {
            self.ours.remove(&gone.guard.uid);
        }
        let node = |facts: Option<&Self::Projection>| Some(Arc::from(&*facts?.node));
        let nodes: BTreeSet<Arc<str>> = node(old).into_iter().chain(node(new)).collect();
        nodes.iter().map(node_key).collect()
    }
}

impl Keeps<Node> for Holders {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.nodes
    }

    fn project(&mut self, _node: &Node) -> Option<()> {
        Some(())
    }

    fn changed(&mut self, node: &Place, old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        if old.is_some() == new.is_some() { Vec::new() } else { vec![node_key(&node.name)] }
    }
}

/// kube-scheduler renews its Lease every two seconds; only another process that holds it is of concern.
impl Keeps<Lease> for Holders {
    type Projection = Name;

    fn store_mut(&mut self) -> &mut Store<Name> {
        &mut self.leases
    }

    fn project(&mut self, lease: &Lease) -> Option<Name> {
        Some(lease.holder().into())
    }

    fn changed(&mut self, lease: &Place, old: Option<&Name>, new: Option<&Name>) -> Vec<ObjectKey> {
        if old == new || (&*lease.namespace, &*lease.name) != SCHEDULER {
            return Vec::new();
        }
        let held = self.pods.iter().filter_map(|(_, _, record)| record.readable());
        let nodes: BTreeSet<Arc<str>> = held.map(|facts| Arc::from(&*facts.node)).collect();
        nodes.iter().map(node_key).collect()
    }
}
