//! Quantities that the API server stores and no integer holds: what has one is unusable, and nothing
//! else is.

use std::error::Error;

use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Cause, Options, Outcome, Overlay, Snapshot, allocate};
use serde_json::{Value, json};

/// 39 digits, and more than any number with 1000 digits.
const ENDLESS: [&str; 2] = ["111111111111111111111111111111111111111", "1e1001"];

/// Two devices of which claims take shares, and two that draw from a counter.
fn cluster(change: impl FnOnce(&mut Value)) -> Result<Scenario, serde_json::Error> {
    let device = |name: &str| {
        json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": "40Gi",
            "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}}})
    };
    let part = |name: &str| json!({"name": name, "consumesCounters": [{"counterSet": "set", "counters": {"c": {"value": "1"}}}]});
    let slice = |name: &str, count: usize, content: (&str, Value)| {
        let mut slice = json!({"metadata": {"name": name}, "spec": {
            "driver": "gpu.example.com", "nodeName": "node",
            "pool": {"name": name.split('-').next(), "generation": 1, "resourceSliceCount": count}}});
        if let Some(spec) = slice.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert(content.0.to_owned(), content.1);
        }
        slice
    };
    let mut whole = json!({
        "nodes": [{"metadata": {"name": "node"}}], "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceSlices": [
            slice("gpus", 1, ("devices", json!([device("gpu-0"), device("gpu-1")]))),
            slice("parts-devices", 2, ("devices", json!([part("part-0"), part("part-1")]))),
            slice("parts-counters", 2, ("sharedCounters", json!([{"name": "set", "counters": {"c": {"value": "2"}}}])))],
        "resourceClaims": [
            {"metadata": {"namespace": "ns", "name": "c", "uid": "c"}, "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 3}}]}}},
            {"metadata": {"namespace": "ns", "name": "holder", "uid": "h"}, "status": {"allocation": {"devices":
                {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "gpus", "device": "gpu-1",
                    "shareID": "s", "consumedCapacity": {"memory": "1Gi"}}]}}}}],
        "allocate": ["ns/c"], "candidates": ["node"]
    });
    change(&mut whole);
    serde_json::from_value(whole)
}

fn outcome(scenario: &Scenario) -> Result<Outcome, Box<dyn Error>> {
    let snapshot = scenario.snapshot(&Snapshot::default())?;
    let claims = scenario.claims(&snapshot)?;
    Ok(allocate(&snapshot, &Overlay::default(), "node", &claims, Options::default()))
}

/// The devices that the claim gets; on a node without a solution what is against the devices.
fn said(scenario: &Scenario) -> Result<String, Box<dyn Error>> {
    Ok(match outcome(scenario)? {
        Outcome::Solution(solution) => {
            let allocations = solution.allocations(&mut || "share".into())?;
            let results = allocations.iter().flat_map(|(_, allocation)| &allocation.devices.results);
            results.map(|result| &*result.device).collect::<Vec<_>>().join(" ")
        }
        Outcome::Unsatisfiable(unsolved) => {
            let request = unsolved.explain().requests.remove(0);
            let causes = request.pools.iter().flat_map(|pool| pool.causes.clone());
            causes.map(|(cause, count)| format!("{cause:?} {count}")).collect::<Vec<_>>().join(", ")
        }
        Outcome::PodError(error) => error.to_string(),
        Outcome::NodeError(error) => error.to_string(),
        other => format!("{other:?}"),
    })
}

fn set(whole: &mut Value, path: &str, value: Value) {
    if let Some(field) = whole.pointer_mut(path) {
        *field = value;
    }
}

