//! The next write about the holder of a node: a pure function.

use dragoman_accounting::ledger::words;
use dragoman_accounting::per_resource::Units;
use dragoman_accounting::resource::Resource;
use dragoman_machinery::kind::POD;
use dragoman_machinery::write::{Action, Write};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::index::{COMPONENT, HolderFacts};

/// How long a holder carries more than claims take, in milliseconds: claims come and go.
pub(super) const LINGER: i64 = 10_000;
/// The first wait before a holder that did not stay is made again, in milliseconds; doubled each time.
const AGAIN: i64 = 1_000;
/// A holder requests at least this, so that it keeps its QoS class: a Pod cannot be resized into another.
const LEAST: [(Resource, i64); 2] = [(Resource::Cpu, 1), (Resource::Memory, 1 << 20)];
/// The annotation by which the cluster autoscaler knows that a Pod keeps no node.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// The class of holders. In a critical class of the system the kubelet would evict other Pods for a holder that
/// does not fit: it is rather made again later, and the ledger says that the node is overcommitted.
const PRIORITY: &str = "dragoman-holder";
/// The longest name of a Pod.
const LONGEST: usize = 253;

/// What is known of a node and its holder.
#[derive(Debug)]
pub(super) struct Snapshot<'a> {
    /// Whether the Node is there.
    pub(super) has_node: bool,
    /// What claims take from it and kube-scheduler does not see; absent while it is not known whether it
    /// sees it.
    pub(super) wants: Option<Units>,
    /// The holder.
    pub(super) holder: Option<&'a HolderFacts>,
    /// Since when it carries too much, in milliseconds since the epoch.
    pub(super) idle: Option<i64>,
    /// When this process made the last one, and how many it made in a row.
    pub(super) made: Option<(i64, u32)>,
}

/// What to do about a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing, until something changes.
    Rest,
    /// Look again after so many milliseconds.
    Wait(i64),
    /// Make a holder that carries this.
    Create(Units),
    /// Let the holder carry this.
    Resize(Units),
    /// Remove the holder.
    Delete,
}

/// Decides about a node at `now`, in milliseconds since the epoch.
pub(super) fn plan(snapshot: &Snapshot<'_>, now: i64) -> Plan {
    let Some(holder) = snapshot.holder else {
        let wants = snapshot.wants.as_ref().filter(|wants| snapshot.has_node && !wants.is_empty());
        let Some(wants) = wants else { return Plan::Rest };
        let due = snapshot.made.map_or(now, |(at, times)| at.min(now) + (AGAIN << times.min(6)));
        return if due > now { Plan::Wait(due - now) } else { Plan::Create(at_least(wants)) };
    };
    if holder.deleting {
        return Plan::Rest;
    }
    if holder.is_over || !snapshot.has_node {
        return Plan::Delete;
    }
    let Some(wants) = &snapshot.wants else { return Plan::Rest };
    let needs = at_least(wants);
    if !holder.carries(&needs) {
        let highest = |resource| holder.carries.get(resource).max(needs.get(resource));
        return Plan::Resize(both(highest));
    }
    if !carries_too_much(holder, wants) {
        return Plan::Rest;
    }
    let due = snapshot.idle.map_or(now, |since| since.min(now)) + LINGER;
    if due > now {
        Plan::Wait(due - now)
    } else if wants.is_empty() {
        Plan::Delete
    } else {
        Plan::Resize(needs)
    }
}

/// Whether a holder requests more than it has to, or need not be there.
pub(super) fn carries_too_much(holder: &HolderFacts, wants: &Units) -> bool {
    let needs = at_least(wants);
    holder.carries(&needs) && (wants.is_empty() || holder.carries != needs)
}

fn both(of: impl Fn(Resource) -> i64) -> Units {
    let mut units = Units::default();
    for (resource, _) in LEAST {
        units.set(resource, of(resource));
    }
    units
}

fn at_least(wants: &Units) -> Units {
    let least = |resource| LEAST.iter().find(|(of, _)| *of == resource).map_or(0, |(_, least)| *least);
    both(|resource| wants.get(resource).max(least(resource)))
}

/// The name of the holder of a node.
pub(super) fn name_of(node: &str) -> String {
    let name = format!("holder-{node}");
    if name.len() <= LONGEST {
        return name;
    }
    // Of one length for every node, and the same in every version of the program.
    let digest = Sha256::digest(node);
    let hash = digest.iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
    format!("{}-{hash:016x}", name.get(..LONGEST - 17).unwrap_or_default())
}

fn requests(units: &Units) -> Value {
    let text = |resource: Resource| words::quantity(resource, units.get(resource).into()).0;
    json!({"cpu": text(Resource::Cpu), "memory": text(Resource::Memory)})
}

/// The object that a holder belongs to, so that nothing of ours is left once it is gone: kind with group and
/// version, name and uid.
pub(super) struct Owner {
    /// `apiVersion` and `kind`.
    pub(super) kind: (String, &'static str),
    /// Its uid.
    pub(super) uid: String,
}

/// Makes the holder of a node. It is bound to the node at once.
pub(super) fn create(namespace: &str, node: &str, owner: &Owner, image: &str, units: &Units) -> Write {
    let (label, value) = COMPONENT;
    let (api_version, kind) = &owner.kind;
    let body = json!({
        "apiVersion": POD.api_version(), "kind": POD.kind,
        "metadata": {
            "namespace": namespace, "name": name_of(node),
            "labels": {"app.kubernetes.io/name": "dragoman", label: value, "app.kubernetes.io/managed-by": "dragoman"},
            "annotations": {SAFE_TO_EVICT: "true"},
            "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": node, "uid": owner.uid,
                "controller": true}],
        },
        "spec": {
            "nodeName": node,
            "priorityClassName": PRIORITY,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65_535,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "hold", "image": image,
                "resources": {"requests": requests(units)},
                "resizePolicy": [
                    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
                    {"resourceName": "memory", "restartPolicy": "NotRequired"},
                ],
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    Write::new(POD, namespace, name_of(node), Action::Create { body: body.to_string() })
}

/// Lets a holder carry another amount.
pub(super) fn resize(namespace: &str, node: &str, holder: &HolderFacts, units: &Units) -> Write {
    let path = "/spec/containers/0/resources/requests";
    let operations = vec![json!({"op": "replace", "path": path, "value": requests(units)})];
    let action = Action::Patch { subresource: Some("resize"), guard: holder.guard.clone(), operations };
    Write::new(POD, namespace, name_of(node), action)
}

/// Removes a holder.
pub(super) fn delete(namespace: &str, node: &str, holder: &HolderFacts) -> Write {
    Write::new(POD, namespace, name_of(node), Action::Delete { guard: holder.guard.clone() })
}
