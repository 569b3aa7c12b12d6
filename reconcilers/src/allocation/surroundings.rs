//! The rest of the cluster as a Pod in question sees it: the Pods of all nodes, those that are bound and those that
//! have devices and wait, and the volumes that it uses.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::watch::Record;
use dragoman_objects::Name;

use super::decided::Decided;
use super::index::{Allocation, PodFacts};
use super::shapes::Around;
use crate::placement::{
    Neighbourhood, NodeView, Nodes, PodKind, PodTerms, Seeker, UnmetConstraint, VolumeReach,
};

/// Facts beside a node itself that decide whether the node takes a Pod.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    pods: Option<Neighbourhood>,
    volumes: Option<VolumeReach>,
    /// Whether Pods of other namespaces count.
    has_others: bool,
}

impl Surroundings {
    /// Returns the reason why a node does not take the Pod.
    pub(super) fn obstacle(&self, node: &NodeView) -> Option<UnmetConstraint> {
        let of_volumes = || self.volumes.as_ref()?.obstacle(node);
        self.pods.as_ref().and_then(|pods| pods.obstacle(node)).or_else(of_volumes)
    }

    /// Tells them apart from those of another time.
    pub(super) fn around(&self) -> Around {
        if self.pods.is_none() && self.volumes.is_none() {
            return Around::Nothing;
        }
        let mut hasher = DefaultHasher::new();
        self.pods.as_ref().map(Neighbourhood::fingerprint).hash(&mut hasher);
        self.volumes.hash(&mut hasher);
        Around::Something { fingerprint: hasher.finish(), has_others: self.has_others }
    }
}

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

    /// The surroundings of a Pod. `is_repelled`: there is [`Self::repulsion`].
    pub(super) fn surroundings(
        &self,
        key: &ObjectKey,
        pod: &PodFacts,
        decided: &Decided,
        is_repelled: bool,
    ) -> Surroundings {
        let has_terms = pod.placement.terms().is_some() || is_repelled;
        Surroundings {
            pods: has_terms.then(|| self.neighbourhood(key, pod, decided)),
            volumes: pod.placement.reach((&key.namespace, &pod.accounted.view.uid), &self.storage),
            has_others: is_repelled || pod.placement.terms().is_some_and(PodTerms::are_about_others),
        }
    }

    fn neighbourhood(&self, key: &ObjectKey, pod: &PodFacts, decided: &Decided) -> Neighbourhood {
        let promised = decided.assumed.nodes().filter(|(other, _)| *other != key);
        let promised =
            promised.filter_map(|(other, node)| Some((node.clone(), Arc::clone(self.kind(other)?))));
        let promised: Vec<(Name, Arc<PodKind>)> = promised.collect();
        let seeker = Seeker { kind: &pod.kind, constraints: &pod.placement };
        self.neighbours.around(seeker, &promised, self)
    }

    /// A Pod without a node as others see it.
    fn kind(&self, key: &ObjectKey) -> Option<&Arc<PodKind>> {
        self.waiting(key).map(|facts| &facts.kind)
    }
}
