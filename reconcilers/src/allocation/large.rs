//! Requests of claims that are too long to keep. A tenant may write a megabyte into the spec of a claim, and thousands of claims that
//! no Pod names. The index keeps what is usual; the rest is read from the API server for a search, and forgotten after it.

use std::collections::HashMap;

use dragoman_machinery::watch::Record;
use dragoman_objects::{ClaimDevices, Name, ResourceClaim};

use super::index::{Allocation, NamedClaim};

/// The longest `spec.devices` that is kept, in bytes of JSON: a request with a selector has 300, and with parameters for its driver
/// 1 000. 10 000 claims of this length take some 60 MiB.
const KEPT: usize = 2 << 10;
/// The most that is read for one search, in bytes: an API server stores 1.5 MiB of one object.
pub(super) const READ: usize = 4 << 20;

/// Length of the requests of a claim that has no devices yet, where they are not kept.
pub(super) fn size_of(claim: &ResourceClaim) -> Option<usize> {
    (claim.status.allocation.is_none() && claim.spec.size > KEPT).then_some(claim.spec.size)
}

/// Requests that are not kept. They are in doubt: nothing is allocated for them.
pub(super) fn nothing_of() -> ClaimDevices {
    let why = "its requests are too long to be kept, and are read when a Pod needs devices";
    ClaimDevices { unreadable: Some(why.into()), ..ClaimDevices::default() }
}

/// The claims whose requests were read, by uid, with the number of searches that use them.
#[derive(Debug, Default)]
pub(super) struct Lent(HashMap<Name, usize>);

impl Lent {
    /// Whether a search uses the requests of a claim.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }
}

impl Allocation {
    /// The claims of these whose requests have to be read for a search.
    pub(super) fn left_behind<'a>(&self, claims: impl Iterator<Item = &'a NamedClaim>) -> Vec<NamedClaim> {
        let is_left = |claim: &&NamedClaim| claim.facts.left_behind.is_some() && !self.lent.has(&claim.uid);
        claims.filter(is_left).cloned().collect()
    }

    /// Takes in the requests of a claim for a search; nothing where the index has another claim by now, or one with devices.
    pub(super) fn lend(&mut self, claim: &ResourceClaim) {
        let uid = &claim.metadata.uid;
        *self.lent.0.entry(uid.clone()).or_default() += 1;
        self.with_requests(uid, claim.spec.devices.clone());
    }

    /// A search is over that uses the requests of a claim.
    pub(super) fn take_back(&mut self, uid: &Name) {
        let Some(searches) = self.lent.0.get_mut(uid) else { return };
        *searches -= 1;
        if *searches == 0 {
            self.lent.0.remove(uid);
            self.with_requests(uid, nothing_of());
        }
    }

    fn with_requests(&mut self, uid: &str, devices: ClaimDevices) {
        let Some(known) = self.snapshot.claim(uid).filter(|known| known.allocation.is_none()) else { return };
        let record = self.claims.get(&known.namespace, &known.name).filter(|record| *record.uid == *uid);
        if record.and_then(Record::readable).is_none_or(|facts| facts.left_behind.is_none()) {
            return;
        }
        let mut claim = (**known).clone();
        claim.devices = devices;
        self.snapshot = self.snapshot.with_claim(claim);
    }
}
