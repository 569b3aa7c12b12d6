//! The scheduler's view of the cluster, and its decision for a Pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};

use super::queue::WaitsFor;
use super::room::{Amounts, Rooms, Victim, is_over, priority, requests};
use crate::api::meta::{self, Name};
use crate::standins::devices::{DeviceId, Devices, held_by};
use crate::standins::extended;
use crate::standins::kubelet::claim_name;

/// The maximum number of consumers of a claim.
const MOST_CONSUMERS: usize = 256;

/// The devices for a claim, with the names of their requests.
pub(super) type Chosen = Vec<(String, DeviceId)>;

/// A claim of a Pod on a node.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) claim: Arc<Value>,
    /// Devices for the claim, if it is to be allocated.
    pub(super) chosen: Option<Chosen>,
    /// Amounts that the claim takes, as slices say.
    pub(super) costs: Amounts,
}

impl Part {
    /// Returns the uid that stands for the claim while its allocation is being written: that of the claim, or
    /// that of the Pod for a claim that is made for extended resources.
    pub(super) fn in_flight<'a>(&'a self, pod: &'a Value) -> &'a str {
        let uid = meta::text(&self.claim, "uid");
        if uid.is_empty() { meta::text(pod, "uid") } else { uid }
    }
}

/// A node for a Pod, and devices for its claims.
#[derive(Debug)]
pub(super) struct Fit {
    pub(super) node: String,
    pub(super) parts: Vec<Part>,
}

/// Returns the amounts that claims take together.
fn costs(parts: &[Part]) -> Amounts {
    parts.iter().map(|part| part.costs).fold(Amounts::default(), Amounts::plus)
}

/// Why a Pod has to wait, and what makes room for it.
#[derive(Debug)]
pub(super) struct Wait {
    /// `None` where the claims of the Pod have no names yet: it is not tried before, and nothing is said of it.
    pub(super) why: Option<String>,
    pub(super) waits_for: WaitsFor,
    /// A claim whose allocation is to be taken back.
    pub(super) taken_back: Option<Arc<Value>>,
    /// The node that the Pod is nominated for, and the Pods that are to leave it.
    pub(super) nominated: Option<(String, Vec<Victim>)>,
}

impl Wait {
    fn for_claims(why: Option<String>) -> Self {
        let waits_for = WaitsFor { claims: true, ..WaitsFor::default() };
        Self { why, waits_for, taken_back: None, nominated: None }
    }
}

/// The cluster as the watches show it, with the scheduler's own writes ahead of them.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) devices: Devices,
    pub(super) rooms: Rooms,
    pub(super) pods: BTreeMap<Name, Arc<Value>>,
    claims: BTreeMap<Name, Arc<Value>>,
    pub(super) classes: BTreeMap<String, Arc<Value>>,
    /// The uids of claims whose allocation is being written.
    in_flight: BTreeSet<String>,
    /// Number of bindings that have not ended.
    under_way: usize,
    /// The uids of claims that were deleted since a binding began that has not ended: what it has written of them is over.
    gone: BTreeSet<String>,
    /// Whether it counts what slices say that devices take from their node (KEP-5517).
    pub(super) counts: bool,
    /// The node after which the next search starts.
    last: String,
}

fn version(object: &Value) -> u64 {
    meta::text(object, "resourceVersion").parse().unwrap_or(u64::MAX)
}

impl Cluster {
    pub(super) fn pod_applied(&mut self, pod: Value) {
        self.rooms.pod_applied(&pod);
        self.pods.insert(meta::name_of(&pod), Arc::new(pod));
    }

    pub(super) fn pod_deleted(&mut self, pod: &Value) {
        self.rooms.pod_deleted(meta::text(pod, "uid"));
        self.pods.remove(&meta::name_of(pod));
    }

