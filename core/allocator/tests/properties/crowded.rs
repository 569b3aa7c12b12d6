//! A node whose devices just suffice, or just not: a search goes back often before it ends.

use fastrand::Rng;
use serde_json::{Value, json};

/// The scarce thing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scarce {
    /// Counters of which every device draws another amount.
    Counters,
    /// Compatibility groups of the devices that draw from one counter set.
    Groups,
    /// Capacity of devices that several requests share.
    Capacity,
    /// Values that all devices of a claim have in common.
    Values,
}

/// Draws a scenario of one node and one pool, with counters in a slice of their own.
pub(crate) fn scenario(rng: &mut Rng) -> Value {
    let all = [Scarce::Counters, Scarce::Groups, Scarce::Capacity, Scarce::Values];
    let scarce = *rng.choice(&all).unwrap_or(&Scarce::Counters);
    let amount = if scarce == Scarce::Capacity { rng.usize(2..=3) } else { rng.usize(5..=8) };
    let devices: Vec<Value> = (0..amount).map(|number| device(rng, scarce, number)).collect();
    let slice = |name: &str, field: &str, content: Value| {
        let mut spec = json!({
            "driver": "gpu.example.com", "nodeName": "node",
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 2},
        });
        spec[field] = content;
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let counters = json!([{"name": "set", "counters": {"memory": {"value": rng.u8(5..=12).to_string()}}}]);
    let requests = if scarce == Scarce::Capacity { rng.usize(6..=8) } else { rng.usize(3..=5) };
    let requests = (0..requests).map(|number| request(rng, scarce, number));
    let mut asked = json!({"requests": requests.collect::<Vec<_>>()});
    if scarce == Scarce::Values || rng.u8(0..4) == 0 {
        let attribute = rng.choice(["list", "model"]).unwrap_or("list");
        asked["constraints"] = json!([{"matchAttribute": format!("gpu.example.com/{attribute}")}]);
    }
    json!({
        "nodes": [{"metadata": {"name": "node"}}],
        "resourceSlices": [slice("a", "devices", devices.into()), slice("b", "sharedCounters", counters)],
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceClaims": [{
            "metadata": {"namespace": "default", "name": "c", "uid": "c"}, "spec": {"devices": asked},
        }],
        "allocate": ["default/c"],
        "candidates": ["node"],
        "featureGates": {
            "DRAConsumableCapacity": true, "DRADeviceCompatibilityGroups": true,
            "DRAListTypeAttributes": true, "DRAPartitionableDevices": true, "DRAPrioritizedList": true,
        },
    })
}

fn device(rng: &mut Rng, scarce: Scarce, number: usize) -> Value {
    let list = *rng.choice(&[[0, 1], [1, 2], [0, 2]]).unwrap_or(&[0, 1]);
    let model = rng.choice(["a", "a", "b"]).unwrap_or("a");
    let mut device = json!({
        "name": format!("dev-{number}"),
        "attributes": {"model": {"string": model}, "list": {"ints": list}},
    });
    match scarce {
        Scarce::Counters | Scarce::Groups => {
            let most = if scarce == Scarce::Groups { 1 } else { 4 };
            let memory = json!({"value": rng.u8(1..=most).to_string()});
            device["consumesCounters"] = json!([{"counterSet": "set", "counters": {"memory": memory}}]);
            // Apart from what they draw, the devices are alike.
            device["attributes"]["list"] = json!({"ints": [0]});
        }
        Scarce::Capacity => {
            device["allowMultipleAllocations"] = json!(true);
            device["capacity"] = json!({"memory": {"value": rng.u8(6..=9).to_string()}});
            device["attributes"] = json!({"model": {"string": "a"}});
        }
        Scarce::Values => {}
    }
    if scarce == Scarce::Groups && rng.u8(0..5) > 0 {
        let groups: &[&str] = rng.choice([&["x"][..], &["y"], &["x", "y"], &["y", "z"]]).unwrap_or(&["x"]);
        device["consumesCounters"][0]["compatibilityGroups"] = json!(groups);
    }
    device
}

fn request(rng: &mut Rng, scarce: Scarce, number: usize) -> Value {
    let mut asked = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1});
    if scarce == Scarce::Capacity {
        asked["capacity"] = json!({"requests": {"memory": rng.u8(1..=4).to_string()}});
    } else {
        asked["count"] = json!(if rng.u8(0..4) == 0 { 2 } else { 1 });
        if rng.u8(0..3) == 0 {
            let expression = "device.attributes['gpu.example.com'].model == 'a'";
            asked["selectors"] = json!([{"cel": {"expression": expression}}]);
        }
    }
    let name = format!("req-{number}");
    if rng.u8(0..5) == 0 {
        let mut other = asked.clone();
        asked["name"] = json!("sub-0");
        other["name"] = json!("sub-1");
        asked["count"] = json!(2);
        return json!({"name": name, "firstAvailable": [asked, other]});
    }
    json!({"name": name, "exactly": asked})
}
