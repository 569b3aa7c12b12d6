//! Projections of Pods and claims.

use std::sync::Arc;

use dragoman_accounting::cluster;
use dragoman_objects::{
    Affinity, Condition, ConsumerReference, Name, NodeSelector, Pod, ResourceClaim, Tolerated,
};

use super::attributes::{self, QUESTION, WANTED, fingerprint};
use super::given::Given;
use dragoman_cluster::placement::SchedulingConstraints;
use dragoman_crds::protocol::{
    ALLOCATION_GATES, ALLOCATOR, CLAIMS_READY, ClosedGate, GATE, LaterGates, RELEASE_GATES, RELEASED,
    Rejection, Verdict, closed_gates, earlier_gate, rejections, says_released, shown, verdict,
};

/// A Pod with claims that has not ended and has no node; and one with a node whose condition is not up to date.
#[derive(Debug, Clone, PartialEq)]
pub struct PodFacts {
    /// `metadata.resourceVersion`.
    pub(super) version: Name,
    /// `metadata.creationTimestamp`.
    pub(super) created: Name,
    /// The PodGroup that it is in.
    pub(super) group: Option<Name>,
    /// The position of the gate of the protocol in `spec.schedulingGates`, if it is there.
    pub(super) gate: Option<usize>,
    /// A scheduling gate of another controller that comes before ours and is closed.
    pub(super) earlier_gate: Option<Name>,
    /// The order in which the index has seen the Pods: a watch has them as they were created, a list by name. A creation time has no
    /// fractions.
    pub(super) seen: u64,
    /// Whether the Pod is being deleted.
    pub(super) deleting: bool,
    /// Whether the Pod has a node.
    pub(super) is_bound: bool,
    /// The node for which the Pod is nominated.
    pub(super) nominated: Option<Name>,
    /// Why kube-scheduler cannot bind the Pod now, in its words.
    pub(super) unschedulable: Option<Name>,
    /// Whether the Pod, once deleted, is made again and may come to another node. The Pods of a `DaemonSet`
    /// may not.
    pub(super) is_replaced: bool,
    /// Whether an operator has opened the gate because the Pod had everything.
    pub(super) was_released: bool,
    /// Whether the Pod has annotations.
    pub(super) has_annotations: bool,
    /// Status and reason of the condition `ClaimsReady`.
    pub(super) condition: Option<(Name, Name)>,
    /// Whether `status.message` is empty, and the condition has a message: an earlier version wrote it.
    pub(super) lacks_message: bool,
    /// Whether `status.message` is free for what the condition says: it is empty, or says just that.
    pub(super) is_message_free: bool,
    /// The required node affinity.
    pub(super) affinity: Affinity,
    /// Requirements of the Pod on its node, while it has the gate.
    pub(super) placement: Option<Arc<SchedulingConstraints>>,
    /// Question of the Pod about its devices, if it asks.
    pub(super) asked: Option<Arc<Asked>>,
    /// The Pod as accounting reads it, its claims included.
    pub(super) accounted: Arc<cluster::Pod>,
}

impl PodFacts {
    /// The position of the Pod in the order of waiting Pods: its creation time, and of Pods of one second that which was seen first.
    pub(super) fn age(&self) -> (&str, u64) {
        (&self.created, self.seen)
    }

