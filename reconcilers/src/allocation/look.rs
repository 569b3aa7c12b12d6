//! Next steps of a Pod, before and after the search for its devices: a pure function of the index and of the
//! decisions of this process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::controller::{ObjectKey, Outcome};
use dragoman_machinery::times;
use dragoman_objects::Name;
use jiff::Timestamp;
use tokio::time::Instant;

use super::controller::Options;
use super::decide::{Decision, Question, left_out};
use super::gangs::{Gang, Member, gang};
use super::in_flight::{InFlightAllocations, stands};
use super::index::{Allocation, ClaimFacts, NamedClaim, PodFacts};
use super::large::READ;
use super::pass::{Assignment, Notice, Purpose, Step};
use super::pod_state::{PodState, is_for, pod_state};
use super::shapes::EquivalenceClassId;
use super::sharers::{SOME, WRITTEN, waits_for_place};
use super::turns::Looked;
use super::verdicts::{GANG, TOO_LONG, Words};
use super::writes;

/// Wait before another look at a Pod whose search ended with [`Looked::Waits`]: one of its claims was just
/// decided on for another Pod, kube-scheduler allocates for it, or another search is in its way.
pub(super) const SHARED: Duration = Duration::from_millis(200);
/// The longest rest of a Pod that another leader has put to rest: a minute, and as much by chance.
const LONGEST_REST: Duration = Duration::from_mins(2);

/// A look at the index and at what is decided. Both are locked as long as it lasts, so that nothing is given twice.
pub(super) struct Look<'a> {
    pub(super) index: &'a mut Allocation,
    pub(super) decided: &'a mut InFlightAllocations,
    pub(super) options: &'a Options,
    /// The time of the look.
    pub(super) now: Instant,
    /// The time that people read.
    pub(super) time: Timestamp,
    /// A random number from zero to one, so that Pods that rest do not come back together.
    pub(super) jitter: f64,
    /// The steps that were decided on.
    pub(super) steps: Vec<Step>,
    /// Pods that are looked at next.
    pub(super) woken: Vec<ObjectKey>,
}

/// A Pod in question.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) uid: Name,
    pub(super) pod: Arc<PodFacts>,
    pub(super) claims: Vec<NamedClaim>,
}

/// Outcome of [`Look::begin`].
#[derive(Debug)]
pub(super) enum Begun<'a> {
    /// The allocator has nothing to do for the Pod, or not yet.
    Rests,
    /// The user as which this process allocates is not known yet, and neither are the devices that it may
    /// allocate.
    Nameless,
    /// The steps are decided on.
    Steps(Subject<'a>, Outcome),
    /// The requests of these claims have to be read first.
    Lacks(Vec<NamedClaim>),
    /// Devices are searched for first.
    Search(Box<Search<'a>>),
}

/// A search for devices.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) of: Subject<'a>,
    shape: EquivalenceClassId,
    /// The Pods that are placed together, and how many of them must be.
    pub(super) gang: Option<(Vec<Member>, usize)>,
    /// The nodes that are left out.
    pub(super) refused: BTreeSet<Name>,
    /// When the first of them is tried again.
    again: Outcome,
}

