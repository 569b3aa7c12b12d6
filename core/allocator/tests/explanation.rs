//! Explanations of nodes without a solution.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]
#![expect(clippy::needless_pass_by_value, reason = "so that json! can be written where it belongs")]

use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Blocked, Cause, Explanation, Options, Outcome, Overlay, Snapshot, allocate};
use dragoman_objects::{Allocation, Name};
use serde_json::{Value, json};

fn asked(more: Value) -> Value {
    let mut asked = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1});
    asked.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    asked
}

fn exactly(name: &str, more: Value) -> Value {
    json!({"name": name, "exactly": asked(more)})
}

fn slice(driver: &str, spec: Value) -> Value {
    let mut whole = json!({"driver": driver, "nodeName": "node",
        "pool": {"name": driver, "generation": 1, "resourceSliceCount": 1}});
    whole.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": driver}, "spec": whole})
}

fn scenario(slices: Value, requests: Value) -> Value {
    json!({
        "nodes": [{"metadata": {"name": "node"}}],
        "deviceClasses": [
            {"metadata": {"name": "any"}},
            {"metadata": {"name": "gpu"},
                "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu'"}}]}},
        ],
        "resourceSlices": slices,
        "resourceClaims": [
            {"metadata": {"namespace": "default", "name": "c", "uid": "c"},
                "spec": {"devices": {"requests": requests}}},
        ],
        "allocate": ["default/c"],
        "candidates": ["node"],
    })
}

fn explained_with(scenario: &Value, overlay: &Overlay) -> Explanation {
    let scenario: Scenario = serde_json::from_value(scenario.clone()).unwrap();
    let snapshot = scenario.snapshot(&Snapshot::default()).unwrap();
    let claims = scenario.claims(&snapshot).unwrap();
    let outcome = allocate(&snapshot, overlay, "node", &claims, Options::default());
    let Outcome::Unsatisfiable(unsolved) = outcome else { panic!("{outcome:?}") };
    let explanation = unsolved.explain();
    for pool in explanation.requests.iter().flat_map(|request| &request.pools) {
        assert_eq!(pool.causes.values().sum::<usize>(), pool.devices, "{explanation:?}");
    }
    explanation
}

fn explained(scenario: &Value) -> Explanation {
    explained_with(scenario, &Overlay::default())
}

fn causes(explanation: &Explanation, request: usize, pool: usize) -> Vec<(Cause, usize)> {
    explanation.requests[request].pools[pool].causes.clone().into_iter().collect()
}

fn blocked(explanation: Explanation) -> (String, Blocked) {
    let combination = explanation.combination.unwrap();
    (combination.request.to_string(), combination.blocked)
}

#[test]
fn every_device_counts_once_under_its_first_cause() {
    let devices = json!([
        {"name": "taken"},
        {"name": "in-flight"},
        {"name": "waiting", "bindingConditions": ["ready"]},
        {"name": "unselected", "attributes": {"good": {"bool": false}}},
        {"name": "elsewhere", "attributes": {"good": {"bool": true}}, "nodeName": "other"},
        {"name": "small", "attributes": {"good": {"bool": true}}, "nodeName": "node", "capacity": {"memory": {"value": "1"}}},
        {"name": "tainted", "attributes": {"good": {"bool": true}}, "nodeName": "node", "capacity": {"memory": {"value": "4"}},
            "taints": [{"key": "bad", "effect": "NoExecute"}]},
        {"name": "fine", "attributes": {"good": {"bool": true}}, "nodeName": "node", "capacity": {"memory": {"value": "4"}}},
    ]);
    let more = json!({"deviceClassName": "gpu", "count": 2,
        "selectors": [{"cel": {"expression": "device.attributes['gpu'].?good.orValue(false)"}}],
        "capacity": {"requests": {"memory": "2"}}});
    let slices = json!([
        slice("gpu", json!({"devices": devices, "perDeviceNodeSelection": true, "nodeName": null})),
        slice(
            "nic",
            json!({"devices": [{"name": "a"}, {"name": "b", "attributes": {"good": {"bool": true}}}]})
        ),
        slice(
            "late",
            json!({"devices": [{"name": "a"}],
            "pool": {"name": "late", "generation": 1, "resourceSliceCount": 2}})
        ),
        slice("zero", json!({"skipNodeOperations": ["prepare"], "devices": [{"name": "a"}]})),
    ]);
    let mut scenario = scenario(slices, json!([exactly("r", more)]));
    scenario["resourceClaims"].as_array_mut().unwrap().push(json!({
        "metadata": {"namespace": "default", "name": "other", "uid": "other"},
        "status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": "gpu", "pool": "gpu", "device": "taken"}]}}}}));
    let gates = ["DRAConsumableCapacity", "DRAPartitionableDevices", "DRADeviceTaints"];
    scenario["featureGates"] =
        gates.iter().map(|gate| ((*gate).to_owned(), true.into())).collect::<serde_json::Map<_, _>>().into();
    let mut overlay = Overlay::default();
    let results = json!([{"request": "r", "driver": "gpu", "pool": "gpu", "device": "in-flight"}]);
    let assumed: Allocation = serde_json::from_value(json!({"devices": {"results": results}})).unwrap();
    overlay.assume("assumed".into(), assumed);

    let explanation = explained_with(&scenario, &overlay);
    assert_eq!((explanation.requests[0].wanted, explanation.requests[0].suit), (2, 1));
    assert_eq!(
        causes(&explanation, 0, 3),
        [
            (Cause::Taken, 1),
            (Cause::InFlight, 1),
            (Cause::BindingConditions, 1),
            (Cause::Selector, 1),
            (Cause::OtherNode, 1),
            (Cause::Capacity, 1),
            (Cause::Tainted, 1),
            (Cause::TooFew, 1),
        ]
    );
    assert_eq!(explanation.requests[0].pools[3].in_flight, [("assumed".into(), 1)].into());
    // Pools are in the order of the search: by driver, and pools with binding conditions last.
    assert_eq!(causes(&explanation, 0, 0), [(Cause::PoolIncomplete, 1)]);
    assert_eq!(causes(&explanation, 0, 1), [(Cause::NotOfClass, 2)]);
    assert_eq!(causes(&explanation, 0, 2), [(Cause::NotOfClass, 1)]);
    assert_eq!(explanation.combination, None);
}

