//! The charge of a Pod becomes visible to kube-scheduler before the gate is opened (docs/protocol.md, section 3).
//!
//! What slices say of its claims goes into the status of the Pod, where the API server keeps that. What Dragoman alone knows is
//! held by the holders of the node until the Pod is bound: kube-scheduler forgets amounts of others in the moment in which it
//! places the Pod, and until it sees the bound Pod.
//!
//! The Pod is nominated for its node: kube-scheduler leaves the room of a nominated Pod free, also while the Pod has gates, and
//! tries the node first once the gate is open. Without that a Pod without the gate takes the room in the moment of the release;
//! kube-scheduler then takes the devices back and allocates others by itself.

use std::sync::Arc;

use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_machinery::controller::Outcome;
use dragoman_objects::Name;

use super::decide::{Decision, Look, NEXT_LOOK, Stop};
use super::pass::{Notice, Purpose, Step};
use super::plan::{Reason, Wait};
use super::writes;
use crate::cluster::Charged;
use crate::pod_status::{self, Inquiry, parted, uncounted};

impl Decision<'_> {
    /// Nominates a gated Pod for `node`, or takes the nomination back.
    ///
    /// # Errors
    /// What follows is decided on the Pod as it is after the write; or another party has just changed the nomination.
    pub(super) fn nominate(&mut self, node: Option<&Name>) -> Result<(), Stop> {
        let Look { key, uid, pod, now, .. } = self.look;
        let nominated = &mut self.memory.nominated;
        if node.is_none() {
            nominated.end(key);
        }
        if pod.nominated.as_ref() == node || nominated.is_in_vain(key, node) {
            return Ok(());
        }
        if let Some(left) = nominated.is_left(key, pod.nominated.as_ref(), *now) {
            return Err(Stop::Then(Outcome::After(left)));
        }
        self.send(Purpose::Nominate(node.cloned()), writes::nomination(key, uid, pod, node));
        Err(NEXT_LOOK)
    }

    /// Makes the charge of a Pod on `node` visible.
    ///
    /// # Errors
    /// A wait for the holders of the node, or for what is not known; what follows is decided after the write.
    pub(super) fn publish(&mut self, node: &str) -> Result<(), Stop> {
        let Look { key, uid, pod, cluster, scheduler, .. } = self.look;
        let claims = cluster.ledger().claims_on(&pod.accounted, node);
        if let Some(fact) = claims.unaccounted.first() {
            return Err(Wait::new(Reason::Unaccounted, fact.to_string()).into());
        }
        let contributions = told(claims.contributions, false);
        if contributions.is_empty() {
            return Ok(());
        }
        let unrepresentable = |why: String| Wait::new(Reason::NotPublished, why);
        let Some(by) = *scheduler else {
            let asked = contributions.first().map(|of| Inquiry::new(key, uid, of));
            let inquiry = asked.transpose().map_err(unrepresentable)?;
            self.steps.extend(inquiry.map(Step::Ask));
            return Err(NEXT_LOOK);
        };
        let is_recorded = !pod.accounted.view.recorded.is_empty();
        let told = told(contributions, self.holders.is_on());
        if let Scheduler::Aware(generation) = by
            && !is_recorded
        {
            let (taken, _) = parted(&told, claims.extended.as_deref(), generation);
            if !taken.is_empty() {
                let write = pod_status::write(&key.namespace, &key.name, uid, &taken, generation);
                self.send(Purpose::Publish(generation), write.map_err(unrepresentable)?);
                return Err(NEXT_LOOK);
            }
        }
        let charged = Charged { cluster, assumed: self.assumed };
        if self.holders.let_in(charged, &Arc::from(node), key, by) {
            return Ok(());
        }
        let message =
            format!("the holder Pod of node {node} does not hold exactly what claims take there yet");
        Err(Wait::on_its_way(Reason::NotPublished, message).into())
    }

    /// Says what kube-scheduler does not count of a Pod that is released to `node`: the status of the Pod has no place for it, and no
    /// holder holds it.
    pub(super) fn say_uncounted(&mut self, node: &str) {
        let Look { pod, cluster, scheduler, .. } = self.look;
        let Some(Scheduler::Aware(generation)) = *scheduler else { return };
        let claims = cluster.ledger().claims_on(&pod.accounted, node);
        let (_, rest) = parted(&told(claims.contributions, false), claims.extended.as_deref(), generation);
        if let Some(text) = uncounted(&rest, self.holders.is_on()) {
            self.say(Notice::Warning(Reason::NotPublished, "Release", text));
        }
    }

    /// Takes back the entries that were published for claims which the Pod has lost, so that they count
    /// neither here nor for kube-scheduler: they would be counted beside those of the claims in their place.
    /// Entries of other writers stay.
    pub(super) fn withdraw(&mut self) {
        let Look { key, uid, pod, scheduler, .. } = self.look;
        let is_recorded = !pod.accounted.view.recorded.is_empty();
        // Nothing is written while it is not known which generation is kept.
        if let Some(Scheduler::Aware(generation)) = *scheduler
            && is_recorded
            && !self.memory.taking.is_withdrawn(key)
            && let Ok(write) = pod_status::write(&key.namespace, &key.name, uid, &[], generation)
        {
            self.send(Purpose::Withdraw, write);
        }
    }
}

/// Returns what kube-scheduler is told in the status of a Pod: everything, or, if `sliced`, what slices say
/// and what a holder cannot hold.
fn told(contributions: Vec<Contribution>, sliced: bool) -> Vec<Contribution> {
    let known = contributions.into_iter().map(|mut of| {
        of.lines.retain(|line| !sliced || !line.local || !line.resource.resizable());
        of
    });
    known.filter(|of| !of.lines.is_empty()).collect()
}