impl Look<'_> {
    pub(super) fn words(&self, of: &Subject<'_>) -> Words {
        let (nodes, left_out) = (self.index.node_count(), self.index.left_out());
        Words::new(of.key, &of.claims, nodes, left_out, self.time)
    }

    /// Begins with a Pod.
    pub(super) fn begin<'a>(&mut self, key: &'a ObjectKey) -> Begun<'a> {
        self.decided.writing.ends(key);
        let Some((uid, pod)) = self.index.pod(key).filter(|(_, pod)| !pod.deleting) else {
            self.forget(key);
            return Begun::Rests;
        };
        let claims = self.index.claims_of(&key.namespace, &pod);
        if self.decided.is_of_namesake(key, &uid) {
            self.forget(key);
        }
        if let Some(claims) = &claims {
            self.decided.compare(key, claims);
        }
        match pod_state(&self.options.name, &uid, &pod, claims) {
            PodState::Incomplete => {
                self.lacks_a_claim(key, &pod);
                self.stuck(key, uid, pod).unwrap_or(Begun::Rests)
            }
            PodState::Unrelated => {
                self.drop_decision(key);
                let is_gated = pod.is_gated;
                self.stuck(key, uid, pod).unwrap_or_else(|| {
                    // It may need devices again, and rests then as long as it would have.
                    if is_gated {
                        self.decided.holds_nothing(key);
                    } else {
                        self.decided.is_rested(key);
                    }
                    Begun::Rests
                })
            }
            PodState::Allocated(claims) => {
                let of = Subject { key, uid, pod, claims };
                let then = self.settled(&of);
                Begun::Steps(of, then)
            }
            PodState::NeedsDevices(..) if !self.index.owners.knows_its_user() => Begun::Nameless,
            PodState::NeedsDevices(pod, claims) => self.open(Subject { key, uid, pod, claims }),
        }
    }

    /// A claim of a Pod is not there. The Pod waits for no device, and takes no room unless the decision about another claim of it
    /// is under way. One that was released may be bound all the same.
    fn lacks_a_claim(&mut self, key: &ObjectKey, pod: &PodFacts) {
        self.leave(key);
        let index = &*self.index;
        self.decided.keep_those_that_stand(key, |uid, on| match index.claim_of(&key.namespace, pod, uid) {
            Some(facts) => stands(facts, on),
            // The Pod does not name it for a moment: its write may have been done.
            None => index.snapshot.claim(uid).is_some_and(|claim| claim.allocation.is_none()),
        });
        if pod.is_gated && !self.decided.is_decided(key) {
            let node = self.decided.forget(key);
            self.reopen(node.as_ref());
        }
    }

    fn settled(&mut self, of: &Subject<'_>) -> Outcome {
        self.assume(of.key, &of.pod, &of.claims);
        self.leave(of.key);
        if of.pod.group.is_some() && !self.decided.was_settled(of.key) {
            // With it the minimum may be there.
            self.woken.extend(self.index.groups.beside(of.key));
        }
        self.holds(of)
    }

    /// A Pod that needs devices.
    fn open<'a>(&mut self, of: Subject<'a>) -> Begun<'a> {
        // A write whose answer was lost is repeated as it was: the guard refuses it if it has been done.
        if let Some(decision) = self.decided.standing(of.key) {
            self.write(&of, decision);
            return Begun::Steps(of, Outcome::Done);
        }
        let (refused, again) = left_out(&of.claims, self.time);
        if let Some(left) = self.rests(&of, refused.is_empty()) {
            self.drop_charge(&of);
            return Begun::Steps(of, Outcome::After(left));
        }
        if waits_for_place(&of) {
            self.leave(of.key);
            let then = self.gives_part_back(&of).unwrap_or(Outcome::Done);
            return Begun::Steps(of, then);
        }
        if self.waits_for_write(&of) {
            return Begun::Steps(of, Outcome::After(WRITTEN));
        }
        let gang = match gang(self.index, self.decided, &self.options.name, of.key, &of.pod) {
            None => None,
            Some(Gang::Decide(members, needed)) => Some((members, needed)),
            Some(Gang::Behind(first)) => {
                self.leave(of.key);
                self.drop_charge(&of);
                if self.index.shapes.waits(&first) && self.index.groups.is_small(of.key) {
                    self.steps.extend(self.words(&of).in_gang(&first.name));
                }
                self.woken.push(first);
                return Begun::Steps(of, Outcome::Done);
            }
            Some(Gang::Waits(why)) => {
                self.leave(of.key);
                self.drop_charge(&of);
                self.steps.extend(self.words(&of).verdict(GANG, &why, None));
                return Begun::Steps(of, Outcome::Done);
            }
        };
        let members = gang.iter().flat_map(|(members, _)| members).flat_map(|member| &member.claims);
        let lacks = self.index.left_behind(of.claims.iter().chain(members));
        if !lacks.is_empty() {
            return self.lacks(of, lacks);
        }
        let again = again.map_or(Outcome::Done, Outcome::After);
        self.take_turn(of, gang, refused, again)
    }

    /// A Pod that has claims whose requests are not kept, or is in a gang with one that has.
    fn lacks<'a>(&mut self, of: Subject<'a>, claims: Vec<NamedClaim>) -> Begun<'a> {
        let size: usize = claims.iter().filter_map(|claim| claim.facts.left_behind).sum();
        if size <= READ {
            return Begun::Lacks(claims);
        }
        self.leave(of.key);
        self.drop_charge(&of);
        let message = format!(
            "the requests of its claims, and of those of its PodGroup, have {} KiB; for one Pod {} are read",
            size >> 10,
            READ >> 10
        );
        self.steps.extend(self.words(&of).verdict(TOO_LONG, &message, None));
        Begun::Steps(of, Outcome::Done)
    }

    /// Returns the time that a Pod rests because it gave devices back, has lost them, or had a search
    /// that took too long; `None` if it does not rest.
    fn rests(&mut self, of: &Subject<'_>, is_refused_nowhere: bool) -> Option<Duration> {
        if let Some((rest, left)) = of.claims.iter().find_map(|claim| rests_on(&claim.facts, self.time)) {
            self.decided.rests_on(of.key, rest, left, self.now);
        }
        if self.decided.has_lost(of.key) && is_refused_nowhere {
            self.decided.gave_back(of.key, self.now, self.jitter);
        }
        self.decided.rests(of.key, self.now)
    }

    /// A Pod, or its gang, is searched for if no other one of its shape comes first.
    fn take_turn<'a>(
        &mut self,
        of: Subject<'a>,
        gang: Option<(Vec<Member>, usize)>,
        refused: BTreeSet<Name>,
        again: Outcome,
    ) -> Begun<'a> {
        let Subject { key, pod, claims, .. } = &of;
        let known = claims.iter().filter_map(|claim| self.index.snapshot.claim(&claim.uid).cloned());
        let question = Question::new(key, pod, known.collect(), self.index, self.decided);
        let shape = Question { in_gang: gang.is_some(), ..question }.equivalence_class();
        let turn = pod.queue_position(key);
        if let Some(before) = self.index.shapes.before(shape, &turn).cloned() {
            self.index.shapes.wait(shape, turn);
            self.drop_charge(&of);
            let why = self.index.shapes.reasons(shape).iter().map(ToString::to_string).collect();
            self.woken.push(before);
            self.steps.extend(self.words(&of).behind(why));
            return Begun::Steps(of, again);
        }
        Begun::Search(Box::new(Search { of, shape, gang, refused, again }))
    }

    /// Concludes a look with the outcome of its search.
    pub(super) fn conclude<'a>(&mut self, search: Search<'a>, looked: Looked) -> (Subject<'a>, Outcome) {
        let Search { of, shape, gang, again, .. } = search;
        let is_first_time = gang.is_some() && !self.index.shapes.waits(of.key);
        if is_first_time && matches!(looked, Looked::TooLong | Looked::Refused(_)) {
            // The others of its gang say it as well, from now on.
            let others = self.index.groups.beside(of.key).into_iter();
            self.woken.extend(others.filter(|pod| pod != of.key));
        }
        let then = match looked {
            // It has begun since this search did.
            Looked::Decided(_) if self.waits_for_write(&of) => Outcome::After(WRITTEN),
            Looked::Decided(decision) => {
                self.leave(of.key);
                self.write(&of, *decision);
                Outcome::Done
            }
            Looked::Placed(pods) => {
                pods.iter().for_each(|pod| self.leave(pod));
                self.woken.extend(pods);
                self.leave(of.key);
                Outcome::Done
            }
            Looked::Waits => Outcome::After(SHARED),
            Looked::TooLong => {
                self.steps.push(Step::Say(Notice::NoNode));
                self.index.shapes.wait(shape, of.pod.queue_position(of.key));
                self.rest(&of)
            }
            Looked::Refused(why) => {
                self.steps.push(Step::Say(Notice::NoNode));
                self.index.shapes.wait(shape, of.pod.queue_position(of.key));
                self.refused(&of, &why).unwrap_or(Outcome::Done).most_urgent(again)
            }
        };
        (of, then)
    }

    /// A Pod whose search took too long rests, longer each time, and says why.
    fn rest(&mut self, of: &Subject<'_>) -> Outcome {
        self.decided.rests_again(of.key, self.now, self.jitter);
        let rest = self.decided.rests(of.key, self.now).unwrap_or_default();
        let seconds = rest.as_secs() + u64::from(rest.subsec_nanos() > 0);
        let message = format!(
            "the search for devices takes too long, and goes on in {seconds} s: selectors with loops or large patterns \
             take the most time, and the Pods of a namespace share what there is"
        );
        self.steps.extend(self.words(of).verdict(TOO_LONG, &message, Some(seconds)));
        let rests = Outcome::After(rest);
        // What it has of its devices is not kept from others for that long.
        match self.gives_part_back(of) {
            Some(kept) => rests.most_urgent(kept),
            None => rests,
        }
    }

    /// Writes what was decided, claim by claim. What was written, or may have been, stays decided if a
    /// write fails: the next look goes on from there.
    fn write(&mut self, of: &Subject<'_>, decision: Decision) {
        let Decision { node, mut allocations, .. } = decision;
        let mut some = SOME;
        for claim in of.claims.iter().filter(|claim| is_for(&self.options.name, claim)) {
            let devices = allocations.iter().position(|(uid, _)| *uid == claim.uid);
            let devices = devices.map(|at| allocations.swap_remove(at).1);
            if devices.is_none() && (claim.is_reserved_for(&of.uid) || !claim.facts.is_allocated) {
                continue;
            }
            let protect = devices.as_ref().and_then(|_| writes::protect(&of.key.namespace, claim));
            let protect = protect.map(Box::new);
            self.steps.extend(protect.map(|write| Step::Send(Purpose::Protect(claim.uid.clone()), write)));
            self.decided.writing.begins(of.key, &claim.uid, &claim.facts.version);
            let along = self.taken_along(of, claim, &mut some);
            let all_of = along.len();
            let assignment = Assignment { claim: claim.clone(), devices, node: node.clone(), along };
            self.steps.push(Step::Allocate(Box::new(assignment)));
            self.steps.extend((0..all_of).map(|_| Step::Say(Notice::AllAllocated)));
        }
        self.steps.push(Step::Say(Notice::AllAllocated));
    }

    /// Charges a Pod that has its devices to the node where they are, until it is bound.
    pub(super) fn assume(&mut self, key: &ObjectKey, pod: &PodFacts, claims: &[NamedClaim]) {
        let mut nodes = claims.iter().filter_map(|claim| claim.facts.node.as_deref());
        if let Some(node) = nodes.next() {
            let charge = self.index.accounts.ledger().candidate(&pod.accounted, node).pod;
            self.decided.assumed.put(key, node, charge);
        }
    }

    /// The allocator has nothing to do for a Pod any more.
    fn forget(&mut self, key: &ObjectKey) {
        self.decided.is_rested(key);
        self.drop_decision(key);
    }

    fn drop_decision(&mut self, key: &ObjectKey) {
        let node = self.decided.forget(key);
        self.reopen(node.as_ref());
        self.leave(key);
    }

    /// A node has room again that the index does not tell of. What was refused for want of it is tried
    /// again.
    pub(super) fn reopen(&mut self, node: Option<&Name>) {
        if let Some(node) = node {
            self.woken.extend(self.index.changed_at(Some(node)));
        }
    }

    /// A Pod does not wait any more; the next of its shape is looked at.
    fn leave(&mut self, key: &ObjectKey) {
        self.woken.extend(self.index.shapes.leave(key));
    }
}

/// For how long a claim rests because a search took too long: in all, and from now on.
fn rests_on(facts: &ClaimFacts, now: Timestamp) -> Option<(Duration, Duration)> {
    let verdict = facts.verdict.as_ref().filter(|verdict| verdict.reason == TOO_LONG)?;
    let since = verdict.time.parse().ok()?;
    let rest = Duration::from_secs(verdict.retry_after?).min(LONGEST_REST);
    Some((rest, rest.saturating_sub(times::passed(since, now))))
}
