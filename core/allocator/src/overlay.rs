//! Allocations that the snapshot does not have yet.

use std::sync::{Arc, Mutex, PoisonError};

use dragoman_objects::{Allocation, Name};
use rpds::RedBlackTreeMapSync;

use crate::input::Claim;
use crate::snapshot::Snapshot;

/// Allocations by the uid of their claim.
pub(crate) type Assumed = RedBlackTreeMapSync<Name, Arc<Allocation>>;

/// Allocations on top of a snapshot: decided, but not yet observed in the API. A claim counts once,
/// by uid. If the snapshot has an allocation of the claim, that one counts.
#[derive(Debug, Default)]
pub struct Overlay {
    assumed: Assumed,
    savepoints: Vec<Assumed>,
    /// The last snapshot that was passed to `over`, merged with the assumed allocations.
    merged: Mutex<Option<Merged>>,
}

#[derive(Debug, Clone)]
struct Merged {
    base: u64,
    snapshot: Snapshot,
}

impl Overlay {
    /// Assumes an allocation of a claim, in place of an earlier assumed one.
    pub fn assume(&mut self, uid: Name, allocation: Allocation) {
        let allocation = Arc::new(allocation);
        // The merged snapshot is updated in place, so that a Pod does not pay for the Pods before
        // it.
        if let Some(merged) = self.merged.get_mut().unwrap_or_else(PoisonError::into_inner) {
            merged.snapshot = assumed(&merged.snapshot, &uid, &allocation);
        }
        self.assumed.insert_mut(uid, allocation);
    }

    /// Drops an assumed allocation.
    pub fn forget(&mut self, uid: &str) {
        self.assumed.remove_mut(uid);
        self.reset();
    }

    /// Returns the allocation that is assumed for a claim.
    pub fn assumes(&self, uid: &str) -> Option<&Allocation> {
        self.assumed.get(uid).map(AsRef::as_ref)
    }

    pub(crate) fn assumed(&self) -> &Assumed {
        &self.assumed
    }

    /// Saves the assumed allocations.
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.assumed.clone());
    }

    /// Restores the assumed allocations of the last savepoint and removes that savepoint. Without a
    /// savepoint nothing changes.
    pub fn roll_back(&mut self) {
        if let Some(assumed) = self.savepoints.pop() {
            self.assumed = assumed;
            self.reset();
        }
    }

    /// Removes the last savepoint and keeps the assumed allocations.
    pub fn keep(&mut self) {
        self.savepoints.pop();
    }

    fn reset(&mut self) {
        *self.merged.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the snapshot with the assumed allocations.
    pub fn over(&self, snapshot: &Snapshot) -> Snapshot {
        if self.assumed.is_empty() {
            return snapshot.clone();
        }
        let mut known = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(merged) = known.as_ref().filter(|merged| merged.base == snapshot.revision()) {
            return merged.snapshot.clone();
        }
        let over = self
            .assumed
            .iter()
            .fold(snapshot.clone(), |snapshot, (uid, allocation)| assumed(&snapshot, uid, allocation));
        *known = Some(Merged { base: snapshot.revision(), snapshot: over.clone() });
        over
    }
}

fn assumed(snapshot: &Snapshot, uid: &Name, allocation: &Arc<Allocation>) -> Snapshot {
    let claim = match snapshot.claim(uid) {
        Some(claim) if claim.allocation.is_some() => return snapshot.clone(),
        Some(claim) => Claim::clone(claim),
        // The snapshot has not seen the claim, but its devices are held.
        None => Claim { uid: uid.clone(), ..Claim::default() },
    };
    snapshot.with_claim(Claim { allocation: Some(Allocation::clone(allocation)), ..claim })
}
