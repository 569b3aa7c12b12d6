//! Allocations that are refused, and what is taken back from gated Pods.

use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::controller::Outcome;
use dragoman_machinery::watch::Record;
use dragoman_objects::{DeviceResult, Name};

use super::decide::{AGAIN, Decision, Look, Stop};
use super::groups::GatedPod;
use super::index::{KnownClaim, NamedClaim};
use super::memory::JudgedOn;
use super::pass::{Notice, Purpose, Step};
use super::plan::{OTHERS, Reason, Wait};
use super::writes;
use dragoman_crds::protocol::{Rejection, with_rejection};

impl Decision<'_> {
    /// Why a device, share or counter of one of the claims is promised beyond what there is, if the Pod is not one that keeps it.
    /// The oldest gated Pods keep it; a consumer without a gate of ours may run already.
    pub(super) fn promised_twice(&self, claims: &[&KnownClaim]) -> Option<String> {
        let Look { key, pod, index, cluster, .. } = self.look;
        let (ledger, namespace) = (cluster.ledger(), &*key.namespace);
        let own = pod.age();
        for KnownClaim { name, .. } in claims {
            let mut younger = ledger.rivals(namespace, name);
            let stubborn = &self.memory.stubborn;
            let gives_way =
                |user: &GatedPod, claim: &Name| user.age() > own || stubborn.is_to_refuse(&user.key, claim);
            younger.retain(|rival| index.is_held_by(rival, gives_way));
            if let Some(overdrawn) = ledger.overdrawn_by(namespace, name, &younger) {
                // The owner of another claim is no business of this tenant; the log of the operator says it.
                let claims: Vec<&str> = overdrawn.claims.iter().map(|claim| &**claim).collect();
                let claims = claims.join(",");
                tracing::warn!(namespace, claim = %name, %claims, "promised twice");
                return Some(format!("claim {name}: {overdrawn}"));
            }
        }
        None
    }

    /// The first of the claims whose devices are not those that it asks for, and why. A claim that a Pod uses which may run stays as it
    /// is, and so does every claim while a watch is cut off: the allocator may have seen what is not seen here.
    pub(super) fn wrongly_given<'c>(
        &mut self,
        claims: &[&'c KnownClaim],
    ) -> Option<(&'c KnownClaim, String)> {
        let Look { key, index, cluster, is_current, .. } = self.look;
        if !is_current {
            return None;
        }
        let ledger = cluster.ledger();
        claims.iter().find_map(|claim| {
            let KnownClaim { name, uid, facts, .. } = claim;
            let given = facts.given.as_ref().filter(|_| index.is_held_by_gated(&key.namespace, facts))?;
            let device = |of: &DeviceResult| {
                let node = facts.node().map(AsRef::as_ref);
                ledger.device(&of.driver, &of.pool, &of.device, node)
            };
            let (devices, seen) = given.devices(device)?;
            let class = |name: &str| index.classes.get("", name).and_then(Record::readable).map(Arc::clone);
            let (version, classes) = (facts.version.clone(), index.classes_revision);
            let with = JudgedOn { version, classes, devices: seen };
            let wrong = self.memory.judged.judge(uid, with, || given.wrong(class, &devices))?;
            Some((*claim, format!("claim {name}: {wrong}")))
        })
    }

    /// Gives back what is reserved of claims that are being deleted: they stay until then, and the Pod
    /// waits for those that are made in their place.
    pub(super) fn give_back(&mut self) {
        for claim in self.look.claims.iter().filter_map(NamedClaim::known) {
            if claim.facts.deleting {
                self.take_out(claim);
            }
        }
    }

    /// Takes the Pod, or its PodGroup, out of the consumers of a claim, if it is one of them and no gate is open.
    fn take_out(&mut self, claim: &KnownClaim) {
        let Look { key, index, .. } = self.look;
        let Some(gated) = index.gated_together(key, claim) else { return };
        if claim.is_of_group() {
            self.memory.together.begins(key, &claim.uid);
        }
        for GatedPod { key, uid, facts } in gated {
            self.send(Purpose::Confirm, writes::is_gated(&key, &uid, &facts));
        }
        self.steps.push_back(Step::TakeOut(claim.clone()));
    }

    /// Whether a Pod may refuse the allocation of a claim for this reason. A claim of its PodGroup stays while another Pod of the group may
    /// run, has room, or has not been looked at.
    fn may_refuse(&mut self, claim: &KnownClaim, reason: Reason) -> bool {
        if !claim.is_of_group() {
            return true;
        }
        let Look { key, index, now, .. } = self.look;
        let since = self.memory.closed.closed(key, reason, *now);
        let gated = index.gated_together(key, claim).filter(|_| *now - since >= OTHERS);
        gated.is_some_and(|gated| {
            gated.iter().all(|user| user.key == **key || self.assumed.node_of(&user.key).is_none())
        })
    }

    /// Takes the Pod out of claims again that it was taken out of, as far as the index does not show what
    /// became of that. Returns whether there are any.
    pub(super) fn takes_out_again(&mut self, claims: &[&KnownClaim]) -> bool {
        let mut takes = false;
        for claim in claims {
            if self.memory.taking.stands(self.look.key, &claim.uid, &claim.facts.version) {
                takes = true;
                self.take_out(claim);
            }
        }
        takes
    }

    /// Refuses the allocations of a Pod that cannot run where they are: says so on each claim, and gives
    /// back what is reserved for this Pod. What other Pods of its PodGroup use stays, and the Pod waits if that is all.
    pub(super) fn reject(
        &mut self,
        claims: &[&KnownClaim],
        node: &str,
        reason: Reason,
        why: &str,
    ) -> Outcome {
        let place = if node.is_empty() { String::new() } else { format!(" on node {node}") };
        let text = format!("the allocation of its claims{place} is refused: {why}");
        let claims: Vec<&KnownClaim> =
            claims.iter().copied().filter(|claim| self.may_refuse(claim, reason)).collect();
        if claims.is_empty() {
            return self.refused_later(&Wait::new(reason, text));
        }
        if let Some(left) = self.postponed(&claims, node) {
            return self.refused_later(&Wait::new(reason, text)).most_urgent(Outcome::After(left));
        }
        let Look { key, cluster, now, .. } = self.look;
        self.memory.stubborn.refuses(key, node, *now);
        let published = cluster.published.get("", node);
        let revision = published.and_then(Record::readable).and_then(|published| published.revision);
        for claim in &claims {
            let rejection = Rejection {
                node: node.to_owned(),
                reason: why.to_owned(),
                revision: revision.unwrap_or_default(),
                time: self.time(),
            };
            let text = with_rejection(claim.facts.rejections.clone(), rejection);
            let write = writes::rejection(&key.namespace, claim, text);
            self.send(Purpose::Reject(claim.uid.clone()), write);
        }
        for claim in claims {
            self.take_out(claim);
            self.say(Notice::Refused(claim.name.clone(), node.into(), why.to_owned()));
        }
        self.say(Notice::Rejected);
        self.say(Notice::Warning(reason, "Reject", text));
        Outcome::Done
    }

    /// Returns the time for which the refusal of these claims waits: their allocator goes on with nodes that were refused.
    fn postponed(&mut self, claims: &[&KnownClaim], node: &str) -> Option<Duration> {
        let (Look { key, now, .. }, stubborn) = (self.look, &mut self.memory.stubborn);
        if !stubborn.is_ignored(key, node, *now) {
            return None;
        }
        let allocator = claims.iter().find_map(|claim| claim.facts.allocator.as_ref())?;
        let left = stubborn.waits(allocator, *now)?;
        stubborn.postpone(key, claims.iter().map(|claim| claim.uid.clone()));
        Some(left)
    }

    /// A Pod waits whose claims other Pods of its PodGroup use, or whose allocator ignores refusals: it takes no room meanwhile.
    fn refused_later(&mut self, wait: &Wait) -> Outcome {
        self.charges_nothing();
        if let Err(Stop::Then(then)) = self.nominate(None) {
            return then;
        }
        self.withdraw();
        self.waits(wait).most_urgent(Outcome::After(AGAIN))
    }
}
