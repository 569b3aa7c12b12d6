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
    let words =
        "claim c holds device d/node-0/a, which is tainted broken:NoExecute by DeviceTaintRule broken";
    says("by a rule", &of_pod(&cluster(&[running(), held(), evicting()])), "DeviceTainted", words);
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