#[test]
fn two_requests_and_one_device() {
    let slices = json!([slice("gpu", json!({"devices": [{"name": "a"}]}))]);
    let requests = json!([exactly("one", json!({})), exactly("two", json!({}))]);
    let explanation = explained(&scenario(slices, requests));
    assert_eq!(causes(&explanation, 0, 0), [(Cause::Combination, 1)]);
    assert_eq!(blocked(explanation), ("two".to_owned(), Blocked::Devices));
}

#[test]
fn a_constraint_is_named() {
    let device =
        |number: usize| json!({"name": format!("d{number}"), "attributes": {"numa": {"int": number}}});
    let slices = json!([slice("gpu", json!({"devices": [device(0), device(1), device(2)]}))]);
    let mut scenario = scenario(slices, json!([exactly("one", json!({})), exactly("two", json!({}))]));
    scenario["resourceClaims"][0]["spec"]["devices"]["constraints"] =
        json!([{"distinctAttribute": "gpu/numa"}, {"matchAttribute": "gpu/numa"}]);
    scenario["resourceClaims"][0]["spec"]["devices"]["constraints"][0]["requests"] = json!(["one"]);
    let constraint = Blocked::Constraint { index: 1, attribute: "gpu/numa".into() };
    assert_eq!(blocked(explained(&scenario)), ("two".to_owned(), constraint));
}

#[test]
fn a_counter_is_named() {
    let part = |name: &str| {
        json!({"name": name, "consumesCounters":
            [{"counterSet": "card", "counters": {"memory": {"value": "6Gi"}, "slots": {"value": "1"}}}]})
    };
    let pool = json!({"name": "gpu", "generation": 1, "resourceSliceCount": 2});
    let counters = json!([{"name": "card",
        "counters": {"slots": {"value": "7"}, "memory": {"value": "10Gi"}}}]);
    let mut slices = json!([
        slice("gpu", json!({"devices": [part("a"), part("b")], "pool": pool})),
        slice("gpu", json!({"sharedCounters": counters, "pool": pool}))
    ]);
    slices[1]["metadata"]["name"] = json!("gpu-counters");
    let explanation = explained(&scenario(slices, json!([exactly("r", json!({"count": 2}))])));
    let counter = Blocked::Counters { counter_set: "card".into(), counter: "memory".into() };
    assert_eq!(blocked(explanation), ("r".to_owned(), counter));
}

