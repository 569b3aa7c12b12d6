//! Alignment: devices of a Pod on one PCIe root, or else on one NUMA node (docs/allocator.md 3.2).
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Alignment, Choice, Options, Outcome, Overlay, Snapshot, Solution, allocate};
use serde_json::{Value, json};

/// A device at a PCIe root and a NUMA node; an empty text: it does not say.
fn device(name: &str, root: &str, numa: &str) -> Value {
    let mut attributes = json!({"kind": {"string": name.split('-').next()}});
    for (attribute, value) in [("pcieRoot", root), ("numaNode", numa)] {
        if !value.is_empty() {
            attributes[format!("resource.kubernetes.io/{attribute}")] = json!({"string": value});
        }
    }
    json!({"name": name, "attributes": attributes})
}

fn request(name: &str, kind: &str, count: u32) -> Value {
    let expression = format!("device.attributes['{kind}.example.com'].kind == '{kind}'");
    json!({"name": name, "exactly": {"deviceClassName": kind, "allocationMode": "ExactCount", "count": count,
        "selectors": [{"cel": {"expression": expression}}]}})
}

fn claim(name: &str, requests: &[Value]) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"devices": {"requests": requests}}})
}

/// A node with these GPUs and network cards, and these claims of one Pod.
fn scenario(gpus: &[Value], nics: &[Value], claims: &[Value]) -> Value {
    let slice = |kind: &str, devices: &[Value]| {
        json!({"metadata": {"name": kind}, "spec": {"driver": format!("{kind}.example.com"), "nodeName": "n",
            "devices": devices, "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}})
    };
    let class = |kind: &str| {
        let expression = format!("device.driver == '{kind}.example.com'");
        json!({"metadata": {"name": kind}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
    };
    let names: Vec<String> =
        claims.iter().map(|of| format!("ns/{}", of["metadata"]["name"].as_str().unwrap())).collect();
    json!({"nodes": [{"metadata": {"name": "n"}}], "deviceClasses": [class("gpu"), class("nic")],
        "resourceSlices": [slice("gpu", gpus), slice("nic", nics)], "resourceClaims": claims,
        "allocate": names, "candidates": ["n"], "featureGates": {"DRAPrioritizedList": true}})
}

fn solved(scenario: &Value, align: Alignment) -> Solution {
    let scenario: Scenario = serde_json::from_value(scenario.clone()).unwrap();
    let snapshot = scenario.snapshot(&Snapshot::default()).unwrap();
    let claims = scenario.claims(&snapshot).unwrap();
    let options = Options { align, choice: Choice::BestFit, ..Options::default() };
    match allocate(&snapshot, &Overlay::default(), "n", &claims, options) {
        Outcome::Solution(solution) => solution,
        other => panic!("{other:?}"),
    }
}

fn devices(solution: &Solution) -> String {
    let allocations = solution.allocations(&mut || "share".into()).unwrap();
    let results = allocations.iter().flat_map(|(_, of)| &of.devices.results);
    results.map(|of| of.device.to_string()).collect::<Vec<_>>().join(" ")
}

/// The devices without alignment, and with it.
fn both(scenario: &Value) -> [String; 2] {
    [Alignment::None, Alignment::Preferred].map(|align| devices(&solved(scenario, align)))
}

fn gpu_and_nic() -> [Value; 2] {
    [claim("gpu", &[request("gpu", "gpu", 1)]), claim("nic", &[request("nic", "nic", 1)])]
}

/// As [`gpu_and_nic`]; the Pod has this GPU already.
fn with_its_gpu(device: &str) -> [Value; 2] {
    let [mut gpu, nic] = gpu_and_nic();
    let result = json!({"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": device});
    gpu["status"] = json!({"allocation": {"devices": {"results": [result]}}});
    [gpu, nic]
}

#[test]
fn a_network_card_comes_beside_its_gpu_from_another_claim() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "1")];
    let scenario = scenario(&gpus, &[device("nic-0", "b", "1")], &gpu_and_nic());
    assert_eq!(both(&scenario), ["gpu-0 nic-0", "gpu-1 nic-0"]);
    let place = solved(&scenario, Alignment::Preferred).place();
    assert_eq!(place, Some(("resource.kubernetes.io/pcieRoot", "b".to_owned())));
    assert_eq!(solved(&scenario, Alignment::None).place(), None);
}

#[test]
fn without_a_common_root_devices_share_a_numa_node() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "1")];
    let scenario = scenario(&gpus, &[device("nic-0", "c", "1")], &gpu_and_nic());
    assert_eq!(both(&scenario), ["gpu-0 nic-0", "gpu-1 nic-0"]);
    let place = solved(&scenario, Alignment::Preferred).place();
    assert_eq!(place, Some(("resource.kubernetes.io/numaNode", "1".to_owned())));
}

