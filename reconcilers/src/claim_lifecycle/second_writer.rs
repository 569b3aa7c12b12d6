//! Noticing another process that creates claims from templates (docs/claim-lifecycle.md 6).
//!
//! A claim proves nothing: every user who may create claims can write its name, owner and annotation.
//! The status of a Pod can be written by controllers only. The proof is therefore a name in the
//! status of a Pod or PodGroup that this process did not put there.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::times;
use dragoman_objects::Name;
use jiff::Timestamp;

use super::claim_name;
use super::facts::ClaimFacts;

/// A claim that another full writer made and published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondWriter {
    /// Namespace of the claim.
    pub namespace: Arc<str>,
    /// Name of the claim.
    pub claim: Name,
    /// When it was noticed.
    pub noticed: Timestamp,
}

impl SecondWriter {
    fn counts(&self, now: Timestamp) -> bool {
        times::passed(self.noticed, now) < PAUSE
    }
}

/// Extent to which second writers stop the lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// In the namespaces where it was noticed.
    Namespaces(usize),
    /// Everywhere, because it was noticed in so many namespaces.
    Everything(usize),
}

/// Clocks of API server and ours may differ by some seconds; a lease takes 15.
const SKEW: Duration = Duration::from_secs(15);
/// Namespaces with a proof that stop everything. What happens in one namespace stops that one only.
const INDEPENDENT: usize = 3;
/// Time for which a proof counts. After that the level timer tries again.
const PAUSE: Duration = Duration::from_mins(10);
/// Names of others that are remembered as published by this process. They are needed until the watch
/// has brought the write back, which takes seconds.
const PUBLISHED: usize = 4096;

/// A claim that a consumer names in its status: the uid of the consumer, and the entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedBy<'a> {
    pub(super) namespace: &'a Arc<str>,
    pub(super) uid: &'a str,
    pub(super) entry: &'a str,
}

/// Looks out for a second full writer.
#[derive(Debug, Default)]
pub struct Witnesses {
    /// Since when this process leads.
    leading_since: Option<Timestamp>,
    /// Claims that this process adopted and published although another made them: the uid of the
    /// consumer, and the claim.
    published: HashSet<(Name, Name)>,
    order: VecDeque<(Name, Name)>,
    /// The newest proof of each namespace.
    proofs: BTreeMap<Arc<str>, SecondWriter>,
    unsaid: Vec<SecondWriter>,
}

impl Witnesses {
    /// This process leads since `now`.
    pub fn on_elected(&mut self, now: Timestamp) {
        self.leading_since = Some(now);
    }

    /// This process is about to publish a claim for a consumer that it may not have named itself.
    pub fn publishing(&mut self, uid: &str, entry: &str, claim: &str) {
        if claim_name::is_ours(claim, uid, entry) {
            return;
        }
        let published: (Name, Name) = (uid.into(), claim.into());
        if self.published.insert(published.clone()) {
            self.order.push_back(published);
        }
        if self.order.len() > PUBLISHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.published.remove(&oldest);
        }
    }

    /// A consumer names `claim` in its status at `now`, and did not before; or it did, and the claim
    /// has appeared.
    pub(super) fn named(&mut self, by: NamedBy<'_>, claim: &Name, facts: &ClaimFacts, now: Timestamp) {
        let Some(since) = self.leading_since else { return };
        let generated = facts.entry.as_deref() == Some(by.entry)
            && facts.owner.as_ref().is_some_and(|owner| &*owner.uid == by.uid)
            && !facts.extended;
        // A claim younger than our lease was not made by the leader before us.
        let younger = facts.created >= times::after(since, SKEW);
        let foreign = !claim_name::is_ours(claim, by.uid, by.entry)
            && !self.published.contains(&(by.uid.into(), claim.clone()));
        if !(generated && younger && foreign) {
            return;
        }
        self.proofs.retain(|_, proof| proof.counts(now));
        let namespace = Arc::clone(by.namespace);
        let proof = SecondWriter { namespace, claim: claim.clone(), noticed: now };
        if self.proofs.insert(Arc::clone(by.namespace), proof.clone()).is_none() {
            self.unsaid.push(proof);
        }
    }

    /// Returns the extent to which second writers stop the lifecycle at `now`.
    pub fn stop(&self, now: Timestamp) -> Stop {
        match self.proofs.values().filter(|proof| proof.counts(now)).count() {
            count if count < INDEPENDENT => Stop::Namespaces(count),
            count => Stop::Everything(count),
        }
    }

    /// Whether nothing is written about claims of `namespace` at `now`.
    pub fn stops(&self, namespace: &str, now: Timestamp) -> bool {
        let proof = self.proofs.get(namespace);
        proof.is_some_and(|proof| proof.counts(now)) || matches!(self.stop(now), Stop::Everything(_))
    }

    /// Whether there are proofs that were not said yet.
    pub fn has_unsaid(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// The proofs that were not said yet, once.
    pub fn unsaid(&mut self) -> Vec<SecondWriter> {
        std::mem::take(&mut self.unsaid)
    }
}
