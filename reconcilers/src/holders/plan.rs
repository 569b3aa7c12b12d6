//! The next write about the holders of a node: a pure function.

use std::collections::BTreeSet;
use std::time::Duration;

use dragoman_accounting::ledger::words;
use dragoman_accounting::per_resource::{Sums, Units};
use dragoman_accounting::resource::Resource;
use dragoman_machinery::backoff::Backoff;
use dragoman_machinery::kind::POD;
use dragoman_machinery::write::{Action, Write};
use dragoman_objects::Name;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::index::{COMPONENT, HolderFacts, NOMINATED};

/// Time for which holders hold more than claims take: claims come and go.
pub(super) const LINGER: Duration = Duration::from_secs(10);
/// Waits before a holder that did not stay is made again. The first one is also the wait before a holder is deleted once more that
/// is still there.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(64));
/// A holder requests at least this, so that it keeps its QoS class: a Pod cannot be resized into another.
const LEAST: [(Resource, i64); 2] = [(Resource::Cpu, 1), (Resource::Memory, 1)];
/// The gate of a holder. Nothing removes it: a holder never runs.
const GATE: &str = "dragoman.dev/holder";
/// kube-scheduler counts a nominated Pod for Pods of the same priority and below. Above those of tenants, and below the
/// critical classes of the system: the agents of a node are never kept from it.
const PRIORITY: &str = "dragoman-holder";
/// A holder has an image because every Pod has one. It is not pulled, and no registry can have it.
const IMAGE: &str = "holder.invalid/never-runs";
/// The field manager of nominations.
const MANAGER: &str = "dragoman-holders";
/// The longest name of a Pod.
const LONGEST: usize = 253;

/// Snapshot of a node and its holders.
#[derive(Debug)]
pub(super) struct Snapshot<'a> {
    /// Whether the Node is there.
    pub(super) has_node: bool,
    /// Amounts that claims take from the node and kube-scheduler does not see; absent while it is not known
    /// whether kube-scheduler sees them.
    pub(super) required: Option<Units>,
    /// Whether claims may take more than that: a fact about the node, its Pods or their devices is not known.
    pub(super) is_uncertain: bool,
    /// The holders, in the order of [`names_of`].
    pub(super) holders: Vec<&'a HolderFacts>,
    /// Since when they hold too much.
    pub(super) idle: Option<Instant>,
    /// Since when one that never ran is seen as it is being deleted.
    pub(super) leaving: Option<Instant>,
    /// Whether a Pod waits for the room that they hold too much.
    pub(super) is_awaited: bool,
    /// Whether a gated Pod waits for them.
    pub(super) has_waiting: bool,
    /// The uids of those that this process has written since it leads.
    pub(super) ours: &'a BTreeSet<String>,
    /// The process that leads as kube-scheduler; empty where that is not known.
    pub(super) scheduler: Name,
    /// When this process made the last one, and how many it made in a row.
    pub(super) made: Option<(Instant, u32)>,
}

/// Next step about a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing, until something changes.
    Rest,
    /// Look again after this time.
    Wait(Duration),
    /// Make a holder of this name that requests this.
    Create(String, Units),
    /// Nominate this holder for the node: kube-scheduler counts it from then on.
    Nominate(String),
    /// Let this holder request this.
    Raise(String, Units),
    /// Remove this holder.
    Delete(String),
}

/// Decides about a node at `now`.
///
/// A holder is raised in place and never lowered: kube-scheduler wakes no Pod for a smaller request. A smaller holder is made
/// and counted first, then the larger one is deleted, and kube-scheduler looks at Pods that wait for room.
///
/// The API server deletes a Pod in two writes. The end of the process that asked for it may keep the second one from being made;
/// kube-scheduler counts such a Pod like any other. It is deleted once more.
pub(super) fn plan(node: &str, snapshot: &Snapshot<'_>, now: Instant) -> Plan {
    let leaving = snapshot.holders.iter().find(|of| of.is_leaving());
    let Some((of, since)) = leaving.zip(snapshot.leaving) else { return of_the_others(node, snapshot, now) };
    let left = (since + AGAIN.pause(0)).saturating_duration_since(now);
    if left.is_zero() {
        return Plan::Delete(of.name.to_string());
    }
    match of_the_others(node, snapshot, now) {
        Plan::Rest => Plan::Wait(left),
        Plan::Wait(wait) => Plan::Wait(wait.min(left)),
        plan => plan,
    }
}

