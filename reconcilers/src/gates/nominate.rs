//! The nomination of a gated Pod for its node: kube-scheduler leaves the room of a nominated Pod free, also while the Pod has
//! gates, and tries the node first once the gate is open. Without it a Pod without the gate takes that room in the moment of
//! the release; kube-scheduler then takes the devices back and allocates others by itself (docs/protocol.md, section 3).

use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::api::decode;

use super::controller::{Blocked, GateKeeper, Work};
use super::writes;

impl GateKeeper {
    /// Nominates a gated Pod for `node`, or takes the nomination back.
    ///
    /// # Errors
    /// [`Blocked::Again`] after a write: what follows is decided on the Pod as it is then. A refusal of the write.
    pub(super) async fn nominate(&self, work: &Work<'_>, node: Option<&Name>) -> Result<(), Blocked> {
        if work.pod.nominated.as_ref() == node {
            return Ok(());
        }
        let write = writes::nomination(work.key, &work.uid, &work.pod, node);
        let answer = self.kit.send(work.key, &write).await?;
        let pod = decode::<Pod>(&answer.body)?;
        // Another party may drop it from every write: the Pod is released all the same.
        let is_kept = node.is_none_or(|node| pod.status.nominated_node_name == *node);
        if is_kept { Err(Blocked::Again(pod.metadata.resource_version)) } else { Ok(()) }
    }
}
