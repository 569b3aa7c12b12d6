//! Pods, claims and nodes on their way into the index.

use std::sync::Arc;

use dragoman_allocator::input::Claim;
use dragoman_machinery::controller::{Keeps, Left, ObjectKey, Place};
use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects::{ClaimDevices, DELETE_PROTECTION, Node, Pod, ResourceClaim};

use super::devices::is_readable;
use super::groups::Standing;
use super::index::{Allocation, ClaimFacts, PodFacts, PodState};
use super::large;
use super::pins::node_of;
use super::rank::devices_of;
use super::undecidable::of_claim;
use dragoman_cluster::placement::{NodeView, Takes};
use dragoman_crds::protocol::{
    ALLOCATION_GATES, ALLOCATOR, GATE, RELEASE_GATES, aligned_by, closed_gates, earlier_gate, rejections,
    says_released, verdict,
};

impl Keeps<Pod> for Allocation {
    type Projection = PodState;

    fn store_mut(&mut self) -> &mut Store<PodState> {
        &mut self.pods
    }

    fn project(&mut self, pod: &Pod) -> Option<PodState> {
        let (spec, meta) = (&pod.spec, &pod.metadata);
        let accounted = self.accounts.accounted(pod);
        self.accounts.put_pod(accounted.clone());
        let key = ObjectKey { namespace: meta.namespace.clone(), name: meta.name.clone() };
        let group = spec.scheduling_group.pod_group_name.as_ref().filter(|_| !accounted.done);
        let waits = accounted.node.is_none() && !spec.resource_claims.is_empty();
        let is_gated = spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE);
        self.groups.put(key, group, Standing { waits, is_gated });
        if accounted.done {
            return None;
        }
        if accounted.node.is_some() {
            let takes = Some(Takes::of(pod)).filter(|takes| !takes.is_nothing()).map(Box::new);
            return Some(PodState::Bound(spec.node_name.clone(), takes, self.neighbours.kind(pod)));
        }
        if spec.resource_claims.is_empty() {
            return group.map(|_| PodState::InGroup);
        }
        Some(PodState::Waiting(Arc::new(PodFacts {
            is_gated,
            is_behind_another: earlier_gate(&spec.scheduling_gates, &self.later).is_some(),
            was_released: says_released(&pod.status.conditions),
            deleting: meta.deleting,
            priority: spec.priority,
            group: group.cloned(),
            aligned_by: aligned_by(meta),
            entries: if group.is_some() { spec.resource_claims.to_vec().into() } else { [].into() },
            created: meta.creation_timestamp.clone().unwrap_or_default(),
            accounted: Arc::new(accounted),
            placement: Arc::new(pod.into()),
            kind: self.neighbours.kind(pod),
        })))
    }

    fn changed(&mut self, pod: &Place, old: Option<&PodState>, new: Option<&PodState>) -> Vec<ObjectKey> {
        if old.is_none() || new.is_none() {
            self.accounts.saw_pod(pod, self.pods.get(&pod.namespace, &pod.name));
        }
        if old != new {
            self.link(pod, old, false);
            self.link(pod, new, true);
        }
        let waits = |kept: Option<&PodState>| matches!(kept, Some(PodState::Waiting(_)));
        let mut keys = Vec::new();
        if (waits(old) || waits(new)) && old != new {
            keys.push(pod.into());
        }
        if old != new {
            // A gang may have its minimum now, or another first Pod.
            keys.extend(self.groups.beside(&pod.into()));
        }
        if let (Some(PodState::Bound(node, ..)), true) = (old, old != new) {
            keys.extend(self.changed_at(Some(node)));
        }
        // A Pod that has come to a node changes its account: one that asked for it near may have a node now.
        keys.extend(self.wake());
        keys
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<PodState>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let beside = self.groups.beside(&key);
        // Another Pod of its name may be there already.
        if self.pods.get(namespace, name).is_none() {
            self.groups.remove(&key);
        }
        let place = Place { namespace: Arc::clone(namespace), name: Arc::clone(name), uid: last.uid.clone() };
        self.accounts.remove_pod(&place);
        let mut keys = Keeps::<Pod>::changed(self, &place, last.readable(), None);
        keys.extend(beside);
        keys
    }
}

impl Keeps<ResourceClaim> for Allocation {
    type Projection = Arc<ClaimFacts>;

    fn store_mut(&mut self) -> &mut Store<Arc<ClaimFacts>> {
        &mut self.claims
    }

