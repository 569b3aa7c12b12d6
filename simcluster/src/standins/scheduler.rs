//! The scheduler: allocates devices first fit, and binds every Pod to a node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, Reply};
use super::devices::{DeviceId, Devices};
use super::extended;
use super::follow::{Event, Follow};
use super::kubelet::claim_name;
use crate::api::ApiServer;
use crate::api::meta;
use crate::api::meta::Name;

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The maximum number of consumers of a claim.
const MOST_CONSUMERS: usize = 256;
/// The number of Pods that a round tries in vain before it stops.
const MOST_IN_VAIN: usize = 16;

/// The pause before the next round after one that was cut short.
const ROUND: Duration = Duration::from_millis(200);

/// A stand-in for kube-scheduler.
pub struct Scheduler {
    client: Client,
    devices: Devices,
    /// The waiting Pods in the order of their arrival.
    waiting: BTreeMap<u64, Name>,
    /// The position of each waiting Pod.
    places: BTreeMap<Name, u64>,
    arrivals: u64,
    /// The position at which the next round starts.
    resume: u64,
    /// Whether the last round stopped early or failed to write, so that another one follows.
    cut_short: bool,
    /// The reason in the status of each waiting Pod.
    said: BTreeMap<Name, String>,
    /// The uids of Pods that are bound although the watch does not show it yet.
    bound: BTreeSet<String>,
    /// The nodes with devices.
    candidates: Vec<String>,
    /// The position at which the search for a node starts.
    cursor: usize,
}

/// The outcome of an attempt to place a Pod.
enum Placed {
    /// The Pod is bound.
    Done,
    /// The Pod has to wait, for this reason.
    Waits(String),
    /// A write failed: the decision was based on an outdated state.
    Again,
}

/// The claims to allocate for a Pod on a node, each with its devices.
type Plan = Vec<(Value, Vec<(String, DeviceId)>)>;

impl Scheduler {
    /// Creates a scheduler with an empty queue.
    pub fn new(server: ApiServer) -> Self {
        let client = Client::new(server, "system:kube-scheduler", "kube-scheduler/simcluster");
        Self {
            client,
            devices: Devices::default(),
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            arrivals: 0,
            resume: 0,
            cut_short: false,
            candidates: Vec::new(),
            said: BTreeMap::new(),
            bound: BTreeSet::new(),
            cursor: 0,
        }
    }

    /// Places Pods for as long as it is polled.
    pub async fn run(mut self) {
        let follow = |path: &'static str| Follow::new(self.client.clone(), path);
        let mut pods = follow("/api/v1/pods");
        let mut claims = follow("/apis/resource.k8s.io/v1/resourceclaims");
        let mut slices = follow("/apis/resource.k8s.io/v1/resourceslices");
        let mut classes = follow("/apis/resource.k8s.io/v1/deviceclasses");
        let mut nodes = follow("/api/v1/nodes");
        loop {
            // `more` is whether waiting Pods may have become schedulable.
            let cut_short = self.cut_short;
            let more = tokio::select! {
                biased;
                event = nodes.next() => matches!(event, Event::Applied(_)),
                event = classes.next() => matches!(event, Event::Applied(_)),
                event = slices.next() => match event {
                    Event::Applied(slice) => {
                        self.devices.slice_applied(&slice);
                        self.candidates = self.devices.nodes().cloned().collect();
                        true
                    }
                    Event::Deleted(slice) => {
                        self.devices.slice_deleted(&slice);
                        false
                    }
                },
                event = claims.next() => {
                    match event {
                        Event::Applied(claim) => self.devices.claim_applied(&claim),
                        Event::Deleted(claim) => self.devices.release(meta::text(&claim, "uid")),
                    }
                    true
                }
                () = tokio::time::sleep(ROUND), if cut_short => true,
                event = pods.next() => match event {
                    Event::Applied(pod) => self.pod_applied(&pod),
                    Event::Deleted(pod) => {
                        self.bound.remove(meta::text(&pod, "uid"));
                        self.forget(&meta::name_of(&pod));
                        false
                    }
                },
            };
            if more {
                self.place_waiting(&pods, &claims, &classes, &nodes).await;
            }
        }
    }

