//! The promises of the gate protocol (docs/protocol.md 4), judged step by step and at the end of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_reconcilers::protocol::{ALLOCATOR, GATE};
use dragoman_simcluster::{ApiServer, HistoryStep, Promises};
use jiff::Timestamp;
use serde_json::Value;

use super::{CORES, GATES, OURS};
use crate::soak::invariants::{claim_name, cpu};

const PODS: &str = "pods";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";
/// The cpus of a node, in thousandths.
const NODE: i64 = 64_000;

/// The cluster as the steps leave it.
#[derive(Default)]
struct Cluster {
    pods: BTreeMap<String, Arc<Value>>,
    claims: BTreeMap<String, Arc<Value>>,
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_gated(pod: &Value) -> bool {
    items(&pod["spec"]["schedulingGates"]).any(|gate| gate["name"] == GATE)
}

fn is_reserved_for(claim: &Value, pod: &Value) -> bool {
    items(&claim["status"]["reservedFor"]).any(|consumer| consumer["uid"] == pod["metadata"]["uid"])
}

/// The first promise that a step breaks. While a party has two leaders, one may give back what it takes for a
/// part when the other has just completed it, and the operator has just seen that; both may promise a device,
/// and the operator then releases one of the Pods only.
pub(super) fn broken(chronicle: &[HistoryStep], two_leaders: &[(Timestamp, Timestamp)]) -> Option<String> {
    let (mut promises, mut cluster) = (Promises::default(), Cluster::default());
    chronicle.iter().find_map(|step| {
        promises.step(step);
        cluster.step(step);
        let is_led_by_two = two_leaders.iter().any(|(from, to)| (*from..*to).contains(&step.at));
        let pod = step.after.as_ref().filter(|_| step.resource == PODS);
        if is_led_by_two {
            promises.forgive();
        }
        let is_bound = pod.is_some_and(|pod| pod["spec"]["nodeName"].is_string());
        let twice = promises.broken().map(|why| format!("twice: {why}"));
        twice
            .or_else(|| cluster.released_too_early(step).filter(|_| !is_led_by_two))
            .or_else(|| cluster.released_twice(step))
            .or_else(|| cluster.cleared_under_a_pod(step))
            .or_else(|| is_bound.then(|| cluster.overcommitted())?)
    })
}

impl Cluster {
    fn step(&mut self, step: &HistoryStep) {
        let objects = match &*step.resource {
            PODS => &mut self.pods,
            CLAIMS => &mut self.claims,
            _ => return,
        };
        match (&step.before, &step.after) {
            (_, Some(after)) => drop(objects.insert(name(after).to_owned(), Arc::clone(after))),
            (Some(before), None) => drop(objects.remove(name(before))),
            (None, None) => {}
        }
    }

    fn claims_of<'a>(&'a self, pod: &'a Value) -> impl Iterator<Item = Option<&'a Arc<Value>>> {
        let entries = items(&pod["spec"]["resourceClaims"]);
        entries.map(|entry| self.claims.get(claim_name(pod, entry)?))
    }

    /// P3: a Pod whose gate is taken off has all its claims.
    fn released_too_early(&self, step: &HistoryStep) -> Option<String> {
        let (before, after) = (step.before.as_ref()?, step.after.as_ref()?);
        if step.resource != PODS || !is_gated(before) || is_gated(after) {
            return None;
        }
        let lacks = |claim: Option<&Arc<Value>>| {
            claim
                .is_none_or(|claim| claim["status"]["allocation"].is_null() || !is_reserved_for(claim, after))
        };
        self.claims_of(after).any(lacks).then(|| format!("released: {} lacks a claim", name(after)))
    }

    /// P1: a Pod whose gate is taken off has no device that another Pod without the gate has by another claim.
    fn released_twice(&self, step: &HistoryStep) -> Option<String> {
        let (before, after) = (step.before.as_ref()?, step.after.as_ref()?);
        if step.resource != PODS || !is_gated(before) || is_gated(after) {
            return None;
        }
        let devices = |claim: &Value| {
            let results = items(&claim["status"]["allocation"]["devices"]["results"]);
            results.map(|result| format!("{}/{}", result["pool"], result["device"])).collect::<BTreeSet<_>>()
        };
        let own: Vec<&Arc<Value>> = self.claims_of(after).flatten().collect();
        let taken: BTreeSet<String> = own.iter().flat_map(|claim| devices(claim)).collect();
        let others =
            self.pods.values().filter(|pod| name(pod) != name(after) && !is_gated(pod) && !is_over(pod));
        let mut theirs = others.flat_map(|pod| {
            let claims = self.claims_of(pod).flatten().filter(move |claim| is_reserved_for(claim, pod));
            claims.map(move |claim| (pod, claim))
        });
        let both = theirs.find(|(_, claim)| {
            own.iter().all(|own| name(own) != name(claim)) && !devices(claim).is_disjoint(&taken)
        });
        both.map(|(pod, _)| {
            format!("twice: {} and {} were released with the same device", name(after), name(pod))
        })
    }

