//! Pods that share a claim. Of several writes on a version of the claim the API server takes one. So one Pod writes at a time, and the
//! same write reserves the claim for the Pods that lack nothing else.

use std::collections::HashMap;
use std::time::Duration;

use dragoman_machinery::controller::ObjectKey;
use dragoman_objects::{ConsumerReference, MAX_CONSUMERS, Name};

use super::decide::{Question, decide_on, left_out};
use super::gangs::Member;
use super::index::{NamedClaim, PodFacts};
use super::look::{Look, Subject};
use super::pod_state::{PodState, pod_state};
use super::turns::share_id;

/// The Pods that are taken along at once: some milliseconds.
const MOST: usize = 64;
/// The Pods that one write looks through for them: a tenant can make any number.
pub(super) const SOME: usize = 512;
/// Entries for claims up to which a Pod is taken along. Each of them costs a look at its claim.
const FEW: usize = 16;
/// Wait before another look at a Pod that waits for the write of another Pod. A change of the claim wakes it
/// sooner.
pub(super) const WRITTEN: Duration = Duration::from_secs(2);

/// The writes of claims that are under way: by the uid of the claim, the Pod and the version that it is written on.
#[derive(Debug, Default)]
pub(super) struct Writing(HashMap<Name, (ObjectKey, Name)>);

impl Writing {
    /// A write on this version is about to be sent for a Pod.
    pub(super) fn begins(&mut self, key: &ObjectKey, claim: &Name, version: &Name) {
        self.0.insert(claim.clone(), (key.clone(), version.clone()));
    }

    /// The writes for a Pod have ended: the Pod is looked at again, or the allocator has nothing to do for it any more.
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
    /// are: the room is theirs from now on. `some`: the number of Pods that the write may still look through.
    pub(super) fn taken_along(
        &mut self,
        of: &Subject<'_>,
        claim: &NamedClaim,
        some: &mut usize,
    ) -> Vec<ConsumerReference> {
        // Where the claim has no node of its own, each Pod looks for one in its turn.
        let Some(node) = claim.facts.node.clone().filter(|_| claim.group.is_none()) else {
            return Vec::new();
        };
        let room = MAX_CONSUMERS.saturating_sub(claim.facts.consumers.len() + 1);
        let others = self.index.sharers(&of.key.namespace, &claim.name).take(*some);
        let others: Vec<ObjectKey> = others.collect();
        *some -= others.len();
        let others = others.into_iter().filter(|key| key != of.key);
        let mut waiting: Vec<Member> = others.filter_map(|key| self.lacking(&key, claim)).collect();
        waiting.sort_by(|a, b| a.turn.cmp(&b.turn));
        waiting.truncate(MOST.min(room));
        let with_room: Vec<Member> =
            waiting.into_iter().filter(|member| self.has_room(member, &node)).collect();
        for Member { turn, .. } in &with_room {
            self.woken.extend(self.index.shapes.leave(&turn.key));
            // The write may never be sent.
            self.woken.push(turn.key.clone());
        }
        let consumer =
            |Member { turn, uid, .. }: Member| ConsumerReference::pod((*turn.key.name).into(), uid);
        with_room.into_iter().map(consumer).collect()
    }

    /// A Pod, if it lacks the reservation of this claim and nothing else.
    fn lacking(&self, key: &ObjectKey, claim: &NamedClaim) -> Option<Member> {
        let is_one = |pod: &PodFacts| {
            pod.is_gated && pod.group.is_none() && !pod.deleting && pod.accounted.claims.len() <= FEW
        };
        let (uid, pod) = self.index.pod(key).filter(|(_, pod)| is_one(pod))?;
        if self.decided.rests(key, self.now).is_some() || self.decided.is_decided(key) {
            return None;
        }
        let claims = self.index.claims_of(&key.namespace, &pod)?;
        let others = claims.iter().filter(|of| of.uid != claim.uid);
        let lacks_nothing_else =
            others.into_iter().all(|of| of.facts.is_allocated && of.is_reserved_for(&uid));
        let PodState::NeedsDevices(pod, claims) = pod_state(&self.options.name, &uid, &pod, Some(claims))
        else {
            return None;
        };
        lacks_nothing_else.then(|| Member { turn: pod.queue_position(key), uid, pod, claims })
    }

    /// Looks for room for a Pod on the node of its claim, and notes what it takes there.
    fn has_room(&mut self, Member { turn, uid, pod, claims }: &Member, node: &str) -> bool {
        let (refused, _) = left_out(claims, self.time);
        let known = claims.iter().filter_map(|claim| self.index.snapshot.claim(&claim.uid).cloned());
        let question = Question::new(&turn.key, pod, known.collect(), self.index, self.decided);
        // Another Pod that asks for the same waits for room.
        let is_next = self.index.shapes.before(question.equivalence_class(), turn).is_none();
        if !is_next || refused.contains(node) {
            return false;
        }
        let Some(decision) = decide_on(&question, self.index, self.decided, node, &mut share_id) else {
            return false;
        };
        self.decided.put(&turn.key, uid, claims, &decision);
        true
    }

    /// A Pod that is not searched for now takes no room, unless the decision about a claim that it shares is under way.
    pub(super) fn drop_charge(&mut self, of: &Subject<'_>) {
        let is_under_way = |claim: &NamedClaim| {
            self.decided.is_for_another(of.key, &claim.uid) || self.decided.writing.is_anothers(of.key, claim)
        };
        if !of.claims.iter().any(is_under_way) {
            let node = self.decided.forget(of.key);
            self.reopen(node.as_ref());
        }
    }
}
