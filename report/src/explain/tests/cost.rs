//! Pods whose devices take more than the Pod may use, or an amount that is not known.

use serde_json::{Value, json};

use super::{allocated, by_name, claim, class, cluster, consumer, node, of_pod, says, slice, with};

const GATE: &str = "dragoman.dev/claims";

/// A Pod that may use one cpu, behind our gate or not.
fn budgeted(is_gated: bool) -> Value {
    let pod = with(by_name(), "/spec/resources", json!({"requests": {"cpu": "1"}}));
    let pod =
        with(pod, "/spec/containers", json!([{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]));
    if is_gated { with(pod, "/spec/schedulingGates", json!([{"name": GATE}])) } else { pod }
}

/// A slice whose devices take these numbers of cpus.
fn taking(cpus: &[&str]) -> Value {
    let device = |(i, cpu): (usize, &&str)| {
        json!({"name": format!("dev-{i}"),
            "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": cpu}}}})
    };
    let devices: Vec<Value> = cpus.iter().enumerate().map(device).collect();
    with(slice(&[]), "/spec/devices", json!(devices))
}

/// A DeviceFootprint by which each device takes what `mapping` says.
fn footprint(mapping: &Value) -> Value {
    json!({"apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "all"},
        "spec": {"driver": "d", "resources": {"cpu": {"mapping": mapping}}}})
}

#[test]
fn a_pod_whose_claims_exceed_its_budget() {
    let over = "spec.resources.requests[cpu] is 1, but containers and claims request 4";
    for is_gated in [true, false] {
        let objects = [class(), taking(&["4"]), node(), budgeted(is_gated), claim("c")];
        says("free devices that take too much", &of_pod(&objects), "OverBudget", over);
    }
    let objects = [class(), taking(&["4"]), node(), budgeted(true), allocated("c", "dev-0", &json!([]))];
    let held = with(
        objects[4].clone(),
        "/status/allocation/nodeSelector",
        json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}]}),
    );
    let objects = [&objects[..4], &[held]].concat();
    says("a device that takes too much", &of_pod(&objects), "OverBudget", over);
}

#[test]
fn a_device_that_takes_less_is_free_for_the_pod() {
    let objects = [class(), taking(&["4", "1"]), node(), budgeted(true), claim("c")];
    let answer = of_pod(&objects);
    says("one of two", &answer, "GateClosed", "behind its gate");
    let objects = [class(), taking(&["4", "1"]), node(), budgeted(false), claim("c")];
    says("one of two", &of_pod(&objects), "DevicesFree", "free on node node-0");
}

#[test]
fn a_scheduler_that_counts_no_claims_refuses_no_budget() {
    let four = footprint(&json!({"deviceMultiplier": "4"}));
    let objects = |is_gated| cluster(&[four.clone(), budgeted(is_gated), claim("c")]);
    says("kube-scheduler reads no footprint", &of_pod(&objects(false)), "DevicesFree", "free on node node-0");
    says("the owner of the gate does", &of_pod(&objects(true)), "OverBudget", "request 4");
}

/// Another driver of the cluster publishes amounts, which kube-scheduler counts.
#[test]
fn amounts_of_one_driver_are_not_those_of_another() {
    let other = with(taking(&["4"]), "/spec/driver", json!("other"));
    let other = with(with(other, "/metadata/name", json!("other")), "/spec/pool/name", json!("other"));
    let four = footprint(&json!({"deviceMultiplier": "4"}));
    let objects = cluster(&[other, four, budgeted(false), claim("c")]);
    says("kube-scheduler reads no footprint", &of_pod(&objects), "DevicesFree", "free on node node-0");
}

/// The devices of a fabric are on no node, and their allocation may name none.
#[test]
fn an_allocation_without_a_node_counts() {
    let fabric = with(with(slice(&["a"]), "/spec/nodeName", Value::Null), "/spec/allNodes", json!(true));
    let four = footprint(&json!({"deviceMultiplier": "4"}));
    let objects = [class(), fabric, node(), four, budgeted(true), allocated("c", "a", &json!([]))];
    says("a device of all nodes", &of_pod(&objects), "OverBudget", "request 4");
}

/// The budget covers all claims of the Pod, also those that have their devices already.
#[test]
fn devices_that_the_pod_has_already_count() {
    let mut pod = with(budgeted(true), "/spec/resources", json!({"requests": {"cpu": "3"}}));
    pod["spec"]["resourceClaims"] =
        json!([{"name": "gpu", "resourceClaimName": "c"}, {"name": "nic", "resourceClaimName": "d"}]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}, {"name": "nic"}]);
    let held = allocated("d", "dev-0", &json!([]));
    let objects = |cpus: &[&str]| [class(), taking(cpus), node(), pod.clone(), claim("c"), held.clone()];
    says(
        "3 and 1",
        &of_pod(&objects(&["3", "1"])),
        "OverBudget",
        "is 3, but containers and claims request 4",
    );
    says("2 and 1", &of_pod(&objects(&["2", "1"])), "GateClosed", "behind its gate");
}

#[test]
fn a_footprint_that_does_not_decode_may_be_about_any_device() {
    let negative = footprint(&json!({"deviceMultiplier": "-1"}));
    let objects = |is_gated| cluster(&[negative.clone(), budgeted(is_gated), claim("c")]);
    says("the gate", &of_pod(&objects(true)), "CostUnknown", "DeviceFootprint all");
    says("kube-scheduler", &of_pod(&objects(false)), "DevicesFree", "free on node node-0");
}

#[test]
fn a_cost_that_is_not_known_keeps_a_gate_closed() {
    let misspelt = footprint(&json!({"capacityKey": "cpuz", "capacityMultiplier": "1"}));
    let objects = cluster(&[misspelt, budgeted(true), claim("c")]);
    says("no device has the capacity", &of_pod(&objects), "CostUnknown", "cpuz");
}

#[test]
fn the_chain_tells_what_the_kubelet_makes_of_a_pod() {
    let pod = with(budgeted(false), "/spec/resources", json!({}));
    let pod = with(with(pod, "/spec/nodeName", json!("node-0")), "/status/phase", json!("Running"));
    let held = allocated("c", "dev-0", &consumer("train"));
    let told = |cpus: &[&str]| {
        let answer = of_pod(&[class(), taking(cpus), node(), pod.clone(), held.clone()]);
        let parties = ["kubelet", "advice"];
        let links = answer.chain.into_iter().filter(|link| parties.contains(&link.object.as_str()));
        links.map(|link| format!("{}: {}", link.object, link.says)).collect::<Vec<_>>()
    };
    let words = told(&["4"]).join("\n");
    assert!(words.starts_with("kubelet: its QoS class is BestEffort\nkubelet: its cgroup has"), "{words}");
    assert!(words.contains("advice: no cpu and no memory are requested beside the claims"), "{words}");
    // Devices that take nothing add nothing.
    assert_eq!(told(&[]), Vec::<String>::new());
}