    fn pod_applied(&mut self, pod: &Value) -> bool {
        let name = meta::name_of(pod);
        if !wants_a_node(pod) {
            self.bound.remove(meta::text(pod, "uid"));
            self.forget(&name);
            return false;
        }
        if self.bound.contains(meta::text(pod, "uid")) {
            return false;
        }
        if !self.places.contains_key(&name) {
            self.arrivals += 1;
            self.waiting.insert(self.arrivals, name.clone());
            self.places.insert(name, self.arrivals);
        }
        true
    }

    fn forget(&mut self, name: &Name) {
        if let Some(place) = self.places.remove(name) {
            self.waiting.remove(&place);
        }
        self.said.remove(name);
    }

    async fn place_waiting(&mut self, pods: &Follow, claims: &Follow, classes: &Follow, nodes: &Follow) {
        let (mut in_vain, mut tried, mut again) = (0, 0, false);
        // The round starts where the last one ended, so that unschedulable Pods at the front do not block the
        // rest.
        while tried <= self.places.len() && in_vain < MOST_IN_VAIN {
            tried += 1;
            let next = self.waiting.range(self.resume..).next();
            let Some((place, name)) = next.map(|(place, name)| (*place, name.clone())) else {
                self.resume = 0;
                continue;
            };
            self.resume = place + 1;
            let Some(pod) = pods.get(&name.0, &name.1).filter(|pod| wants_a_node(pod)) else {
                self.forget(&name);
                continue;
            };
            match self.place(pod, claims, classes, nodes).await {
                Placed::Done => self.forget(&name),
                Placed::Waits(why) => {
                    in_vain += 1;
                    self.say(pod, &name, why).await;
                }
                // Another client wrote in between, or writes fail for the moment.
                Placed::Again => again = true,
            }
        }
        self.cut_short = again || (in_vain == MOST_IN_VAIN && self.places.len() > MOST_IN_VAIN);
    }

