//! Best fit: which of the devices that satisfy a request is taken (docs/allocator.md 3.1).
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Choice, Loss, Options, Outcome, Overlay, Snapshot, Solution, allocate};
use serde_json::{Value, json};

/// A node with these devices and counter sets, devices that claims hold, and a claim for `count` devices that a selector selects.
fn scenario(
    devices: &Value,
    counters: &Value,
    held: &[Value],
    (count, selector): (u32, &str),
    capacity: &Value,
) -> Value {
    let class = |name: &str| json!({"metadata": {"name": name}});
    let slice = |name: &str, field: &str, value: &Value| {
        let mut slice = json!({"metadata": {"name": name}, "spec": {"driver": "gpu.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}}});
        slice["spec"][field] = value.clone();
        slice
    };
    let holder = |(number, result): (usize, &Value)| {
        let mut result = result.clone();
        for (field, value) in [("driver", "gpu.example.com"), ("pool", "n"), ("request", "r")] {
            result[field] = json!(value);
        }
        json!({"metadata": {"namespace": "ns", "name": format!("held-{number}"), "uid": format!("held-{number}")},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {"allocation": {"devices": {"results": [result]}}}})
    };
    let mut claims: Vec<Value> = held.iter().enumerate().map(holder).collect();
    claims.push(
        json!({"metadata": {"namespace": "ns", "name": "c", "uid": "c"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count,
            "selectors": [{"cel": {"expression": selector}}], "capacity": capacity}}]}}}),
    );
    json!({"nodes": [{"metadata": {"name": "n"}}], "deviceClasses": [class("gpu")],
        "resourceSlices": [slice("counters", "sharedCounters", counters), slice("devices", "devices", devices)],
        "resourceClaims": claims, "allocate": ["ns/c"], "candidates": ["n"]})
}

fn solution(scenario: &Value, choice: Choice) -> Solution {
    let scenario: Scenario = serde_json::from_value(scenario.clone()).unwrap();
    let snapshot = scenario.snapshot(&Snapshot::default()).unwrap();
    let claims = scenario.claims(&snapshot).unwrap();
    match allocate(&snapshot, &Overlay::default(), "n", &claims, Options { choice, ..Options::default() }) {
        Outcome::Solution(solution) => solution,
        other => panic!("{other:?}"),
    }
}

fn chosen(scenario: &Value, choice: Choice) -> Vec<String> {
    let allocations = solution(scenario, choice).allocations(&mut || "share".into()).unwrap();
    let results = allocations.iter().flat_map(|(_, allocation)| &allocation.devices.results);
    results.map(|result| result.device.to_string()).collect()
}

fn best(scenario: &Value) -> Vec<String> {
    chosen(scenario, Choice::BestFit)
}

/// Partitions of GPUs, named gpu-slices-first, each with its slices of the GPU's eight.
fn partitions(gpus: usize) -> (Value, Value) {
    let of = |gpu: usize, slices: usize, first: usize| {
        let counters: serde_json::Map<String, Value> =
            (first..first + slices).map(|slice| (format!("slice-{slice}"), json!({"value": "1"}))).collect();
        json!({"name": format!("{gpu}-{slices}-{first}"),
            "attributes": {"slices": {"int": slices}},
            "consumesCounters": [{"counterSet": format!("gpu-{gpu}"), "counters": counters}]})
    };
    let all = |gpu| {
        [8_usize, 4, 2, 1]
            .into_iter()
            .flat_map(move |slices| (0..8).step_by(slices).map(move |first| of(gpu, slices, first)))
    };
    let set = |gpu: usize| {
        let counters: serde_json::Map<String, Value> =
            (0..8).map(|slice| (format!("slice-{slice}"), json!({"value": "1"}))).collect();
        json!({"name": format!("gpu-{gpu}"), "counters": counters})
    };
    ((0..gpus).flat_map(all).collect(), (0..gpus).map(set).collect())
}

fn wants(slices: usize) -> String {
    format!("device.attributes['gpu.example.com'].slices == {slices}")
}

fn held(device: &str) -> Value {
    json!({"device": device})
}

#[test]
fn a_partition_is_taken_where_it_splits_nothing() {
    let (devices, counters) = partitions(2);
    let with = |taken: &[Value], slices| {
        let scenario = scenario(&devices, &counters, taken, (1, &wants(slices)), &json!(null));
        (chosen(&scenario, Choice::FirstFit).concat(), best(&scenario).concat())
    };
    assert_eq!(with(&[held("1-4-0")], 4), ("0-4-0".to_owned(), "1-4-4".to_owned()));
    assert_eq!(with(&[held("1-4-0")], 1), ("0-1-0".to_owned(), "1-1-4".to_owned()));
    assert_eq!(
        with(&[held("1-4-0"), held("1-1-5")], 1).1,
        "1-1-4",
        "the other one of its pair is gone already"
    );
    assert_eq!(with(&[held("1-4-0"), held("1-1-5")], 2).1, "1-2-6");
    assert_eq!(
        with(&[], 8),
        ("0-8-0".to_owned(), "0-8-0".to_owned()),
        "equals stay in the order of Kubernetes"
    );
}

#[test]
fn a_request_that_any_device_satisfies_takes_the_least() {
    let (devices, counters) = partitions(2);
    let scenario = scenario(&devices, &counters, &[held("0-1-0")], (1, "true"), &json!(null));
    assert_eq!(best(&scenario), ["0-1-1"]);
    assert_eq!(chosen(&scenario, Choice::FirstFit), ["0-4-4"]);
}

