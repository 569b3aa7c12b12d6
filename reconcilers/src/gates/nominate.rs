//! The nomination of a gated Pod for its node: kube-scheduler leaves the room of a nominated Pod free, also while the Pod has
//! gates, and tries the node first once the gate is open. Without it a Pod without the gate takes that room in the moment of
//! the release; kube-scheduler then takes the devices back and allocates others by itself (docs/protocol.md, section 3).

use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::api::decode;
use dragoman_machinery::refusal::Refusal;

use super::controller::{Blocked, GateKeeper, Work};
use super::writes;

impl GateKeeper {
    /// Nominates a gated Pod for `node`, or takes the nomination back.
    ///
    /// # Errors
    /// [`Blocked::Again`] after a write: what follows is decided on the Pod as it is then. A conflict, or no answer.
    pub(super) async fn nominate(&self, work: &Work<'_>, node: Option<&Name>) -> Result<(), Blocked> {
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
