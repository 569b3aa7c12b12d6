//! From the index to what a plan about a claim is made on.

use dragoman_objects::{ConsumerReference, Name};
use jiff::Timestamp;

use super::super::evidence::{self, Presence, presence};

use super::super::facts::{ClaimFacts, OwnerKind, ReferenceKind};
use super::super::reclaim::Vanished;
use super::super::state::State;

/// Snapshot that a decision about a claim is made on.
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
    /// Presence of each entry of `reservedFor`, in the same order.
    pub consumers: Vec<Presence>,
    /// The end of each consumer of `consumers` that did not end first, where claims are held for those; empty
    /// elsewhere.
    pub vanished: Vec<Vanished>,
    /// When this process first read the present `reservedFor`.
    pub read_since: Timestamp,
    /// Since when it has been allocated and reserved for no consumer.
    pub idle_since: Option<Timestamp>,
    /// Presence of the Pod that controls the claim, if a Pod does.
    pub owner: Option<Presence>,
}

/// Returns the known facts about the end of a consumer, should it be gone. The reservations of its claim were
/// first read at `read_since`.
fn vanished(
    state: &State,
    namespace: &str,
    name: &str,
    consumer: &ConsumerReference,
    read_since: Timestamp,
) -> Vanished {
    // Nothing runs in a PodGroup.
    let is_node_out = ReferenceKind::of(consumer) != ReferenceKind::Pod;
    let end = state.evidence.end(&consumer.uid);
    let (at, node) = match (state.held.of(namespace, name, &consumer.uid), end) {
        (Some(held), end) => (held.at, held.node.clone().or_else(|| end?.node.clone())),
        (None, Some(end)) => (end.at, end.node.clone()),
        (None, None) => (read_since, None),
    };
    let is_out =
        |node: &Name| state.index.nodes.get("", node).is_none_or(|node| node.readable() == Some(&true));
    let is_node_out = is_node_out || node.as_ref().is_some_and(is_out);
    Vanished { at, node, is_node_out }
}

/// The moment of a reading.
#[derive(Debug, Clone, Copy)]
pub struct ReadAt {
    /// On the clock of the index.
    pub at: u64,
    /// On the wall clock.
    pub since: Timestamp,
}

impl ClaimSnapshot {
    /// Takes the snapshot; `None` where the claim is absent or unreadable.
    pub fn take(state: &State, namespace: &str, name: &str) -> Option<Self> {
        let record = state.index.claims.get(namespace, name)?;
        let claim = record.readable()?;
        let read = ReadAt { at: claim.read_at, since: claim.read_since };
        let snapshot = Self::of(state, namespace, name, &record.uid, &claim.facts, read);
        Some(Self { idle_since: claim.idle_since, ..snapshot })
    }

    /// The snapshot for claim content that is newer than the index. Its `reservedFor` was first read at `read`.
    pub fn of(
        state: &State,
        namespace: &str,
        name: &str,
        uid: &str,
        facts: &ClaimFacts,
        ReadAt { at: read_at, since: read_since }: ReadAt,
    ) -> Self {
        let consumers = facts.reserved.iter().map(|c| presence(state, namespace, c, read_at)).collect();
        let held_for = facts.reserved.iter().filter(|_| state.is_guarded());
        let vanished =
            held_for.map(|consumer| vanished(state, namespace, name, consumer, read_since)).collect();
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
            vanished,
            read_since,
            idle_since: None,
            owner,
        }
    }
}
