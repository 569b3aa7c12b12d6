//! The charge of a Pod becomes visible to kube-scheduler before the gate is opened. What slices say of its claims goes into
//! the status of the Pod, where the API server keeps that. What Dragoman alone knows is held by the holders of the node until
//! the Pod is bound: kube-scheduler forgets amounts of others in the moment in which it places the Pod, and until it sees the
//! bound Pod (docs/protocol.md, section 3).

use std::sync::Arc;

use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_machinery::refusal::Refusal;

use super::controller::{Blocked, GateKeeper, Work, locked};
use super::plan::{Reason, Wait};
use crate::pod_status::Published;

impl GateKeeper {
    /// Makes the charge of a Pod on `node` visible.
    ///
    /// # Errors
    /// A wait for the holders of the node, or for what is not known; [`Blocked::Again`] after a write.
    pub(super) async fn publish(&self, work: &Work<'_>, node: &str) -> Result<(), Blocked> {
        let Some(cluster) = self.cluster.get() else { return Ok(()) };
        let claims = cluster.read(|cluster| cluster.ledger().claims_on(&work.pod.accounted, node));
        if let Some(fact) = claims.unaccounted.first() {
            return Err(Wait::new(Reason::Unaccounted, fact.to_string()).into());
        }
        let contributions = told(claims.contributions, false);
        if contributions.is_empty() {
            return Ok(());
        }
        let by = self.publisher.kept(&self.kit, work.key, &work.uid, &contributions, work.now).await?;
        let is_recorded = !work.pod.accounted.view.recorded.is_empty();
        let told = told(contributions, self.holders.is_on());
        if by != Scheduler::Unaware && !is_recorded && !told.is_empty() {
            return Err(self.tell_scheduler(work, &told).await?);
        }
        let node = Arc::from(node);
        if self.holders.let_in(cluster, &node, work.key, by) {
            return Ok(());
        }
        let message =
            format!("the holder Pod of node {node} does not hold exactly what claims take there yet");
        Err(Wait::on_its_way(Reason::NotPublished, message).into())
    }

    /// Writes what claims take into the status of a Pod. Returns what holds the release up.
    async fn tell_scheduler(&self, work: &Work<'_>, told: &[Contribution]) -> Result<Blocked, Refusal> {
        Ok(match self.publisher.publish(&self.kit, work.key, &work.uid, told, work.now).await? {
            Published::Kept(pod) => {
                locked(&self.taking).published(work.key);
                // The version that the release is decided on.
                Blocked::Again(pod.metadata.resource_version)
            }
            Published::KeepsNothing(_) | Published::Dropped => {
                Blocked::Failed("the API server has dropped the field since it was asked".to_owned())
            }
            Published::Inexpressible(message) => Wait::new(Reason::NotPublished, message).into(),
        })
    }

    /// What was published of claims that the Pod has lost counts neither here nor for kube-scheduler: it would
    /// be counted beside that of the claims in their place. Entries of others stay.
    pub(super) async fn withdraw(&self, work: &Work<'_>) -> Result<(), Refusal> {
        let is_recorded = !work.pod.accounted.view.recorded.is_empty();
        if is_recorded
            && !locked(&self.taking).is_withdrawn(work.key)
            && self.publisher.withdraw(&self.kit, work.key, &work.uid, work.now).await?
        {
            locked(&self.taking).withdrew(work.key);
        }
        Ok(())
    }
}

/// What kube-scheduler is told in the status of a Pod: everything, or `sliced` only.
fn told(contributions: Vec<Contribution>, sliced: bool) -> Vec<Contribution> {
    let known = contributions.into_iter().map(|mut of| {
        of.lines.retain(|line| !sliced || !line.local);
        of
    });
    known.filter(|of| !of.lines.is_empty()).collect()
}
