//! The writes about gated Pods and their claims.

use std::collections::BTreeMap;

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::kind::{POD, RESOURCE_CLAIM};
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects::{Name, NodeSelector, NodeSelectorTerm, Pod};
use serde_json::{Map, Value, json};

use super::attributes;
use super::facts::PodFacts;
use super::index::KnownClaim;
use super::plan::{Opened, Wait};
use crate::give_back;
use dragoman_crds::protocol::{ALLOCATOR, CLAIMS_READY, GATE, REJECTIONS, RELEASED};

/// The field manager of the condition and of the message.
const MANAGER: &str = "dragoman-gates";

fn guard(uid: &str, version: &str) -> Guard {
    Guard { uid: uid.to_owned(), resource_version: version.to_owned() }
}

/// Removes the gate of a Pod that has it, whatever its claims are.
pub fn open(pod: &Pod) -> Option<Write> {
    let gate = pod.spec.scheduling_gates.iter().position(|gate| &*gate.name == GATE)?;
    let guard = Guard::of(&pod.metadata);
    let action = Action::Patch { subresource: None, guard, operations: without_gate(gate).into() };
    let key = &pod.metadata;
    Some(Write::new(POD, &*key.namespace, &*key.name, action))
}

/// Changes nothing, and is refused unless the Pod is as it was decided on: devices may be taken from a Pod
/// only while its gate is closed.
pub(super) fn is_gated(key: &ObjectKey, uid: &str, pod: &PodFacts) -> Write {
    let action = Action::Patch { subresource: None, guard: guard(uid, &pod.version), operations: Vec::new() };
    Write::new(POD, &*key.namespace, &*key.name, action).dry()
}

/// The operations that remove exactly our gate, which is at this position.
fn without_gate(gate: usize) -> [Value; 2] {
    let path = format!("/spec/schedulingGates/{gate}");
    [
        json!({"op": "test", "path": format!("{path}/name"), "value": GATE}),
        json!({"op": "remove", "path": path}),
    ]
}

/// Removes exactly the gate of the protocol. In the same write a Pod that has everything gets the annotation that says so, required
/// affinity for the node `pin`, and the attributes of its devices.
pub(super) fn release(
    key: &ObjectKey,
    uid: &str,
    pod: &PodFacts,
    why: Opened,
    pin: Option<&str>,
    attributes: &BTreeMap<String, String>,
) -> Option<Write> {
    let mut operations = Vec::from(without_gate(pod.gate?));
    operations.extend(pin.into_iter().flat_map(|node| pinned(pod, node)));
    if why == Opened::Released {
        let annotations = "/metadata/annotations";
        if !pod.has_annotations {
            operations.push(json!({"op": "add", "path": annotations, "value": {}}));
        }
        let released = format!("{annotations}/{}", RELEASED.replace('/', "~1"));
        operations.push(json!({"op": "add", "path": released, "value": uid}));
    }
    operations.extend(attributes::operations(attributes));
    let action = Action::Patch { subresource: None, guard: guard(uid, &pod.version), operations };
    let write = Write::new(POD, &*key.namespace, &*key.name, action);
    // The node may fill up, and the watch that would show it may be cut off, before a repetition.
    Some(if why == Opened::Released { write.once() } else { write })
}

/// Nominates a Pod for a node, or takes its nomination back.
pub(super) fn nomination(key: &ObjectKey, uid: &str, pod: &PodFacts, node: Option<&Name>) -> Write {
    let path = "/status/nominatedNodeName";
    let operation = match node {
        Some(node) => json!({"op": "add", "path": path, "value": node}),
        None => json!({"op": "remove", "path": path}),
    };
    let guard = guard(uid, &pod.version);
    let action = Action::Patch { subresource: Some("status"), guard, operations: vec![operation] };
    Write::new(POD, &*key.namespace, &*key.name, action)
}

/// Tells a Pod that waits for its node what its devices are now.
pub(super) fn tell(
    key: &ObjectKey,
    uid: &str,
    pod: &PodFacts,
    attributes: &BTreeMap<String, String>,
) -> Write {
    let operations = attributes::operations(attributes).collect();
    let action = Action::Patch { subresource: None, guard: guard(uid, &pod.version), operations };
    Write::new(POD, &*key.namespace, &*key.name, action)
}

