//! Pods that share a claim. The API server takes one of the writes on a version of the claim and refuses the others: one Pod writes at a
//! time, and takes in the same write those along that wait for this reservation alone.

use std::collections::HashMap;

use dragoman_crds::wire::{ConsumerReference, MAX_CONSUMERS, Name};
use dragoman_machinery::controller::ObjectKey;

use super::decide::{Question, Tried, Turn, decide, left_out};
use super::gangs::Member;
use super::index::NamedClaim;
use super::look::{Look, Subject};
use super::stance::{Stance, stance};
use super::turns::share_id;

/// The Pods that are taken along at once: some milliseconds.
const MOST: usize = 64;

/// The writes of claims that are under way: by the uid of the claim, the Pod and the version that it is written on.
#[derive(Debug, Default)]
pub(super) struct Writing(HashMap<Name, (ObjectKey, Name)>);

impl Writing {
    /// A write on this version is about to be sent for a Pod.
    pub(super) fn begins(&mut self, key: &ObjectKey, claim: &Name, version: &Name) {
        self.0.insert(claim.clone(), (key.clone(), version.clone()));
    }

    /// The writes for a Pod have ended: it is looked at again, or is of no concern any more.
    pub(super) fn ends(&mut self, key: &ObjectKey) {
        self.0.retain(|_, (of, _)| of != key);
    }

    /// Whether a write for another Pod is under way, and the index shows the claim as it was before.
    fn is_anothers(&self, key: &ObjectKey, NamedClaim { uid, facts, .. }: &NamedClaim) -> bool {
        self.0.get(uid).is_some_and(|(of, version)| of != key && *version == facts.version)
    }
}

/// The claims of a Pod that have their devices and are not reserved for it.
fn lacking<'a>(of: &'a Subject<'_>) -> impl Iterator<Item = &'a NamedClaim> {
    of.claims.iter().filter(|claim| claim.facts.is_allocated && !claim.is_reserved_for(&of.uid))
}

/// Whether a claim that a Pod shares has all consumers that it can have: an event comes when one of them ends.
pub(super) fn waits_for_place(of: &Subject<'_>) -> bool {
    lacking(of).any(|claim| claim.facts.consumers.len() >= MAX_CONSUMERS)
}

impl Look<'_> {
    /// Whether a Pod has to wait for the write of a claim for another Pod.
    pub(super) fn waits_for_write(&self, of: &Subject<'_>) -> bool {
        lacking(of).any(|claim| self.decided.writing.is_anothers(of.key, claim))
    }

    /// The Pods that lack the reservation of this claim and nothing else, those that come first first, and that have room where its devices
    /// are: the room is theirs from now on.
    pub(super) fn taken_along(&mut self, of: &Subject<'_>, claim: &NamedClaim) -> Vec<ConsumerReference> {
        if claim.group.is_some() || !claim.facts.is_allocated {
            return Vec::new();
        }
        let room = MAX_CONSUMERS.saturating_sub(claim.facts.consumers.len() + 1);
        let others =
            self.index.sharers(&of.key.namespace, &claim.name).into_iter().filter(|key| key != of.key);
        let mut waiting: Vec<Member> = others.filter_map(|key| self.lacking(&key, claim)).collect();
        waiting.sort_by(|a, b| a.turn.cmp(&b.turn));
        waiting.truncate(MOST.min(room));
        let with_room: Vec<Member> = waiting.into_iter().filter(|member| self.has_room(member)).collect();
        for Member { turn, .. } in &with_room {
            self.woken.extend(self.index.shapes.leave(&turn.key));
        }
        let consumer =
            |Member { turn, uid, .. }: Member| ConsumerReference::pod((*turn.key.name).into(), uid);
        with_room.into_iter().map(consumer).collect()
    }

    /// A Pod, if it lacks the reservation of this claim and nothing else.
    fn lacking(&self, key: &ObjectKey, claim: &NamedClaim) -> Option<Member> {
        let (uid, pod) =
            self.index.pod(key).filter(|(_, pod)| pod.is_gated && pod.group.is_none() && !pod.deleting)?;
        let claims = self.index.claims_of(&key.namespace, &pod)?;
        let others = claims.iter().filter(|of| of.uid != claim.uid);
        let lacks_nothing_else =
            others.into_iter().all(|of| of.facts.is_allocated && of.is_reserved_for(&uid));
        let rests = self.decided.rests(key, self.steady).is_some() || self.decided.is_decided(key);
        let Stance::Open(pod, claims) = stance(&self.options.name, &uid, &pod, Some(claims)) else {
            return None;
        };
        (lacks_nothing_else && !rests).then(|| Member { turn: pod.turn(key), uid, pod, claims })
    }

    /// Looks for room for a Pod where its claims are, and notes what it takes there.
    fn has_room(&mut self, Member { turn, uid, pod, claims }: &Member) -> bool {
        let (refused, _) = left_out(claims, self.now.as_second());
        let known = claims.iter().filter_map(|claim| self.index.snapshot.claim(&claim.uid).cloned());
        let question = Question { key: &turn.key, pod, claims: known.collect(), in_gang: false };
        // Another Pod that asks for the same waits for room.
        if self.index.shapes.before(question.shape(), turn).is_some() {
            return false;
        }
        let (order, mut tried) = (self.options.order, Tried::default());
        let decided =
            decide(&question, self.index, self.decided, (&refused, order), &mut tried, &mut share_id);
        let Turn::Decided(decision) = decided else { return false };
        self.decided.put(&turn.key, uid, claims, &decision);
        true
    }
}
