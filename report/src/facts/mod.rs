//! The objects that an answer is made of, and those that could not be read.

mod files;
mod neighbours;

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{
    Allocation, ClaimDevices, ConsumerReference, Device, DeviceClass, DeviceResult, DeviceTaintRule, Node,
    Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice, TaintRule,
};

use dragoman_allocator::input::{Claim, Cluster};
use dragoman_cluster::footprint;
use dragoman_cluster::placement::{Neighbours, NodeView, SchedulingConstraints};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::cost::Costs;
use crate::extended::claim_for;
use crate::supply::Supply;
use crate::volumes::StorageOfFiles;

/// Namespace and name; the namespace is empty for objects of the cluster.
pub type Key = (String, String);

/// Objects of the cluster that were read. A kind that was not asked for has no objects. A kind whose request
/// failed stands in `lacks` or `forbidden`.
#[derive(Debug, Default)]
pub struct Facts {
    /// Pods, as the API server has them.
    pub pods: BTreeMap<Key, Pod>,
    /// Fields that decide where each of the Pods may run.
    pub placements: BTreeMap<Key, SchedulingConstraints>,
    /// Claims.
    pub claims: BTreeMap<Key, ResourceClaim>,
    /// Templates of claims.
    pub templates: BTreeMap<Key, ResourceClaimTemplate>,
    /// Properties of each node that decide which Pods may run on it, by the name of the node.
    pub sites: BTreeMap<String, NodeView>,
    /// The Pods of all nodes, as other Pods see them, where all of them were read.
    pub(crate) neighbours: Neighbours,
    /// Whether each node is ready and takes Pods, by its name.
    pub nodes: BTreeMap<String, Node>,
    /// The volumes of Pods.
    pub(crate) volumes: StorageOfFiles,
    /// Quotas of the namespaces.
    pub quotas: BTreeMap<Key, Quota>,
    /// Events, in no order.
    pub events: Vec<Event>,
    /// For the allocator, as it was read.
    pub cluster: Cluster,
    /// The amounts that devices take of their nodes.
    pub(crate) costs: Costs,
    /// The same as an allocator sees it, once everything has been read.
    pub supply: Supply,
    /// Objects that do not decode: kind and name, and why.
    pub unreadable: BTreeMap<(&'static str, Key), String>,
    /// Requests that failed, in sentences. Missing rights are in `forbidden`.
    pub lacks: Vec<String>,
    /// Notes about the objects for the person who wrote them.
    pub notes: Vec<String>,
    /// Claims whose consumers were looked up one by one.
    pub looked_up: BTreeSet<Key>,
    /// Whether all Pods that could be consumers were listed.
    pub has_all_pods: bool,
    /// Nodes that were looked for and do not exist.
    pub absent_nodes: BTreeSet<String>,
    /// Whether the objects come from files, which may lack any.
    pub from_files: bool,
    /// The objects of the files, by kind, with their resourceVersion.
    versions: BTreeMap<(String, Key), Option<u128>>,
    /// The number of objects of other kinds in the files.
    others: BTreeMap<String, usize>,
    /// Namespaces of which a Pod was in the files.
    pod_namespaces: BTreeSet<String>,
    /// Resources that the user may not read, by namespace; none for the whole cluster.
    pub forbidden: BTreeMap<Option<String>, BTreeSet<String>>,
}

/// A `ResourceQuota`: what it admits and what is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// `status`.
    pub status: QuotaStatus,
}

/// `status` of a quota.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct QuotaStatus {
    /// Amounts that the quota admits, by resource.
    pub hard: BTreeMap<String, String>,
    /// Amounts that are used, by resource.
    pub used: BTreeMap<String, String>,
}

/// An Event of `v1`, as far as it is told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// `metadata`.
    pub metadata: EventMeta,
    /// The object that it is about.
    pub involved_object: Involved,
    /// The reason, a word.
    pub reason: String,
    /// The message, for people.
    pub message: String,
    /// `Normal` or `Warning`.
    pub r#type: String,
    /// `eventTime`, of the newer API.
    #[serde(rename = "eventTime")]
    pub time: Option<String>,
    /// When it was last seen, of the older API.
    pub last_timestamp: Option<String>,
    /// When it was first seen, of the older API.
    pub first_timestamp: Option<String>,
    /// The controller that reports it, of the newer API.
    pub reporting_component: String,
    /// The component that reports it, of the older API.
    pub source: Source,
}

