//! Facts about Pods that this process remembers and the API does not show, or not yet. Another leader begins
//! without them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::times;
use dragoman_objects::Name;
use tokio::time::Instant;

use super::pass::Notice;
use super::plan::Reason;
use super::stubborn::Stubborn;

/// Everything, by Pod.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) closed: ClosedGates,
    pub(super) taking: PendingUnreserves,
    pub(super) together: Together,
    pub(super) nominated: Nominated,
    pub(super) judged: Judged,
    pub(super) stubborn: Stubborn,
    /// Pods whose message the API server has refused, as a policy of an earlier version does: their conditions are written
    /// without it. A Pod that another party wrote to meanwhile is one of them, too, and costs no other its message.
    pub(super) message_refused: HashSet<ObjectKey>,
}

/// Judgements of the allocations of gated Pods, by the uid of the claim.
#[derive(Debug, Default)]
pub(super) struct Judged(HashMap<Name, Judgement>);

/// Objects that an allocation is judged on: their versions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JudgedOn {
    /// That of the claim.
    pub(super) version: Name,
    /// The revision of the classes.
    pub(super) classes: u64,
    /// A hash over what was seen of the devices.
    pub(super) devices: u64,
}

/// Judgement of an allocation.
#[derive(Debug)]
struct Judgement {
    with: JudgedOn,
    /// Why the allocation is wrong, if it is.
    wrong: Option<String>,
}

/// The judgements that are kept: more Pods are seldom on their way at once, and what is forgotten is found again.
const JUDGED: usize = 4096;

impl Judged {
    /// Returns what was found of a claim with the same version, classes and devices, or finds it.
    pub(super) fn judge(
        &mut self,
        claim: &Name,
        with: JudgedOn,
        judge: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        if let Some(known) = self.0.get(claim).filter(|known| known.with == with) {
            return known.wrong.clone();
        }
        if self.0.len() >= JUDGED {
            self.0.clear();
        }
        let wrong = judge();
        self.0.insert(claim.clone(), Judgement { with, wrong: wrong.clone() });
        wrong
    }
}

/// The claims that are being taken back from a PodGroup, each with the Pod that does so: no other Pod of the group is released with them.
#[derive(Debug, Default)]
pub(super) struct Together(HashMap<Name, ObjectKey>);

impl Together {
    /// The Pod takes a claim of this uid back.
    pub(super) fn begins(&mut self, pod: &ObjectKey, claim: &Name) {
        self.0.insert(claim.clone(), pod.clone());
    }

    /// The Pod is looked at again, or is bound, ended or gone: what it did has ended.
    pub(super) fn ends(&mut self, pod: &ObjectKey) {
        self.0.retain(|_, of| of != pod);
    }

    /// Whether another Pod takes the claim of this uid back.
    pub(super) fn is_anothers(&self, pod: &ObjectKey, claim: &Name) -> bool {
        self.0.get(claim).is_some_and(|of| of != pod)
    }
}

impl Memory {
    /// Takes in what a pass about a Pod has to tell.
    pub(super) fn learn(&mut self, pod: &ObjectKey, said: &Notice, now: Instant) {
        match said {
            Notice::Condition(message) => self.closed.says(pod, now, message),
            Notice::MessageRefused => {
                self.message_refused.insert(pod.clone());
            }
            Notice::TakesOut(claim, version) => self.taking.put(pod, claim, version),
            Notice::NotTakenOut(claim) => self.taking.refused(pod, claim),
            Notice::Nominated(node) => self.nominated.wrote(pod, node.as_ref(), now),
            Notice::NotNominated(node, _) => self.nominated.is_not_kept(pod, node.as_ref()),
            Notice::Published => self.taking.published(pod),
            Notice::Withdrawn => self.taking.withdrew(pod),
            Notice::Opened(..) => self.closed.opened(pod),
            // These are for people, or about the API server.
            _ => {}
        }
    }

    /// A Pod is bound, ended or gone.
    pub(super) fn forget(&mut self, pod: &ObjectKey) {
        self.closed.opened(pod);
        self.taking.forget(pod);
        self.together.ends(pod);
        self.stubborn.forget(pod);
        self.nominated.forget(pod);
        self.message_refused.remove(pod);
    }
}

/// The closed gates.
#[derive(Debug, Default)]
pub(super) struct ClosedGates(HashMap<ObjectKey, Closed>);

/// A closed gate.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) reason: Reason,
    pub(super) since: Instant,
    /// When the condition was written last, and its message.
    said: Option<(Instant, String)>,
}

impl ClosedGates {
    /// Notes what a Pod waits for; returns since when it has waited for anything. What comes after the gate of another controller
    /// begins when that gate is open.
    pub(super) fn closed(&mut self, key: &ObjectKey, reason: Reason, now: Instant) -> Instant {
        let gate = self.0.entry(key.clone()).or_insert(Closed { reason, since: now, said: None });
        if gate.reason == Reason::OtherGateClosed && reason != gate.reason {
            gate.since = now;
        }
        gate.reason = reason;
        gate.since
    }

    /// When the condition of a Pod was written last, and its message.
    pub(super) fn said(&self, key: &ObjectKey) -> Option<(Instant, String)> {
        self.0.get(key)?.said.clone()
    }

    /// The condition of a Pod is written with this message.
    fn says(&mut self, key: &ObjectKey, now: Instant, message: &str) {
        self.0.get_mut(key).into_iter().for_each(|gate| gate.said = Some((now, message.to_owned())));
    }