#[test]
fn a_pod_that_cannot_be_aligned_gets_what_there_is() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "0")];
    let apart = scenario(&gpus, &[device("nic-0", "c", "1")], &gpu_and_nic());
    assert_eq!(both(&apart), ["gpu-0 nic-0", "gpu-0 nic-0"]);
    let silent = scenario(&gpus, &[device("nic-0", "", "")], &gpu_and_nic());
    assert_eq!(both(&silent), ["gpu-0 nic-0", "gpu-0 nic-0"], "the card does not say where it is");
}

#[test]
fn devices_of_one_request_are_aligned_too() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "0"), device("gpu-2", "b", "0")];
    let two = scenario(&gpus, &[], &[claim("c", &[request("gpu", "gpu", 2)])]);
    assert_eq!(both(&two), ["gpu-0 gpu-1", "gpu-1 gpu-2"]);
}

#[test]
fn devices_that_do_not_say_where_they_are_fit_everywhere() {
    let gpus = [device("gpu-0", "a", ""), device("gpu-1", "b", ""), device("gpu-2", "b", "")];
    let claims = [claim("c", &[request("gpu", "gpu", 2)]), claim("nic", &[request("nic", "nic", 1)])];
    let scenario = scenario(&gpus, &[device("nic-0", "", "")], &claims);
    assert_eq!(both(&scenario), ["gpu-0 gpu-1 nic-0", "gpu-1 gpu-2 nic-0"]);
}

/// A root with few devices is of no use to a Pod that needs many.
#[test]
fn the_place_with_the_fewest_devices_comes_first() {
    let gpus: Vec<Value> = ["a", "b", "b", "b", "c", "c"]
        .iter()
        .enumerate()
        .map(|(number, root)| device(&format!("gpu-{number}"), root, ""))
        .collect();
    let two = scenario(&gpus, &[], &[claim("c", &[request("gpu", "gpu", 2)])]);
    assert_eq!(both(&two), ["gpu-0 gpu-1", "gpu-4 gpu-5"]);
}

#[test]
fn a_better_alternative_goes_before_alignment() {
    let sub = |name: &str, number: &str| {
        let expression = format!(
            "device.attributes['gpu.example.com'].kind == 'gpu' && device.attributes['resource.kubernetes.io'].pcieRoot == '{number}'"
        );
        json!({"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": expression}}]})
    };
    let gpu = json!({"name": "gpu", "firstAvailable": [sub("large", "a"), sub("small", "b")]});
    let claims = [claim("gpu", &[gpu]), claim("nic", &[request("nic", "nic", 1)])];
    let gpus = [device("gpu-0", "a", ""), device("gpu-1", "b", "")];
    let apart = scenario(&gpus, &[device("nic-0", "b", "")], &claims);
    assert_eq!(both(&apart), ["gpu-0 nic-0", "gpu-0 nic-0"]);
}

