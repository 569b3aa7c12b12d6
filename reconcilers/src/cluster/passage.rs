//! Pods that passed the gate by: they use claims on their node without having been behind it, in namespaces in which other Pods are.
//!
//! The label of a namespace puts no gate on Pods that were there before it, nor on Pods that ask for a device by an extended resource
//! (docs/protocol.md, section 5).

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_crds::protocol::{CLAIMS_READY, GATE, RELEASED};
use dragoman_machinery::watch::Record;
use dragoman_objects::Pod;

use super::Cluster;

/// The way of a Pod to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// No claims are used.
    Free,
    /// The Pod was behind the gate.
    Gate,
    /// The Pod uses claims and never had the gate.
    Bypass,
}

impl Passage {
    /// Judges a Pod. One that was behind the gate has the annotation of its release, or the condition.
    pub(super) fn of(pod: &Pod) -> Self {
        let was_released = pod.metadata.annotation(RELEASED) == Some(&pod.metadata.uid);
        let was_told = pod.status.conditions.iter().any(|condition| &*condition.r#type == CLAIMS_READY);
        let has_gate = pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE);
        let has_claims =
            !pod.spec.resource_claims.is_empty() || pod.status.extended_resource_claim_status.is_some();
        match has_claims {
            _ if has_gate || was_released || was_told => Self::Gate,
            true => Self::Bypass,
            false => Self::Free,
        }
    }
}

impl Cluster {
    /// The number of Pods on nodes that passed the gate by; `waiting` are the namespaces of Pods behind the gate.
    pub(crate) fn bypassed(&self, waiting: BTreeSet<Arc<str>>) -> usize {
        let passage = |record: &Record<Passage>| record.readable().copied();
        let of = |wanted| self.pods.iter().filter(move |(.., record)| passage(record) == Some(wanted));
        let mut gated = waiting;
        for (namespace, ..) in of(Passage::Gate) {
            if !gated.contains(namespace) {
                gated.insert(Arc::clone(namespace));
            }
        }
        of(Passage::Bypass).filter(|(namespace, ..)| gated.contains(*namespace)).count()
    }
}

#[cfg(test)]
mod tests {
    use dragoman_machinery::controller::Fed;
    use dragoman_machinery::watch::decode_item;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, change: &Value) -> Value {
        let mut pod = json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"nodeName": "n", "containers": [{"name": "main"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            let (of, field) = pointer.split_once('.').unwrap_or(("status", pointer));
            pod[of][field] = value.clone();
        }
        pod
    }

    fn seen(cluster: &mut Cluster, pod: &Value) -> usize {
        let decoded = decode_item(pod.to_string().as_bytes()).expect("metadata");
        Fed::<Pod>::applied(cluster, &decoded);
        cluster.bypassed(BTreeSet::new())
    }

    #[test]
    fn a_pod_that_passed_the_gate_by_is_counted_until_it_is_gone() {
        let mut cluster = Cluster::default();
        let old = pod("old", &json!({}));
        assert_eq!(seen(&mut cluster, &old), 0, "the namespace takes no part");
        assert_eq!(cluster.bypassed(["ns".into()].into()), 1, "another Pod waits behind the gate");
        let released = json!({"metadata.annotations": {"dragoman.dev/released": "gated"}});
        assert_eq!(seen(&mut cluster, &pod("gated", &released)), 1, "it was there before the label");
        let plain = pod("plain", &json!({"spec.resourceClaims": []}));
        assert_eq!(seen(&mut cluster, &plain), 1, "a Pod without claims needs no gate");
        let extended = json!({"spec.resourceClaims": [],
            "status.extendedResourceClaimStatus": {"resourceClaimName": "made"}});
        assert_eq!(seen(&mut cluster, &pod("extended", &extended)), 2);
        let let_go = json!({"status.conditions": [{"type": "dragoman.dev/ClaimsReady", "status": "True"}]});
        assert_eq!(seen(&mut cluster, &pod("let-go", &let_go)), 2, "it was behind the gate");
        let ended = pod("extended", &json!({"status.phase": "Succeeded"}));
        assert_eq!(seen(&mut cluster, &ended), 1, "it has ended");
        let gone = decode_item::<Pod>(old.to_string().as_bytes()).expect("metadata");
        Fed::<Pod>::deleted(&mut cluster, gone.meta());
        assert_eq!(cluster.bypassed(BTreeSet::new()), 0);
    }
}