    /// Takes in a state of a claim, unless a newer one is known.
    pub(super) fn claim_applied(&mut self, claim: Value) {
        let name = meta::name_of(&claim);
        if self.claims.get(&name).is_some_and(|known| version(known) > version(&claim)) {
            return;
        }
        self.devices.claim_applied(&claim);
        self.claims.insert(name, Arc::new(claim));
    }

    pub(super) fn claim_deleted(&mut self, claim: &Value) {
        let uid = meta::text(claim, "uid");
        self.devices.release(uid);
        self.claims.remove(&meta::name_of(claim));
        if self.under_way > 0 {
            self.gone.insert(uid.to_owned());
        }
    }

    pub(super) fn class_applied(&mut self, class: Value) {
        self.classes.insert(meta::text(&class, "name").to_owned(), Arc::new(class));
    }

    pub(super) fn class_deleted(&mut self, class: &Value) {
        self.classes.remove(meta::text(class, "name"));
    }

    /// Counts a Pod and the devices of its claims until its binding has ended.
    pub(super) fn assume(&mut self, pod: &Value, fit: &Fit) {
        self.rooms.assume(pod, &fit.node, costs(&fit.parts));
        self.under_way += 1;
        for part in &fit.parts {
            let uid = part.in_flight(pod);
            if let Some(chosen) = &part.chosen {
                self.in_flight.insert(uid.to_owned());
                self.devices.reserve(uid, chosen.iter().map(|(_, device)| device.clone()).collect());
            }
        }
        self.last.clone_from(&fit.node);
    }