/// `metadata` of an Event.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventMeta {
    /// When it was created.
    pub creation_timestamp: Option<String>,
}

/// `source` of an Event, of old clients.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Source {
    /// The name of the component.
    pub component: String,
}

/// The object that an Event is about.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Involved {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for an object of the cluster.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
}

impl Event {
    /// When it was seen last.
    pub fn at(&self) -> Option<&str> {
        let times =
            [&self.last_timestamp, &self.time, &self.first_timestamp, &self.metadata.creation_timestamp];
        times.into_iter().find_map(|time| time.as_deref())
    }

    /// The same as a time; Events have it in different precision.
    pub fn time(&self) -> Option<Timestamp> {
        self.at()?.parse().ok()
    }

    /// The process that wrote it.
    pub fn reporter(&self) -> &str {
        if self.reporting_component.is_empty() { &self.source.component } else { &self.reporting_component }
    }
}

/// Kind and name of any object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PartialObjectMetadata {
    kind: String,
    metadata: HeadMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HeadMeta {
    namespace: String,
    name: String,
}

impl Facts {
    /// Takes in an object of a kind that its list knows, or that it says itself. One of another kind is left out.
    pub fn take(&mut self, kind: &str, object: &RawValue) {
        self.take_with(kind, object, Self::read);
    }

    /// Facts for a question about the amounts that devices take.
    pub fn with_costs() -> Self {
        let mut facts = Self::default();
        facts.costs.are_wanted = true;
        facts
    }

    /// Whether the question is about amounts.
    pub fn wants_costs(&self) -> bool {
        self.costs.are_wanted
    }

    /// Notes that DeviceFootprints may not be read: a Pod is judged without them, and of its kubelet nothing is said.
    pub fn forgo_footprints(&mut self) {
        self.costs.lacks_footprints = true;
    }

    /// Takes in a claim for a list of claims: no allocator looks at it.
    pub fn take_listed(&mut self, claim: &RawValue) {
        self.take_with("ResourceClaim", claim, |facts, _, key, text| {
            facts.claims.insert(key.clone(), decoded(text)?);
            Ok(())
        });
    }

    /// Takes in that a Pod is there, and its phase.
    pub fn take_presence(&mut self, pod: &RawValue) {
        self.take_with("Pod", pod, |facts, _, key, text| {
            let Pod { metadata, status, .. } = decoded(text)?;
            let mut pod = Pod::default();
            (pod.metadata.uid, pod.status.phase) = (metadata.uid, status.phase);
            facts.pods.insert(key.clone(), pod);
            Ok(())
        });
    }

    fn take_with(
        &mut self,
        kind: &str,
        object: &RawValue,
        read: impl FnOnce(&mut Self, &str, &Key, &str) -> Result<(), String>,
    ) {
        let head: PartialObjectMetadata = serde_json::from_str(object.get()).unwrap_or_default();
        let kind = if kind.is_empty() { head.kind.as_str() } else { kind };
        let Some(kind) = KINDS.into_iter().find(|known| *known == kind) else { return };
        let key = (head.metadata.namespace, head.metadata.name);
        if kind == "Pod" {
            self.pod_namespaces.insert(key.0.clone());
        }
        if let Err(why) = read(self, kind, &key, object.get()) {
            // It may taint any device.
            if kind == "DeviceTaintRule" {
                self.cluster.taint_rules.push(TaintRule::unreadable(key.1.as_str().into()));
            }
            self.unreadable.insert((kind, key), why);
        }
    }

