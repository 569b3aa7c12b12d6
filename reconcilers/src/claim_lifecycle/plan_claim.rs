//! Plan for a claim: the pure part (docs/claim-lifecycle.md 4).

use std::collections::BTreeMap;

use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::write::{Action, Guard, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ended::HowEnded;
use super::evidence::Presence;
use super::reclaim::At;
use super::snapshot::ClaimSnapshot;

/// Live reads already made in this pass: uid of a consumer → what it is.
pub type Confirmed = BTreeMap<String, Presence>;

impl ClaimSnapshot {
    fn consumers_with<'a>(&'a self, confirmed: &'a Confirmed) -> impl Iterator<Item = Presence> + 'a {
        self.consumers.iter().zip(&self.facts.reserved).map(|(presence, consumer)| match presence {
            Presence::Unproven => confirmed.get(&*consumer.uid).copied().unwrap_or(Presence::Unproven),
            known => *known,
        })
    }
}

/// The next thing to do with a claim.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum ClaimPlan {
    /// Nothing.
    Rest,
    /// Nothing before this time.
    Later(Timestamp),
    /// Nothing: the claim has been idle since this time.
    Idle(Timestamp),
    /// Nothing before this time: the nodes of these consumers may still hold the devices.
    Hold {
        /// When the guard time of the first of them has passed.
        until: Timestamp,
        /// Their positions in `reservedFor`.
        consumers: Vec<usize>,
    },
    /// Ask the API server about these entries of `reservedFor`, then plan again.
    Confirm(Vec<usize>),
    /// Send this, then plan again on the answer.
    Send {
        /// Step that the write carries out.
        step: ClaimStep,
        /// The write.
        write: Box<Write>,
        /// Consumers taken out that vanished while they may have been running.
        abrupt: Vec<usize>,
    },
}

/// The steps at the end of a claim, in their order: a scheduler that waits for the
/// device is woken by updates only, so the status always comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStep {
    /// Consumers are taken out of `reservedFor`; others remain.
    Unreserve,
    /// The last consumers are taken out and the allocation with them.
    Release,
    /// The allocation is taken out of an unreserved claim that is about to go.
    Deallocate,
    /// The allocation is taken out of an idle claim.
    Reclaim,
    /// The delete-protection finalizer is removed.
    Unprotect,
    /// The claim is deleted.
    Delete,
}

dragoman_machinery::words! {
    ClaimStep, WORDS, word;
    Self::Unreserve => "unreserve",
    Self::Release => "release",
    Self::Deallocate => "deallocate",
    Self::Reclaim => "reclaim",
    Self::Unprotect => "unprotect",
    Self::Delete => "delete",
}

/// Consumers of a claim, as positions in `reservedFor`, by what becomes of them.
#[derive(Debug, Default)]
struct Leaving {
    /// Those that leave.
    drop: Vec<usize>,
    /// Those of them that vanished while they may have been running.
    abrupt: Vec<usize>,
    /// Those of which nothing is proven.
    unproven: Vec<usize>,
    /// Those that the claim is held for, each with the time until when.
    held: Vec<(Timestamp, usize)>,
}

impl Leaving {
    fn of(claim: &ClaimSnapshot, confirmed: &Confirmed, at: &At) -> Self {
        let mut leaving = Self::default();
        for (position, presence) in claim.consumers_with(confirmed).enumerate() {
            match presence {
                Presence::Gone(HowEnded::Abruptly | HowEnded::Unseen)
                    if let Some(until) = claim.vanished.get(position).and_then(|of| at.held_until(of)) =>
                {
                    leaving.held.push((until, position));
                }
                Presence::Done | Presence::Gone(HowEnded::Orderly | HowEnded::Unseen) => {
                    leaving.drop.push(position);
                }
                Presence::Lost | Presence::Gone(HowEnded::Abruptly) => {
                    leaving.drop.push(position);
                    // Nothing runs any more on a node that is gone or out of service.
                    if claim.vanished.get(position).is_none_or(|of| !of.is_node_out) {
                        leaving.abrupt.push(position);
                    }
                }
                Presence::Unproven => leaving.unproven.push(position),
                // One foreign or unreadable consumer holds the claim, never the others.
                Presence::Alive | Presence::Unreadable | Presence::Foreign => {}
            }
        }
        leaving
    }
}

