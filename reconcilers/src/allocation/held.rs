//! Devices that do not lead to a release are given back: others may need them (P7 in docs/protocol.md).

use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::controller::{ObjectKey, Outcome};
use dragoman_objects::Name;

use super::index::{NamedClaim, PodFacts};
use super::look::{Begun, Look, Subject};
use super::pass::{Notice, Purpose, Step};
use super::pod_state::is_for;
use super::writes;

/// Interval between checks whether another Pod waits for devices.
const LOOKS_AGAIN: Duration = Duration::from_secs(10);

/// A Pod that lacks a part takes nothing from one of its PodGroup that has everything, whatever that one waits for.
fn has_everything(_: &[NamedClaim]) -> bool {
    true
}

/// A Pod that waits behind a gate takes nothing from one that does not.
fn is_held_by_none(claims: &[NamedClaim]) -> bool {
    claims.iter().all(|claim| !claim.facts.is_held)
}

impl Look<'_> {
    /// Gives back what a gated Pod has of its own claims. `may_go`: as for [`Allocation::gated_together`](super::index::Allocation::gated_together).
    fn give_back(&mut self, of: &Subject<'_>, claims: &[NamedClaim], may_go: fn(&[NamedClaim]) -> bool) {
        let mut own: Vec<&NamedClaim> =
            claims.iter().filter(|claim| is_for(&self.options.name, claim)).collect();
        // A claim with a closed gate comes first: if the gate was opened meanwhile, the guard refuses this
        // write, and the Pod keeps everything.
        own.sort_by_key(|claim| !claim.facts.is_held);
        let writes = own.into_iter().filter_map(|claim| {
            let gated = self.gated_together(of, claim, may_go)?;
            let write = writes::give_back(&of.key.namespace, claim, &of.uid)?;
            Some([Step::Confirm(gated), Step::Send(Purpose::GiveBack, Box::new(write))])
        });
        let writes: Vec<Step> = writes.flatten().collect();
        if !writes.is_empty() {
            self.steps.extend(writes);
            self.steps.push(Step::Say(Notice::GaveBack));
        }
    }

    fn gated_together(
        &self,
        of: &Subject<'_>,
        claim: &NamedClaim,
        may_go: fn(&[NamedClaim]) -> bool,
    ) -> Option<Vec<(ObjectKey, Name)>> {
        self.index.gated_together(of.key, &of.uid, &self.options.name, claim, may_go)
    }

    /// No node takes a Pod: what it has of its devices is given back after a while, or it is said why it has
    /// none. Returns when the Pod is looked at again, if not for another reason.
    pub(super) fn refused(&mut self, of: &Subject<'_>, why: &[String]) -> Option<Outcome> {
        match self.gives_part_back(of) {
            None => {
                let words = self.words(of);
                self.steps.extend(words.no_node(why));
                // Two Pods that share the claim would write over each other without end.
                let shares =
                    |claim: &NamedClaim| self.index.sharers(&of.key.namespace, &claim.name).nth(1).is_some();
                let is_shared = words.claim().is_some_and(shares);
                words.rewords_after(why).filter(|_| !is_shared).map(Outcome::After)
            }
            Some(Outcome::Done) => None,
            kept => kept,
        }
    }

    /// Gives back the devices of a Pod that finds no others, once the Pod has kept them for a while. Returns
    /// when the Pod is looked at again; `None` if it has no devices to give back.
    pub(super) fn gives_part_back(&mut self, of: &Subject<'_>) -> Option<Outcome> {
        let node = self.decided.forget(of.key);
        self.reopen(node.as_ref());
        let has_part = |claim: &&NamedClaim| {
            is_for(&self.options.name, claim)
                && claim.facts.is_allocated
                && claim.is_reserved_for(&of.uid)
                && self.gated_together(of, claim, has_everything).is_some()
        };
        let part: Vec<NamedClaim> = of.claims.iter().filter(has_part).cloned().collect();
        if part.is_empty() {
            return None;
        }
        if let Some(left) = self.decided.keeps_part(of.key, self.now) {
            return Some(Outcome::After(left));
        }
        self.give_back(of, &part, has_everything);
        Some(Outcome::Done)
    }

    /// A Pod has its devices and waits for something else: for another allocator, or for a gate. It keeps
    /// them as long as no other Pod waits for devices, and for a time beyond that.
    pub(super) fn holds(&mut self, of: &Subject<'_>) -> Outcome {
        let is_waiting = |claim: &NamedClaim| claim.facts.is_held || !claim.facts.is_allocated;
        if !of.pod.is_gated || !(of.pod.is_behind_another || of.claims.iter().any(is_waiting)) {
            self.decided.is_settled(of.key);
            return Outcome::Done;
        }
        self.keeps_for_a_while(of)
    }

    /// A gated Pod cannot go on now: it lacks a claim, or another party has to act first. The devices that it has meanwhile are kept like
    /// those of a Pod that [holds](Self::holds) all of them. `None` if it has none.
    pub(super) fn stuck<'a>(
        &mut self,
        key: &'a ObjectKey,
        uid: Name,
        pod: Arc<PodFacts>,
    ) -> Option<Begun<'a>> {
        let mut claims =
            if pod.is_gated { self.index.present_claims_of(&key.namespace, &pod) } else { Vec::new() };
        let has = |claim: &NamedClaim| claim.facts.is_allocated && claim.is_reserved_for(&uid);
        claims.retain(|claim| is_for(&self.options.name, claim) && has(claim));
        if claims.is_empty() {
            return None;
        }
        let of = Subject { key, uid, pod, claims };
        let then = self.keeps_for_a_while(&of);
        Some(Begun::Steps(of, then))
    }

    fn keeps_for_a_while(&mut self, of: &Subject<'_>) -> Outcome {
        if let Some(left) = self.decided.holds(of.key, self.now) {
            return Outcome::After(left);
        }
        if self.index.shapes.waiting() == 0 {
            return Outcome::After(LOOKS_AGAIN);
        }
        self.give_back(of, &of.claims, is_held_by_none);
        Outcome::Done
    }
}