#[test]
fn a_request_for_all_devices_gets_all() {
    let mut all = request("gpu", "gpu", 1);
    all["exactly"]["allocationMode"] = json!("All");
    all["exactly"].as_object_mut().unwrap().remove("count");
    let gpus = [device("gpu-0", "a", ""), device("gpu-1", "b", "")];
    let claims = [claim("gpu", &[all]), claim("nic", &[request("nic", "nic", 1)])];
    let scenario = scenario(&gpus, &[device("nic-0", "b", "")], &claims);
    assert_eq!(both(&scenario), ["gpu-0 gpu-1 nic-0", "gpu-0 gpu-1 nic-0"]);
}

/// The node may have no cpus for the aligned devices.
#[test]
fn where_aligned_devices_are_refused_others_are_tried() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "1")];
    let scenario = scenario(&gpus, &[device("nic-0", "b", "1")], &gpu_and_nic());
    let refused = solved(&scenario, Alignment::Preferred);
    let Outcome::Solution(next) = refused.refused(&|_, _, _| None, Options::default()) else {
        panic!("none")
    };
    assert_eq!(devices(&next), "gpu-0 nic-0");
    let Outcome::Solution(last) = next.refused(&|_, _, _| None, Options::default()) else { panic!("none") };
    assert_eq!(devices(&last), "gpu-1 nic-0", "the plain search goes on behind it");
    assert!(matches!(last.refused(&|_, _, _| None, Options::default()), Outcome::Unsatisfiable(_)));
}

/// Adds devices of another driver, and a class for them.
fn with(mut scenario: Value, kind: &str, devices: &[Value]) -> Value {
    let slice = json!({"metadata": {"name": kind}, "spec": {"driver": format!("{kind}.example.com"), "nodeName": "n",
        "devices": devices, "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}});
    scenario["resourceSlices"].as_array_mut().unwrap().push(slice);
    let expression = format!("device.driver == '{kind}.example.com'");
    let class =
        json!({"metadata": {"name": kind}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    scenario["deviceClasses"].as_array_mut().unwrap().push(class);
    scenario
}

/// A device that says its NUMA node alone belongs to those that say their root, too.
#[test]
fn devices_without_a_root_are_on_the_numa_node_of_the_others() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "1")];
    let claims = [gpu_and_nic(), [claim("cpu", &[request("cpu", "cpu", 1)]), claim("unused", &[])]].concat();
    let all = scenario(&gpus, &[device("nic-0", "b", "1")], &claims[..3]);
    let all = with(all, "cpu", &[device("cpu-0", "", "0"), device("cpu-1", "", "1")]);
    assert_eq!(both(&all), ["gpu-0 nic-0 cpu-0", "gpu-1 nic-0 cpu-1"]);
    // On one root by chance, and across NUMA nodes.
    let near = scenario(&gpus, &[device("nic-0", "a", "0")], &claims[..3]);
    let near = with(near, "cpu", &[device("cpu-0", "", "1"), device("cpu-1", "", "0")]);
    assert_eq!(both(&near), ["gpu-0 nic-0 cpu-0", "gpu-0 nic-0 cpu-1"]);
}

/// Roots with one device each come first, and no device of another driver is of use.
#[test]
fn devices_of_other_drivers_are_no_places() {
    let disks: Vec<Value> =
        (0..40).map(|number| device(&format!("disk-{number}"), &format!("d{number}"), "")).collect();
    let gpus = [device("gpu-0", "a", ""), device("gpu-1", "b", "")];
    let many = with(scenario(&gpus, &[device("nic-0", "b", "")], &gpu_and_nic()), "disk", &disks);
    assert_eq!(both(&many), ["gpu-0 nic-0", "gpu-1 nic-0"]);
}

#[test]
fn a_card_comes_beside_the_gpu_that_the_pod_has_already() {
    let gpus = [device("gpu-0", "a", ""), device("gpu-1", "b", "")];
    let nics = [device("nic-0", "a", ""), device("nic-1", "b", "")];
    let scenario = scenario(&gpus, &nics, &with_its_gpu("gpu-1"));
    assert_eq!(both(&scenario), ["nic-0", "nic-1"]);
}

/// Drivers that publish no root at all.
#[test]
fn devices_that_say_their_numa_node_alone_share_it() {
    let gpus = [device("gpu-0", "", "0"), device("gpu-1", "", "1")];
    let scenario = scenario(&gpus, &[device("nic-0", "", "1")], &gpu_and_nic());
    assert_eq!(both(&scenario), ["gpu-0 nic-0", "gpu-1 nic-0"]);
}

/// A root with fewer devices on the NUMA node of the GPU is closer than none, and not as close as its own root.
#[test]
fn the_place_of_a_device_that_the_pod_has_goes_before_smaller_ones() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "a", "0")];
    let nics = [device("nic-0", "c", "1"), device("nic-1", "b", "0"), device("nic-2", "a", "0")];
    let scenario = scenario(&gpus, &nics, &with_its_gpu("gpu-0"));
    assert_eq!(both(&scenario), ["nic-0", "nic-2"]);
}