    /// The binding of a Pod has ended. What it has written is known before the watch shows it.
    pub(super) fn settle(&mut self, uid: &str, is_bound: bool, claims: &[String], written: Vec<Value>) {
        for claim in claims {
            self.in_flight.remove(claim);
            self.devices.unreserve(claim);
        }
        for claim in written {
            if !self.gone.contains(meta::text(&claim, "uid")) {
                self.claim_applied(claim);
            }
        }
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.gone.clear();
        }
        if !is_bound {
            self.rooms.forget(uid);
        }
    }

    /// The claims of a Pod. The one for its extended resources may not exist yet.
    ///
    /// # Errors
    /// One is not there, or cannot be reserved.
    fn claims_of(&self, pod: &Value) -> Result<Vec<Arc<Value>>, Wait> {
        let namespace = meta::text(pod, "namespace");
        let find = |name: &str| {
            let claim = self.claims.get(&(namespace.to_owned(), name.to_owned()));
            claim.cloned().ok_or_else(|| Wait::for_claims(Some(format!("resourceclaim {name:?} not found"))))
        };
        let mut of_pod: Vec<Arc<Value>> = Vec::new();
        for entry in meta::items(&pod["spec"]["resourceClaims"]) {
            let name = claim_name(pod, entry);
            let name = name.ok_or_else(|| Wait::for_claims(None))?;
            let claim = find(name)?;
            self.may_use(pod, entry, &claim).map_err(|why| Wait::for_claims(Some(why)))?;
            // Two entries may name one claim: it is allocated and reserved once.
            if of_pod.iter().all(|known| known["metadata"]["uid"] != claim["metadata"]["uid"]) {
                of_pod.push(claim);
            }
        }
        match (
            extended::made(pod),
            extended::claim_for(pod, &self.classes.values().map(|class| &**class).collect::<Vec<_>>()),
        ) {
            (Some(name), _) => of_pod.push(find(name)?),
            (None, claim) => of_pod.extend(claim.map(Arc::new)),
        }
        Ok(of_pod)
    }

    fn may_use(&self, pod: &Value, entry: &Value, claim: &Value) -> Result<(), String> {
        let name = meta::text(claim, "name");
        if meta::is_deleting(claim) {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        let templated = entry["resourceClaimName"].is_null();
        let owned = meta::owners(claim).any(|owner| owner["uid"] == pod["metadata"]["uid"]);
        if templated && !owned && group_of(pod, claim).is_none() {
            return Err(format!("resourceclaim {name:?} was not created for the pod"));
        }
        if self.in_flight.contains(meta::text(claim, "uid")) {
            return Err(format!("resourceclaim {name:?} is in the process of being allocated"));
        }
        let consumer = consumer_of(pod, claim);
        let consumers: Vec<&Value> = meta::items(&claim["status"]["reservedFor"]).collect();
        if consumers.len() >= MOST_CONSUMERS && consumers.iter().all(|known| known["uid"] != consumer["uid"])
        {
            return Err(format!("resourceclaim {name:?} is in use"));
        }
        Ok(())
    }

    /// Finds a node for a Pod, and devices for its claims; or what would make room for it.
    ///
    /// # Errors
    /// The Pod has to wait.
    pub(super) fn attempt(&mut self, pod: &Value, rng: &mut Rng) -> Result<Fit, Wait> {
        let claims = self.claims_of(pod)?;
        let (uid, priority, own) = (meta::text(pod, "uid"), priority(pod), requests(pod));
        let candidates = self.candidates(pod, &claims);
        // A claim may keep it from nodes that are not even tried. Where no node is tried, another one may be.
        let mut waits_for = WaitsFor { claims: !claims.is_empty(), room: candidates.is_empty() };
        // The node with the fewest Pods in the way, and those.
        let mut best: Option<(String, Vec<Victim>)> = None;
        let mut words: BTreeMap<&'static str, usize> = BTreeMap::new();
        for node in candidates {
            let Some(parts) = self.parts_on(&node, &claims) else {
                *words.entry("cannot allocate all claims").or_default() += 1;
                continue;
            };
            let more = own.plus(costs(&parts));
            let Some(word) = self.rooms.lacks(&node, uid, priority, more) else {
                return Ok(Fit { node, parts });
            };
            waits_for.room = true;
            *words.entry(word).or_default() += 1;
            let victims = self.rooms.victims(&node, uid, priority, more).filter(|all| !all.is_empty());
            if let Some(victims) = victims
                && best.as_ref().is_none_or(|(_, fewest)| victims.len() < fewest.len())
            {
                best = Some((node, victims));
            }
        }
        let words: Vec<String> = words.into_iter().map(|(word, count)| format!("{count} {word}")).collect();
        let why = format!("0/{} nodes are available: {}.", self.rooms.nodes().count(), words.join(", "));
        let nominated = self.nomination(pod, best);
        Err(Wait { why: Some(why), waits_for, taken_back: self.to_take_back(pod, &claims, rng), nominated })
    }

    /// A Pod that is nominated where others are about to leave waits for them.
    fn nomination(&self, pod: &Value, best: Option<(String, Vec<Victim>)>) -> Option<(String, Vec<Victim>)> {
        let before = pod["status"]["nominatedNodeName"].as_str().filter(|node| !node.is_empty());
        match before {
            Some(node) if self.rooms.is_leaving(node, priority(pod)) => Some((node.to_owned(), Vec::new())),
            _ if pod["spec"]["preemptionPolicy"] == "Never" => None,
            _ => best,
        }
    }

    /// The nodes to try in their order: the nominated one, then all that come into question from the last one on.
    fn candidates(&self, pod: &Value, claims: &[Arc<Value>]) -> Vec<String> {
        let wants_devices = claims.iter().any(|claim| claim["status"]["allocation"].is_null());
        let allocated = claims.iter().find(|claim| named_nodes(claim).next().is_some());
        let mut names: Vec<String> = match allocated {
            Some(claim) => named_nodes(claim).map(str::to_owned).collect(),
            None if wants_devices => self.devices.nodes().cloned().collect(),
            None => self.rooms.nodes().cloned().collect(),
        };
        names.retain(|node| {
            let reaches =
                |claim: &Arc<Value>| claim["status"]["allocation"].is_null() || reaches(claim, node);
            self.rooms.has(node) && claims.iter().all(reaches)
        });
        let from = names.iter().position(|node| *node >= self.last).unwrap_or_default();
        names.rotate_left(from);
        let nominated = &pod["status"]["nominatedNodeName"];
        if let Some(place) = names.iter().position(|node| nominated == node) {
            names[..=place].rotate_right(1);
        }
        names
    }

    /// Returns the claims of a Pod with their devices and amounts on a node. `None` if a claim gets no
    /// devices there.
    fn parts_on(&mut self, node: &str, claims: &[Arc<Value>]) -> Option<Vec<Part>> {
        let Self { devices, classes, counts, .. } = self;
        let class = |name: &str| classes.get(name).map(|class| Value::clone(class));
        let mut taken: Vec<DeviceId> = Vec::new();
        let part = |claim: &Arc<Value>| {
            let is_allocated = !claim["status"]["allocation"].is_null();
            let chosen =
                if is_allocated { None } else { Some(devices.first_fit(node, claim, &class, &taken)?) };
            let own = chosen.iter().flatten().map(|(_, device)| device.clone());
            let all: Vec<DeviceId> = if is_allocated { held_by(claim) } else { own.collect() };
            let costs = all.iter().filter(|_| *counts).map(|device| devices.cost(node, device));
            let costs = costs.fold(Amounts::default(), Amounts::plus);
            taken.extend(all);
            Some(Part { claim: Arc::clone(claim), chosen, costs })
        };
        claims.iter().map(part).collect()
    }

    /// One of the claims that keep a Pod from some node and are reserved for no other consumer.
    fn to_take_back(&self, pod: &Value, claims: &[Arc<Value>], rng: &mut Rng) -> Option<Arc<Value>> {
        let mut idle = claims.iter().filter(|claim| {
            let keeps_away = self.rooms.nodes().any(|node| !reaches(claim, node));
            let mut others = meta::items(&claim["status"]["reservedFor"])
                .filter(|consumer| consumer["uid"] != pod["metadata"]["uid"]);
            !claim["status"]["allocation"].is_null() && keeps_away && others.next().is_none()
        });
        let count = idle.clone().count();
        idle.nth(if count > 0 { rng.usize(..count) } else { 0 }).cloned()
    }
}