#[test]
fn a_device_that_cannot_be_read_is_not_used_and_others_are() -> Result<(), Box<dyn Error>> {
    assert_eq!(said(&cluster(|_| {})?)?, "gpu-0 gpu-1 part-0");
    for endless in ENDLESS {
        let memory = "/resourceSlices/0/spec/devices/0/capacity/memory/value";
        let unread = cluster(|whole| set(whole, memory, json!(endless)))?;
        assert_eq!(said(&unread)?, "gpu-1 part-0 part-1", "{endless}");
        let more = |whole: &mut Value| {
            set(whole, memory, json!(endless));
            set(whole, "/resourceClaims/0/spec/devices/requests/0/exactly/count", json!(4));
        };
        assert!(said(&cluster(more)?)?.contains(&format!("{:?} 1", Cause::Unreadable)), "{endless}");
        let all = |whole: &mut Value| {
            set(whole, memory, json!(endless));
            set(whole, "/resourceClaims/0/spec/devices/requests/0/exactly/allocationMode", json!("All"));
        };
        let said = said(&cluster(all)?)?;
        assert!(
            said.contains("pool gpus of driver gpu.example.com") && said.contains("device gpu-0: quantity"),
            "{said}"
        );
    }
    Ok(())
}

#[test]
fn a_held_device_that_cannot_be_read_still_draws_from_its_counters() -> Result<(), Box<dyn Error>> {
    let unread = |whole: &mut Value| {
        set(whole, "/resourceSlices/1/spec/devices/0/capacity", Value::Null);
        if let Some(device) =
            whole.pointer_mut("/resourceSlices/1/spec/devices/0").and_then(Value::as_object_mut)
        {
            device.insert("capacity".to_owned(), json!({"memory": {"value": "1e1001"}}));
        }
        set(whole, "/resourceSlices/2/spec/sharedCounters/0/counters/c/value", json!("1"));
        set(whole, "/resourceClaims/1/status/allocation/devices/results/0/pool", json!("parts"));
        set(whole, "/resourceClaims/1/status/allocation/devices/results/0/device", json!("part-0"));
        if let Some(result) = whole
            .pointer_mut("/resourceClaims/1/status/allocation/devices/results/0")
            .and_then(Value::as_object_mut)
        {
            result.remove("shareID");
            result.remove("consumedCapacity");
        }
    };
    assert!(said(&cluster(unread)?)?.contains("Counters 1"));
    // What it draws is what cannot be read.
    let amount = "/resourceSlices/1/spec/devices/0/consumesCounters/0/counters/c/value";
    let unread = cluster(|whole| set(whole, amount, json!("1e1001")))?;
    let said = said(&unread)?;
    assert!(said.contains("pool parts of driver gpu.example.com: device part-0: quantity"), "{said}");
    Ok(())
}

#[test]
fn a_counter_set_that_cannot_be_read_makes_its_pool_invalid() -> Result<(), Box<dyn Error>> {
    let amount = "/resourceSlices/2/spec/sharedCounters/0/counters/c/value";
    let said = said(&cluster(|whole| set(whole, amount, json!("1e1001")))?)?;
    assert!(said.contains("pool parts of driver gpu.example.com: counter set set: quantity"), "{said}");
    Ok(())
}

#[test]
fn a_device_of_which_an_unknown_share_is_taken_is_taken() -> Result<(), Box<dyn Error>> {
    let consumed = "/resourceClaims/1/status/allocation/devices/results/0/consumedCapacity/memory";
    let unread = cluster(|whole| set(whole, consumed, json!("1e1001")))?;
    assert_eq!(said(&unread)?, "gpu-0 part-0 part-1");
    Ok(())
}

#[test]
fn a_request_that_cannot_be_read_is_an_error_of_its_claim() -> Result<(), Box<dyn Error>> {
    let unread = cluster(|whole| {
        let capacity = json!({"requests": {"memory": "1e1001"}});
        if let Some(exactly) = whole
            .pointer_mut("/resourceClaims/0/spec/devices/requests/0/exactly")
            .and_then(Value::as_object_mut)
        {
            exactly.insert("capacity".to_owned(), capacity);
        }
    })?;
    let said = said(&unread)?;
    assert!(
        said.starts_with("claim ns/c: spec.devices.requests[0]: request r: quantity \"1e1001\":"),
        "{said}"
    );
    Ok(())
}
