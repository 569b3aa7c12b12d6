//! The writes about claims: an allocation exactly as kube-scheduler would have written it.

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects::Allocation as Devices;
use dragoman_objects::{ConsumerReference, DELETE_PROTECTION};
use serde_json::{Value, json};

use super::index::NamedClaim;
use crate::give_back;
use dragoman_crds::protocol::{VERDICT, Verdict};

fn patch(
    namespace: &str,
    name: &str,
    uid: &str,
    version: &str,
    subresource: Option<&'static str>,
    operations: Vec<Value>,
) -> Write {
    let guard = Guard { uid: uid.to_owned(), resource_version: version.to_owned() };
    Write::new(RESOURCE_CLAIM, namespace, name, Action::Patch { subresource, guard, operations })
}

/// The finalizer, for a claim that was not born with it.
pub(super) fn protect(namespace: &str, claim: &NamedClaim) -> Option<Write> {
    let NamedClaim { name, uid, facts, .. } = claim;
    if facts.is_protected {
        return None;
    }
    let operation = if facts.is_finalized {
        json!({"op": "add", "path": "/metadata/finalizers/-", "value": DELETE_PROTECTION})
    } else {
        json!({"op": "add", "path": "/metadata/finalizers", "value": [DELETE_PROTECTION]})
    };
    Some(patch(namespace, name, uid, &facts.version, None, vec![operation]))
}

/// The allocation, if the claim gets one, and the reservation for the Pod with this uid or for its PodGroup, in one write. `version`: that of
/// the claim now; `along`: other Pods that are reserved, too; `time`: that of the allocation.
pub(super) fn allocate(
    key: &ObjectKey,
    pod: &str,
    claim @ NamedClaim { name, uid, facts, .. }: &NamedClaim,
    version: &str,
    devices: Option<&Devices>,
    time: &str,
    along: &[ConsumerReference],
) -> Write {
    let consumer = claim.consumer(&key.name, pod);
    let mut operations = Vec::new();
    // A claim that has no status needs the object first.
    if devices.is_some() && facts.consumers.is_empty() && !facts.is_allocated {
        operations.push(json!({"op": "add", "path": "/status", "value": {}}));
    }
    if let Some(Devices { devices, node_selector }) = devices {
        // kube-scheduler adds the time where it is missing (from 1.36 on), together with a consumer. An allocation never changes, so
        // that kube-scheduler could add no Pod to this claim, and not put one back that it has taken out.
        let mut allocation = json!({"devices": devices, "allocationTimestamp": time});
        if let (Some(selector), Some(fields)) = (node_selector, allocation.as_object_mut()) {
            fields.insert("nodeSelector".to_owned(), json!(selector));
        }
        operations.push(json!({"op": "add", "path": "/status/allocation", "value": allocation}));
    }
    operations.push(if facts.consumers.is_empty() {
        json!({"op": "add", "path": "/status/reservedFor", "value": [consumer]})
    } else {
        json!({"op": "add", "path": "/status/reservedFor/-", "value": consumer})
    });
    operations
        .extend(along.iter().map(|of| json!({"op": "add", "path": "/status/reservedFor/-", "value": of})));
    patch(&key.namespace, name, uid, version, Some("status"), operations)
}

/// Takes the reservation of a gated Pod, or of a PodGroup of gated Pods, back.
pub(super) fn give_back(namespace: &str, claim: &NamedClaim, pod: &str) -> Option<Write> {
    let NamedClaim { name, uid, facts, .. } = claim;
    let guard = Guard { uid: uid.to_string(), resource_version: facts.version.to_string() };
    give_back::give_back(namespace, name, guard, facts.consumers.iter(), claim.consumer_uid(pod))
}

/// Says why a claim is not allocated.
pub(super) fn verdict(namespace: &str, claim: &NamedClaim, verdict: &Verdict) -> Option<Write> {
    let NamedClaim { name, uid, facts, .. } = claim;
    let text = serde_json::to_string(verdict).ok()?;
    let action = Action::Merge {
        guard: Guard { uid: uid.to_string(), resource_version: facts.version.to_string() },
        labels: [].into(),
        annotations: [(VERDICT.to_owned(), Some(text))].into(),
    };
    Some(Write::new(RESOURCE_CLAIM, namespace, &**name, action))
}
