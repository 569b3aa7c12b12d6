//! Pods whose gate is open and that kube-scheduler does not bind: their node is lost, tainted or filled. Where
//! a claim confines the Pod, kube-scheduler takes the devices back and allocates elsewhere; a Pod whose affinity
//! names the node, or that shares its claims, stays where it cannot run.

use std::time::Duration;

use dragoman_crds::wire::Name;
use dragoman_machinery::controller::{Verdict, regarding};
use dragoman_machinery::kind::POD;
use dragoman_machinery::write::{Action, Guard, Write};

use super::controller::{Blocked, GateKeeper, Work, locked};
use super::index::NamedClaim;
use super::plan::{self, Reason, Wait};
use crate::protocol::LET_GO;

impl GateKeeper {
    /// Says that a Pod cannot be bound once kube-scheduler has said so for a while, and deletes it where that
    /// is asked for and a Pod is made in its place.
    pub(super) async fn unbound(&self, work: &Work<'_>, claims: &[NamedClaim]) -> Result<Verdict, Blocked> {
        let Some(wait) = self.not_bound(work, claims) else {
            locked(&self.closed).opened(work.key);
            return Ok(Verdict::Done);
        };
        let since = locked(&self.closed).closed(work.key, wait.reason, work.now);
        let patience = wait.patience;
        let is_said = work.pod.condition.as_ref().is_some_and(|(_, reason)| **reason == *wait.reason.word());
        if work.now >= since + patience && !is_said {
            let about = regarding(POD, &work.key.namespace, &work.key.name, &work.uid);
            self.kit.warn(about, wait.reason.word(), "Bind", wait.message.clone());
        }
        let said = self.waits(work, &wait).await;
        let Some(after) = self.options.delete_unbound_after.filter(|_| work.pod.is_replaced) else {
            return Ok(said);
        };
        let due = since + i64::try_from(after.as_millis()).unwrap_or(i64::MAX).max(patience);
        if work.now < due {
            let left = Duration::from_millis((due - work.now).unsigned_abs());
            return Ok(said.most_urgent(Verdict::After(left)));
        }
        self.delete(work, &wait).await
    }

    /// Why a Pod is not bound, if an allocator has allocated its claims and kube-scheduler has a reason. A Pod
    /// whose claims kube-scheduler allocates waits for no node of ours.
    fn not_bound(&self, work: &Work<'_>, claims: &[NamedClaim]) -> Option<Wait> {
        let was_released = match &work.pod.condition {
            Some((_, reason)) => **reason != *LET_GO,
            None => locked(&self.nominated).knows(work.key),
        };
        if let Some(lost) = plan::lost(&work.uid, claims).filter(|_| was_released) {
            return Some(lost);
        }
        let says = work.pod.unschedulable.as_deref()?;
        if !plan::is_allocated_for(&work.uid, claims) {
            return None;
        }
        let pin = work.pod.affinity.node();
        let assumed = self.holders.assumed().node_of(work.key).cloned();
        let node = assumed.or_else(|| pin.map(Name::from))?;
        let is_there = self.kit.read(|index| index.nodes.get("", &node).is_some());
        Some(plan::not_bound(&node, is_there, pin == Some(&*node), says))
    }

    async fn delete(&self, work: &Work<'_>, wait: &Wait) -> Result<Verdict, Blocked> {
        let guard = Guard { uid: work.uid.to_string(), resource_version: work.pod.version.to_string() };
        let Work { key, uid, .. } = work;
        let delete = Write::new(POD, &*key.namespace, &*key.name, Action::Delete { guard });
        self.kit.send(key, &delete).await?;
        let about = regarding(POD, &key.namespace, &key.name, uid);
        self.kit.warn(about, Reason::NotBound.word(), "Delete", format!("deleted: {}", wait.message));
        tracing::info!(namespace = %key.namespace, pod = %key.name, why = wait.message, "deleted");
        Ok(Verdict::Done)
    }
}
