//! The holder Pods, and the nodes that there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_accounting::per_resource::Units;
use dragoman_accounting::resource::Resource;
use dragoman_crds::wire::{Name, Node, Pod};
use dragoman_machinery::controller::{self, Keeps, ObjectKey, Place};
use dragoman_machinery::kind::{Kind, NODE, POD};
use dragoman_machinery::watch::{Store, StoreState};
use dragoman_machinery::write::Guard;

use super::plan::name_of;
use crate::cluster::node_key;

/// The label of our objects that says what they are, and its value for holder Pods.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "holder");

/// Whether a Pod is a holder of the installation in `namespace`. Tenants make no Pods there.
pub fn is_holder(pod: &Pod, namespace: &str) -> bool {
    let (label, value) = COMPONENT;
    let meta = &pod.metadata;
    *meta.namespace == *namespace && meta.labels.get(label).is_some_and(|known| **known == *value)
}

/// A holder Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderFacts {
    /// `spec.nodeName`.
    pub(super) node: Name,
    /// Its uid and version.
    pub(super) guard: Guard,
    /// Whether it is being deleted.
    pub(super) deleting: bool,
    /// Whether it has ended: it was evicted, or its node did not admit it.
    pub(super) is_over: bool,
    /// What it requests: cpu and memory.
    pub(super) carries: Units,
}

impl HolderFacts {
    fn of(pod: &Pod) -> Self {
        let requests = pod.resources(&mut Vec::new()).containers;
        let mut carries = Units::default();
        for container in &requests {
            for (resource, amount) in container.resources.requests.iter() {
                let units = amount.rounded_up(resource.unit()).unwrap_or_default();
                carries.set(resource, i64::try_from(units).unwrap_or(i64::MAX));
            }
        }
        Self {
            node: pod.spec.node_name.clone(),
            guard: Guard::of(&pod.metadata),
            deleting: pod.metadata.deleting,
            is_over: matches!(&*pod.status.phase, "Succeeded" | "Failed"),
            carries,
        }
    }

    /// Whether it requests so much at least.
    pub(super) fn carries(&self, wants: &Units) -> bool {
        let is_enough = |resource: Resource| self.carries.get(resource) >= wants.get(resource);
        !self.deleting && !self.is_over && is_enough(Resource::Cpu) && is_enough(Resource::Memory)
    }
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pods: Store<Option<Arc<HolderFacts>>>,
    nodes: Store<()>,
    /// Our own namespace.
    pub(super) namespace: Arc<str>,
}

impl controller::Index for Holders {
    type Key = ObjectKey;

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        let stores: [(Kind, &dyn StoreState); 2] = [(POD, &self.pods), (NODE, &self.nodes)];
        stores.into_iter()
    }

    fn all_keys(&self) -> Vec<ObjectKey> {
        let of_pods = self.pods.iter().filter_map(|(_, _, record)| record.readable()?.as_ref());
        let of_pods = of_pods.map(|facts| Arc::from(&*facts.node));
        let nodes = self.nodes.iter().map(|(_, name, _)| Arc::clone(name));
        let names: BTreeSet<Arc<str>> = nodes.chain(of_pods).collect();
        names.iter().map(node_key).collect()
    }
}

impl Holders {
    /// The holder of a node.
    pub(super) fn of(&self, node: &str) -> Option<&Arc<HolderFacts>> {
        self.pods.get(&self.namespace, &name_of(node))?.readable()?.as_ref()
    }

    /// Whether the holder of a node requests so much at least, or nothing has to be requested.
    pub(super) fn carries(&self, node: &str, wants: &Units) -> bool {
        wants.is_empty() || self.of(node).is_some_and(|holder| holder.carries(wants))
    }

    /// The number of holders.
    pub(super) fn count(&self) -> usize {
        self.pods.iter().filter(|(_, _, record)| record.readable().is_some_and(Option::is_some)).count()
    }

    /// Whether a node is there.
    pub(super) fn has_node(&self, node: &str) -> bool {
        self.nodes.get("", node).is_some()
    }
}

impl Keeps<Pod> for Holders {
    type Projection = Option<Arc<HolderFacts>>;

    fn store_mut(&mut self) -> &mut Store<Self::Projection> {
        &mut self.pods
    }

    fn project(&mut self, pod: &Pod) -> Self::Projection {
        is_holder(pod, &self.namespace).then(|| Arc::new(HolderFacts::of(pod)))
    }

    fn changed(
        &mut self,
        _pod: &Place,
        old: Option<&Self::Projection>,
        new: Option<&Self::Projection>,
    ) -> Vec<ObjectKey> {
        let node = |facts: Option<&Self::Projection>| Some(Arc::from(&*facts?.as_ref()?.node));
        let nodes: BTreeSet<Arc<str>> = node(old).into_iter().chain(node(new)).collect();
        nodes.iter().map(node_key).collect()
    }
}

impl Keeps<Node> for Holders {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.nodes
    }

    fn project(&mut self, _node: &Node) {}

    fn changed(&mut self, node: &Place, old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        if old.is_some() == new.is_some() { Vec::new() } else { vec![node_key(&node.name)] }
    }
}