/// Decides about the holders that stay.
fn of_the_others(node: &str, snapshot: &Snapshot<'_>, now: Instant) -> Plan {
    let live: Vec<&HolderFacts> = snapshot.holders.iter().copied().filter(|of| !of.deleting).collect();
    let named = |of: &HolderFacts| of.name.to_string();
    if let Some(of) = live.iter().find(|of| of.is_over || !snapshot.has_node) {
        return Plan::Delete(named(of));
    }
    // A kube-scheduler that has just begun to lead may not count it: 1.36 forgets the nominations of Pods with gates, until
    // these are next written.
    let is_unseen = |of: &&&HolderFacts| !of.is_bound && of.seen_by != snapshot.scheduler;
    if let Some(of) = live.iter().find(|of| !of.is_counted() || is_unseen(of)) {
        return Plan::Nominate(named(of));
    }
    let Some(required) = snapshot.required.as_ref().filter(|_| snapshot.has_node) else { return Plan::Rest };
    if required.is_empty() && snapshot.is_uncertain {
        return Plan::Rest;
    }
    if required.is_empty() {
        return live
            .first()
            .map_or(Plan::Rest, |of| due(snapshot, now).unwrap_or_else(|| Plan::Delete(named(of))));
    }
    let needs = at_least(required);
    let create = |due: Instant| {
        let taken = |name: &String| snapshot.holders.iter().any(|of| *of.name == **name);
        // A name is free again once the deletion of its Pod has arrived.
        let free = names_of(node).into_iter().take(2).find(|name| !taken(name));
        if due > now {
            Plan::Wait(due - now)
        } else {
            free.map_or(Plan::Rest, |name| Plan::Create(name, needs.clone()))
        }
    };
    let size =
        |of: &&&HolderFacts| (of.is_bound, of.requests.get(Resource::Cpu), of.requests.get(Resource::Memory));
    let Some(kept) = live.iter().filter(|of| of.holds(&needs)).min_by_key(size) else {
        let Some(largest) = live.iter().filter(|of| !of.is_bound).max_by_key(size) else {
            let made = snapshot.made.filter(|_| live.is_empty());
            return create(made.map_or(now, |(at, times)| at + AGAIN.pause(times)));
        };
        let highest = |resource| largest.requests.get(resource).max(needs.get(resource));
        return Plan::Raise(named(largest), both(highest));
    };
    if kept.is_bound {
        return create(now);
    }
    let other = live.iter().find(|of| of.name != kept.name);
    // A leader before this one may be about to delete it, guarded by the version that this write changes.
    if (snapshot.has_waiting || other.is_some()) && !snapshot.ours.contains(&kept.guard.uid) {
        return Plan::Nominate(named(kept));
    }
    match other {
        Some(other) if !snapshot.is_uncertain => Plan::Delete(named(other)),
        _ if kept.requests == needs || snapshot.is_uncertain => Plan::Rest,
        _ => due(snapshot, now).unwrap_or_else(|| create(now)),
    }
}

/// The wait until holders may hold less.
fn due(snapshot: &Snapshot<'_>, now: Instant) -> Option<Plan> {
    let due = snapshot.idle.unwrap_or(now) + LINGER;
    (due > now && !snapshot.is_awaited).then_some(Plan::Wait(due - now))
}

