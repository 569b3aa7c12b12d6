//! The promises of the gate protocol (docs/protocol.md 4), judged step by step and at the end of a run.

use dragoman_crds::protocol::{ALLOCATOR, GATE};
use dragoman_judge::promises::{
    CLAIMS, Cluster, Cpus, PODS, Promise, is_bound, is_gated, is_over, items, key,
};
use dragoman_simcluster::{ApiServer, HistoryStep, Promises};
use jiff::Timestamp;
use serde_json::Value;

use super::{CORES, GATES, NEIGHBOURS, OURS};
use crate::soak::actor::TENANT;
use crate::soak::invariants::claim_name;
use dragoman_e2e::objects::DRIVER;

/// The cpus of the nodes and devices of a run.
const CPUS: Cpus = Cpus { node: 64_000, device: CORES * 1_000, driver: DRIVER };

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The first promise that a step breaks. While a party has two leaders, one may give back what it takes for a
/// part when the other has just completed it, and the operator has just seen that; both may promise a device,
/// and the operator then releases one of the Pods only.
pub(super) fn broken(chronicle: &[HistoryStep], two_leaders: &[(Timestamp, Timestamp)]) -> Option<String> {
    let (mut promises, mut cluster) = (Promises::default(), Cluster::new(CPUS));
    chronicle.iter().find_map(|step| {
        promises.step(step);
        let is_led_by_two = two_leaders.iter().any(|(from, to)| (*from..*to).contains(&step.at));
        if is_led_by_two {
            promises.forgive();
        }
        let is_forgiven =
            |promise: Promise| is_led_by_two && matches!(promise, Promise::Allocated | Promise::Claims);
        let mut broken = cluster.take(step).into_iter().filter(|(promise, _)| !is_forgiven(*promise));
        let broken = broken.next().map(|(promise, why)| format!("{}: {why}", promise.word()));
        broken.or_else(|| promises.broken().map(|why| format!("twice: {why}")))
    })
}

/// P5: every Pod has had its turn, and nothing is left of it.
pub(super) fn at_the_end(server: &ApiServer) -> Option<String> {
    let mut pods = server.all(PODS);
    // A holder never ends by itself, and a neighbour waits for ever for a device that its scheduler may not allocate.
    pods.retain(|pod| {
        let is_holder = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "holder";
        let wants_devices = items(&pod["spec"]["resourceClaims"]).next().is_some();
        let is_refused = pod["metadata"]["namespace"] == NEIGHBOURS && wants_devices;
        // What becomes of the Pods of the hostile tenant is its own affair.
        !is_holder && !is_refused && pod["metadata"]["namespace"] != TENANT
    });
    // A smaller script may keep a gate of another owner closed, or leave a claim to another allocator.
    let claims = server.all(CLAIMS);
    let is_withheld = |pod: &Value, entry: &Value| {
        let in_its_namespace = |claim: &Value| claim["metadata"]["namespace"] == pod["metadata"]["namespace"];
        let is_named = |claim: &Value| Some(name(claim)) == claim_name(pod, entry);
        let claim = claims.iter().find(|claim| in_its_namespace(claim) && is_named(claim))?;
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
        let (gates, status, taken) = (&pod["spec"]["schedulingGates"], &pod["status"], taken(server));
        format!("late: {} has not ended: {gates} {status}; taken: {taken}", name(pod))
    });
    waits.or_else(|| {
        let held = claims.iter().find(|claim| {
            if claim["metadata"]["namespace"] == TENANT {
                return false;
            }
            let is_generated = claim["metadata"]["ownerReferences"].is_array();
            is_generated || !claim["status"]["allocation"].is_null()
        });
        held.map(|claim| format!("leaked: {} is left: {}", name(claim), claim["status"]))
    })
}

/// The devices of claims, and the Pods on nodes that have not ended, for people.
fn taken(server: &ApiServer) -> String {
    let claims = server.all(CLAIMS).into_iter().filter_map(|claim| {
        let results = items(&claim["status"]["allocation"]["devices"]["results"]);
        let devices: Vec<String> = results.map(|of| format!("{}/{}", of["pool"], of["device"])).collect();
        let consumers = items(&claim["status"]["reservedFor"]).map(|of| of["name"].to_string());
        let consumers = consumers.collect::<Vec<_>>().join(" ");
        (!devices.is_empty()).then(|| format!("{} has {} for {consumers}", key(&claim), devices.join(" ")))
    });
    let pods = server.all(PODS).into_iter().filter(|pod| is_bound(pod) && !is_over(pod));
    let pods = pods.map(|pod| format!("{} is on {}", key(&pod), pod["spec"]["nodeName"]));
    claims.chain(pods).collect::<Vec<_>>().join(", ")
}

/// The number of Pods that have succeeded.
pub(super) fn succeeded(server: &ApiServer) -> usize {
    server.all(PODS).iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count()
}
