//! The invariants of what is taken from nodes, of a cluster at rest: recounts of the API's objects, one
//! by hand and one by the library, beside what is published.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_accounting::cluster::{Cluster, ClusterLedger, Rules};
use dragoman_cluster::footprint;
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_objects::{Node, Pod, ResourceClaim, ResourceSlice};
use dragoman_reconcilers::cluster::{Published, fingerprint};
use dragoman_reconcilers::ledger::NodeReport;
use dragoman_simcluster::ApiServer;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    CLAIMS, PODS, by_name, claim_name, has_node, is_allocated, is_deleting, is_garbled, items, text,
};
use crate::soak::workload::CORES;

const NODES: &str = "nodes";
const SLICES: &str = "resourceslices.resource.k8s.io";
const FOOTPRINTS: &str = "devicefootprints.dragoman.dev";
const STATES: &str = "nodeallocatabledraclaimstates.dragoman.dev";
const FIELD: &str = "nodeAllocatableResourceClaimStatuses";

/// The first broken invariant. `counted`: the API server keeps the entries of Pod status.
pub(super) fn broken(server: &ApiServer, counted: bool) -> Option<String> {
    let pods = server.all(PODS);
    // What a status that does not decode said before is known to the index alone.
    if pods.iter().any(|pod| is_garbled(pod)) {
        return None;
    }
    let nodes = server.all(NODES);
    let mut names = nodes.iter().map(|node| text(node, "name"));
    names.find_map(|node| {
        differs_from_the_library(server, node).or_else(|| {
            let states = server.all(STATES);
            let state = by_name(&states, node).filter(|state| !is_doubtful(state))?;
            if counted {
                pods.iter().find_map(|pod| lacks_entries(server, pod, node))
            } else {
                differs_by_hand(server, &state["status"], node)
            }
        })
    })
}

/// Whether facts about the node are unknown.
fn is_doubtful(state: &Value) -> bool {
    let mut conditions = items(&state["status"]["conditions"]);
    conditions.any(|of| of["type"] == "Unaccounted" && of["status"] == "True")
}

/// Everything of a kind.
fn read<T: DeserializeOwned>(server: &ApiServer, kind: &str) -> Vec<T> {
    server.all(kind).iter().filter_map(|object| serde_json::from_value(Value::clone(object)).ok()).collect()
}

/// The published object of a node beside the fold over all objects.
fn differs_from_the_library(server: &ApiServer, node: &str) -> Option<String> {
    let cluster = Cluster {
        nodes: read::<Node>(server, NODES).iter().map(Into::into).collect(),
        pods: read::<Pod>(server, PODS).iter().map(Into::into).collect(),
        claims: read::<ResourceClaim>(server, CLAIMS).iter().map(Into::into).collect(),
        slices: read::<ResourceSlice>(server, SLICES).iter().map(Into::into).collect(),
        footprints: read::<DeviceFootprint>(server, FOOTPRINTS)
            .iter()
            .filter_map(|of| Some(footprint(of).ok()?.0))
            .collect(),
        unread: Vec::new(),
    };
    let content = NodeReport::of(&ClusterLedger::of(&cluster, Rules::default()), node);
    let states: Vec<NodeAllocatableDRAClaimState> = read(server, STATES);
    let state = states.iter().find(|state| &*state.metadata.name == node).map(Published::of);
    match (content.filter(|content| content.has_claims), state) {
        (None, None) => None,
        (None, Some(_)) => Some(format!("ledger: {node} has no claim, and an object")),
        (Some(_), None) => Some(format!("ledger: nothing is published of {node}")),
        (Some(content), Some(state)) => {
            let said = state.conditions.iter().map(|of| (&*of.r#type, of.status));
            let due = content.findings.iter().map(|of| (of.r#type, of.status));
            (fingerprint(&content.status) != state.fingerprint || !said.eq(due))
                .then(|| format!("ledger: {node} should be {content:?}"))
        }
    }
}

/// The sums of cpu, in thousandths, by hand.
fn differs_by_hand(server: &ApiServer, status: &Value, node: &str) -> Option<String> {
    let claims = server.all(CLAIMS);
    let (mut requested, mut devices) = (0, BTreeSet::new());
    for pod in server.all(PODS).iter().filter(|pod| takes(pod, node)) {
        requested += cpu(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]);
        for claim in claims_of(pod).flatten() {
            let results =
                by_name(&claims, claim).map(|claim| &claim["status"]["allocation"]["devices"]["results"]);
            let here = results.into_iter().flat_map(items).filter(|result| result["pool"] == node);
            devices.extend(here.map(|result| (claim.to_owned(), result["device"].to_string())));
        }
    }
    let mapped = i64::try_from(devices.len()).unwrap_or(i64::MAX).saturating_mul(CORES * 1_000);
    let published =
        [&status["requestedByPods"]["cpu"], &status["requestedByClaims"]["mapping"]["cpu"]].map(cpu);
    (published != [requested, mapped])
        .then(|| format!("ledger: {node} has {published:?}, by hand {:?}", [requested, mapped]))
}

/// A Pod that runs with claims of its own has what they take in its status.
fn lacks_entries(server: &ApiServer, pod: &Value, node: &str) -> Option<String> {
    // A Pod that is on its way out gets none any more.
    if !takes(pod, node) || pod["status"]["phase"] != "Running" || is_deleting(pod) {
        return None;
    }
    let claims = server.all(CLAIMS);
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    let pods = server.all(PODS);
    for claim in pods.iter().flat_map(|pod| claims_of(pod)).flatten() {
        *users.entry(claim).or_default() += 1;
    }
    let mut wanted = BTreeSet::new();
    for name in claims_of(pod) {
        // A claim that is shared, on another node, or missing gets no entry.
        let name = name?;
        let claim = by_name(&claims, name).filter(|claim| is_allocated(claim))?;
        let results = &claim["status"]["allocation"]["devices"]["results"];
        if users.get(name) != Some(&1) || items(results).any(|result| result["pool"] != node) {
            return None;
        }
        wanted.insert(name);
    }
    let written = items(&pod["status"][FIELD]).filter_map(|entry| entry["resourceClaimName"].as_str());
    let written: BTreeSet<&str> = written.collect();
    (written != wanted).then(|| format!("entries: {} has {written:?}, not {wanted:?}", text(pod, "name")))
}

/// The claims of a Pod, by entry and for extended resources; absent where the status names none yet.
fn claims_of(pod: &Value) -> impl Iterator<Item = Option<&str>> {
    let named = items(&pod["spec"]["resourceClaims"]).map(|entry| claim_name(pod, entry));
    let extended = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str();
    named.chain(extended.map(Some))
}

/// Whether a Pod takes something from a node.
fn takes(pod: &Value, node: &str) -> bool {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    has_node(pod) && pod["spec"]["nodeName"] == node && !ended
}

/// Thousandths of a cpu.
fn cpu(text: &Value) -> i64 {
    let text = text.as_str().unwrap_or("0");
    let thousandths = text.strip_suffix('m').map(str::parse);
    thousandths.unwrap_or_else(|| text.parse().map(|cores: i64| cores * 1_000)).unwrap_or(-1)
}