/// By how much more than they have to the holders of a node hold room there, together.
pub(super) fn surplus(counted: &Sums, required: &Units) -> Units {
    let needs = if required.is_empty() { Units::default() } else { at_least(required) };
    both(|resource| i64::try_from(counted.get(resource)).unwrap_or(i64::MAX) - needs.get(resource))
}

fn both(of: impl Fn(Resource) -> i64) -> Units {
    let mut units = Units::default();
    for (resource, _) in LEAST {
        units.set(resource, of(resource));
    }
    units
}

fn at_least(required: &Units) -> Units {
    let least = |resource| LEAST.iter().find(|(of, _)| *of == resource).map_or(0, |(_, least)| *least);
    both(|resource| required.get(resource).max(least(resource)))
}

/// The names that a holder of a node can have: two, so that one can be made before the other is deleted, and that of
/// earlier versions.
pub(super) fn names_of(node: &str) -> [String; 3] {
    [named(node, "-a"), named(node, "-b"), named(node, "")]
}

fn named(node: &str, ending: &str) -> String {
    let name = format!("holder-{node}{ending}");
    if name.len() <= LONGEST {
        return name;
    }
    // Of one length for every node, and the same in every version of the program.
    let digest = Sha256::digest(node);
    let hash = digest.iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
    format!("{}-{hash:016x}{ending}", name.get(..LONGEST - 17 - ending.len()).unwrap_or_default())
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
    /// Uid of the owner.
    pub(super) uid: String,
}

/// Makes a holder of a node. It never runs; if its gate were removed, it could run on this node alone.
pub(super) fn create(namespace: &str, node: &str, name: String, owner: &Owner, units: &Units) -> Write {
    let (label, value) = COMPONENT;
    let (api_version, kind) = &owner.kind;
    let this = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let only = json!({"nodeSelectorTerms": [{"matchFields": [this]}]});
    let body = json!({
        "apiVersion": POD.api_version(), "kind": POD.kind,
        "metadata": {
            "namespace": namespace, "name": name,
            "labels": {"app.kubernetes.io/name": "dragoman", label: value, "app.kubernetes.io/managed-by": "dragoman"},
            "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": node, "uid": owner.uid,
                "controller": true}],
        },
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": only}},
            "priorityClassName": PRIORITY,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": false,
            // A Pod that names none gets those of its ServiceAccount, and the policy lets no others through.
            "imagePullSecrets": [{"name": "none"}],
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65_535,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "hold", "image": IMAGE, "imagePullPolicy": "Never",
                "resources": {"requests": requests(units)},
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    Write::new(POD, namespace, name, Action::Create { body: body.to_string() })
}

/// Nominates a holder for its node, and says for which process of kube-scheduler. Its version changes, whatever it said before.
pub(super) fn nominate(namespace: &str, of: &HolderFacts, scheduler: &str, now: &str) -> Write {
    let condition = json!({"type": NOMINATED, "status": "True", "reason": "HoldsRoom", "message": scheduler,
        "lastTransitionTime": now});
    let body = json!({
        "apiVersion": POD.api_version(), "kind": POD.kind,
        "metadata": {"namespace": namespace, "name": of.name, "uid": of.guard.uid},
        "status": {"nominatedNodeName": of.node, "conditions": [condition]},
    });
    let action = Action::Apply { subresource: Some("status"), manager: MANAGER, force: true, body };
    Write::new(POD, namespace, &*of.name, action)
}

/// Lets a holder request more.
pub(super) fn raise(namespace: &str, of: &HolderFacts, units: &Units) -> Write {
    let path = "/spec/containers/0/resources/requests";
    let operations = vec![json!({"op": "replace", "path": path, "value": requests(units)})];
    let action = Action::Patch { subresource: Some("resize"), guard: of.guard.clone(), operations };
    Write::new(POD, namespace, &*of.name, action)
}

/// Removes a holder.
pub(super) fn delete(namespace: &str, of: &HolderFacts) -> Write {
    Write::new(POD, namespace, &*of.name, Action::Delete { guard: of.guard.clone() })
}