    fn project(&mut self, claim: &ResourceClaim) -> Option<Arc<ClaimFacts>> {
        let meta = &claim.metadata;
        let allocation = claim.allocation();
        let is_ours = self.allocator.is_none() || self.allocator.as_ref() == meta.labels.get(ALLOCATOR);
        self.undecidable.put(RESOURCE_CLAIM, meta, of_claim(claim));
        let facts = ClaimFacts {
            version: meta.resource_version.clone(),
            allocator: meta.labels.get(ALLOCATOR).filter(|name| !name.is_empty()).cloned(),
            is_held_back: !closed_gates(meta, ALLOCATION_GATES).is_empty(),
            is_held: !closed_gates(meta, RELEASE_GATES).is_empty(),
            is_unreadable: claim.decoded_allocation().is_err(),
            left_behind: large::size_of(claim).filter(|_| is_ours),
            is_allocated: claim.status.allocation.is_some(),
            devices: allocation.map(devices_of).unwrap_or_default(),
            node: allocation.and_then(node_of).cloned(),
            consumers: claim.status.reserved_for.iter().map(|of| of.uid.clone()).collect(),
            deleting: meta.deleting,
            is_finalized: !meta.finalizers.is_empty(),
            is_protected: meta.finalizers.iter().any(|known| **known == *DELETE_PROTECTION),
            rejections: rejections(meta).into(),
            verdict: verdict(meta).map(Box::new),
        };
        // The devices that it held last stay held where its allocation does not decode.
        if let Ok(mut read) = Claim::of(claim) {
            if let Some(allocation) = &mut read.allocation {
                self.pins.reduce(allocation);
            }
            if read.allocation.is_some() || !is_ours {
                read.devices = ClaimDevices::default();
            } else if facts.left_behind.is_some() && !self.lent.has(&meta.uid) {
                read.devices = large::nothing_of();
            }
            self.snapshot = self.snapshot.with_claim(read);
        }
        self.accounts.put_claim(claim);
        Some(Arc::new(facts))
    }

    fn changed(
        &mut self,
        claim: &Place,
        old: Option<&Arc<ClaimFacts>>,
        new: Option<&Arc<ClaimFacts>>,
    ) -> Vec<ObjectKey> {
        let Place { namespace, name, .. } = claim;
        // The devices that it held last stay held.
        if new.is_none() {
            self.accounts.saw_claim(claim, self.claims.get(namespace, name));
        }
        let mut keys: Vec<ObjectKey> = self.sharers(namespace, name).collect();
        self.give(old, -1);
        self.give(new, 1);
        let held = |facts: Option<&Arc<ClaimFacts>>| facts.filter(|facts| facts.is_allocated).cloned();
        if let Some(before) = held(old).filter(|_| held(new).is_none()) {
            // Devices are free.
            keys.extend(self.changed_at(before.node.as_deref()));
        }
        keys.extend(self.wake());
        keys
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<Arc<ClaimFacts>>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        self.snapshot = self.snapshot.without_claim(&last.uid);
        if self.claims.get(namespace, name).is_none() {
            self.accounts.remove_claim(namespace, name);
            self.undecidable.remove(RESOURCE_CLAIM, &format!("{namespace}/{name}"));
        }
        let place = Place { namespace: Arc::clone(namespace), name: Arc::clone(name), uid: last.uid.clone() };
        Keeps::<ResourceClaim>::changed(self, &place, last.readable(), None)
    }
}

impl Keeps<Node> for Allocation {
    type Projection = Arc<NodeView>;

    fn store_mut(&mut self) -> &mut Store<Arc<NodeView>> {
        &mut self.nodes
    }

    fn project(&mut self, node: &Node) -> Option<Arc<NodeView>> {
        self.snapshot = self.snapshot.with_node(node.into());
        self.accounts.put_node(node);
        Some(Arc::new(node.into()))
    }

    fn changed(
        &mut self,
        node: &Place,
        old: Option<&Arc<NodeView>>,
        new: Option<&Arc<NodeView>>,
    ) -> Vec<ObjectKey> {
        if new.is_none() && !is_readable(&self.nodes, &node.name) {
            self.snapshot = self.snapshot.without_node(&node.name);
            self.accounts.remove_node(&node.name);
            self.changes.gone(&node.name);
        } else if old != new {
            self.changes.node(&node.name);
        }
        let mut keys = self.wake();
        if old != new {
            keys.extend(self.shapes.heads());
        }
        keys
    }
}
