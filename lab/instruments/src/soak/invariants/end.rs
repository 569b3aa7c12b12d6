//! The invariants of a cluster at rest.

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_simcluster::ApiServer;
use serde_json::Value;

use super::{
    CLAIMS, ENTRY, GROUPS, MOST_CONSUMERS, PODS, TEMPLATES, all, by_name, by_uid, claim_name, consumers,
    has_node, is_allocated, is_deleting, is_foreign, is_garbled, is_reserved_for, items, may_run, owner_of,
    text,
};
use crate::soak::workload::Kind;

/// The objects of the cluster.
struct End {
    kind: Kind,
    pods: Vec<Arc<Value>>,
    groups: Vec<Arc<Value>>,
    claims: Vec<Arc<Value>>,
    templates: Vec<Arc<Value>>,
}

/// The first broken invariant.
pub(super) fn broken(server: &ApiServer, kind: Kind) -> Option<String> {
    let [pods, groups, claims, templates] = [PODS, GROUPS, CLAIMS, TEMPLATES].map(|kind| all(server, kind));
    let end = End { kind, pods, groups, claims, templates };
    end.claims.iter().find_map(|claim| end.leaked(claim)).or_else(|| {
        let live = end.pods.iter().filter(|pod| may_run(pod) && !is_garbled(pod));
        live.into_iter()
            .find_map(|pod| end.incomplete(pod).or_else(|| end.unreserved(pod)).or_else(|| end.waits(pod)))
    })
}

impl End {
    /// Whether the Pod with this uid may still use its claims. A Pod whose status does not decode may.
    fn may_use(&self, uid: &str) -> bool {
        by_uid(&self.pods, uid).is_some_and(|pod| may_run(pod) || is_garbled(pod))
    }

    /// Checks that the claim is needed, that its consumers live, and that it is at rest without consumers.
    fn leaked(&self, claim: &Value) -> Option<String> {
        let name = text(claim, "name");
        let lent = consumers(claim).any(|consumer| is_foreign(consumer, self.kind));
        // Claims that the script creates have no owner.
        let needed = match owner_of(claim) {
            None => name.starts_with("shared-"),
            Some(owner) => self.may_use(owner) || by_uid(&self.groups, owner).is_some(),
        };
        if !needed && !lent {
            return Some(format!("leaked: {name} of a Pod that is gone or has ended"));
        }
        let mut ended = consumers(claim).filter(|consumer| {
            let uid = consumer["uid"].as_str().unwrap_or_default();
            !is_foreign(consumer, self.kind) && !self.may_use(uid) && by_uid(&self.groups, uid).is_none()
        });
        if let Some(consumer) = ended.next() {
            return Some(format!("leaked: {name} is reserved for {}, who has ended", consumer["name"]));
        }
        let held = consumers(claim).next().is_some();
        if !held && is_allocated(claim) {
            return Some(format!("leaked: {name} is allocated for nobody"));
        }
        (!held && is_deleting(claim)).then(|| format!("stuck: {name} is on its way out and held by nobody"))
    }

    /// The PodGroup of a Pod; an error if it does not exist.
    fn group_of(&self, pod: &Value) -> Result<Option<&Value>, ()> {
        let Some(name) = pod["spec"]["schedulingGroup"]["podGroupName"].as_str() else { return Ok(None) };
        by_name(&self.groups, name).map(|group| Some(&**group)).ok_or(())
    }

    /// The consumer of the claim of an entry with a template: the Pod, or its PodGroup.
    fn holder<'a>(pod: &'a Value, group: Option<&'a Value>, entry: &Value) -> &'a Value {
        let shared = group.filter(|group| {
            items(&group["spec"]["resourceClaims"]).any(|one| {
                one["name"] == entry["name"]
                    && one["resourceClaimTemplateName"] == entry["resourceClaimTemplateName"]
            })
        });
        shared.unwrap_or(pod)
    }

