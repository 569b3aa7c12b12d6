//! The objects of every kind, on their way into the ledger.
//!
//! An object goes into the ledger while its projection is made, and the store keeps that it exists, of Pods only
//! those that take something from a node, with their [`Passage`].
//! The ledger knows claims, slices and DeviceFootprints by their names: where another object has
//! taken the name of one that is gone, nothing is removed.

use std::sync::Arc;

use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_machinery::controller::{Keeps, Left, ObjectKey, Place};
use dragoman_machinery::kind::{DEVICE_FOOTPRINT, NODE_ALLOCATABLE_DRA_CLAIM_STATE, RESOURCE_SLICES};
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects::{Name, Node, Pod, ResourceClaim, ResourceSlice};

use super::supply::{self, Held};
use super::{Cluster, Passage, Published, RefusedFootprint, node_key};

impl Keeps<Node> for Cluster {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.nodes
    }

    fn project(&mut self, node: &Node) -> Option<()> {
        self.accounts.put_node(node);
        Some(())
    }

    fn changed(&mut self, node: &Place, old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        if old.is_none() || new.is_none() {
            self.accounts.saw_node(&node.name, self.nodes.get("", &node.name));
        }
        let mut keys = self.take_changed();
        // The Node owns what is published, so that it has to be there, and to be readable.
        if old.is_some() != new.is_some() {
            keys.push(node_key(&node.name));
        }
        keys
    }

    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        name: &Arc<str>,
        _last: &Record<()>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        if self.nodes.get("", name).is_none() {
            self.accounts.remove_node(name);
        }
        let mut keys = self.take_changed();
        keys.push(node_key(name));
        keys
    }
}

impl Keeps<Pod> for Cluster {
    type Projection = Passage;

    fn store_mut(&mut self) -> &mut Store<Passage> {
        &mut self.pods
    }

    fn project(&mut self, pod: &Pod) -> Option<Passage> {
        let accounted = self.accounts.accounted(pod);
        let takes_something = accounted.node.is_some() && !accounted.done;
        self.accounts.put_pod(accounted);
        takes_something.then(|| Passage::of(pod))
    }

    fn changed(&mut self, pod: &Place, old: Option<&Passage>, new: Option<&Passage>) -> Vec<ObjectKey> {
        if old.is_none() || new.is_none() {
            self.accounts.saw_pod(pod, self.pods.get(&pod.namespace, &pod.name));
        }
        self.take_changed()
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<Passage>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        let (namespace, name, uid) = (Arc::clone(namespace), Arc::clone(name), last.uid.clone());
        self.accounts.remove_pod(&Place { namespace, name, uid });
        self.take_changed()
    }
}

impl Keeps<ResourceClaim> for Cluster {
    type Projection = Held;

    fn store_mut(&mut self) -> &mut Store<Held> {
        &mut self.claims
    }

    fn project(&mut self, claim: &ResourceClaim) -> Option<Held> {
        self.accounts.put_claim(claim);
        Some(Held::new(claim))
    }

    fn changed(&mut self, claim: &Place, _old: Option<&Held>, new: Option<&Held>) -> Vec<ObjectKey> {
        if new.is_none() {
            self.accounts.saw_claim(claim, self.claims.get(&claim.namespace, &claim.name));
        }
        self.take_changed()
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        _last: &Record<Held>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        if self.claims.get(namespace, name).is_none() {
            self.accounts.remove_claim(namespace, name);
        }
        self.take_changed()
    }
}

impl Keeps<ResourceSlice> for Cluster {
    type Projection = supply::Published;

    fn store_mut(&mut self) -> &mut Store<supply::Published> {
        &mut self.slices
    }

    fn project(&mut self, slice: &ResourceSlice) -> Option<supply::Published> {
        let slice = slice.into();
        let published = supply::Published::new(&slice);
        self.accounts.put_slice(slice);
        Some(published)
    }

    fn changed(
        &mut self,
        slice: &Place,
        _old: Option<&supply::Published>,
        new: Option<&supply::Published>,
    ) -> Vec<ObjectKey> {
        if new.is_none() {
            self.accounts.remove_slice(&slice.name);
        }
        self.take_changed()
    }

    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        name: &Arc<str>,
        _last: &Record<supply::Published>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        if self.slices.get("", name).is_none() {
            self.accounts.remove_slice(name);
        }
        self.take_changed()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.unserved.remove(RESOURCE_SLICES[0].plural);
        Vec::new()
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.unserved.insert(RESOURCE_SLICES[0].plural);
        Vec::new()
    }
}

impl Keeps<DeviceFootprint> for Cluster {
    type Projection = Option<Name>;

    fn store_mut(&mut self) -> &mut Store<Option<Name>> {
        &mut self.footprints
    }

    fn project(&mut self, footprint: &DeviceFootprint) -> Option<Option<Name>> {
        self.refused.remove(&footprint.metadata.name);
        Some(self.accounts.put_footprint(footprint).map(|why| self.refuse(footprint, why)))
    }

    fn changed(
        &mut self,
        footprint: &Place,
        _old: Option<&Option<Name>>,
        new: Option<&Option<Name>>,
    ) -> Vec<ObjectKey> {
        if new.is_none() {
            self.accounts.lost_footprint(&footprint.name, self.footprints.get("", &footprint.name));
        }
        self.take_changed()
    }

    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        name: &Arc<str>,
        _last: &Record<Option<Name>>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        if self.footprints.get("", name).is_none() {
            self.accounts.lost_footprint::<()>(name, None);
            self.refused.remove(&**name);
        }
        self.take_changed()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.unserved.remove(DEVICE_FOOTPRINT.plural);
        Vec::new()
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.unserved.insert(DEVICE_FOOTPRINT.plural);
        Vec::new()
    }
}

impl Keeps<NodeAllocatableDRAClaimState> for Cluster {
    type Projection = Arc<Published>;

    fn store_mut(&mut self) -> &mut Store<Arc<Published>> {
        &mut self.published
    }

    fn project(&mut self, state: &NodeAllocatableDRAClaimState) -> Option<Arc<Published>> {
        Some(Arc::new(Published::of(state)))
    }

    fn changed(
        &mut self,
        state: &Place,
        old: Option<&Arc<Published>>,
        new: Option<&Arc<Published>>,
    ) -> Vec<ObjectKey> {
        if old.is_some() && old == new {
            return Vec::new();
        }
        vec![node_key(&state.name)]
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        if self.unserved.remove(NODE_ALLOCATABLE_DRA_CLAIM_STATE.plural) {
            return self.nodes.iter().map(|(_, name, _)| node_key(name)).collect();
        }
        Vec::new()
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.unserved.insert(NODE_ALLOCATABLE_DRA_CLAIM_STATE.plural);
        Vec::new()
    }
}

impl Cluster {
    /// Notes that a DeviceFootprint is refused; it is said once for each reason.
    fn refuse(&mut self, footprint: &DeviceFootprint, why: String) -> Name {
        let (name, uid) = (&footprint.metadata.name, footprint.metadata.uid.clone());
        let why = Name::from(why);
        let known = self.footprints.get("", name).and_then(|record| record.readable());
        if known != Some(&Some(why.clone())) {
            self.refused.insert(name.clone(), RefusedFootprint { uid, why: why.clone() });
        }
        why
    }
}