    /// Writes the reason why a Pod waits into its status, unless it wrote the same reason before.
    async fn say(&mut self, pod: &Value, name: &Name, why: String) {
        if self.said.get(name) == Some(&why) {
            return;
        }
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why});
        let patch =
            json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}});
        self.client.patch(&format!("{}/status", path_of(name)), &patch).await;
        self.said.insert(name.clone(), why);
    }

    async fn place(&mut self, pod: &Value, claims: &Follow, classes: &Follow, nodes: &Follow) -> Placed {
        let namespace = meta::text(pod, "namespace");
        let mut of_pod: Vec<Value> = Vec::new();
        for entry in meta::items(&pod["spec"]["resourceClaims"]) {
            let Some(name) = claim_name(pod, entry) else {
                return Placed::Waits("waiting for dynamic resource claims to be created".to_owned());
            };
            let Some(claim) = claims.get(namespace, name).filter(|claim| !meta::is_deleting(claim)) else {
                return Placed::Waits(format!("resourceclaim {name:?} not found"));
            };
            let templated = entry["resourceClaimName"].is_null();
            let owned = meta::owners(claim).any(|owner| owner["uid"] == pod["metadata"]["uid"]);
            if templated && !owned && group_of(pod, claim).is_none() {
                return Placed::Waits(format!("resourceclaim {name:?} was not created for the pod"));
            }
            let consumer = group_of(pod, claim)
                .map_or_else(|| pod["metadata"]["uid"].clone(), |group| group["uid"].clone());
            let consumers: Vec<&Value> = meta::items(&claim["status"]["reservedFor"]).collect();
            let has_it = consumers.iter().any(|known| known["uid"] == consumer);
            if consumers.len() >= MOST_CONSUMERS && !has_it {
                return Placed::Waits(format!("resourceclaim {name:?} is in use"));
            }
            // Two entries may name one claim: it is allocated and reserved once.
            if of_pod.iter().all(|known| known["metadata"]["uid"] != claim["metadata"]["uid"]) {
                of_pod.push(claim.clone());
            }
        }
        let known: Vec<&Value> = classes.all().collect();
        match (extended::made(pod), extended::claim_for(pod, &known)) {
            (Some(name), _) => match claims.get(namespace, name) {
                Some(claim) => of_pod.push(claim.clone()),
                None => return Placed::Waits(format!("resourceclaim {name:?} not found")),
            },
            (None, claim) => of_pod.extend(claim),
        }
        let class = |name: &str| classes.get("", name).cloned();
        let Some((node, plan)) = self.find(&of_pod, &class, nodes) else {
            return Placed::Waits(format!(
                "0/{} nodes are available: cannot allocate all claims",
                nodes.all().count()
            ));
        };
        if !self.write(pod, &node, &of_pod, plan, &known).await {
            return Placed::Again;
        }
        self.bound.insert(meta::text(pod, "uid").to_owned());
        Placed::Done
    }

    /// Returns the first node on which all claims can be used, in a circular search from the previous result.
    fn find(
        &mut self,
        claims: &[Value],
        classes: &dyn Fn(&str) -> Option<Value>,
        nodes: &Follow,
    ) -> Option<(String, Plan)> {
        let (allocated, wanted): (Vec<_>, Vec<_>) =
            claims.iter().partition(|claim| !claim["status"]["allocation"].is_null());
        let devices = &mut self.devices;
        let all: Vec<String>;
        let names = if !wanted.is_empty() {
            &self.candidates
        } else if let Some(claim) = allocated.iter().find(|claim| named_nodes(claim).next().is_some()) {
            all = named_nodes(claim).map(str::to_owned).collect();
            &all
        } else {
            all = nodes.all().map(|node| meta::text(node, "name").to_owned()).collect();
            &all
        };
        let count = names.len();
        for step in 0..count {
            let place = (self.cursor + step) % count;
            let Some(node) = names.get(place) else { continue };
            let there = nodes.get("", node).is_some();
            if !there || !allocated.iter().all(|claim| reaches(claim, node)) {
                continue;
            }
            let (mut plan, mut spoken_for): (Plan, Vec<DeviceId>) = (Vec::new(), Vec::new());
            let fits = wanted.iter().all(|claim| {
                let Some(found) = devices.first_fit(node, claim, classes, &spoken_for) else {
                    return false;
                };
                spoken_for.extend(found.iter().map(|(_, device)| device.clone()));
                plan.push((Value::clone(claim), found));
                true
            });
            if fits {
                self.cursor = place;
                return Some((node.clone(), plan));
            }
        }
        None
    }

    /// Allocates, reserves and binds, in the order and number of requests of kube-scheduler. Returns whether
    /// everything was written.
    async fn write(
        &mut self,
        pod: &Value,
        node: &str,
        claims: &[Value],
        plan: Plan,
        classes: &[&Value],
    ) -> bool {
        let consumer =
            json!({"resource": "pods", "name": meta::text(pod, "name"), "uid": meta::text(pod, "uid")});
        let mut plan: BTreeMap<String, Vec<(String, DeviceId)>> = plan
            .into_iter()
            .map(|(claim, devices)| (meta::text(&claim, "uid").to_owned(), devices))
            .collect();
        for claim in claims {
            let devices = plan.remove(meta::text(claim, "uid"));
            let collection = format!(
                "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
                meta::text(claim, "namespace")
            );
            let is_new = meta::text(claim, "uid").is_empty();
            let claim = if is_new {
                let Reply { code: 201, object } = self.client.create(&collection, claim).await else {
                    return false;
                };
                object
            } else {
                claim.clone()
            };
            let path = format!("{collection}/{}", meta::text(&claim, "name"));
            let consumer = group_of(pod, &claim).unwrap_or_else(|| consumer.clone());
            if !self.reserve(&path, &claim, devices, &consumer, node).await {
                if is_new {
                    // The next attempt creates another claim.
                    self.client.delete_at_once(&path, meta::text(&claim, "uid")).await;
                }
                return false;
            }
            if is_new {
                let naming = extended::naming(pod, classes, meta::text(&claim, "name"));
                let status = format!("{}/status", path_of(&meta::name_of(pod)));
                if !self.client.patch(&status, &naming).await.is_success() {
                    // The Pod is gone, or another one has its name: nothing would name the claim.
                    self.client.delete_at_once(&path, meta::text(&claim, "uid")).await;
                    return false;
                }
            }
        }
        self.bind(pod, node).await
    }

    /// Binds a Pod to a node. Returns whether it is bound.
    async fn bind(&mut self, pod: &Value, node: &str) -> bool {
        let (namespace, name) = meta::name_of(pod);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace, "uid": pod["metadata"]["uid"]},
            "target": {"kind": "Node", "name": node},
        });
        let path = path_of(&(namespace.clone(), name.clone()));
        if !self.client.create(&format!("{path}/binding"), &binding).await.is_success() {
            return false;
        }
        let regarding = json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod["metadata"]["uid"]});
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": format!("{name}."), "namespace": namespace},
            "eventTime": null, "type": "Normal", "reason": "Scheduled", "action": "Binding", "regarding": regarding,
            "reportingController": "default-scheduler", "reportingInstance": "simcluster",
            "note": format!("Successfully assigned {namespace}/{name} to {node}"),
        });
        self.client.create(&format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), &event).await;
        true
    }

    async fn reserve(
        &mut self,
        path: &str,
        claim: &Value,
        devices: Option<Vec<(String, DeviceId)>>,
        consumer: &Value,
        node: &str,
    ) -> bool {
        let mut claim = claim.clone();
        let mut consumers: Vec<Value> = meta::items(&claim["status"]["reservedFor"]).cloned().collect();
        if devices.is_none() && consumers.iter().any(|known| known["uid"] == consumer["uid"]) {
            return true;
        }
        let held = meta::items(&claim["metadata"]["finalizers"]).any(|finalizer| finalizer == FINALIZER);
        if devices.is_some() && !held {
            let mut finalizers: Vec<Value> = meta::items(&claim["metadata"]["finalizers"]).cloned().collect();
            finalizers.push(json!(FINALIZER));
            meta::set(&mut claim, "finalizers", json!(finalizers));
            let Reply { code: 200, object } = self.client.update(path, &claim).await else { return false };
            claim = object;
        }
        consumers.push(consumer.clone());
        meta::put(&mut claim, &["status", "reservedFor"], json!(consumers));
        if let Some(devices) = &devices {
            meta::put(&mut claim, &["status", "allocation"], allocation(devices, node));
        }
        let said = self.client.update(&format!("{path}/status"), &claim).await;
        if !said.is_success() {
            return false;
        }
        // The devices count as held before the watch shows the allocation.
        if let Some(devices) = devices {
            let devices = devices.into_iter().map(|(_, device)| device).collect();
            self.devices.hold(&said.object, devices);
        }
        true
    }
}

