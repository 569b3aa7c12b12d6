//! The Pods of all nodes as a Pod in question sees them: those that are bound, and those that have devices and wait.

use std::sync::Arc;

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::watch::Record;
use dragoman_objects::Name;

use super::decided::Decided;
use super::index::{Allocation, PodFacts};
use crate::placement::{Neighbourhood, NodeView, Nodes, PodKind, Seeker};

impl Nodes for Allocation {
    fn node(&self, name: &str) -> Option<&NodeView> {
        self.nodes.get("", name).and_then(Record::readable).map(AsRef::as_ref)
    }

    fn nodes(&self) -> Box<dyn Iterator<Item = &NodeView> + '_> {
        Box::new(self.nodes.iter().filter_map(|(_, _, record)| record.readable().map(AsRef::as_ref)))
    }
}

impl Allocation {
    /// Tells apart the terms of other Pods that keep a Pod away from them.
    pub(super) fn repulsion(&self, key: &ObjectKey, pod: &PodFacts, decided: &Decided) -> Option<u64> {
        let promised = self.repelling.iter().filter(|other| *other != key);
        let promised = promised.filter(|other| decided.assumed.node_of(other).is_some());
        self.neighbours.repulsion(&pod.kind, promised.filter_map(|other| self.kind(other)))
    }

    /// The meaning of other Pods for a Pod that asks for, or is kept away by, Pods near it. `is_repelled`: there is
    /// [`Self::repulsion`].
    pub(super) fn around(
        &self,
        key: &ObjectKey,
        pod: &PodFacts,
        decided: &Decided,
        is_repelled: bool,
    ) -> Option<Neighbourhood> {
        if pod.placement.terms().is_none() && !is_repelled {
            return None;
        }
        let promised = decided.assumed.nodes().filter(|(other, _)| *other != key);
        let promised =
            promised.filter_map(|(other, node)| Some((node.clone(), Arc::clone(self.kind(other)?))));
        let promised: Vec<(Name, Arc<PodKind>)> = promised.collect();
        let seeker = Seeker { kind: &pod.kind, constraints: &pod.placement };
        Some(self.neighbours.around(seeker, &promised, self))
    }

    /// A Pod without a node as others see it.
    fn kind(&self, key: &ObjectKey) -> Option<&Arc<PodKind>> {
        self.waiting(key).map(|facts| &facts.kind)
    }

    /// A Pod has come to a node. Returns the Pods that asked for Pods near them.
    pub(super) fn came(&self, namespace: &str) -> Vec<ObjectKey> {
        self.shapes.heads_near(namespace)
    }
}