/// A search that was paused, and one beside an invalid pool.
#[test]
fn a_resumed_search_is_aligned_too() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "1")];
    let mut all = scenario(&gpus, &[device("nic-0", "b", "1")], &gpu_and_nic());
    let twice = json!({"metadata": {"name": "twice"}, "spec": {"driver": "twice.example.com", "nodeName": "n",
        "devices": [{"name": "a"}, {"name": "a"}], "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}});
    all["resourceSlices"].as_array_mut().unwrap().push(twice);
    let scenario: Scenario = serde_json::from_value(all).unwrap();
    let snapshot = scenario.snapshot(&Snapshot::default()).unwrap();
    let claims = scenario.claims(&snapshot).unwrap();
    let of = |budget| Options { align: Alignment::Preferred, budget: Some(budget), ..Options::default() };
    let Outcome::BudgetSpent(paused) = allocate(&snapshot, &Overlay::default(), "n", &claims, of(1)) else {
        panic!("it is paused")
    };
    let Outcome::Solution(solution) = paused.resume(of(2_000)) else { panic!("a solution") };
    assert_eq!(devices(&solution), "gpu-1 nic-0");
}

const BY_ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// The devices of a Pod that asks for devices which share an attribute, in both orders of the devices; else why there are none.
fn required(scenario: &Value, attribute: &str) -> Result<String, String> {
    let mut scenario: Scenario = serde_json::from_value(scenario.clone()).unwrap();
    scenario.aligned_by = Some(attribute.into());
    let snapshot = scenario.snapshot(&Snapshot::default()).unwrap();
    let claims = scenario.claims(&snapshot).unwrap();
    let [first, best] = [Choice::FirstFit, Choice::BestFit].map(|choice| {
        let options = Options { choice, ..Options::default() };
        match allocate(&snapshot, &Overlay::default(), "n", &claims, options) {
            Outcome::Solution(solution) => Ok(devices(&solution)),
            Outcome::Unsatisfiable(why) => Err(why.explain().to_string()),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(first.is_ok(), best.is_ok());
    first
}

#[test]
fn devices_of_all_claims_share_what_the_pod_asks_for() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "1"), device("gpu-2", "b", "1")];
    let nic = device("nic-0", "b", "1");
    let one = scenario(&gpus, std::slice::from_ref(&nic), &gpu_and_nic());
    assert_eq!(required(&one, BY_ROOT).as_deref(), Ok("gpu-1 nic-0"));
    let claims = [claim("gpu", &[request("gpu", "gpu", 2)]), claim("nic", &[request("nic", "nic", 1)])];
    let two = scenario(&gpus, std::slice::from_ref(&nic), &claims);
    assert_eq!(required(&two, BY_ROOT).as_deref(), Ok("gpu-1 gpu-2 nic-0"));
}

#[test]
fn devices_that_are_apart_or_do_not_say_where_they_are_are_refused() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "0")];
    let apart = scenario(&gpus, &[device("nic-0", "c", "0")], &gpu_and_nic());
    let why = "each request alone finds devices, but not all together: request nic of claim ns/nic: \
        no value of attribute resource.kubernetes.io/pcieRoot that all devices of the Pod share\n";
    assert_eq!(required(&apart, BY_ROOT), Err(why.to_owned()));
    assert_eq!(required(&apart, "resource.kubernetes.io/numaNode").as_deref(), Ok("gpu-0 nic-0"));
    let silent = scenario(&gpus, &[device("nic-0", "", "")], &gpu_and_nic());
    let why = required(&silent, BY_ROOT).unwrap_err();
    assert!(why.contains("1 device: no value of attribute resource.kubernetes.io/pcieRoot"), "{why}");
}