    fn read(&mut self, kind: &str, key: &Key, text: &str) -> Result<(), String> {
        match kind {
            "Pod" => {
                let mut pod: Pod = decoded(text)?;
                if self.from_files {
                    files::name_pod(&mut pod);
                    pod.complete_requests();
                }
                self.placements.insert(key.clone(), (&pod).into());
                self.pods.insert(key.clone(), pod);
            }
            "ResourceClaim" => {
                let mut claim: ResourceClaim = decoded(text)?;
                if self.from_files {
                    files::name_claim(&mut claim);
                }
                let of_claim = Claim::of(&claim);
                self.claims.insert(key.clone(), claim);
                self.cluster.claims.push(of_claim.map_err(|why| why.to_string())?);
            }
            "ResourceClaimTemplate" => drop(self.templates.insert(key.clone(), decoded(text)?)),
            "DeviceClass" => self.cluster.classes.push(decoded::<DeviceClass>(text)?.class()),
            "ResourceSlice" => {
                let slice: ResourceSlice = decoded(text)?;
                if self.costs.are_wanted || self.from_files {
                    self.costs.slices.push((&slice).into());
                }
                let mut slice = slice.slice();
                // The allocator does not read costs.
                slice.devices.iter_mut().for_each(Device::forget_costs);
                self.cluster.slices.push(slice);
            }
            "DeviceFootprint" => self.costs.footprints.push(footprint(&decoded(text)?)?.0),
            "DeviceTaintRule" => self.cluster.taint_rules.push(decoded::<DeviceTaintRule>(text)?.rule()),
            "Node" => {
                let node: Node = decoded(text)?;
                self.cluster.nodes.push((&node).into());
                self.sites.insert(key.1.clone(), (&node).into());
                self.nodes.insert(key.1.clone(), node);
            }
            "PersistentVolumeClaim" => self.volumes.put_claim(&key.0, &key.1, &decoded(text)?),
            "PersistentVolume" => self.volumes.put_volume(&key.1, &decoded(text)?),
            "StorageClass" => self.volumes.put_class(&key.1, &decoded(text)?),
            "ResourceQuota" => drop(self.quotas.insert(key.clone(), decoded(text)?)),
            "Event" => self.events.push(decoded(text)?),
            _ => {}
        }
        Ok(())
    }

    /// Takes in a claim if it holds a device that is asked about: a cluster has many claims.
    pub fn take_if_held(&mut self, claim: &RawValue, is_asked: impl Fn(&DeviceResult) -> bool) {
        // One that does not decode may hold it.
        let is_taken = decoded::<ResourceClaim>(claim.get()).map_or(true, |claim| {
            // Of an allocation that does not decode it is not known.
            let allocation = claim.decoded_allocation();
            allocation.map_or(true, |of| of.is_some_and(|of| of.devices.results.iter().any(is_asked)))
        });
        if is_taken {
            self.take("ResourceClaim", claim);
        }
    }

    /// Takes in a claim if it is reserved for a consumer that is asked about.
    pub fn take_if_reserved(&mut self, claim: &RawValue, is_asked: impl Fn(&ConsumerReference) -> bool) {
        // One that does not decode may be.
        let read = decoded::<ResourceClaim>(claim.get());
        if read.map_or(true, |claim| claim.status.reserved_for.iter().any(is_asked)) {
            self.take("ResourceClaim", claim);
        }
    }

    /// Takes in which devices a claim holds, and nothing else of it: a cluster has many claims.
    pub fn take_holder(&mut self, object: &RawValue) {
        let read = |claim: ResourceClaim| Claim::of(&claim).map_err(|why| why.to_string());
        match decoded::<ResourceClaim>(object.get()).and_then(read) {
            Ok(claim) => {
                if let Some(allocation) = claim.allocation {
                    let allocation = Allocation { devices: allocation.devices, node_selector: None };
                    let devices = ClaimDevices::default();
                    self.cluster.claims.push(Claim { allocation: Some(allocation), devices, ..claim });
                }
            }
            Err(_) => self.take("ResourceClaim", object),
        }
    }

    /// Adds the claims that a scheduler will make for extended resources of Pods without a node. A node that has such a resource of its
    /// own has a device plugin for it: then no claim is made.
    fn expect_extended(&mut self) {
        let has = |resource: &str| {
            let amount = |node: &Node| node.status.allocatable.get(resource).is_some_and(|of| *of.0 != *"0");
            self.nodes.values().any(amount)
        };
        let waits = |pod: &Pod| {
            matches!(&*pod.status.phase, "" | "Pending")
                && pod.spec.node_name.is_empty()
                && pod.status.extended_resource_claim_status.is_none()
        };
        let pods = self.pods.values().filter(|pod| waits(pod));
        let claims: Vec<_> = pods.filter_map(|pod| claim_for(pod, &self.cluster.classes, has)).collect();
        for claim in claims {
            let key = (claim.metadata.namespace.to_string(), claim.metadata.name.to_string());
            self.cluster.claims.extend(Claim::of(&claim));
            self.claims.entry(key).or_insert(claim);
        }
    }

