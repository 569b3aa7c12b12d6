//! What to do with a claim: the pure part (docs/claim-lifecycle.md 4).

use std::collections::BTreeMap;

use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::write::{Action, Guard, Write};
use serde_json::{Value, json};

use super::ended::HowEnded;
use super::evidence::Presence;
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
    /// Ask the API server about these entries of `reservedFor`, then plan again.
    Confirm(Vec<usize>),
    /// Send this, then plan again on the answer.
    Send {
        /// What for.
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
    /// The delete-protection finalizer is removed.
    Unprotect,
    /// The claim is deleted.
    Delete,
}

/// Plans the next step. `last` is the step just done in this pass, if any.
pub fn plan_claim(claim: &ClaimSnapshot, confirmed: &Confirmed, last: Option<ClaimStep>) -> ClaimPlan {
    let facts = &claim.facts;
    let mut drop = Vec::new();
    let mut abrupt = Vec::new();
    let mut unproven = Vec::new();
    for (position, presence) in claim.consumers_with(confirmed).enumerate() {
        match presence {
            Presence::Done | Presence::Gone(HowEnded::Orderly) => drop.push(position),
            Presence::Lost | Presence::Gone(HowEnded::Abruptly) => {
                drop.push(position);
                abrupt.push(position);
            }
            Presence::Unproven => unproven.push(position),
            // One foreign or unreadable consumer holds the claim, never the others.
            Presence::Alive | Presence::Unreadable | Presence::Foreign => {}
        }
    }
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
    if !facts.reserved.is_empty() {
        return ClaimPlan::Rest;
    }
    let owner_done = matches!(claim.owner, Some(Presence::Done | Presence::Lost));
    let going = facts.deleting || owner_done;
    if facts.allocated {
        // A live claim that is allocated and not reserved may be half way through
        // an allocator's work; it is counted, never deallocated here.
        let ends = owner_done || (facts.deleting && facts.protection().is_some());
        return if ends {
            send(ClaimStep::Deallocate, claim.status_patch(&[], true))
        } else {
            ClaimPlan::Rest
        };
    }
    let released = matches!(last, Some(ClaimStep::Release | ClaimStep::Deallocate));
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
