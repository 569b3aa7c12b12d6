//! Noticing another process that creates claims from templates.

use super::claim_name;
use super::facts::{ClaimFacts, OwnerKind};

/// A claim that another full writer made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondWriter {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
}

/// Looks out for claims that another full writer made.
#[derive(Debug, Default)]
pub struct Witness {
    /// Since when (seconds since the epoch) this process leads.
    pub leading_since: Option<i64>,
    /// The first proof.
    pub found: Option<SecondWriter>,
}

impl Witness {
    /// A claim appeared after the first complete list.
    pub(super) fn claim_appeared(&mut self, namespace: &str, name: &str, claim: &ClaimFacts) {
        if let Some(since) = self.leading_since
            && self.found.is_none()
        {
            self.found = proof(namespace, name, claim, since);
        }
    }
}

/// Clocks of API server and ours may differ by some seconds; a lease takes 15.
const SKEW: i64 = 15;

/// A generated claim younger than our lease (`leading_since`, seconds since the
/// epoch) that we did not name proves a second full writer (docs/claim-lifecycle.md 6).
pub(super) fn proof(
    namespace: &str,
    name: &str,
    claim: &ClaimFacts,
    leading_since: i64,
) -> Option<SecondWriter> {
    let (entry, owner) = (claim.entry.as_ref()?, claim.owner.as_ref()?);
    let generated = owner.kind != OwnerKind::Other && !claim.extended;
    let younger = claim.created >= leading_since + SKEW;
    (generated && younger && !claim_name::is_ours(name, &owner.uid, entry))
        .then(|| SecondWriter { namespace: namespace.to_owned(), claim: name.to_owned() })
}