    /// Everything has been read: an allocator may look at it.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.expect_extended();
        let mut footprints = self.unreadable.iter().filter(|((kind, _), _)| *kind == "DeviceFootprint");
        let doubt = footprints.next().map(|((kind, (_, name)), why)| format!("{kind} {name}: {why}"));
        self.costs.settle(doubt);
        self.settle_pods();
        self.supply = Supply::of(&mut self);
        self
    }

    /// Takes over what was read at the same time: lists of other kinds.
    pub fn merge(&mut self, other: Self) {
        self.sites.extend(other.sites);
        self.nodes.extend(other.nodes);
        self.claims.extend(other.claims);
        self.unreadable.extend(other.unreadable);
        self.lacks.extend(other.lacks);
        self.notes.extend(other.notes);
        self.absent_nodes.extend(other.absent_nodes);
        self.looked_up.extend(other.looked_up);
        for (namespace, resources) in other.forbidden {
            self.forbidden.entry(namespace).or_default().extend(resources);
        }
        let Cluster { nodes, slices, classes, claims, taint_rules } = other.cluster;
        self.costs.merge(other.costs);
        self.cluster.nodes.extend(nodes);
        self.cluster.slices.extend(slices);
        self.cluster.classes.extend(classes);
        self.cluster.taint_rules.extend(taint_rules);
        // Claims that are asked about have been read before.
        let known = &self.claims;
        let is_new = |claim: &Claim| {
            claim.allocation.is_none()
                || !known.contains_key(&(claim.namespace.to_string(), claim.name.to_string()))
        };
        self.cluster.claims.extend(claims.into_iter().filter(is_new));
    }

    /// Whether a Pod of this namespace that was not read is not there. Files prove it where they have another Pod of the namespace, or
    /// Pods of several namespaces: then all were printed.
    pub fn knows_pods_of(&self, namespace: &str) -> bool {
        let is_printed = self.pod_namespaces.len() > 1 || self.pod_namespaces.contains(namespace);
        !self.lacks("pods") && (!self.from_files || is_printed)
    }

    /// Notes where consumers of claims are to be looked up, of all claims or of this one, and the Pods of their namespace are in no file.
    pub fn expect_pods(&mut self, only: Option<&Key>) {
        let is_open = |(key, claim): (&Key, &ResourceClaim)| {
            only.is_none_or(|only| only == key)
                && claim.status.reserved_for.iter().any(ConsumerReference::is_pod)
                && !self.knows_pods_of(&key.0)
        };
        if self.from_files && self.claims.iter().any(is_open) {
            let why = "the files have no pods of some namespaces, so that it is not known which consumers are there";
            self.lacks.push(why.to_owned());
        }
    }

    /// Whether a consumer of a claim that was not read is not there.
    pub fn knows_consumers_of(&self, claim: &ResourceClaim) -> bool {
        let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
        let is_looked_up = || self.looked_up.contains(&(namespace.to_string(), name.to_string()));
        self.knows_pods_of(namespace) && (self.from_files || self.has_all_pods || is_looked_up())
    }

    /// Whether a node does not exist.
    pub fn is_node_gone(&self, node: &str) -> bool {
        let is_in_no_file = self.from_files && !self.nodes.is_empty() && !self.nodes.contains_key(node);
        is_in_no_file || self.absent_nodes.contains(node)
    }

    /// Returns the words for an object that was not read.
    pub fn absence(&self) -> &'static str {
        if self.from_files { "does not exist in the files" } else { "does not exist" }
    }

    /// Keeps the objects of one namespace alone, and those of the cluster.
    pub fn confine(&mut self, namespace: &str) {
        let is_in = |key: &Key| key.0 == namespace;
        self.pods.retain(|key, _| is_in(key));
        self.claims.retain(|key, _| is_in(key));
        self.templates.retain(|key, _| is_in(key));
        self.quotas.retain(|key, _| is_in(key));
        // Events about objects of the cluster are in namespace default.
        let place = |event: &Event| match event.involved_object.namespace.as_str() {
            "" => "default".to_owned(),
            of => of.to_owned(),
        };
        self.events.retain(|event| place(event) == namespace);
        self.unreadable.retain(|(_, key), _| key.0.is_empty() || is_in(key));
    }

    /// Notes that the user may not read a resource.
    pub fn forbid(&mut self, namespace: Option<&str>, resource: String) {
        self.forbidden.entry(namespace.map(str::to_owned)).or_default().insert(resource);
    }

    /// Whether a resource could not be read: nothing follows from its absence.
    pub fn lacks(&self, plural: &str) -> bool {
        let is_it = |spelled: &String| spelled.split('.').next() == Some(plural);
        let kind = UNCERTAIN.iter().find(|(known, _)| *known == plural).map(|(_, kind)| *kind);
        self.forbidden.values().flatten().any(is_it)
            || self.lacks.iter().any(|lack| lack.contains(plural))
            || self.unreadable.keys().any(|(of, _)| Some(*of) == kind)
    }

    /// Returns sentences about the objects and rights that are missing, and how to get the rights.
    pub fn partial(&self) -> Vec<String> {
        let rights = self.forbidden.iter().map(|(namespace, resources)| {
            let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
            forbidden(&resources, namespace.as_deref())
        });
        let unreadable = self.unreadable.iter().take(TOLD).map(|((kind, (namespace, name)), why)| {
            let slash = if namespace.is_empty() { "" } else { "/" };
            format!("{kind} {namespace}{slash}{name} does not decode: {why}")
        });
        self.lacks.iter().chain(&self.notes).cloned().chain(rights).chain(unreadable).collect()
    }

    /// Whether the absence of objects says something: all requests were answered, and nothing that tenants cannot write is unreadable.
    pub fn is_complete(&self) -> bool {
        let is_uncertain = |kind: &str| UNCERTAIN.iter().any(|(_, of)| *of == kind);
        self.lacks.is_empty()
            && self.forbidden.is_empty()
            && !self.unreadable.keys().any(|(kind, _)| is_uncertain(kind))
    }

    /// Why an object does not decode, if it does not.
    pub fn why_unreadable(&self, kind: &'static str, namespace: &str, name: &str) -> Option<&str> {
        self.unreadable.get(&(kind, (namespace.to_owned(), name.to_owned()))).map(String::as_str)
    }
}