#[test]
fn devices_of_one_request_stay_together() {
    let (devices, counters) = partitions(2);
    let scenario = scenario(&devices, &counters, &[held("1-4-0")], (2, &wants(2)), &json!(null));
    assert_eq!(best(&scenario), ["1-2-4", "1-2-6"]);
}

#[test]
fn a_whole_device_is_the_smallest_that_suffices() {
    let device = |name: &str, memory: &str| json!({"name": name, "capacity": {"memory": {"value": memory}}});
    let devices = json!([device("large", "80Gi"), device("small", "24Gi"), device("middle", "40Gi")]);
    let enough = "device.capacity['gpu.example.com'].memory.compareTo(quantity('32Gi')) >= 0";
    let scenario = scenario(&devices, &json!([]), &[], (1, enough), &json!(null));
    assert_eq!(
        (best(&scenario), chosen(&scenario, Choice::FirstFit)),
        (vec!["middle".to_owned()], vec!["large".to_owned()])
    );
}

#[test]
fn a_share_is_taken_where_the_least_is_free_that_suffices() {
    let device = |name: &str| json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": "80Gi"}}});
    let devices = json!([device("a"), device("b"), device("c")]);
    let share = |device: &str, memory: &str| json!({"device": device, "shareID": device, "consumedCapacity": {"memory": memory}});
    let taken = [share("b", "40Gi"), share("c", "64Gi")];
    let with = |memory: &str| {
        best(&scenario(&devices, &json!([]), &taken, (1, "true"), &json!({"requests": {"memory": memory}})))
            .concat()
    };
    assert_eq!((with("16Gi"), with("32Gi"), with("48Gi")), ("c".to_owned(), "b".to_owned(), "a".to_owned()));
}

#[test]
fn a_device_that_waits_for_conditions_comes_last_whatever_its_size() {
    let device = |name: &str, memory: &str| json!({"name": name, "capacity": {"memory": {"value": memory}}});
    let mut scenario =
        scenario(&json!([device("large", "80Gi")]), &json!([]), &[], (1, "true"), &json!(null));
    let mut other = scenario["resourceSlices"][1].clone();
    other["metadata"]["name"] = json!("fabric");
    other["spec"]["pool"] = json!({"name": "fabric", "generation": 1, "resourceSliceCount": 1});
    other["spec"]["devices"] = json!([{"name": "small", "capacity": {"memory": {"value": "8Gi"}},
        "bindsToNode": true, "bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}]);
    scenario["resourceSlices"].as_array_mut().unwrap().push(other);
    assert_eq!(best(&scenario), ["large"]);
}

/// A selector that fails on a device makes the Pod fail in Kubernetes, if the search comes to that device.
#[test]
fn best_fit_refuses_nothing_that_first_fit_places() {
    let devices = json!([
        {"name": "large", "attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "80Gi"}}},
        {"name": "small", "capacity": {"memory": {"value": "8Gi"}}},
    ]);
    let fails = "device.attributes['gpu.example.com'].model == 'a'";
    let scenario = scenario(&devices, &json!([]), &[], (1, fails), &json!(null));
    assert_eq!(
        (best(&scenario), chosen(&scenario, Choice::FirstFit)),
        (vec!["large".to_owned()], vec!["large".to_owned()])
    );
}

/// A free GPU of which the whole is tainted loses nothing by its halves.
#[test]
fn devices_that_no_pod_can_have_are_not_lost() {
    let (mut devices, counters) = partitions(2);
    let tainted =
        devices.as_array_mut().unwrap().iter_mut().find(|device| device["name"] == "1-8-0").unwrap();
    tainted["taints"] = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let scenario = scenario(&devices, &counters, &[], (1, &wants(4)), &json!(null));
    assert_eq!(best(&scenario), ["1-4-0"]);
}

/// Each decision would look at each pair of devices.
#[test]
fn thousands_of_devices_on_one_counter_stay_in_the_order_of_kubernetes() {
    let device = |number: usize| {
        json!({"name": format!("d-{number:04}"), "consumesCounters": [{"counterSet": "power",
            "counters": {"watts": {"value": (1_000 - number).to_string()}}}]})
    };
    let counters = json!([{"name": "power", "counters": {"watts": {"value": "1000000"}}}]);
    let chosen = |count: usize| {
        let devices: Value = (0..count).map(device).collect();
        best(&scenario(&devices, &counters, &[], (1, "true"), &json!(null))).concat()
    };
    assert_eq!((chosen(300), chosen(600)), ("d-0299".to_owned(), "d-0000".to_owned()));
}

#[test]
fn the_loss_is_said() {
    let (devices, counters) = partitions(2);
    let said = |taken: &[Value], slices| {
        let scenario = scenario(&devices, &counters, taken, (1, &wants(slices)), &json!(null));
        let losses = solution(&scenario, Choice::BestFit).losses();
        let (names, loss) = losses.first().unwrap().clone();
        (names[2].to_string(), loss)
    };
    assert_eq!(said(&[held("1-4-0")], 4), ("1-4-4".to_owned(), Loss::Devices(6)));
    assert_eq!(said(&[], 8), ("0-8-0".to_owned(), Loss::Devices(14)));
    let scenario = scenario(&devices, &counters, &[], (1, "true"), &json!(null));
    assert!(solution(&scenario, Choice::FirstFit).losses().is_empty());
}