    /// P4: an allocation stays while a Pod with a node and the reservation has not ended.
    fn cleared_under_a_pod(&self, step: &HistoryStep) -> Option<String> {
        let (before, after) = (step.before.as_ref()?, step.after.as_ref()?);
        let is_cleared = step.resource == CLAIMS
            && !before["status"]["allocation"].is_null()
            && after["status"]["allocation"].is_null();
        let mut pods = self.pods.values().filter(|_| is_cleared);
        let runs = pods
            .find(|pod| pod["spec"]["nodeName"].is_string() && !is_over(pod) && is_reserved_for(before, pod));
        runs.map(|pod| format!("cleared: {} under the Pod {}", name(after), name(pod)))
    }

    /// P2: what bound Pods and the devices of their claims take fits on every node.
    fn overcommitted(&self) -> Option<String> {
        let mut taken: BTreeMap<&str, i64> = BTreeMap::new();
        let mut devices: BTreeSet<(&str, String)> = BTreeSet::new();
        for pod in self.pods.values().filter(|pod| !is_over(pod)) {
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            *taken.entry(node).or_default() +=
                cpu(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]);
            for claim in self.claims_of(pod).flatten() {
                let results = items(&claim["status"]["allocation"]["devices"]["results"]);
                devices
                    .extend(results.map(|result| (node, format!("{}/{}", result["pool"], result["device"]))));
            }
        }
        for (node, _) in &devices {
            *taken.entry(node).or_default() += CORES * 1_000;
        }
        let over = taken.iter().find(|(_, taken)| **taken > NODE);
        over.map(|(node, taken)| format!("overcommitted: {taken} of {NODE} thousandths of {node} are taken"))
    }
}

/// P5: every Pod has had its turn, and nothing is left of it.
pub(super) fn at_the_end(server: &ApiServer) -> Option<String> {
    let pods = server.all(PODS);
    // A smaller script may keep a gate of another owner closed, or leave a claim to another allocator.
    let claims = server.all(CLAIMS);
    let is_withheld = |pod: &Value, entry: &Value| {
        let claim = claims.iter().find(|claim| Some(name(claim)) == claim_name(pod, entry))?;
        let metadata = &claim["metadata"];
        let is_closed = |gate: &&str| metadata["annotations"][*gate].is_string();
        // A claim that is deleted under a Pod without the gate stays until the Pod is gone.
        let is_lost = !metadata["deletionTimestamp"].is_null() && !is_gated(pod);
        Some(is_lost || GATES.iter().any(is_closed) || metadata["labels"][ALLOCATOR] != OURS)
    };
    let is_held_back = |pod: &Value| {
        let other = items(&pod["spec"]["schedulingGates"]).any(|gate| gate["name"] != GATE);
        let mut entries = items(&pod["spec"]["resourceClaims"]);
        other || entries.any(|entry| is_withheld(pod, entry) == Some(true))
    };
    // Such a Pod may have devices that all others wait for.
    if pods.iter().any(|pod| !is_over(pod) && is_held_back(pod)) {
        return None;
    }
    let waits = pods.iter().find(|pod| !is_over(pod));
    let waits = waits.map(|pod| {
        format!("late: {} has not ended: {} {}", name(pod), pod["spec"]["schedulingGates"], pod["status"])
    });
    waits.or_else(|| {
        let held = claims.iter().find(|claim| {
            let is_generated = claim["metadata"]["ownerReferences"].is_array();
            is_generated || !claim["status"]["allocation"].is_null()
        });
        held.map(|claim| format!("leaked: {} is left: {}", name(claim), claim["status"]))
    })
}

/// The number of Pods that have succeeded.
pub(super) fn succeeded(server: &ApiServer) -> usize {
    server.all(PODS).iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count()
}