/// The consumer as which a Pod uses a claim: its PodGroup, if that owns the claim.
pub(super) fn consumer_of(pod: &Value, claim: &Value) -> Value {
    group_of(pod, claim).unwrap_or_else(
        || json!({"resource": "pods", "name": meta::text(pod, "name"), "uid": meta::text(pod, "uid")}),
    )
}

/// Returns the PodGroup of a Pod as a consumer, if it owns the claim.
fn group_of(pod: &Value, claim: &Value) -> Option<Value> {
    let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str()?;
    let mut owners =
        meta::owners(claim).filter(|owner| owner["kind"] == "PodGroup" && owner["name"] == group);
    let uid = &owners.next()?["uid"];
    Some(json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": uid}))
}

/// Whether a Pod is one that this scheduler is to find a node for.
pub(super) fn wants_a_node(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
        && meta::items(&pod["spec"]["schedulingGates"]).next().is_none()
        && !meta::is_deleting(pod)
        && !is_over(pod)
        && pod["spec"]["schedulerName"] == "default-scheduler"
}

/// Whether an allocated claim can be used on a node. Of its node selector only the names of nodes are considered.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(version: u64, device: &str) -> Value {
        let results = json!([{"driver": "d", "pool": "p", "device": device}]);
        let results = if device.is_empty() { Value::Null } else { results };
        json!({"metadata": {"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": version.to_string()},
            "status": {"allocation": {"devices": {"results": results}}}})
    }

    /// A cluster with a node that has one device.
    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        let pool = json!({"name": "p"});
        let devices = json!([{"name": "gpu"}]);
        cluster.devices.slice_applied(&json!({"metadata": {"name": "s"},
            "spec": {"driver": "d", "pool": pool, "nodeName": "n", "devices": devices}}));
        cluster.rooms.node_applied(&json!({"metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "8", "pods": "10"}}}));
        cluster.class_applied(json!({"metadata": {"name": "c"}, "spec": {}}));
        cluster
    }

    fn is_free(cluster: &mut Cluster) -> bool {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
        let wanted = Arc::new(json!({"spec": {"devices": {"requests": [request]}}}));
        cluster.parts_on("n", &[wanted]).is_some()
    }

    #[test]
    fn an_older_state_of_a_claim_frees_nothing() {
        let mut cluster = cluster();
        cluster.settle("pod", true, &[], vec![claim(7, "gpu")]);
        cluster.claim_applied(claim(6, ""));
        assert!(!is_free(&mut cluster));
        cluster.claim_applied(claim(8, ""));
        assert!(is_free(&mut cluster));
    }

    #[test]
    fn devices_of_a_binding_are_taken_until_it_has_ended() {
        let mut cluster = cluster();
        let part = Part {
            claim: Arc::new(claim(1, "")),
            chosen: Some(vec![("r".to_owned(), ("d".to_owned(), "p".to_owned(), "gpu".to_owned()))]),
            costs: Amounts::default(),
        };
        let pod = json!({"metadata": {"name": "p", "uid": "pod"}, "spec": {}});
        cluster.assume(&pod, &Fit { node: "n".to_owned(), parts: vec![part] });
        assert!(!is_free(&mut cluster));
        cluster.settle("pod", false, &["u".to_owned()], Vec::new());
        assert!(is_free(&mut cluster));
    }

    #[test]
    fn devices_of_a_claim_that_is_still_to_be_made_are_taken_too() {
        let mut cluster = cluster();
        let chosen = Some(vec![("r".to_owned(), ("d".to_owned(), "p".to_owned(), "gpu".to_owned()))]);
        let part = Part { claim: Arc::new(json!({"metadata": {}})), chosen, costs: Amounts::default() };
        let pod = json!({"metadata": {"name": "p", "uid": "pod"}, "spec": {}});
        cluster.assume(&pod, &Fit { node: "n".to_owned(), parts: vec![part] });
        assert!(!is_free(&mut cluster));
        cluster.settle("pod", false, &["pod".to_owned()], Vec::new());
        assert!(is_free(&mut cluster));
    }

    #[test]
    fn a_claim_that_was_deleted_under_its_binding_stays_gone() {
        let mut cluster = cluster();
        let pod = json!({"metadata": {"name": "p", "uid": "pod"}, "spec": {}});
        cluster.assume(&pod, &Fit { node: "n".to_owned(), parts: Vec::new() });
        cluster.claim_deleted(&claim(8, "gpu"));
        cluster.settle("pod", false, &[], vec![claim(7, "gpu")]);
        assert!(is_free(&mut cluster));
    }

    #[test]
    fn an_allocation_that_keeps_a_pod_from_a_node_is_taken_back_unless_another_consumer_has_it() {
        let mut cluster = cluster();
        cluster.rooms.node_applied(&json!({"metadata": {"name": "other"}, "status": {}}));
        let reserved = |consumers: &[&str]| {
            let mut claim = claim(1, "gpu");
            let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
            claim["status"]["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [term]});
            claim["status"]["reservedFor"] = consumers.iter().map(|uid| json!({"uid": uid})).collect();
            Arc::new(claim)
        };
        let pod = json!({"metadata": {"uid": "pod"}});
        let mut rng = Rng::with_seed(1);
        let mut taken =
            |consumers: &[&str]| cluster.to_take_back(&pod, &[reserved(consumers)], &mut rng).is_some();
        assert!(taken(&["pod"]) && taken(&[]));
        assert!(!taken(&["pod", "another"]));
    }
}
