//! The links between objects: from Pods to claims, from claims to devices, and back.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{DeviceId, Name};

use crate::claim::allocation::DeviceResult;

use super::ClusterLedger;
use super::devices::Devices;
use super::notice::Notice;
use super::objects::{Claim, ClaimKey, ClaimName, Pod, PodClaim, claim_key};
use crate::Uid;
use crate::amounts::Amounts;
use crate::few::Few;
use crate::unaccounted::Unaccounted;

/// A Pod that takes something from a node.
#[derive(Debug, Clone)]
pub(super) struct BoundPod {
    pub(super) node: Name,
    /// The Pod, as long as something else can change what it takes: of a Pod without claims nothing can,
    /// and nearly all Pods have none.
    pub(super) pod: Option<Box<Pod>>,
    /// Notices of the Pod, as the account of the node has them now.
    pub(super) notices: BTreeSet<Notice>,
}

/// A claim.
#[derive(Debug, Clone, Default)]
pub(super) struct ClaimEntry {
    /// `None`: Pods name it, but it is not there.
    pub(super) claim: Option<Claim>,
    /// The Pods that name it, and those for which it is reserved that do not name all their claims.
    pub(super) pods: Few<Uid>,
    /// The uids of the consumers for which it is reserved.
    pub(super) reserved_for: Few<Uid>,
    /// Costs of the claim itself, as the accounts have them now; absent where it has none, as nearly all.
    pub(super) effects: Option<Box<Effects>>,
}

/// The costs of an allocated claim that do not depend on Pods.
#[derive(Debug, Clone, Default)]
pub(super) struct Effects {
    /// The uid of the claim.
    pub(super) uid: Uid,
    /// The reservations of drivers for its devices, by node. Only devices of one node can have one
    /// (KEP-6352).
    pub(super) held: BTreeMap<(Name, DeviceId), Amounts>,
    /// Unknown costs of devices of the claim, by node.
    pub(super) doubts: BTreeMap<Name, BTreeSet<Unaccounted>>,
}

/// Returns the claims that a Pod names, each once, with all containers that name it.
pub(super) fn named(pod: &Pod) -> BTreeMap<&str, PodClaim> {
    let mut named: BTreeMap<&str, PodClaim> = BTreeMap::new();
    for entry in &pod.claims {
        if let ClaimName::Named(name) = &entry.claim {
            let known =
                named.entry(name).or_insert_with(|| PodClaim { containers: Few::default(), ..entry.clone() });
            known.containers.extend(entry.containers.iter().cloned());
        }
    }
    named
}

/// The keys of the claims that a Pod names.
fn keys(pod: &Pod) -> BTreeSet<ClaimKey> {
    named(pod).into_keys().map(|name| claim_key(&pod.view.namespace, name)).collect()
}

/// The devices that a claim was given.
fn given(claim: Option<&Claim>) -> BTreeSet<DeviceId> {
    let results = claim.into_iter().flat_map(|claim| &claim.results).flatten();
    results.map(DeviceResult::id).collect()
}

impl Devices {
    /// Returns the costs of a claim that do not depend on Pods, if it has any.
    pub(super) fn effects(&self, key: &ClaimKey, claim: &Claim) -> Option<Box<Effects>> {
        let object = format!("ResourceClaim {key}");
        let mut effects = Effects { uid: Uid::from(&*claim.uid), ..Effects::default() };
        for result in claim.results.iter().flatten().filter(|result| !result.admin_access) {
            let id = result.id();
            for found in self.found(&id) {
                let Some(node) = found.node else { continue };
                if let Some(doubt) = found.doubt(&object) {
                    effects.doubts.entry(node.into()).or_default().insert(doubt);
                }
                let reservation = found.reservation();
                if !reservation.is_empty() {
                    effects.held.insert((node.into(), id.clone()), reservation);
                }
            }
        }
        let has_none = effects.held.is_empty() && effects.doubts.is_empty();
        (!has_none).then(|| Box::new(effects))
    }
}

impl ClusterLedger {
    pub(super) fn link_pod(&mut self, uid: &Uid, pod: BoundPod) {
        for key in pod.pod.iter().flat_map(|pod| keys(pod)) {
            self.claims.entry(key).or_default().pods.insert(uid.clone());
        }
        if let Some(pod) = &pod.pod {
            self.link_reserved(uid, pod);
        }
        self.pods.insert(uid.clone(), pod);
    }

    pub(super) fn unlink_pod(&mut self, uid: &str) -> Option<BoundPod> {
        let pod = self.pods.remove(uid)?;
        let reserved = pod.pod.as_ref().map(|pod| self.unlink_reserved(uid, pod)).unwrap_or_default();
        for key in pod.pod.iter().flat_map(|pod| keys(pod)).chain(reserved) {
            if let Some(entry) = self.claims.get_mut(&key) {
                entry.pods.remove(uid);
            }
            self.sweep(&key);
        }
        Some(pod)
    }

    /// Puts a claim in its place, or takes it away.
    pub(super) fn link_claim(&mut self, key: &ClaimKey, claim: Option<Claim>) {
        let after = given(claim.as_ref());
        let entry = self.claims.entry(key.clone()).or_default();
        let before = given(entry.claim.as_ref());
        entry.claim = claim;
        for device in before.difference(&after) {
            self.devices.leave_device(device, key);
        }
        for device in &after {
            self.devices.use_device(device, key.clone());
        }
    }

    /// Notes whether a claim has a device on `node` whose costs are not known.
    pub(super) fn link_uncertain(&mut self, key: &ClaimKey, node: &str, uncertain: bool) {
        if uncertain {
            self.uncertain.entry(node.into()).or_default().insert(key.clone());
        } else if let Some(claims) = self.uncertain.get_mut(node) {
            claims.remove(key);
            if claims.is_empty() {
                self.uncertain.remove(node);
            }
        }
    }

    /// Forgets a claim that is not there and that no Pod names.
    pub(super) fn sweep(&mut self, key: &str) {
        if self.claims.get(key).is_some_and(|entry| entry.claim.is_none() && entry.pods.is_empty()) {
            self.claims.remove(key);
        }
    }

    /// The claims that have one of the devices.
    pub(super) fn claims_with(&self, devices: &BTreeSet<DeviceId>) -> BTreeSet<ClaimKey> {
        devices.iter().flat_map(|device| self.devices.users(device)).cloned().collect()
    }

    /// The claims that have a device of one of the drivers.
    pub(super) fn claims_of_drivers(&self, drivers: &BTreeSet<Name>) -> BTreeSet<ClaimKey> {
        drivers.iter().flat_map(|driver| self.devices.users_of(driver)).cloned().collect()
    }
}
