//! The nomination of a gated Pod for its node: kube-scheduler leaves the room of a nominated Pod free, also while the Pod has
//! gates, and tries the node first once the gate is open. Without it a Pod without the gate takes that room in the moment of
//! the release; kube-scheduler then takes the devices back and allocates others by itself (docs/protocol.md, section 3).

use std::collections::HashMap;
use std::time::Duration;

use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::api::decode;
use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::refusal::Refusal;

use super::controller::{Blocked, GateKeeper, Work, locked};
use super::writes;

/// The time from a nomination to the release, in milliseconds. kube-scheduler learns of a nomination some milliseconds after it
/// was written, and may place another Pod meanwhile; the binding of that Pod comes here some milliseconds later. A Pod
/// that is released without this wait stays where it has no room. The longest such time that was measured, on a
/// machine with two loaded cores, is 210.
const SETTLE: i64 = 250;

/// Since when gated Pods are nominated for their node, in milliseconds since the epoch.
#[derive(Debug, Default)]
pub(super) struct Nominated(HashMap<ObjectKey, (Name, i64)>);

impl Nominated {
    /// How long it still takes at `now` until kube-scheduler and the index have seen what the other has.
    pub(super) fn settles(&mut self, pod: &ObjectKey, node: &Name, now: i64) -> Option<Duration> {
        let (known, since) = self.0.entry(pod.clone()).or_insert_with(|| (node.clone(), now));
        // A time that is still to come is that of a clock that was put back since.
        if known != node || *since > now {
            (*known, *since) = (node.clone(), now);
        }
        let left = *since + SETTLE - now;
        (left > 0).then(|| Duration::from_millis(left.unsigned_abs()))
    }

    /// A Pod is not nominated any more, or was released.
    pub(super) fn forget(&mut self, pod: &ObjectKey) {
        self.0.remove(pod);
    }
}

impl GateKeeper {
    /// Nominates a gated Pod for `node`, or takes the nomination back.
    ///
    /// # Errors
    /// [`Blocked::Again`] after a write: what follows is decided on the Pod as it is then. A conflict, or no answer.
    pub(super) async fn nominate(&self, work: &Work<'_>, node: Option<&Name>) -> Result<(), Blocked> {
        if node.is_none() {
            locked(&self.nominated).forget(work.key);
        }
        if work.pod.nominated.as_ref() == node {
            return Ok(());
        }
        let write = writes::nomination(work.key, &work.uid, &work.pod, node);
        // Another party may refuse it, or drop it from every write: the Pod is released all the same.
        let answer = match self.kit.send(work.key, &write).await {
            Ok(answer) => answer,
            Err(refusal @ (Refusal::Invalid(_) | Refusal::Rbac(_))) => {
                tracing::warn!(namespace = %work.key.namespace, pod = %work.key.name, error = %refusal, "no nomination");
                return Ok(());
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let pod = decode::<Pod>(&answer.body)?;
        let is_kept = node.is_none_or(|node| pod.status.nominated_node_name == *node);
        if is_kept { Err(Blocked::Again(pod.metadata.resource_version)) } else { Ok(()) }
    }
}
