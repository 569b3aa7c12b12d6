//! Which of several nodes a Pod gets.

use serde_json::json;

use super::*;

fn nics(node: usize, count: usize) -> Value {
    let devices: Vec<Value> = (0..count).map(|device| json!({"name": format!("nic-{device}")})).collect();
    json!({"metadata": {"name": format!("nics-{node}"), "uid": format!("nics-{node}"), "resourceVersion": "1"},
        "spec": {"driver": "nic.example.com", "nodeName": name(node), "devices": devices,
            "pool": {"name": name(node), "generation": 1, "resourceSliceCount": 1}}})
}

/// A claim of another Pod that has devices of a node.
fn holds(number: usize, driver: &str, node: usize, devices: &[&str]) -> Value {
    let result =
        |device: &&str| json!({"request": "gpu", "driver": driver, "pool": name(node), "device": device});
    let results: Vec<Value> = devices.iter().map(result).collect();
    claim(
        number,
        &json!({"allocation": {"devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": [name(node)]}]}]}}}),
    )
}

/// The node that a Pod of one GPU gets.
fn chosen(index: &mut Allocation) -> String {
    comes(index, 0, "1");
    let decision = decided(index, &InFlightAllocations::default(), 0).expect("there is room");
    decision.node.to_string()
}

/// Free network cards make no node emptier for a Pod that asks for a GPU.
#[test]
fn nodes_are_ranked_by_the_devices_that_a_pod_asks_for() {
    let mut index = cluster(2, 0);
    applied::<ResourceSlice>(&mut index, &nics(1, 16));
    // Node 1 has 6 free GPUs and 16 free network cards, node 0 has 8 free GPUs.
    applied::<ResourceClaim>(&mut index, &holds(9, DRIVER, 1, &["gpu-0", "gpu-1"]));
    assert_eq!(chosen(&mut index), name(1));
}

/// A class that does not name its driver may mean any device.
#[test]
fn without_a_driver_every_device_counts() {
    let mut index = cluster(2, 0);
    let class = json!({"metadata": {"name": "gpu", "uid": "class", "resourceVersion": "2"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver.startsWith('gpu')"}}]}});
    applied::<DeviceClass>(&mut index, &class);
    applied::<ResourceSlice>(&mut index, &nics(1, 16));
    applied::<ResourceClaim>(&mut index, &holds(9, DRIVER, 1, &["gpu-0", "gpu-1"]));
    assert_eq!(chosen(&mut index), name(0));
}

/// A device that a claim only administers is free.
#[test]
fn devices_with_admin_access_are_not_taken() {
    let mut index = cluster(2, 0);
    let mut monitor = holds(9, DRIVER, 1, &["gpu-0"]);
    monitor["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = json!(true);
    applied::<ResourceClaim>(&mut index, &monitor);
    assert_eq!(chosen(&mut index), name(0));
}

/// Where nodes have as many free devices, packing fills the one whose cpu is taken already.
#[test]
fn the_ledger_decides_between_nodes_with_as_many_devices() {
    let mut index = cluster(3, 0);
    let bound = json!({"metadata": {"namespace": "ns", "name": "bound", "uid": "bound", "resourceVersion": "1"},
        "spec": {"nodeName": name(1), "containers": [{"name": "main", "resources": {"requests": {"cpu": "9"}}}]},
        "status": {"phase": "Running"}});
    applied::<Pod>(&mut index, &bound);
    assert_eq!(chosen(&mut index), name(1));
}

/// The devices of the node do not say where they are. A Pod that asks for aligned ones finds none, and holds up no other of its kind.
#[test]
fn devices_that_a_pod_asks_to_be_aligned_are_judged_by_that() {
    let mut index = cluster(1, 0);
    let asks = |index: &mut Allocation, number: usize| {
        applied::<ResourceClaim>(index, &claim(number, &json!({})));
        let mut asking = pod(number, "1");
        asking["metadata"]["annotations"] =
            json!({"dragoman.dev/aligned-by": "resource.kubernetes.io/numaNode"});
        applied::<Pod>(index, &asking);
    };
    asks(&mut index, 0);
    comes(&mut index, 1, "1");
    let none = InFlightAllocations::default();
    let why = decided(&mut index, &none, 0).expect_err("no device says it").join(" ");
    assert!(why.contains("no value of attribute resource.kubernetes.io/numaNode"), "{why}");
    assert!(decided(&mut index, &none, 1).is_ok(), "it asks for nothing");
}
