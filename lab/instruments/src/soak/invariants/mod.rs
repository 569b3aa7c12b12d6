//! The invariants of every step of a run, and of its end.

mod accounts;
mod costs;
mod end;
mod said;
mod steps;
pub(super) mod tenants;

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_simcluster::ApiServer;
use serde_json::Value;

pub(super) use self::costs::succeeded;
use super::actor::TENANT;
use super::workload::Kind;

const PODS: &str = "pods";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";
const TEMPLATES: &str = "resourceclaimtemplates.resource.k8s.io";
const GROUPS: &str = "podgroups.scheduling.k8s.io";
const EVENTS: &str = "events.events.k8s.io";
const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";
const EXTENDED_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// The most consumers of a claim: the limit of the API.
pub(super) const MOST_CONSUMERS: usize = 256;

/// A run whose invariants are checked.
pub(super) struct Judged<'a> {
    pub(super) server: &'a ApiServer,
    pub(super) kind: Kind,
}

impl Judged<'_> {
    /// The first broken invariant of a run with `changes` write requests of the controller and `faults`
    /// faults.
    pub(super) fn broken(&self, changes: usize, faults: usize) -> Option<String> {
        let (mut chronicle, writes) = (self.server.chronicled(0), self.server.writes(0));
        // The tenant gets what it deserves: no invariant is about its Pods.
        chronicle.retain(|step| !step.after.as_ref().or(step.before.as_ref()).is_some_and(is_tenants));
        let by_us = writes.iter().filter(|write| write.user == "dragoman" && write.verb == "delete");
        let by_us: BTreeSet<&str> = by_us.map(|write| &*write.uid).collect();
        steps::broken(&chronicle, self.kind, &by_us)
            .or_else(|| self.at_the_end())
            .or_else(|| self.kind.calm.then(|| said::broken(self.server, &chronicle)).flatten())
            .or_else(|| (self.kind.calm && self.kind.tenant).then(|| tenants::starved(&chronicle)).flatten())
            // The writes about nodes have rules of their own.
            .or_else(|| {
                let counts = self.kind.accounts.is_none() && !self.kind.tenant;
                counts.then(|| costs::broken(&chronicle, &writes, changes, faults))?
            })
    }

    /// Since so many writes the cluster has been at rest: nothing about nodes is written, unless another
    /// client writes.
    pub(super) fn restless(&self, rested: usize) -> Option<String> {
        let since = self.server.writes(rested);
        let about_nodes = since.iter().filter(|write| write.resource.starts_with("nodeallocatable")).count();
        let alone = since.iter().all(|write| write.user == "dragoman");
        (about_nodes > 0 && alone).then(|| format!("restless: {about_nodes} writes about nodes at rest"))
    }

    /// The first broken invariant of the cluster at rest.
    pub(super) fn at_the_end(&self) -> Option<String> {
        let accounts = || accounts::broken(self.server, self.kind.accounts?);
        end::broken(self.server, self.kind).or_else(accounts)
    }
}

fn is_tenants(object: &Arc<Value>) -> bool {
    text(object, "namespace") == TENANT
}

/// The objects of a kind that are not the hostile tenant's.
fn all(server: &ApiServer, kind: &str) -> Vec<Arc<Value>> {
    let mut objects = server.all(kind);
    objects.retain(|object| !is_tenants(object));
    objects
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The uid of the owner of a claim.
fn owner_of(claim: &Value) -> Option<&str> {
    claim["metadata"]["ownerReferences"][0]["uid"].as_str()
}

fn has_node(pod: &Value) -> bool {
    !pod["spec"]["nodeName"].is_null()
}

/// Whether a Pod may still use its claims: its phase is not terminal, and it was not deleted before it
/// had a node.
fn may_run(pod: &Value) -> bool {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    !ended && (has_node(pod) || !is_deleting(pod))
}

/// Whether the claim names in a Pod's status do not decode.
fn is_garbled(pod: &Value) -> bool {
    pod["status"]["resourceClaimStatuses"].is_string()
}

fn is_allocated(claim: &Value) -> bool {
    !claim["status"]["allocation"].is_null()
}

fn consumers(claim: &Value) -> impl Iterator<Item = &Value> {
    items(&claim["status"]["reservedFor"])
}

fn is_reserved_for(claim: &Value, uid: &Value) -> bool {
    consumers(claim).any(|consumer| consumer["uid"] == *uid)
}

/// The claim name of an entry, from the spec or from the Pod's status.
pub(super) fn claim_name<'a>(pod: &'a Value, entry: &'a Value) -> Option<&'a str> {
    entry["resourceClaimName"].as_str().or_else(|| {
        let mut statuses = items(&pod["status"]["resourceClaimStatuses"]);
        statuses.find(|status| status["name"] == entry["name"])?["resourceClaimName"].as_str()
    })
}

/// The template of an entry of a Pod or PodGroup.
fn template_of<'a>(holder: &'a Value, entry: &Value) -> Option<&'a str> {
    let mut entries = items(&holder["spec"]["resourceClaims"]);
    entries.find(|one| one["name"] == *entry)?["resourceClaimTemplateName"].as_str()
}

/// Whether the controller cannot know the state of a consumer.
fn is_foreign(consumer: &Value, kind: Kind) -> bool {
    match consumer["resource"].as_str() {
        Some("pods") => false,
        Some("podgroups") => !kind.groups,
        _ => true,
    }
}

fn by_name<'a>(objects: &'a [Arc<Value>], name: &str) -> Option<&'a Arc<Value>> {
    objects.iter().find(|object| text(object, "name") == name)
}

fn by_uid<'a>(objects: &'a [Arc<Value>], uid: &str) -> Option<&'a Arc<Value>> {
    objects.iter().find(|object| text(object, "uid") == uid)
}
