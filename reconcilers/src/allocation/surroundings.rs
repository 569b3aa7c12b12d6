//! The rest of the cluster as a Pod in question sees it: the Pods of all nodes, those that are bound and those that
//! have devices and wait, and the volumes that it uses.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::watch::Record;
use dragoman_objects::Name;

use super::in_flight::InFlightAllocations;
use super::index::{Allocation, PodFacts};
use super::shapes::Around;
use dragoman_cluster::placement::{
    Neighbourhood, NodeView, Nodes, PodKind, PodTerms, Promised, SchedulingConstraints, Seeker,
    UnmetConstraint, VolumeReach,
};

/// Groups of promised Pods whose topology spread is spared. Each costs a look at all nodes and a count of the Pods of a namespace.
const MOST_SPARED: usize = 4;

/// Facts beside a node itself that decide whether the node takes a Pod.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    pods: Option<Neighbourhood>,
    volumes: Option<VolumeReach>,
    /// The Pods that have a node, are not bound to it, and take host ports or extended resources of it; none for a Pod that takes
    /// nothing of the kind.
    promised: HashMap<Name, Vec<Arc<SchedulingConstraints>>>,
    /// Whether Pods of other namespaces count.
    has_others: bool,
}

impl Surroundings {
    /// Returns a node with the Pods that are on their way to it.
    pub(super) fn with_promised(&self, mut node: NodeView) -> NodeView {
        if let Some(pods) = self.promised.get(node.name()) {
            pods.iter().for_each(|pod| node.add(pod));
        }
        node
    }

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

/// The Pods among these that have a node and are not bound to it, in order. A tenant makes as many Pods that wait as it likes, and few of
/// all Pods are on their way: the smaller set is gone through.
fn promised<'a>(
    among: &'a BTreeSet<ObjectKey>,
    decided: &'a InFlightAllocations,
) -> Vec<(&'a ObjectKey, &'a Name)> {
    let assumed = &decided.assumed;
    if among.len() <= assumed.len() {
        return among.iter().filter_map(|pod| Some((pod, assumed.node_of(pod)?))).collect();
    }
    let mut promised: Vec<_> = assumed.nodes().filter(|(pod, _)| among.contains(*pod)).collect();
    promised.sort_unstable_by_key(|(pod, _)| *pod);
    promised
}

impl Allocation {
    /// Tells apart the requirements of other Pods that keep a Pod away from them.
    pub(super) fn repulsion(
        &self,
        key: &ObjectKey,
        pod: &PodFacts,
        decided: &InFlightAllocations,
    ) -> Option<u64> {
        let promised = promised(&self.repelling, decided).into_iter().filter(|(other, _)| *other != key);
        let repels = self.neighbours.repulsion(&pod.kind, promised.filter_map(|(other, _)| self.kind(other)));
        let spread = self.spread_of_others(key, pod, decided);
        let spread = spread.iter().filter_map(|group| group.asks.terms()?.spread_also(&pod.kind));
        repels.into_iter().chain(spread).reduce(u64::wrapping_add)
    }

    /// The Pods that have a node, are not bound to it, and spread Pods like this one. Those of its own PodGroup are left out: they get
    /// devices with it or not at all.
    fn spread_of_others<'a>(
        &'a self,
        key: &ObjectKey,
        pod: &PodFacts,
        decided: &'a InFlightAllocations,
    ) -> Vec<Promised<'a>> {
        let mut groups: Vec<Promised<'a>> = Vec::new();
        let others = promised(&self.spreading, decided).into_iter();
        for (other, node) in others.filter(|(other, _)| *other != key && other.namespace == key.namespace) {
            let Some(facts) = self.waiting(other) else { continue };
            let asks = &*facts.placement;
            let is_beside = facts.group.is_some() && facts.group == pod.group;
            // A Pod that asks for the same finds no place where they have none.
            let is_covered = is_beside || asks.spreads_like(&pod.placement);
            if is_covered || asks.terms().and_then(|terms| terms.spread_also(&pod.kind)).is_none() {
                continue;
            }
            if let Some(group) = groups.iter_mut().find(|group| group.asks.spreads_like(asks)) {
                group.on.push(node);
            } else if groups.len() < MOST_SPARED {
                groups.push(Promised { asks, on: vec![node] });
            }
        }
        groups
    }

    /// The surroundings of a Pod. `is_repelled`: there is [`Self::repulsion`].
    pub(super) fn surroundings(
        &self,
        key: &ObjectKey,
        pod: &PodFacts,
        decided: &InFlightAllocations,
        is_repelled: bool,
    ) -> Surroundings {
        let has_terms = pod.placement.terms().is_some() || is_repelled;
        let takes = !pod.placement.takes().is_nothing();
        let others = takes.then(|| self::promised(&self.taking, decided)).into_iter().flatten();
        let others = others.filter(|(other, _)| *other != key);
        let mut promised: HashMap<Name, Vec<_>> = HashMap::new();
        for (other, node) in others {
            let constraints = self.waiting(other).map(|of| Arc::clone(&of.placement));
            promised.entry(node.clone()).or_default().extend(constraints);
        }
        Surroundings {
            promised,
            pods: has_terms.then(|| self.neighbourhood(key, pod, decided)),
            volumes: pod.placement.reach(&key.namespace, &pod.accounted.view.uid, &self.storage),
            has_others: is_repelled || pod.placement.terms().is_some_and(PodTerms::are_about_others),
        }
    }

    fn neighbourhood(&self, key: &ObjectKey, pod: &PodFacts, decided: &InFlightAllocations) -> Neighbourhood {
        let promised = decided.assumed.nodes().filter(|(other, _)| *other != key);
        let promised =
            promised.filter_map(|(other, node)| Some((node.clone(), Arc::clone(self.kind(other)?))));
        let promised: Vec<(Name, Arc<PodKind>)> = promised.collect();
        let seeker = Seeker { kind: &pod.kind, constraints: &pod.placement };
        let mut found = self.neighbours.around(seeker, &promised, self);
        let others = self.spread_of_others(key, pod, decided);
        self.neighbours.spare(&mut found, &pod.kind, &others, &promised, self);
        found
    }

    /// A Pod without a node as others see it.
    fn kind(&self, key: &ObjectKey) -> Option<&Arc<PodKind>> {
        self.waiting(key).map(|facts| &facts.kind)
    }
}