    /// Returns what is kept of a Pod; nothing of a Pod without claims, of one that has ended, and of one that is bound and whose
    /// condition does not say that it waits.
    pub(super) fn of(pod: &Pod, later: &LaterGates) -> Option<Self> {
        let (spec, status) = (&pod.spec, &pod.status);
        let is_done = matches!(&*status.phase, "Succeeded" | "Failed");
        let condition = status.conditions.iter().find(|condition| &*condition.r#type == CLAIMS_READY);
        let is_bound = !spec.node_name.is_empty();
        let is_told = condition.is_none_or(|condition| &*condition.status == "True");
        if spec.resource_claims.is_empty() || is_done || (is_bound && is_told) {
            return None;
        }
        let is_unschedulable = |of: &&Condition| {
            &*of.r#type == "PodScheduled" && matches!(&*of.reason, "Unschedulable" | "SchedulerError")
        };
        let unschedulable = status.conditions.iter().find(is_unschedulable);
        let controller = pod.metadata.controller.as_ref();
        let gate = spec.scheduling_gates.iter().position(|gate| &*gate.name == GATE);
        let placement = gate.map(|_| SchedulingConstraints::from(pod));
        // No node takes a gated Pod whose requirements are too long, and so no write adds its node to the terms.
        let is_too_long = placement.as_ref().is_some_and(SchedulingConstraints::is_too_long);
        let affinity = if is_too_long { Affinity::default() } else { spec.affinity.to_nodes() };
        Some(Self {
            version: pod.metadata.resource_version.clone(),
            created: pod.metadata.creation_timestamp.clone().unwrap_or_default(),
            group: spec.scheduling_group.pod_group_name.clone(),
            gate,
            earlier_gate: earlier_gate(&spec.scheduling_gates, later).map(|gate| shown(gate)),
            seen: 0,
            deleting: pod.metadata.deleting,
            is_bound,
            nominated: (!status.nominated_node_name.is_empty()).then(|| status.nominated_node_name.clone()),
            unschedulable: unschedulable.map(|condition| shown(&condition.message)),
            is_replaced: controller.is_some_and(|owner| &*owner.kind != "DaemonSet"),
            was_released: pod.metadata.annotation(RELEASED) == Some(&pod.metadata.uid)
                || says_released(&status.conditions),
            has_annotations: pod.metadata.has_annotations(),
            condition: condition.map(|condition| (condition.status.clone(), condition.reason.clone())),
            lacks_message: status.message.is_empty()
                && condition.is_some_and(|condition| !condition.message.is_empty()),
            is_message_free: status.message.is_empty()
                || condition.is_some_and(|condition| condition.message == status.message),
            affinity,
            placement: placement.map(Arc::new),
            asked: Asked::of(pod).map(Arc::new),
            accounted: Arc::new(cluster::Pod::from(pod).condensed()),
        })
    }
}

/// Question of a Pod about its devices, and the answers that it has been given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// The annotation by which it asks; `None` where it is longer than a question may be.
    pub(super) question: Option<Name>,
    /// Entries of the Pod, each with the name of its claim, if it has one.
    pub(super) claims: Vec<(Name, Option<Name>)>,
    /// The annotations that answer, each with the fingerprint of its value: values are large, and only compared.
    pub(super) given: Vec<(Name, u64)>,
}

impl Asked {
    fn of(pod: &Pod) -> Option<Self> {
        let question = pod.metadata.annotation(WANTED)?;
        let question = (question.len() <= QUESTION).then(|| question.clone());
        let names: Vec<String> =
            question.iter().flat_map(|question| attributes::annotations(question)).collect();
        let made = |entry: &Name| {
            let status = pod.status.resource_claim_statuses.iter().find(|status| status.name == *entry)?;
            status.resource_claim_name.clone()
        };
        let entries = pod.spec.resource_claims.iter();
        let claims =
            entries.map(|of| (of.name.clone(), of.resource_claim_name.clone().or_else(|| made(&of.name))));
        let given = pod.metadata.annotations().filter(|(key, _)| names.iter().any(|name| **name == ***key));
        let given = given.map(|(key, value)| (key.clone(), fingerprint(value))).collect();
        Some(Self { question, claims: claims.collect(), given })
    }
}

/// A Pod without the gate and without a node whose status does not name all its claims. The ledger counts those of a Pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nameless {
    pub(super) uid: Name,
    /// The claims that it names all the same, by their entries or in its status: these are accounted for.
    named: Box<[Name]>,
}

impl Nameless {
    /// Nothing for a Pod whose claims are all named, that has a node, or that has ended.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let (spec, status) = (&pod.spec, &pod.status);
        let is_named = |entry: &str| status.resource_claim_statuses.iter().any(|made| *made.name == *entry);
        let is_nameless = !matches!(&*status.phase, "Succeeded" | "Failed")
            && spec.node_name.is_empty()
            && spec.scheduling_gates.iter().all(|gate| &*gate.name != GATE)
            && spec.resource_claims.iter().any(|of| of.resource_claim_name.is_none() && !is_named(&of.name));
        let by_entry = spec.resource_claims.iter().filter_map(|of| of.resource_claim_name.clone());
        let by_status = status.resource_claim_statuses.iter().filter_map(|of| of.resource_claim_name.clone());
        is_nameless
            .then(|| Self { uid: pod.metadata.uid.clone(), named: by_entry.chain(by_status).collect() })
    }

    /// Whether it names a claim.
    pub(super) fn names(&self, claim: &str) -> bool {
        self.named.iter().any(|name| **name == *claim)
    }
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFacts {
    /// `metadata.resourceVersion`.
    pub(super) version: Name,
    /// The allocator that the label names. Without one the claim is kube-scheduler's.
    pub(super) allocator: Option<Name>,
    /// Gates before allocation that are closed.
    pub(super) allocation_gates: Vec<ClosedGate>,
    /// Gates before release that are closed.
    pub(super) release_gates: Vec<ClosedGate>,
    /// `status.allocation`, if there is one.
    pub(super) allocation: Option<Allocated>,
    /// Requests and devices of the claim, where it has an allocator.
    pub(super) given: Option<Arc<Given>>,
    /// `status.reservedFor`.
    pub(super) consumers: Vec<ConsumerReference>,
    /// Whether the claim is being deleted.
    pub(super) deleting: bool,
    /// Allocations that were refused.
    pub(super) rejections: Vec<Rejection>,
    /// Verdict of the allocator of the claim.
    pub(super) verdict: Option<Verdict>,
}