/// Returns the PodGroup of a Pod as a consumer, if it owns the claim.
fn group_of(pod: &Value, claim: &Value) -> Option<Value> {
    let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str()?;
    let mut owners =
        meta::owners(claim).filter(|owner| owner["kind"] == "PodGroup" && owner["name"] == group);
    let uid = &owners.next()?["uid"];
    Some(json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": uid}))
}

fn path_of((namespace, name): &Name) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

fn wants_a_node(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
        && meta::items(&pod["spec"]["schedulingGates"]).next().is_none()
        && !meta::is_deleting(pod)
        && pod["status"]["phase"] == "Pending"
        && pod["spec"]["schedulerName"] == "default-scheduler"
}

/// Whether an allocated claim can be used on a node. Of its node selector only the names of nodes are
/// considered.
fn reaches(claim: &Value, node: &str) -> bool {
    let selector = &claim["status"]["allocation"]["nodeSelector"];
    if selector.is_null() {
        return true;
    }
    meta::items(&selector["nodeSelectorTerms"]).any(|term| {
        meta::items(&term["matchFields"])
            .all(|field| meta::items(&field["values"]).any(|value| value == node))
    })
}

/// Returns the nodes that the allocation of a claim names.
fn named_nodes(claim: &Value) -> impl Iterator<Item = &str> {
    let terms = meta::items(&claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]);
    let fields = terms.flat_map(|term| meta::items(&term["matchFields"]));
    fields.flat_map(|field| meta::items(&field["values"])).filter_map(Value::as_str)
}

fn allocation(devices: &[(String, DeviceId)], node: &str) -> Value {
    let results: Vec<Value> = devices
        .iter()
        .map(|(request, (driver, pool, device))| {
            json!({"request": request, "driver": driver, "pool": pool, "device": device})
        })
        .collect();
    let selector = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    json!({"devices": {"results": results}, "nodeSelector": selector})
}
