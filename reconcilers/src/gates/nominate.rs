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

/// The time, in milliseconds, for which a nomination that another party has changed is left as it is: two leaders that see
/// different things would otherwise take back each other's as fast as the API server answers.
const LEFT: i64 = 1_000;

/// The nominations of gated Pods, with times in milliseconds since the epoch.
#[derive(Debug, Default)]
pub(super) struct Nominated {
    /// Since when each Pod is nominated for its node.
    since: HashMap<ObjectKey, (Name, i64)>,
    /// What was last written of each Pod, and when.
    written: HashMap<ObjectKey, (Option<Name>, i64)>,
}

impl Nominated {
    /// How long the nomination of a Pod is left to another party, which has changed it since it was written here.
    pub(super) fn is_left(&self, pod: &ObjectKey, seen: Option<&Name>, now: i64) -> Option<Duration> {
        let (value, at) = self.written.get(pod)?;
        let left = *at + LEFT - now;
        // A time that is still to come is that of a clock that was put back since.
        (value.as_ref() != seen && (1..=LEFT).contains(&left))
            .then(|| Duration::from_millis(left.unsigned_abs()))
    }

    /// A nomination was written.
    pub(super) fn wrote(&mut self, pod: &ObjectKey, value: Option<&Name>, now: i64) {
        self.written.insert(pod.clone(), (value.cloned(), now));
    }

    /// Whether a Pod was nominated here, and so had the gate.
    pub(super) fn knows(&self, pod: &ObjectKey) -> bool {
        self.written.contains_key(pod)
    }

    /// How long it still takes at `now` until kube-scheduler and the index have seen what the other has.
    pub(super) fn settles(&mut self, pod: &ObjectKey, node: &Name, now: i64) -> Option<Duration> {
        let (known, since) = self.since.entry(pod.clone()).or_insert_with(|| (node.clone(), now));
        // A time that is still to come is that of a clock that was put back since.
        if known != node || *since > now {
            (*known, *since) = (node.clone(), now);
        }
        let left = *since + SETTLE - now;
        (left > 0).then(|| Duration::from_millis(left.unsigned_abs()))
    }

    /// A Pod is not to be nominated any more.
    pub(super) fn end(&mut self, pod: &ObjectKey) {
        self.since.remove(pod);
    }

    /// A Pod was released, or is gone.
    pub(super) fn forget(&mut self, pod: &ObjectKey) {
        self.since.remove(pod);
        self.written.remove(pod);
    }
}

impl GateKeeper {
    /// Nominates a gated Pod for `node`, or takes the nomination back.
    ///
    /// # Errors
    /// [`Blocked::Again`] after a write: what follows is decided on the Pod as it is then. [`Blocked::Later`] where another
    /// party has just changed it. A conflict, or no answer.
    pub(super) async fn nominate(&self, work: &Work<'_>, node: Option<&Name>) -> Result<(), Blocked> {
        if node.is_none() {
            locked(&self.nominated).end(work.key);
        }
        if work.pod.nominated.as_ref() == node {
            return Ok(());
        }
        if let Some(left) = locked(&self.nominated).is_left(work.key, work.pod.nominated.as_ref(), work.now) {
            return Err(Blocked::Later(left));
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
        locked(&self.nominated).wrote(work.key, node, work.now);
        let pod = decode::<Pod>(&answer.body)?;
        let is_kept = node.is_none_or(|node| pod.status.nominated_node_name == *node);
        if is_kept { Err(Blocked::Again(pod.metadata.resource_version)) } else { Ok(()) }
    }
}
