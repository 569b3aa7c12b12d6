//! Allocations that the API does not know yet.

use std::sync::{Arc, Mutex, PoisonError};

use rpds::RedBlackTreeMapSync;

use crate::input::{Allocation, Claim, Name};
use crate::snapshot::Snapshot;

/// Allocations by the uid of their claim.
pub(crate) type Assumed = RedBlackTreeMapSync<Name, Arc<Allocation>>;

/// Allocations on top of a snapshot: made, but not yet seen in the API. One of a claim that
/// the snapshot has with an allocation counts once, by uid, and as the snapshot has it.
#[derive(Debug, Default)]
pub struct Overlay {
    assumed: Assumed,
    savepoints: Vec<Assumed>,
    /// The last snapshot that was asked for, and what it is with the assumed allocations.
    merged: Mutex<Option<Merged>>,
}

#[derive(Debug, Clone)]
struct Merged {
    base: u64,
    snapshot: Snapshot,
}

impl Overlay {
    /// Lets a claim have an allocation, in place of what was assumed before.
    pub fn assume(&mut self, uid: Name, allocation: Allocation) {
        let allocation = Arc::new(allocation);
        // What is merged already is kept up, so that a Pod does not pay for those before it.
        if let Some(merged) = self.merged.get_mut().unwrap_or_else(PoisonError::into_inner) {
            merged.snapshot = assumed(&merged.snapshot, &uid, &allocation);
        }
        self.assumed.insert_mut(uid, allocation);
    }

    /// Gives an assumed allocation up.
    pub fn forget(&mut self, uid: &str) {
        self.assumed.remove_mut(uid);
        self.reset();
    }

    /// Whether an allocation is assumed for this claim.
    pub fn assumes(&self, uid: &str) -> Option<&Allocation> {
        self.assumed.get(uid).map(AsRef::as_ref)
    }

    pub(crate) fn assumed(&self) -> &Assumed {
        &self.assumed
    }

    /// Remembers what is assumed now.
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.assumed.clone());
    }

    /// Assumes again what was assumed at the last savepoint, which is used up. Without one
    /// nothing changes.
    pub fn roll_back(&mut self) {
        if let Some(assumed) = self.savepoints.pop() {
            self.assumed = assumed;
            self.reset();
        }
    }

    /// Keeps what was assumed since the last savepoint, which is used up.
    pub fn keep(&mut self) {
        self.savepoints.pop();
    }

    fn reset(&mut self) {
        *self.merged.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The snapshot with what is assumed.
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
        // Not seen yet; what it holds counts nevertheless.
        None => Claim { uid: uid.clone(), ..Claim::default() },
    };
    snapshot.with_claim(Claim { allocation: Some(Allocation::clone(allocation)), ..claim })
}