/// The claim that is allocated already says where the Pod is.
#[test]
fn devices_that_the_pod_has_count() {
    let gpus = [device("gpu-0", "a", "0"), device("gpu-1", "b", "1"), device("gpu-2", "", "")];
    let nics = [device("nic-0", "a", "0"), device("nic-1", "b", "1")];
    let with = |gpu: &str| required(&scenario(&gpus, &nics, &with_its_gpu(gpu)), BY_ROOT);
    assert_eq!(with("gpu-1").as_deref(), Ok("nic-1"));
    assert!(with("gpu-2").is_err(), "it does not say where it is");
}

/// Pruning takes these GPUs for the same: none of them may be left out for another one.
#[test]
fn devices_that_differ_in_nothing_else_are_all_tried() {
    let gpus: Vec<Value> =
        (0..120).map(|of| device(&format!("gpu-{of}"), &format!("r{}", of / 2), "0")).collect();
    let nics = [device("nic-0", "r59", "0"), device("nic-1", "r99", "0")];
    let of_gpus = |count| {
        let claims =
            [claim("gpu", &[request("gpu", "gpu", count)]), claim("nic", &[request("nic", "nic", 1)])];
        required(&scenario(&gpus, &nics, &claims), BY_ROOT)
    };
    assert_eq!(of_gpus(2).as_deref(), Ok("gpu-118 gpu-119 nic-0"));
    assert!(of_gpus(3).is_err());
}

/// A request for all devices that are not on one root has none on this node.
#[test]
fn all_devices_are_given_where_they_share_it() {
    let all = |gpus: &[Value]| {
        let mut request = request("gpu", "gpu", 1);
        request["exactly"]["allocationMode"] = json!("All");
        request["exactly"]["count"] = Value::Null;
        required(&scenario(gpus, &[], &[claim("c", &[request])]), BY_ROOT)
    };
    assert_eq!(all(&[device("gpu-0", "a", "0"), device("gpu-1", "a", "0")]).as_deref(), Ok("gpu-0 gpu-1"));
    assert!(all(&[device("gpu-0", "a", "0"), device("gpu-1", "b", "0")]).is_err());
}

/// The search does not try every combination of alike devices that are apart from another one.
#[test]
fn alike_devices_at_a_place_are_tried_once() {
    for (each, wanted) in [(8, 4), (16, 8), (28, 7)] {
        let gpu = |of: usize| device(&format!("gpu-{of}"), "", if of < each { "0" } else { "1" });
        let gpus: Vec<Value> = (0..2 * each).map(gpu).collect();
        let claims =
            [claim("gpu", &[request("gpu", "gpu", wanted)]), claim("nic", &[request("nic", "nic", 1)])];
        let mut scenario: Scenario =
            serde_json::from_value(scenario(&gpus, &[device("nic-0", "", "1")], &claims)).unwrap();
        scenario.aligned_by = Some("resource.kubernetes.io/numaNode".into());
        let snapshot = scenario.snapshot(&Snapshot::default()).unwrap();
        let claims = scenario.claims(&snapshot).unwrap();
        let options = Options { budget: Some(2_000), ..Options::default() };
        let outcome = allocate(&snapshot, &Overlay::default(), "n", &claims, options);
        assert!(matches!(outcome, Outcome::Solution(_)), "{wanted} of {each}: {outcome:?}");
    }
}