/// The unreadable objects that are named.
const TOLD: usize = 5;
/// Kinds of which one unreadable object makes a list uncertain. Tenants cannot write them: no claim of a tenant makes the
/// answers of others uncertain.
const UNCERTAIN: [(&str, &str); 3] =
    [("deviceclasses", "DeviceClass"), ("resourceslices", "ResourceSlice"), ("nodes", "Node")];

/// Returns a sentence that names the resources which the user may not read, and how to get the right.
pub fn forbidden(resources: &[&str], namespace: Option<&str>) -> String {
    let place = namespace
        .map_or_else(|| "of the cluster".to_owned(), |namespace| format!("in namespace {namespace}"));
    let kind = if namespace.is_some() { "role" } else { "clusterrole" };
    let own = namespace.map_or(String::new(), |namespace| format!(" --namespace {namespace}"));
    format!(
        "you may not read {} {place}; an administrator gives that right with `kubectl create {kind} dra-reader{own} \
         --verb=get,list --resource={}` and a binding",
        resources.join(", "),
        resources.join(",")
    )
}

const KINDS: [&str; 13] = [
    "Pod",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "DeviceClass",
    "ResourceSlice",
    "DeviceTaintRule",
    "DeviceFootprint",
    "Node",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ResourceQuota",
    "Event",
];

/// A list as the API server sends it.
#[derive(Debug, Deserialize)]
pub struct List<'a> {
    /// Where the next page begins.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects, each as text: one that does not decode is known by its name.
    #[serde(borrow, default)]
    pub items: Vec<&'a RawValue>,
}

/// `metadata` of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListMeta {
    /// `continue`: absent or empty on the last page.
    pub r#continue: Option<String>,
}

