//! Claims that are reserved for a Pod which does not name all of its claims. What they take of its node is known all the same, so that
//! no other Pod has to wait until the Pod names them.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::Name;

use super::ClusterLedger;
use super::links::{ClaimEntry, named};
use super::objects::{Claim, ClaimKey, Pod, PodClaim, claim_key};
use crate::Uid;
use crate::few::Few;

/// The Pods on nodes that do not name all their claims, by uid: the names of the claims with devices that are reserved for each and that
/// it does not name. A tenant makes any number of claims, and not of devices.
pub(super) type Incomplete = BTreeMap<Uid, BTreeSet<Name>>;

impl ClusterLedger {
    /// The claims of a Pod, each once, with all containers that name it. Of a Pod on a node that does not name all of them, those that
    /// are reserved for it are among them: each may be used by every container that names a claim.
    pub(super) fn claims_of<'a>(&'a self, pod: &'a Pod) -> BTreeMap<&'a str, PodClaim> {
        let reserved = self.incomplete.get(&pod.view.uid).into_iter().flatten();
        let unnamed = |name: &Name| PodClaim::unnamed(name.clone(), &pod.view);
        let mut claims: BTreeMap<&str, PodClaim> = reserved.map(|name| (&**name, unnamed(name))).collect();
        claims.extend(named(pod));
        claims
    }

    /// Links a Pod that does not name all its claims with those that are reserved for it.
    pub(super) fn link_reserved(&mut self, uid: &Uid, pod: &Pod) {
        if !pod.is_incomplete() {
            return;
        }
        let (named, prefix) = (named(pod), claim_key(&pod.view.namespace, ""));
        let of_namespace = self.claims.range_mut(prefix.clone()..);
        let of_namespace = of_namespace.take_while(|(key, _)| key.starts_with(&*prefix));
        let mut reserved = BTreeSet::new();
        for (key, entry) in of_namespace.filter(|(_, entry)| entry.may_cost_for(uid)) {
            let name = key.strip_prefix(&*prefix).filter(|name| !named.contains_key(name));
            if let Some(name) = name {
                entry.pods.insert(uid.clone());
                reserved.insert(Name::from(name));
            }
        }
        self.incomplete.insert(uid.clone(), reserved);
    }

    /// Forgets the claims that a Pod does not name. Returns their keys.
    pub(super) fn unlink_reserved(&mut self, uid: &str, pod: &Pod) -> Vec<ClaimKey> {
        let reserved = self.incomplete.remove(uid).unwrap_or_default();
        reserved.iter().map(|name| claim_key(&pod.view.namespace, name)).collect()
    }

    /// Notes the consumers of a claim. Returns the Pods that have it now without naming it, and those that had it.
    pub(super) fn reserve(&mut self, key: &ClaimKey, consumers: Few<Uid>) -> BTreeSet<Uid> {
        let Some(entry) = self.claims.get_mut(key) else { return BTreeSet::new() };
        let before = std::mem::replace(&mut entry.reserved_for, consumers);
        let all: BTreeSet<Uid> = before.into_iter().chain(entry.reserved_for.iter().cloned()).collect();
        let Some((namespace, name)) = key.split_once('/') else { return BTreeSet::new() };
        let mut concerned = BTreeSet::new();
        for uid in all {
            let Some(reserved) = self.incomplete.get_mut(&uid) else { continue };
            let Some(pod) = self.pods.get(&uid).and_then(|of| of.pod.as_deref()) else { continue };
            // Another namespace has a claim of the same name.
            if *pod.view.namespace != *namespace {
                continue;
            }
            let has = entry.may_cost_for(&uid) && !named(pod).contains_key(name);
            if has && reserved.insert(name.into()) {
                entry.pods.insert(uid.clone());
                concerned.insert(uid);
            } else if !has && reserved.remove(name) {
                entry.pods.remove(&uid);
                concerned.insert(uid);
            }
        }
        concerned
    }
}

impl ClaimEntry {
    /// Whether the claim is reserved for this consumer, and has devices or may have some: it does not decode.
    fn may_cost_for(&self, uid: &str) -> bool {
        let may_cost = |claim: &Claim| {
            claim.unread.is_some() || claim.results.as_ref().is_some_and(|results| !results.is_empty())
        };
        self.reserved_for.contains(uid) && self.claim.as_ref().is_some_and(may_cost)
    }
}
