//! From the index to what a plan about a claim is made on.

use super::super::evidence::{self, Presence, presence};
use super::super::facts::{ClaimFacts, OwnerKind};
use super::super::state::State;

/// What a decision about a claim is made on.
#[derive(Debug, Clone)]
pub struct ClaimSnapshot {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Content.
    pub facts: ClaimFacts,
    /// What is known of each entry of `reservedFor`, in the same order.
    pub consumers: Vec<Presence>,
    /// What is known of the Pod that controls the claim, if one does.
    pub owner: Option<Presence>,
}

impl ClaimSnapshot {
    /// Takes the snapshot; `None` where the claim is absent or unreadable.
    pub fn take(state: &State, namespace: &str, name: &str) -> Option<Self> {
        let record = state.index.claims.get(namespace, name)?;
        let claim = record.readable()?;
        Some(Self::of(state, namespace, name, &record.uid, &claim.facts, claim.read_at))
    }

    /// The snapshot for claim content that is newer than the index.
    pub fn of(
        state: &State,
        namespace: &str,
        name: &str,
        uid: &str,
        facts: &ClaimFacts,
        read_at: u64,
    ) -> Self {
        let consumers = facts.reserved.iter().map(|c| presence(state, namespace, c, read_at)).collect();
        let owner = facts.owner.as_ref().filter(|o| o.kind == OwnerKind::Pod).map(|owner| {
            match state.index.pods.get(namespace, &owner.name) {
                Some(record) if record.uid != owner.uid => match state.evidence.ended(&owner.uid) {
                    Some(how) => Presence::Gone(how),
                    // The index may be older than the claim: a namesake proves nothing.
                    None => Presence::Unproven,
                },
                Some(record) => record.readable().map_or(Presence::Unreadable, evidence::pod),
                // Deleting the claims of a removed owner is the garbage collector's job.
                None => Presence::Unproven,
            }
        });
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            facts: facts.clone(),
            consumers,
            owner,
        }
    }
}