    /// The gate is open, or the Pod is gone.
    pub(super) fn opened(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Closed> {
        self.0.values()
    }
}

/// Claims that gated Pods are taken out of. The answer to such a write may be lost, and the index may not show
/// it yet: the Pod is not released with them meanwhile.
#[derive(Debug, Default)]
pub(super) struct PendingUnreserves {
    claims: HashMap<ObjectKey, HashMap<Name, Name>>,
    /// Pods of which what was published was taken back.
    withdrawn: HashSet<ObjectKey>,
}

impl PendingUnreserves {
    /// A Pod is bound, ended or gone.
    fn forget(&mut self, pod: &ObjectKey) {
        self.claims.remove(pod);
        self.withdrawn.remove(pod);
    }

    /// Whether what was published of a Pod has been taken back since.
    pub(super) fn is_withdrawn(&self, pod: &ObjectKey) -> bool {
        self.withdrawn.contains(pod)
    }

    /// Notes that what was published of a Pod is taken back. Remaining entries belong to other writers.
    fn withdrew(&mut self, pod: &ObjectKey) {
        self.withdrawn.insert(pod.clone());
    }

    /// Notes that the amounts which the claims of a Pod take are published.
    fn published(&mut self, pod: &ObjectKey) {
        self.withdrawn.remove(pod);
    }

    /// A Pod is about to be taken out of a claim of this version.
    fn put(&mut self, pod: &ObjectKey, claim: &Name, version: &Name) {
        self.claims.entry(pod.clone()).or_default().insert(claim.clone(), version.clone());
    }

    /// The write was refused.
    fn refused(&mut self, pod: &ObjectKey, claim: &str) {
        self.claims.get_mut(pod).and_then(|claims| claims.remove(claim));
    }

    /// Whether the index may not show yet what became of it. `version`: that of the claim there.
    pub(super) fn stands(&mut self, pod: &ObjectKey, claim: &str, version: &str) -> bool {
        let number = |version: &str| version.parse::<u64>().unwrap_or_default();
        let Some(claims) = self.claims.get_mut(pod) else { return false };
        let stands = claims.get(claim).is_some_and(|on| number(version) <= number(on));
        if !stands {
            claims.remove(claim);
        }
        stands
    }
}

/// The time from a nomination to the release. kube-scheduler learns of a nomination some milliseconds after it
/// was written, and may place another Pod meanwhile; the binding of that Pod comes here some milliseconds later. A Pod
/// that is released without this wait stays where it has no room. The longest such time that was measured, on a
/// machine with two loaded cores, is 210 ms.
const SETTLE: Duration = Duration::from_millis(250);

/// The time for which a nomination that another party has changed is left as it is: two leaders that see
/// different things would otherwise take back each other's as fast as the API server answers.
const LEFT: Duration = Duration::from_secs(1);

/// The nominations of gated Pods.
#[derive(Debug, Default)]
pub(super) struct Nominated {
    /// Since when each Pod is nominated for its node.
    since: HashMap<ObjectKey, (Name, Instant)>,
    /// Nomination that was last written for each Pod, and when.
    written: HashMap<ObjectKey, (Option<Name>, Instant)>,
    /// Nomination of each Pod that the API server has last refused or dropped.
    not_kept: HashMap<ObjectKey, Option<Name>>,
}

impl Nominated {
    /// Returns how long the nomination of a Pod is left to another party, which has changed it since it was
    /// written here.
    pub(super) fn is_left(&self, pod: &ObjectKey, seen: Option<&Name>, now: Instant) -> Option<Duration> {
        let (value, at) = self.written.get(pod)?;
        times::left(*at + LEFT, now).filter(|_| value.as_ref() != seen)
    }

    /// A nomination was written.
    pub(super) fn wrote(&mut self, pod: &ObjectKey, value: Option<&Name>, now: Instant) {
        self.written.insert(pod.clone(), (value.cloned(), now));
    }

    /// Another party refuses a nomination, or drops it from the write.
    fn is_not_kept(&mut self, pod: &ObjectKey, value: Option<&Name>) {
        self.not_kept.insert(pod.clone(), value.cloned());
    }

    /// Whether this nomination was tried in vain: the Pod is released without it. It is tried again once the Pod has lost its
    /// devices and has others.
    pub(super) fn is_in_vain(&self, pod: &ObjectKey, value: Option<&Name>) -> bool {
        self.not_kept.get(pod).is_some_and(|tried| tried.as_ref() == value)
    }

    /// Returns the time that is left at `now` until kube-scheduler has seen the nomination of a Pod, and the
    /// index has seen the Pods that kube-scheduler placed before.
    pub(super) fn settles(&mut self, pod: &ObjectKey, node: &Name, now: Instant) -> Option<Duration> {
        let (known, since) = self.since.entry(pod.clone()).or_insert_with(|| (node.clone(), now));
        if known != node {
            (*known, *since) = (node.clone(), now);
        }
        times::left(*since + SETTLE, now)
    }

    /// A Pod is not to be nominated any more.
    pub(super) fn end(&mut self, pod: &ObjectKey) {
        self.since.remove(pod);
        if self.not_kept.get(pod).is_some_and(Option::is_some) {
            self.not_kept.remove(pod);
        }
    }

    /// A Pod was released, or is gone.
    pub(super) fn forget(&mut self, pod: &ObjectKey) {
        self.since.remove(pod);
        self.written.remove(pod);
        self.not_kept.remove(pod);
    }
}
