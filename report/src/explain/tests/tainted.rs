//! Devices in use that are tainted.

use serde_json::{Value, json};

use super::{
    allocated, by_name, class, cluster, consumer, facts, node, now, of_pod, rule, says, slice, with,
};

/// A Pod that runs with device `a`.
fn running() -> Value {
    with(with(by_name(), "/spec/nodeName", json!("node-0")), "/status/phase", json!("Running"))
}

fn evicting() -> Value {
    with(rule(), "/spec/taint/effect", json!("NoExecute"))
}

#[test]
fn a_pod_that_is_evicted_from_its_device_says_so() {
    let held = || allocated("c", "a", &consumer("train"));
    let words = "claim c holds device d/node-0/a and does not tolerate its taint broken:NoExecute by DeviceTaintRule broken";
    let answer = of_pod(&cluster(&[running(), held(), evicting()]));
    says("by a rule", &answer, "DeviceTainted", &format!("Pod train runs on node node-0, and {words}"));
    let of_claim =
        super::super::claim::explain(facts(&cluster(&[running(), held(), evicting()])), "ml", "c", now());
    says("the claim", &of_claim, "DeviceTainted", words);
    let tainted =
        with(slice(&["a"]), "/spec/devices/0/taints", json!([{"key": "hot", "effect": "NoExecute"}]));
    let objects = [class(), tainted, node(), running(), held()];
    says("by its driver", &of_pod(&objects), "DeviceTainted", "hot:NoExecute by its slice");
    // A taint that evicts no Pod, one that is tolerated, and one of another device.
    says("NoSchedule", &of_pod(&cluster(&[running(), held(), rule()])), "Running", "runs on node node-0");
    let tolerates = json!([{"key": "broken", "operator": "Exists"}]);
    let tolerant = with(held(), "/status/allocation/devices/results/0/tolerations", tolerates);
    says(
        "tolerated",
        &of_pod(&cluster(&[running(), tolerant, evicting()])),
        "Running",
        "runs on node node-0",
    );
    let other = with(evicting(), "/spec/deviceSelector/device", json!("b"));
    says("another device", &of_pod(&cluster(&[running(), held(), other])), "Running", "runs on node node-0");
}

/// A Pod has several claims: the state of one does not hide the eviction from the device of another.
#[test]
fn an_eviction_is_said_whatever_else_there_is() {
    let mut pod = running();
    pod["spec"]["resourceClaims"] =
        json!([{"name": "gpu", "resourceClaimName": "b"}, {"name": "nic", "resourceClaimName": "c"}]);
    let deleted = with(
        allocated("b", "b", &consumer("train")),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T10:00:00Z"),
    );
    let other = with(evicting(), "/spec/deviceSelector/device", json!("a"));
    let objects = cluster(&[pod, deleted, allocated("c", "a", &consumer("train")), other]);
    says("two claims", &of_pod(&objects), "DeviceTainted", "claim c holds device d/node-0/a");
}

/// As for the allocator: a rule that does not decode may taint any device.
#[test]
fn a_rule_that_does_not_decode_taints_every_device() {
    let odd = with(rule(), "/spec/taint/effect", json!(5));
    let answer = super::super::device::explain(facts(&cluster(&[odd])), "a", now()).expect("one device");
    says("a rule of another API", &answer, "Tainted", "cannot be read");
}

#[test]
fn a_device_of_an_older_generation_is_gone_and_held_by_no_claim() {
    let older = with(slice(&["z"]), "/spec/pool/generation", json!(0));
    let objects = cluster(&[with(older, "/metadata/name", json!("older"))]);
    let answer = super::super::device::explain(facts(&objects), "z", now()).expect("one device");
    says(
        "older",
        &answer,
        "DeviceGone",
        "in no ResourceSlice of the newest generation, and no claim holds it",
    );
}

#[test]
fn a_held_device_says_its_taints() {
    let objects = cluster(&[running(), allocated("c", "a", &consumer("train")), rule()]);
    let answer = super::super::device::explain(facts(&objects), "a", now()).expect("one device");
    says(
        "held",
        &answer,
        "Taken",
        "held by claim ml/c for Pod train; tainted: broken:NoSchedule by DeviceTaintRule broken",
    );
}
