//! Evidence about a consumer of a claim.
//!
//! Absence from the index proves nothing by itself: the watch may lag, the list
//! may be older than the reservation, the API group may be off. This module says
//! what is proven; a plan that needs more asks the API server.

use dragoman_objects::ConsumerReference;

use super::ended::{Evidence, HowEnded};
use super::facts::{PodFacts, ReferenceKind};
use super::state::State;

/// A consumer, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The consumer exists and may use the claim.
    Alive,
    /// The consumer exists but will never use the claim again.
    Done,
    /// The consumer was ended for a node that is gone or out of service: it will never use the claim again,
    /// and its containers may be running.
    Lost,
    /// The consumer exists and does not decode: whether it uses the claim is unknown.
    Unreadable,
    /// Proven to be gone.
    Gone(HowEnded),
    /// Not in the index, which proves nothing: ask the API server.
    Unproven,
    /// The consumer is of a kind that is unknown or not served. Its reservation is never dropped.
    Foreign,
}

/// Returns what the index knows about `consumer` of a claim in `namespace` whose reservations were first read
/// at `read_at`.
pub(super) fn presence(
    state: &State,
    namespace: &str,
    consumer: &ConsumerReference,
    read_at: u64,
) -> Presence {
    let (name, uid) = (&*consumer.name, &*consumer.uid);
    match ReferenceKind::of(consumer) {
        ReferenceKind::Pod => {
            match state.index.pods.get(namespace, name).filter(|record| &*record.uid == uid) {
                Some(record) => match record.readable() {
                    Some(facts) => pod(facts),
                    None => Presence::Unreadable,
                },
                None => absent(&state.evidence, uid, state.index.pods.listed_after(read_at)),
            }
        }
        // While the group is not served, or not known to be, nothing can be said.
        ReferenceKind::PodGroup if state.index.groups_served == Some(true) => {
            match state.index.groups.get(namespace, name).filter(|record| &*record.uid == uid) {
                // A finished PodGroup still holds its claims; only its removal ends that.
                Some(record) if record.readable().is_some() => Presence::Alive,
                Some(_) => Presence::Unreadable,
                None => absent(&state.evidence, uid, state.index.groups.listed_after(read_at)),
            }
        }
        ReferenceKind::PodGroup | ReferenceKind::Foreign => Presence::Foreign,
    }
}

/// Returns the presence of a Pod that exists.
pub(super) fn pod(facts: &PodFacts) -> Presence {
    match facts {
        facts if !facts.done() => Presence::Alive,
        facts if facts.may_run() => Presence::Lost,
        _ => Presence::Done,
    }
}

fn absent(evidence: &Evidence, uid: &str, listed_since: bool) -> Presence {
    match evidence.ended(uid) {
        Some(how) => Presence::Gone(how),
        // It existed before the reservation was written, that was read before the
        // list began, and the list lacks it. How it ended went unseen.
        None if listed_since => Presence::Gone(HowEnded::Unseen),
        None => Presence::Unproven,
    }
}