/// Adds the node to every term of the required node affinity: terms are alternatives. A Pod without
/// terms gets one.
fn pinned(pod: &PodFacts, node: &str) -> Vec<Value> {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    let Some(affinity) = &pod.affinity.node_affinity else {
        let whole = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        // What else the affinity says stays; a Pod without any needs the object first.
        let merged = json!({"op": "add", "path": "/spec/affinity/nodeAffinity", "value": whole});
        return if pod.affinity.is_there {
            vec![merged]
        } else {
            vec![json!({"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": whole}})]
        };
    };
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    match &affinity.required_during_scheduling_ignored_during_execution {
        Some(NodeSelector { node_selector_terms: terms }) if !terms.is_empty() => {
            let add = |(number, term): (usize, &NodeSelectorTerm)| {
                let fields = format!("{path}/nodeSelectorTerms/{number}/matchFields");
                // An empty list may be absent: it is replaced as a whole.
                if term.match_fields.is_empty() {
                    json!({"op": "add", "path": fields, "value": [field]})
                } else {
                    json!({"op": "add", "path": format!("{fields}/-"), "value": field})
                }
            };
            terms.iter().enumerate().map(add).collect()
        }
        _ => vec![json!({"op": "add", "path": path, "value": required})],
    }
}

/// The condition of a Pod: what it waits for, or why its gate was opened at `now` (RFC 3339).
///
/// What it waits for is its `status.message` as well, because `kubectl describe pod` prints that field and the message of no
/// condition. The field belongs to this field manager, and goes with the first condition without it. `has_message`: no other
/// party has a message there, and none is refused.
pub(super) fn condition(
    key: &ObjectKey,
    uid: &str,
    pod: &PodFacts,
    wait: Result<&Wait, Opened>,
    now: &str,
    has_message: bool,
) -> Write {
    let condition = match wait {
        // It has waited since it was created.
        Ok(Wait { reason, message, .. }) => json!({"type": CLAIMS_READY, "status": "False",
            "reason": reason.word(), "message": message, "lastTransitionTime": pod.created}),
        Err(opened) => json!({"type": CLAIMS_READY, "status": "True", "reason": opened.word(),
            "message": opened.message(), "lastTransitionTime": now}),
    };
    let mut status = Map::from_iter([("conditions".to_owned(), json!([condition]))]);
    if let Ok(Wait { message, .. }) = wait
        && has_message
    {
        status.insert("message".to_owned(), json!(message));
    }
    let body = json!({
        "apiVersion": POD.api_version(), "kind": POD.kind,
        "metadata": {"namespace": &*key.namespace, "name": &*key.name, "uid": uid},
        "status": status,
    });
    let action = Action::Apply { subresource: Some("status"), manager: MANAGER, force: true, body };
    Write::new(POD, &*key.namespace, &*key.name, action)
}

/// Names the allocator of a claim.
pub(super) fn label(namespace: &str, claim: &KnownClaim, allocator: &str) -> Write {
    let action = Action::Merge {
        guard: guard(&claim.uid, &claim.facts.version),
        labels: [(ALLOCATOR.to_owned(), Some(allocator.to_owned()))].into(),
        annotations: [].into(),
    };
    Write::new(RESOURCE_CLAIM, namespace, &*claim.name, action)
}

/// Records a rejection. `text` is the annotation.
pub(super) fn rejection(namespace: &str, claim: &KnownClaim, text: String) -> Write {
    let action = Action::Merge {
        guard: guard(&claim.uid, &claim.facts.version),
        labels: [].into(),
        annotations: [(REJECTIONS.to_owned(), Some(text))].into(),
    };
    Write::new(RESOURCE_CLAIM, namespace, &*claim.name, action)
}

/// Takes the gated Pod, or its PodGroup, out of the consumers of a claim. `version`: that of the claim now.
pub(super) fn give_back(namespace: &str, claim: &KnownClaim, version: &str) -> Option<Write> {
    let consumers = claim.facts.consumers.iter().map(|consumer| &consumer.uid);
    give_back::give_back(
        namespace,
        &claim.name,
        guard(&claim.uid, version),
        consumers,
        &claim.reserved_for.as_ref()?.uid,
    )
}

/// Deletes a Pod, as it was decided on.
pub(super) fn delete(key: &ObjectKey, uid: &str, pod: &PodFacts) -> Write {
    let action = Action::Delete { guard: guard(uid, &pod.version) };
    Write::new(POD, &*key.namespace, &*key.name, action)
}
