//! Allocations that give a claim other devices than it asks for.

use dragoman_accounting::cluster::{Slice, SliceDevice};
use dragoman_allocator::input::{Class, DeviceResult};

use super::*;
use crate::gates::given::Given;
use crate::whole::WholeClass;

/// Two GPUs, a large one and a small one, and a NIC of another driver.
fn slices() -> [Slice; 2] {
    let gpu = |name: &str, size: &str| {
        json!({"name": name, "attributes": {"size": {"string": size}, "numa": {"int": 0}},
            "capacity": {"memory": {"value": "40Gi"}}})
    };
    let slice = |driver: &str, devices: Value| {
        let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 1});
        let slice = json!({"metadata": {"name": driver}, "spec": {"driver": driver, "nodeName": "n", "pool": pool, "devices": devices}});
        serde_json::from_value::<ResourceSlice>(slice).expect("a slice").accounted()
    };
    [
        slice("gpu.example.com", json!([gpu("large", "80"), gpu("small", "40")])),
        slice("nic.example.com", json!([{"name": "nic"}])),
    ]
}

/// A class of the GPUs.
fn class(name: &str) -> Option<Arc<Class>> {
    let selectors = json!([{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]);
    let class = json!({"metadata": {"name": name}, "spec": {"selectors": selectors}});
    let class = serde_json::from_str::<WholeClass>(&class.to_string()).expect("a class").more.class();
    (name == "gpu").then(|| Arc::new(class))
}

fn claim_of(devices: &Value, results: &Value) -> ResourceClaim {
    let claim = json!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "u"},
        "spec": {"devices": devices},
        "status": {"allocation": {"devices": {"results": results}}},
    });
    serde_json::from_value(claim).expect("a claim")
}

/// What is wrong with these results for this `spec.devices`.
fn wrong(devices: &Value, results: &Value) -> Option<String> {
    let slices = slices();
    let device = |of: &DeviceResult| -> Option<&SliceDevice> {
        let slice = slices.iter().find(|slice| *slice.driver == *of.driver)?;
        slice.devices.iter().find(|device| *device.name == *of.device)
    };
    Given::of(&claim_of(devices, results))?.wrong(class, device)
}

fn result(driver: &str, device: &str) -> Value {
    json!({"request": "r", "driver": format!("{driver}.example.com"), "pool": "n", "device": device})
}

/// One request for one GPU; `change` makes it another one.
fn one(change: &Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount"});
    exactly.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    json!({"requests": [{"name": "r", "exactly": exactly}]})
}

#[test]
fn devices_that_were_not_asked_for_are_found() {
    let (large, small, nic) = (result("gpu", "large"), result("gpu", "small"), result("nic", "nic"));
    let watched = json!({"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "large", "adminAccess": true});
    let large_ones =
        json!({"selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].size == '80'"}}]});
    let all = one(&json!({"allocationMode": "All", "count": null}));
    let mut apart = one(&json!({"count": 2}));
    apart["constraints"] = json!([{"requests": ["r"], "distinctAttribute": "gpu.example.com/numa"}]);
    let plain = one(&json!({}));
    let cases = [
        (&plain, json!([nic]), "request r: device nic is none of its class"),
        (&one(&large_ones), json!([small]), "request r: device small is excluded by its selectors"),
        (&plain, json!([large, small]), "request r: has 2 devices, and asks for 1"),
        (&one(&json!({"count": 2})), json!([large]), "request r: has 1 device, and asks for 2"),
        (&plain, json!([]), "request r: has 0 devices, and asks for 1"),
        (&all, json!([]), "request r: has no device, and asks for all"),
        (&one(&json!({"count": 2})), json!([large, large]), "request r: device large is given twice"),
        (
            &plain,
            json!([watched]),
            "request r: device large is given with admin access, which it does not ask for",
        ),
        (
            &one(&json!({"adminAccess": true})),
            json!([large]),
            "request r: device large is given without the admin access that it asks for",
        ),
        (
            &apart,
            json!([large, small]),
            "request r: device small has the same value of an attribute that has to differ",
        ),
        (
            &plain,
            json!([{"request": "x", "driver": "gpu.example.com", "pool": "n", "device": "large"}]),
            "a result is for request \"x\", which the claim does not have",
        ),
    ];
    for (devices, results, why) in cases {
        assert_eq!(wrong(devices, &results).as_deref(), Some(why), "{devices} {results}");
    }
}

/// Neither what was asked for is wrong, nor what cannot be judged: a class or a device that is on its way, a field of a newer API.
#[test]
fn nothing_is_said_of_what_is_right_or_not_known() {
    let (large, small) = (result("gpu", "large"), result("gpu", "small"));
    let alternatives = json!({"requests": [{"name": "r", "firstAvailable": [
        {"name": "a", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "false"}}]},
        {"name": "b", "deviceClassName": "gpu"}]}]});
    let second = json!({"request": "r/b", "driver": "gpu.example.com", "pool": "n", "device": "small"});
    let cases = [
        (one(&json!({})), json!([large])),
        (one(&json!({"count": 2})), json!([small, large])),
        (one(&json!({"allocationMode": "All", "count": null})), json!([small])),
        (alternatives, json!([second])),
        (one(&json!({"deviceClassName": "made-a-moment-ago"})), json!([large])),
        (one(&json!({})), json!([result("gpu", "published-a-moment-ago")])),
        (one(&json!({"count": 2, "newerField": {}})), json!([large])),
        (json!({}), json!([])),
    ];
    for (devices, results) in cases {
        assert_eq!(wrong(&devices, &results), None, "{devices} {results}");
    }
    // The gate of a claim that is not allocated waits for its allocator.
    let mut claim = claim_of(&one(&json!({})), &json!([]));
    claim.status.allocation = None;
    assert!(Given::of(&claim).is_none());
}

/// Selectors are of tenants: beyond what one claim may cost, the rest counts as holding, the last one of these included.
#[test]
fn the_selectors_of_a_claim_cost_no_more_than_a_moment() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let dear = format!("{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, a + b + c + d > 0))))");
    let judged = |first: &str, many: usize| {
        let texts = std::iter::repeat_n(first, many).chain(["false"]);
        let selectors: Vec<Value> = texts.map(|text| json!({"cel": {"expression": text}})).collect();
        wrong(&one(&json!({"selectors": selectors})), &json!([result("gpu", "large")]))
    };
    let excluded = Some("request r: device large is excluded by its selectors".to_owned());
    assert_eq!(judged("true", 8), excluded);
    assert_eq!(judged(&dear, 8), None, "eight dear ones");
}