#[test]
fn a_capacity_is_named() {
    let nic = json!({"name": "nic", "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "10"}, "queues": {"value": "100"}}});
    let slices = json!([slice("nic", json!({"devices": [nic]}))]);
    let some = json!({"capacity": {"requests": {"bandwidth": "6", "queues": "1"}}});
    let explanation =
        explained(&scenario(slices, json!([exactly("one", some.clone()), exactly("two", some)])));
    let quantity = |text: &str| text.parse().ok();
    let capacity = Blocked::Capacity { name: "bandwidth".into(), wanted: quantity("6"), left: quantity("4") };
    assert_eq!(blocked(explanation), ("two".to_owned(), capacity));
}

#[test]
fn the_size_of_a_claim_is_named() {
    let devices: Vec<Value> = (0..40).map(|number| json!({"name": format!("d{number}")})).collect();
    let slices = json!([slice("gpu", json!({"devices": devices}))]);
    let sub = |name: &str, count: usize| asked(json!({"name": name, "count": count}));
    // The smallest sub-request counts against the limit of the claim, so preflight passes, but 17 +
    // 31 devices exceed the limit.
    let device = |name: &str| json!({"name": name, "firstAvailable": [sub("many", 17), sub("one", 1)]});
    let mut requests = json!([device("a"), exactly("b", json!({"count": 31}))]);
    requests[0]["firstAvailable"][1]["selectors"] = json!([{"cel": {"expression": "false"}}]);
    assert_eq!(blocked(explained(&scenario(slices, requests))), ("b".to_owned(), Blocked::ClaimSize));
}

#[test]
fn a_claim_that_is_allocated_elsewhere_is_named() {
    let slices = json!([slice("gpu", json!({"devices": [{"name": "a"}]}))]);
    let mut scenario = scenario(slices, json!([exactly("r", json!({}))]));
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["other"]});
    scenario["resourceClaims"].as_array_mut().unwrap().push(json!({
        "metadata": {"namespace": "default", "name": "fixed", "uid": "fixed"},
        "status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}}}));
    scenario["allocate"] = json!(["default/c", "default/fixed"]);
    assert_eq!(explained(&scenario).elsewhere, [Name::from("default/fixed")]);
}

/// People read the thing to change, by name and number, and never a uid.
#[test]
fn the_reasons_name_what_a_person_can_change() {
    let mut slices = json!([slice(
        "gpu",
        json!({"devices": [
            {"name": "held"}, {"name": "also-held"},
            {"name": "tainted", "taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]},
            {"name": "ruled"},
            {"name": "old", "attributes": {"year": {"int": 2019}}},
            {"name": "small", "capacity": {"memory": {"value": "10Gi"}}},
            {"name": "less", "capacity": {"memory": {"value": "40Gi"}}},
            {"name": "none"},
            {"name": "endless", "capacity": {"memory": {"value": "1e1001"}}},
        ]})
    )]);
    for device in slices[0]["spec"]["devices"].as_array_mut().unwrap() {
        if device["attributes"].is_null() {
            device["attributes"] = json!({"year": {"int": 2026}});
        }
    }
    let year = json!([{"cel": {"expression": "device.driver == 'gpu'"}},
        {"cel": {"expression": "device.attributes['gpu'].year > 2020"}}]);
    let request = json!({"selectors": year, "capacity": {"requests": {"memory": "80Gi"}}});
    let mut whole = scenario(slices, json!([exactly("r", request)]));
    whole["resourceClaims"].as_array_mut().unwrap().push(json!({
        "metadata": {"namespace": "other", "name": "holder", "uid": "0b0e6f1c"}, "status": {"allocation": {"devices":
            {"results": [{"driver": "gpu", "pool": "gpu", "device": "held"}, {"driver": "gpu", "pool": "gpu", "device": "also-held"}]}}}}));
    whole["deviceTaintRules"] = json!([{"metadata": {"name": "repair"}, "spec": {
        "deviceSelector": {"driver": "gpu", "pool": "gpu", "device": "ruled"},
        "taint": {"key": "repair", "effect": "NoSchedule"}}}]);
    for device in ["tainted", "ruled"] {
        let devices = whole["resourceSlices"][0]["spec"]["devices"].as_array_mut().unwrap();
        let device = devices.iter_mut().find(|known| known["name"] == device).unwrap();
        device["capacity"] = json!({"memory": {"value": "80Gi"}});
    }
    let said = explained(&whole).to_string();
    let mut lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.remove(0), "request r of claim default/c wants 1 device, 0 suitable");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "  1 device: no capacity memory",
            "  1 device: quantity \"1e1001\": the number is too large",
            "  1 device: selector 1 does not hold: device.attributes['gpu'].year > 2020",
            "  1 device: taint broken=yes:NoSchedule is not tolerated",
            "  1 device: taint repair:NoSchedule is not tolerated (DeviceTaintRule repair)",
            "  2 devices: capacity memory: 80Gi wanted, at most 40Gi left",
            "  2 devices: held by claim other/holder",
        ]
    );
}

#[test]
fn an_attribute_that_no_device_has_is_said() {
    let slices = json!([slice(
        "gpu",
        json!({"devices": [{"name": "a", "attributes": {"numa": {"int": 1}}}, {"name": "b"}]})
    )]);
    for (attribute, said) in [
        ("gpu/nmua", "all 2 devices: constraint 0: no device of the node has the attribute gpu/nmua"),
        ("gpu/numa", "1 device: constraint 0: these devices do not have the attribute gpu/numa"),
    ] {
        let mut scenario = scenario(slices.clone(), json!([exactly("r", json!({"count": 2}))]));
        scenario["resourceClaims"][0]["spec"]["devices"]["constraints"] =
            json!([{"matchAttribute": attribute}]);
        let words = explained(&scenario).to_string();
        assert!(words.contains(said), "{words}");
    }
}

#[test]
fn pools_that_are_not_usable_are_said() {
    let pool = json!({"name": "gpu", "generation": 1, "resourceSliceCount": 3});
    let slices = json!([slice("gpu", json!({"devices": [{"name": "a"}], "pool": pool}))]);
    let words = explained(&scenario(slices, json!([exactly("r", json!({}))]))).to_string();
    assert!(words.contains("all 1 device: pool gpu of driver gpu has 1 of 3 slices"), "{words}");
    let words = explained(&scenario(json!([]), json!([exactly("r", json!({}))]))).to_string();
    assert!(words.contains("no driver publishes devices for the node"), "{words}");
}