fn decoded<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_claim_that_holds_nothing_of_interest_is_left_out() {
        let mut facts = Facts::default();
        let results = |device: &str| json!([{"request": "r", "driver": "d", "pool": "p", "device": device}]);
        let claims = [
            json!({"metadata": {"name": "a"}, "status": {"allocation": {"devices": {"results": results("1")}}}}),
            json!({"metadata": {"name": "b"}, "status": {"allocation": {"devices": {"results": results("2")}}}}),
            json!({"metadata": {"name": "c"}, "status": {}}),
            // What cannot be read may hold it.
            json!({"metadata": {"name": "d"}, "status": {"allocation": {"devices": {"results": 7}}}}),
        ];
        for claim in claims {
            let claim = RawValue::from_string(claim.to_string()).expect("JSON");
            facts.take_if_held(&claim, |held| *held.device == *"2");
        }
        let names: Vec<&str> = facts.claims.keys().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["b", "d"]);
    }

    #[test]
    fn an_object_that_comes_twice_is_one_and_its_newest_version_counts() {
        let slice = |version: &str, device: &str| {
            json!({"kind": "ResourceSlice", "metadata": {"name": "s", "resourceVersion": version},
                "spec": {"driver": "d", "devices": [{"name": device}]}})
        };
        let devices = |slices: [Value; 2]| {
            let mut facts = Facts::default();
            for slice in slices {
                facts.take_file(Path::new("f"), &slice.to_string()).expect("a slice");
            }
            let devices = facts.cluster.slices.iter().flat_map(|slice| &slice.devices);
            devices.map(|device| device.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(devices([slice("9", "older"), slice("10", "newer")]), ["newer"]);
        assert_eq!(devices([slice("10", "newer"), slice("9", "older")]), ["newer"]);
        assert_eq!(devices([slice("", "first"), slice("", "second")]), ["second"]);
    }

    #[test]
    fn files_without_an_object_of_concern_are_no_answer() {
        let of = |object: Value| {
            let mut facts = Facts::default();
            facts.take_file(Path::new("f"), &object.to_string()).expect("an object");
            facts.ensure_any().map_err(|why| why.to_string())
        };
        let claim = |version: &str| json!({"apiVersion": version, "kind": "ResourceClaim", "metadata": {"name": "c"}});
        assert_eq!(of(claim("resource.k8s.io/v1")), Ok(()));
        for other in [claim("example.com/v1"), json!({"kind": "Resourceclaim", "metadata": {"name": "c"}})] {
            let why = of(other).expect_err("nothing to answer from");
            assert!(why.contains("they have 1 of kind Resource"), "{why}");
        }
        // The list of a cluster without any.
        assert_eq!(of(json!({"kind": "ResourceClaimList", "items": []})), Ok(()));
    }

    #[test]
    fn what_is_confined_keeps_one_namespace_and_the_objects_of_the_cluster() {
        let meta = |namespace: &str, name: &str| json!({"namespace": namespace, "name": name});
        let event = |namespace: &str| json!({"kind": "Event", "involvedObject": {"kind": "Node", "namespace": namespace, "name": "n"}});
        let objects = ["default", "other"].map(|namespace| {
            [
                json!({"kind": "ResourceClaim", "metadata": meta(namespace, "c")}),
                json!({"kind": "Pod", "metadata": meta(namespace, "p")}),
                event(namespace),
            ]
        });
        let more = [event(""), json!({"kind": "Node", "metadata": {"name": "n"}})];
        let items: Vec<_> = objects.into_iter().flatten().chain(more).collect();
        let mut facts = Facts::default();
        let list = json!({"kind": "List", "items": items}).to_string();
        facts.take_file(Path::new("f"), &list).expect("a list");
        facts.confine("default");
        let in_default = |keys: Vec<&Key>| keys.iter().all(|key| key.0 == "default") && keys.len() == 1;
        assert!(in_default(facts.claims.keys().collect()) && in_default(facts.pods.keys().collect()));
        assert_eq!((facts.events.len(), facts.nodes.len()), (2, 1));
        // That other namespaces had Pods is still known.
        assert!(facts.knows_pods_of("third"));
    }
}
