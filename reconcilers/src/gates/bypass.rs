//! Pods that passed the gate by: they use claims without having been behind it, in namespaces in which other Pods are.
//!
//! The label of a namespace puts no gate on Pods that were there before it, nor on Pods that ask for a device by an extended resource
//! (docs/protocol.md, section 5).

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_machinery::controller::ObjectKey;
use dragoman_objects::Pod;

use dragoman_crds::protocol::{CLAIMS_READY, GATE, RELEASED};

/// Pods without the gate, and the namespaces that use it.
#[derive(Debug, Default)]
pub(super) struct Bypass {
    /// The namespaces in which a Pod has, or had, the gate.
    gated: BTreeSet<Arc<str>>,
    /// Pods with claims that have not ended and never had it, in all namespaces.
    ungated: BTreeSet<ObjectKey>,
}

impl Bypass {
    /// Takes in a Pod. Returns whether it is one to be counted: the index has to remember it until it is gone.
    pub(super) fn put(&mut self, key: &ObjectKey, pod: &Pod) -> bool {
        if was_behind_the_gate(pod) {
            if !self.gated.contains(&key.namespace) {
                self.gated.insert(Arc::clone(&key.namespace));
            }
            self.ungated.remove(key);
            return false;
        }
        let is_done = matches!(&*pod.status.phase, "Succeeded" | "Failed");
        let has_claims =
            !pod.spec.resource_claims.is_empty() || pod.status.extended_resource_claim_status.is_some();
        let counts = has_claims && !is_done;
        if counts {
            self.ungated.insert(key.clone());
        } else {
            self.ungated.remove(key);
        }
        counts
    }

    /// A Pod is gone.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.ungated.remove(key);
    }

    /// The number of Pods that passed the gate by.
    pub(super) fn count(&self) -> usize {
        self.ungated.iter().filter(|pod| self.gated.contains(&pod.namespace)).count()
    }
}

/// Whether a Pod has the gate, or an operator says that it had it.
fn was_behind_the_gate(pod: &Pod) -> bool {
    pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE)
        || pod.metadata.annotation(RELEASED) == Some(&pod.metadata.uid)
        || pod.status.conditions.iter().any(|condition| &*condition.r#type == CLAIMS_READY)
}