/// The nodes that can use the devices of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Allocated {
    /// Every node.
    Anywhere,
    /// No device was asked for, and every node will do.
    Nothing,
    /// The nodes that this selects.
    Nodes(Arc<NodeSelector>),
    /// The allocation does not decode; the text says why.
    Unreadable(Name),
}

impl ClaimFacts {
    /// Returns what is kept of a claim.
    pub(super) fn of(claim: &ResourceClaim) -> Self {
        let meta = &claim.metadata;
        let allocator = meta.labels.get(ALLOCATOR).filter(|name| !name.is_empty()).cloned();
        Self {
            version: meta.resource_version.clone(),
            given: allocator.as_ref().and_then(|_| Given::of(claim)).map(Arc::new),
            allocator,
            allocation_gates: closed_gates(meta, ALLOCATION_GATES),
            release_gates: closed_gates(meta, RELEASE_GATES),
            allocation: allocated(claim),
            consumers: claim.status.reserved_for.clone(),
            deleting: meta.deleting,
            rejections: rejections(meta),
            verdict: verdict(meta),
        }
    }

    /// The only node that can use the devices of the claim, if its allocation names one.
    pub(super) fn node(&self) -> Option<&Name> {
        match &self.allocation {
            Some(Allocated::Nodes(selector)) => selector.node(),
            _ => None,
        }
    }

    /// The consumer as which a Pod of this uid, in this PodGroup, uses the claim, if it is reserved.
    pub(super) fn reserved_for(&self, uid: &str, group: Option<&Name>) -> Option<&ConsumerReference> {
        self.consumers.iter().find(|of| of.stands_for(uid, group.map(AsRef::as_ref)))
    }
}

fn allocated(claim: &ResourceClaim) -> Option<Allocated> {
    Some(match claim.status.allocation.as_ref()? {
        Tolerated::Unreadable(why) => Allocated::Unreadable(shown(why)),
        Tolerated::Read(allocation) => match &allocation.node_selector {
            None if allocation.devices.results.is_empty() => Allocated::Nothing,
            None => Allocated::Anywhere,
            Some(selector) => Allocated::Nodes(Arc::clone(selector)),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_is_counted_by_what_it_names_and_a_claim_that_it_does_not_name_is_not_counted() {
        let pod = |entries: Value, made: Value| {
            let pod = json!({"metadata": {"name": "p", "uid": "u"},
                "spec": {"resourceClaims": entries}, "status": {"resourceClaimStatuses": made}});
            Nameless::of(&serde_json::from_value::<Pod>(pod).expect("a Pod"))
        };
        let (by_name, made) = (
            json!({"name": "a", "resourceClaimName": "x"}),
            json!({"name": "b", "resourceClaimTemplateName": "t"}),
        );
        assert_eq!(pod(json!([by_name]), json!([])), None, "it names all");
        let lacking = pod(json!([by_name, made]), json!([])).expect("one has no name");
        assert!(lacking.names("x") && !lacking.names("b-1"));
        assert_eq!(pod(json!([by_name, made]), json!([{"name": "b", "resourceClaimName": "b-1"}])), None);
        let other = json!([made, {"name": "c", "resourceClaimTemplateName": "t"}]);
        let half = pod(other, json!([{"name": "b", "resourceClaimName": "b-1"}])).expect("one has no name");
        assert!(half.names("b-1") && !half.names("x"));
    }
}