    /// Checks that the Pod's status names the claim of every entry with a template. A terminating Pod gets no
    /// new claims, but its status must name those that it has.
    fn incomplete(&self, pod: &Value) -> Option<String> {
        let group = self.group_of(pod).ok()?;
        let mut templated =
            items(&pod["spec"]["resourceClaims"]).filter(|entry| entry["resourceClaimName"].is_null());
        templated.find_map(|entry| {
            let holder = Self::holder(pod, group, entry);
            let mut own = self.claims.iter().filter(|claim| {
                owner_of(claim) == Some(text(holder, "uid"))
                    && claim["metadata"]["annotations"][ENTRY] == entry["name"]
            });
            let template = entry["resourceClaimTemplateName"].as_str().unwrap_or_default();
            let due = if is_deleting(pod) {
                own.clone().any(|claim| !is_deleting(claim))
            } else {
                by_name(&self.templates, template).is_some()
            };
            let named =
                claim_name(pod, entry).is_some_and(|name| own.any(|claim| text(claim, "name") == name));
            (due && !named).then(|| {
                format!(
                    "incomplete: the status of {} does not name its claim {}",
                    text(pod, "name"),
                    entry["name"]
                )
            })
        })
    }

    /// The claim of an entry that the Pod may use, with the object that the claim must be reserved for.
    fn usable<'a>(
        &'a self,
        pod: &'a Value,
        group: Option<&'a Value>,
        entry: &'a Value,
    ) -> Option<(&'a Value, &'a Value)> {
        let claim = &**by_name(&self.claims, claim_name(pod, entry)?)?;
        if !entry["resourceClaimName"].is_null() {
            return Some((claim, pod));
        }
        let holder = Self::holder(pod, group, entry);
        (owner_of(claim) == Some(text(holder, "uid"))).then_some((claim, holder))
    }

    /// Checks that the allocated claims of a Pod with a node are reserved, if there is room.
    fn unreserved(&self, pod: &Value) -> Option<String> {
        let group = self.group_of(pod).ok()?;
        let is_unmade = |entry: &Value| {
            entry["resourceClaimTemplateName"].is_string() && self.usable(pod, group, entry).is_none()
        };
        if !has_node(pod) || is_deleting(pod) || items(&pod["spec"]["resourceClaims"]).any(is_unmade) {
            return None;
        }
        let mut usable = items(&pod["spec"]["resourceClaims"])
            .filter_map(|entry| self.usable(pod, group, entry))
            .filter(|(claim, _)| is_allocated(claim) && !is_deleting(claim));
        let (claim, _) = usable.find(|(claim, consumer)| {
            !is_full(claim) && !is_reserved_for(claim, &consumer["metadata"]["uid"])
        })?;
        Some(format!("unreserved: {} for {}, which has a node", text(claim, "name"), text(pod, "name")))
    }

    /// Checks that a Pod that can run does.
    fn waits(&self, pod: &Value) -> Option<String> {
        let group = self.group_of(pod).ok()?;
        let possible = pod["spec"]["schedulingGates"].is_null() && !is_deleting(pod);
        if pod["status"]["phase"] == "Running" || !possible {
            return None;
        }
        // Claims that are allocated on two nodes cannot be used together.
        let mut nodes = BTreeSet::new();
        for entry in items(&pod["spec"]["resourceClaims"]) {
            let (claim, consumer) = self.usable(pod, group, entry)?;
            let shut = is_full(claim) && !is_reserved_for(claim, &consumer["metadata"]["uid"]);
            // A Pod that was bound without the scheduler gets reservations, but no allocations.
            if shut || is_deleting(claim) || (has_node(pod) && !is_allocated(claim)) {
                return None;
            }
            nodes.extend(node_of(claim));
        }
        (nodes.len() < 2).then(|| format!("waits: {} could run and does not", text(pod, "name")))
    }
}

fn is_full(claim: &Value) -> bool {
    consumers(claim).count() >= MOST_CONSUMERS
}

/// The node on which a claim is allocated.
fn node_of(claim: &Value) -> Option<String> {
    let node = "/status/allocation/nodeSelector/nodeSelectorTerms/0/matchFields/0/values/0";
    claim.pointer(node)?.as_str().map(str::to_owned)
}
