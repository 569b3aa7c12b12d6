//! Decisions that the index does not show yet.

use std::collections::HashMap;

use dragoman_allocator::Overlay;
use dragoman_crds::wire::Name;
use dragoman_machinery::controller::ObjectKey;

use super::decide::Decision;
use super::index::Named;
use crate::gates::assumed::Assumed;

/// What is decided. A decision stands until the index shows it, or shows that it was not written: the
/// answer to a write may be lost, and a device must not be given away a second time meanwhile.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// The allocations.
    pub(super) overlay: Overlay,
    /// What Pods that have their devices take from nodes until they are bound.
    pub(super) assumed: Assumed,
    /// The claims that were decided on for a Pod, each with the version that its allocation was written on.
    claims: HashMap<ObjectKey, HashMap<Name, u64>>,
}

fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

impl Decided {
    /// Takes a decision about a Pod with these claims in.
    pub(super) fn put(&mut self, key: &ObjectKey, claims: &[Named], decision: &Decision) {
        let known = self.claims.entry(key.clone()).or_default();
        for (uid, devices) in &decision.allocations {
            let version = claims.iter().find(|(_, of, _)| of == uid).map(|(_, _, facts)| &*facts.version);
            known.insert(uid.clone(), number(version.unwrap_or_default()));
            self.overlay.assume((**uid).into(), devices.clone());
        }
        self.assumed.put(key, &decision.node, decision.charge.clone());
    }

    /// The allocation of a claim is about to be written on this version.
    pub(super) fn writes_on(&mut self, key: &ObjectKey, uid: &Name, version: &str) {
        let known = self.claims.get_mut(key).and_then(|claims| claims.get_mut(uid));
        known.into_iter().for_each(|known| *known = number(version));
    }

    /// Compares with the index. What it shows is counted there; a claim that has moved on without its
    /// allocation did not get it.
    pub(super) fn compare(&mut self, key: &ObjectKey, claims: &[Named]) {
        let Some(known) = self.claims.get_mut(key) else { return };
        for (_, uid, facts) in claims {
            let is_over = |on: &u64| facts.is_allocated || number(&facts.version) > *on;
            if known.get(uid).is_some_and(is_over) {
                known.remove(uid);
                self.overlay.forget(uid);
            }
        }
        if known.is_empty() {
            self.claims.remove(key);
        }
    }

    /// The decision about a Pod that still stands, as far as the index does not show it.
    pub(super) fn standing(&self, key: &ObjectKey) -> Option<Decision> {
        let node = self.assumed.node_of(key)?.clone();
        let allocations = self.claims.get(key)?.keys().filter_map(|uid| {
            let devices = self.overlay.assumes(uid)?.clone();
            Some((uid.clone(), devices))
        });
        Some(Decision {
            node,
            allocations: allocations.collect(),
            charge: self.assumed.charge_of(key)?.clone(),
        })
    }

    /// The API server refuses the allocation of a claim.
    pub(super) fn refused(&mut self, key: &ObjectKey, uid: &Name) {
        if let Some(claims) = self.claims.get_mut(key) {
            claims.remove(uid);
        }
        self.overlay.forget(uid);
    }

    /// A Pod is bound, gone, or of no concern any more. Returns the node that has room again, unless the
    /// index counts the Pod there.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> Option<Name> {
        for uid in self.claims.remove(key).into_iter().flat_map(HashMap::into_keys) {
            self.overlay.forget(&uid);
        }
        let node = self.assumed.node_of(key).cloned();
        self.assumed.remove(key);
        node
    }
}
