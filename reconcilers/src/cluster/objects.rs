//! The objects of every kind, on their way into the ledger.
//!
//! An object goes into the ledger while its projection is made, and the store keeps that it exists.
//! The ledger knows claims, slices and DeviceFootprints by their names: where another object has
//! taken the name of one that is gone, nothing is removed.

use std::sync::Arc;

use dragoman_accounting::cluster::Claim;
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_crds::wire::{Meta, Name, Node, Pod, ResourceClaim, ResourceSlice};
use dragoman_machinery::controller::{Keeps, Left, ObjectKey, Place};
use dragoman_machinery::kind::{DEVICE_FOOTPRINT, NODE_ALLOCATABLE_DRA_CLAIM_STATE, RESOURCE_SLICES};
use dragoman_machinery::watch::{Body, Record, Store};

use crate::holders::is_holder;

use super::supply::{self, Held};
use super::{Cluster, Published, RefusedFootprint, node_key, selector};

impl Keeps<Node> for Cluster {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.nodes
    }

    fn project(&mut self, node: &Node) {
        let changed = self.ledger.put_node(node.accounted());
        self.changed.extend(changed);
    }

    fn changed(&mut self, node: &Place, old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        if old.is_none() || new.is_none() {
            let why = unreadable(&self.nodes, "", &node.name);
            self.doubt(&format!("Node {}", node.name), &[Some((*node.name).into())], why.as_deref());
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
            let changed = self.ledger.remove_node(name);
            self.changed.extend(changed);
            self.doubt(&format!("Node {name}"), &[], None);
        }
        let mut keys = self.take_changed();
        keys.push(node_key(name));
        keys
    }
}

impl Keeps<Pod> for Cluster {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.pods
    }

    fn project(&mut self, pod: &Pod) {
        let mut accounted = pod.accounted();
        accounted.holder = is_holder(pod, &self.namespace);
        let changed = self.ledger.put_pod(accounted);
        self.changed.extend(changed);
    }

    fn changed(&mut self, pod: &Place, old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        if old.is_none() || new.is_none() {
            let Place { namespace, name, uid } = pod;
            let why = unreadable(&self.pods, namespace, name);
            let node = self.ledger.node_of(uid).map(Name::from);
            self.doubt(&object("Pod", pod), &node.map(Some).into_iter().collect::<Vec<_>>(), why.as_deref());
        }
        self.take_changed()
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<()>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        let changed = self.ledger.remove_pod(&last.uid);
        self.changed.extend(changed);
        // What was not read of it is gone with it. Another Pod of its name has another uid.
        let (namespace, name, uid) = (Arc::clone(namespace), Arc::clone(name), last.uid.clone());
        self.doubt(&object("Pod", &Place { namespace, name, uid }), &[], None);
        self.take_changed()
    }
}

impl Keeps<ResourceClaim> for Cluster {
    type Projection = Held;

    fn store_mut(&mut self) -> &mut Store<Held> {
        &mut self.claims
    }

    /// Where the allocation does not decode, the Pods that name the claim are uncertain.
    fn project(&mut self, claim: &ResourceClaim) -> Held {
        let Meta { namespace, name, uid, .. } = &claim.metadata;
        let unread = |why| unread_claim(namespace, name, uid, why);
        let changed = self.ledger.put_claim(claim.accounted().unwrap_or_else(unread));
        self.changed.extend(changed);
        Held::new(claim)
    }

    fn changed(&mut self, claim: &Place, _old: Option<&Held>, new: Option<&Held>) -> Vec<ObjectKey> {
        let Place { namespace, name, uid } = claim;
        if new.is_none()
            && let Some(why) = unreadable(&self.claims, namespace, name)
        {
            let changed = self.ledger.put_claim(unread_claim(namespace, name, uid, why));
            self.changed.extend(changed);
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
            let changed = self.ledger.remove_claim(namespace, name);
            self.changed.extend(changed);
        }
        self.take_changed()
    }
}

impl Keeps<ResourceSlice> for Cluster {
    type Projection = supply::Published;

    fn store_mut(&mut self) -> &mut Store<supply::Published> {
        &mut self.slices
    }

    fn project(&mut self, slice: &ResourceSlice) -> supply::Published {
        let slice = slice.accounted();
        let published = supply::Published::new(&slice);
        let changed = self.ledger.put_slice(slice);
        self.changed.extend(changed);
        published
    }

    fn changed(
        &mut self,
        slice: &Place,
        _old: Option<&supply::Published>,
        new: Option<&supply::Published>,
    ) -> Vec<ObjectKey> {
        if new.is_none() {
            // Its devices are in no slice: the claims that have them are uncertain.
            let changed = self.ledger.remove_slice(&slice.name);
            self.changed.extend(changed);
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
            let changed = self.ledger.remove_slice(name);
            self.changed.extend(changed);
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

    /// One that is refused may be about any device.
    fn project(&mut self, footprint: &DeviceFootprint) -> Option<Name> {
        let name = &footprint.metadata.name;
        let object = format!("DeviceFootprint {name}");
        self.refused.remove(name);
        match selector::footprint(footprint) {
            Ok((accounted, refused)) => {
                let changed = self.ledger.put_footprint(accounted);
                self.changed.extend(changed);
                self.doubt(&object, &[], None);
                refused.map(|why| self.refuse(footprint, why))
            }
            Err(why) => {
                let changed = self.ledger.remove_footprint(name);
                self.changed.extend(changed);
                self.doubt(&object, &[None], Some(&why));
                Some(self.refuse(footprint, why))
            }
        }
    }

    fn changed(
        &mut self,
        footprint: &Place,
        _old: Option<&Option<Name>>,
        new: Option<&Option<Name>>,
    ) -> Vec<ObjectKey> {
        if new.is_none() {
            let Place { namespace, name, .. } = footprint;
            let changed = self.ledger.remove_footprint(name);
            self.changed.extend(changed);
            let why = unreadable(&self.footprints, namespace, name);
            self.doubt(&format!("DeviceFootprint {name}"), &[None], why.as_deref());
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
            let changed = self.ledger.remove_footprint(name);
            self.changed.extend(changed);
            self.doubt(&format!("DeviceFootprint {name}"), &[], None);
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

    fn project(&mut self, state: &NodeAllocatableDRAClaimState) -> Arc<Published> {
        Arc::new(Published::of(state))
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

/// A claim that does not decode.
pub(crate) fn unread_claim(namespace: &str, name: &str, uid: &str, why: Name) -> Claim {
    let [namespace, name, uid] = [namespace, name, uid].map(Name::from);
    Claim { namespace, name, uid, results: None, unread: Some(why) }
}

/// An object of a namespace in messages. The uid tells it from another one of its name.
fn object(kind: &str, Place { namespace, name, uid }: &Place) -> String {
    format!("{kind} {namespace}/{name} ({uid})")
}

/// Why an object does not decode, if it does not.
pub(crate) fn unreadable<P>(store: &Store<P>, namespace: &str, name: &str) -> Option<Name> {
    match &store.get(namespace, name)?.body {
        Body::Unreadable(why) => Some(why.clone()),
        Body::Readable(_) => None,
    }
}