/// Plans the next step. `last` is the step just done in this pass, if any; `at` is what is chosen, and the time.
pub fn plan_claim(
    claim: &ClaimSnapshot,
    confirmed: &Confirmed,
    last: Option<ClaimStep>,
    at: &At,
) -> ClaimPlan {
    let facts = &claim.facts;
    let Leaving { drop, abrupt, unproven, held } = Leaving::of(claim, confirmed, at);
    if !unproven.is_empty() {
        return ClaimPlan::Confirm(unproven);
    }
    let send =
        |step, action| ClaimPlan::Send { step, write: Box::new(claim.write(action)), abrupt: abrupt.clone() };
    if !drop.is_empty() {
        let last_one = drop.len() == facts.reserved.len();
        let step = if last_one { ClaimStep::Release } else { ClaimStep::Unreserve };
        return send(step, claim.status_patch(&drop, last_one && facts.allocated));
    }
    if let Some(until) = held.iter().map(|(until, _)| *until).min() {
        return ClaimPlan::Hold {
            until,
            consumers: held.into_iter().map(|(_, position)| position).collect(),
        };
    }
    if !facts.reserved.is_empty() {
        return ClaimPlan::Rest;
    }
    let owner_done = matches!(claim.owner, Some(Presence::Done | Presence::Lost));
    let going = facts.deleting || owner_done;
    if facts.allocated {
        let ends = owner_done || (facts.deleting && facts.protection().is_some());
        return match claim.idle_since.filter(|_| !going) {
            _ if ends => send(ClaimStep::Deallocate, claim.status_patch(&[], true)),
            // It may be half way through an allocator's work.
            Some(since) if at.idle_at(since) > at.now => ClaimPlan::Later(at.idle_at(since)),
            Some(_) if at.chosen.release => send(ClaimStep::Reclaim, claim.status_patch(&[], true)),
            Some(since) => ClaimPlan::Idle(since),
            None => ClaimPlan::Rest,
        };
    }
    let released = matches!(last, Some(ClaimStep::Release | ClaimStep::Deallocate | ClaimStep::Reclaim));
    match facts.protection() {
        // A live unallocated claim with the finalizer is about to be allocated,
        // unless it was us who have just released it.
        Some(position) if going || released => send(ClaimStep::Unprotect, claim.finalizer_patch(position)),
        None if owner_done && !facts.deleting => {
            send(ClaimStep::Delete, Action::Delete { guard: claim.guard() })
        }
        _ => ClaimPlan::Rest,
    }
}

impl ClaimSnapshot {
    fn guard(&self) -> Guard {
        Guard { uid: self.uid.clone(), resource_version: self.facts.version.to_string() }
    }

    fn write(&self, action: Action) -> Write {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        Write::new(RESOURCE_CLAIM, namespace, name, action)
    }

    /// Takes the entries at `positions` out of `reservedFor`. What stays is not
    /// named and so cannot be damaged.
    fn status_patch(&self, positions: &[usize], deallocate: bool) -> Action {
        // From the end, so that earlier positions keep their meaning.
        let mut operations: Vec<Value> = positions
            .iter()
            .rev()
            .map(|i| json!({"op": "remove", "path": format!("/status/reservedFor/{i}")}))
            .collect();
        if deallocate {
            operations.push(json!({"op": "remove", "path": "/status/allocation"}));
        }
        Action::Patch { subresource: Some("status"), guard: self.guard(), operations }
    }

    fn finalizer_patch(&self, position: usize) -> Action {
        let operations = vec![json!({"op": "remove", "path": format!("/metadata/finalizers/{position}")})];
        Action::Patch { subresource: None, guard: self.guard(), operations }
    }
}
