//! Results that are wrong in one way each, and the rule that the independent checker names.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;

use dragoman_allocator::checker::{Checker, Expressions, Rule, Tried};
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
use dragoman_objects::{Allocation, Name};
use serde_json::{Value, json};

/// Returns a scenario: a node with dedicated devices, two partitions that share a counter, and a
/// shareable device, and a claim for all kinds of them.
fn scenario() -> Value {
    let gates = [
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceCompatibilityGroups",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
    ];
    let device = |number: usize| {
        json!({
            "name": format!("gpu-{number}"),
            "nodeName": "node",
            "attributes": {"model": {"string": "a"}, "number": {"int": number}},
        })
    };
    let part = |number: usize| {
        json!({
            "name": format!("part-{number}"),
            "consumesCounters": [{"counterSet": "whole", "counters": {"memory": {"value": "4"}}}],
        })
    };
    let nic = json!({
        "name": "nic",
        "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "10", "requestPolicy": {
            "default": "1", "validRange": {"min": "1", "step": "1"}}}},
    });
    let asked = |class: &str| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
    let with = |mut asked: Value, field: &str, value: Value| {
        asked[field] = value;
        asked
    };
    let bandwidth = |amount: &str| with(asked("nic"), "capacity", json!({"requests": {"bandwidth": amount}}));
    let selector = |driver: &str| json!([{"cel": {"expression": format!("device.driver == '{driver}'")}}]);
    json!({
        "nodes": [{"metadata": {"name": "node"}}],
        "deviceClasses": [
            {"metadata": {"name": "gpu"}, "spec": {"selectors": selector("gpu"), "config": [
                {"opaque": {"driver": "gpu", "parameters": {"of": "class"}}}]}},
            {"metadata": {"name": "part"}, "spec": {"selectors": selector("part")}},
            {"metadata": {"name": "nic"}, "spec": {"selectors": selector("nic")}},
        ],
        "resourceSlices": [
            {"metadata": {"name": "gpus"}, "spec": {"driver": "gpu", "perDeviceNodeSelection": true,
                "pool": {"name": "gpus", "generation": 1, "resourceSliceCount": 1},
                "devices": (0..40).map(device).collect::<Vec<_>>()}},
            {"metadata": {"name": "parts"}, "spec": {"driver": "part", "nodeName": "node",
                "pool": {"name": "parts", "generation": 1, "resourceSliceCount": 2},
                "devices": [part(0), part(1)]}},
            {"metadata": {"name": "parts-counters"}, "spec": {"driver": "part", "nodeName": "node",
                "pool": {"name": "parts", "generation": 1, "resourceSliceCount": 2},
                "sharedCounters": [{"name": "whole", "counters": {"memory": {"value": "8"}}}]}},
            {"metadata": {"name": "nics"}, "spec": {"driver": "nic", "nodeName": "node",
                "pool": {"name": "nics", "generation": 1, "resourceSliceCount": 1},
                "devices": [nic]}},
        ],
        "resourceClaims": [{"metadata": {"namespace": "default", "name": "c", "uid": "c"}, "spec": {"devices": {
            "requests": [
                {"name": "one", "exactly": asked("gpu")},
                {"name": "two", "exactly": with(asked("gpu"), "count", json!(2))},
                {"name": "either", "firstAvailable": [
                    with(asked("gpu"), "name", json!("this")), with(asked("gpu"), "name", json!("that"))]},
                {"name": "parts", "exactly": with(asked("part"), "count", json!(2))},
                {"name": "some", "exactly": bandwidth("4")},
                {"name": "more", "exactly": bandwidth("4")},
            ],
            "constraints": [
                {"requests": ["one", "two"], "matchAttribute": "gpu/model"},
                {"requests": ["one", "two"], "distinctAttribute": "gpu/number"},
            ],
        }}}],
        "allocate": ["default/c"],
        "candidates": ["node"],
        "featureGates": gates.iter().map(|gate| ((*gate).to_owned(), true.into()))
            .collect::<serde_json::Map<String, Value>>(),
    })
}

/// Returns the allocations that the allocator finds.
fn allocated(scenario: &Value) -> Value {
    let scenario: Scenario = serde_json::from_value(scenario.clone()).unwrap();
    let snapshot = scenario.snapshot(&Snapshot::default()).unwrap();
    let claims = scenario.claims(&snapshot).unwrap();
    let outcome = allocate(&snapshot, &Overlay::default(), "node", &claims, Options::default());
    let Outcome::Solution(solution) = outcome else { panic!("{outcome:?}") };
    let mut shares = 0;
    let mut ids = || {
        shares += 1;
        Name::from(format!("share-{shares}"))
    };
    let allocations = solution.allocations(&mut ids).unwrap();
    let allocations = allocations.iter().map(|(uid, allocation)| json!([uid, allocation]));
    Value::Array(allocations.collect())
}

fn broken(scenario: &Value, allocations: &Value) -> BTreeSet<Rule> {
    let scenario: Scenario = serde_json::from_value(scenario.clone()).unwrap();
    let (cluster, expressions) = (scenario.cluster(), Expressions::default());
    let gates = scenario.gates().unwrap();
    let checker = Checker::new(&cluster, "node", &scenario.wanted(), gates, &expressions).unwrap();
    let allocations: Vec<(Name, Allocation)> = serde_json::from_value(allocations.clone()).unwrap();
    checker.check(&allocations, 1_000_000).into_iter().map(|broken| broken.rule).collect()
}

/// The results of the only claim.
fn results(allocations: &mut Value) -> &mut Vec<Value> {
    allocations[0][1]["devices"]["results"].as_array_mut().unwrap()
}

/// The index of the first result of a request.
fn of(allocations: &mut Value, request: &str) -> usize {
    results(allocations).iter().position(|result| result["request"] == request).unwrap()
}

/// A device of the scenario.
fn device(scenario: &mut Value, slice: usize, device: usize) -> &mut Value {
    &mut scenario["resourceSlices"][slice]["spec"]["devices"][device]
}

fn requests(scenario: &mut Value) -> &mut Value {
    &mut scenario["resourceClaims"][0]["spec"]["devices"]["requests"]
}

type Change = fn(&mut Value, &mut Value);

/// Rules, each with a change of the scenario or of the result that breaks this rule only.
const CHANGES: [(Rule, Change); 33] = [
    (Rule::Claims, |_, result| result[0][0] = json!("another")),
    (Rule::Claims, |_, result| *result = json!([])),
    (Rule::Request, |_, result| results(result)[0]["request"] = json!("nobody's")),
    (Rule::Alternative, |_, result| {
        let this = of(result, "either/this");
        let mut that = results(result)[this].clone();
        that["request"] = json!("either/that");
        that["device"] = json!("gpu-9");
        results(result).insert(this + 1, that);
    }),
    (Rule::Order, |_, result| results(result).swap(0, 1)),
    (Rule::Order, |_, result| results(result).swap(1, 2)),
    (Rule::Count, |_, result| {
        results(result).remove(1);
    }),
    (Rule::Count, |scenario, _| {
        let one = &mut requests(scenario)[0]["exactly"];
        one["allocationMode"] = json!("All");
        one["count"] = json!(0);
    }),
    (Rule::Size, |scenario, result| {
        requests(scenario)[1]["exactly"]["count"] = json!(30);
        let two = results(result)[1].clone();
        results(result).remove(1);
        results(result).remove(1);
        let this = of(result, "either/this");
        results(result)[this]["device"] = json!("gpu-39");
        for number in (1..31).rev() {
            let mut more = two.clone();
            more["device"] = json!(format!("gpu-{number}"));
            results(result).insert(1, more);
        }
    }),
    (Rule::Pool, |scenario, _| {
        scenario["resourceSlices"][1]["spec"]["pool"]["resourceSliceCount"] = json!(3);
        scenario["resourceSlices"][2]["spec"]["pool"]["resourceSliceCount"] = json!(3);
    }),
    (Rule::Pool, |scenario, _| {
        let twice = device(scenario, 3, 0).clone();
        scenario["resourceSlices"][3]["spec"]["devices"] = json!([twice, twice]);
    }),
    (Rule::Pool, |_, result| results(result)[0]["device"] = json!("gpu-99")),
    (Rule::Node, |scenario, _| device(scenario, 0, 0)["nodeName"] = json!("elsewhere")),
    (Rule::Class, |scenario, _| {
        scenario["deviceClasses"][2]["spec"]["selectors"][0]["cel"]["expression"] = json!("false");
    }),
    (Rule::Selector, |scenario, _| {
        requests(scenario)[0]["exactly"]["selectors"] = json!([{"cel": {"expression": "device.nothing"}}]);
    }),
    (Rule::BindingConditions, |scenario, _| {
        scenario["featureGates"]["DRADeviceBindingConditions"] = json!(false);
        device(scenario, 3, 0)["bindingConditions"] = json!(["ready"]);
    }),
    (Rule::NodeOperations, |scenario, result| {
        scenario["resourceSlices"][3]["spec"]["skipNodeOperations"] = json!(["prepare"]);
        for request in ["some", "more"] {
            let number = of(result, request);
            results(result)[number]["skipNodeOperations"] = json!(["prepare"]);
        }
    }),
    (Rule::Taint, |scenario, _| {
        scenario["deviceTaintRules"] = json!([{"metadata": {"name": "rule"}, "spec": {
            "deviceSelector": {"device": "gpu-0"}, "taint": {"key": "bad", "effect": "NoSchedule"}}}]);
    }),
    (Rule::Taken, |scenario, _| {
        let results = json!([{"driver": "gpu", "pool": "gpus", "device": "gpu-0", "request": "r"}]);
        let claim = json!({"metadata": {"namespace": "default", "name": "other", "uid": "other"},
            "status": {"allocation": {"devices": {"results": results}}}});
        scenario["resourceClaims"].as_array_mut().unwrap().push(claim);
    }),
    (Rule::Twice, |_, result| {
        let this = of(result, "either/this");
        results(result)[this]["device"] = json!("gpu-0");
    }),
    (Rule::Counters, |scenario, _| {
        let counters = &mut scenario["resourceSlices"][2]["spec"]["sharedCounters"][0]["counters"];
        counters["memory"]["value"] = json!("7");
    }),
    (Rule::CompatibilityGroup, |scenario, _| {
        for (number, groups) in [(0, ["x"]), (1, ["y"])] {
            device(scenario, 1, number)["consumesCounters"][0]["compatibilityGroups"] = json!(groups);
        }
    }),
    (Rule::Capacity, |scenario, _| {
        device(scenario, 3, 0)["capacity"]["bandwidth"]["value"] = json!("7");
    }),
    (Rule::ConsumedCapacity, |_, result| {
        let some = of(result, "some");
        results(result)[some]["consumedCapacity"]["bandwidth"] = json!("5");
    }),
    (Rule::ShareId, |_, result| {
        let some = of(result, "some");
        results(result)[some]["shareID"] = json!("share-2");
    }),
    (Rule::ShareId, |_, result| results(result)[0]["shareID"] = json!("share-9")),
    (Rule::Match, |scenario, _| {
        device(scenario, 0, 1)["attributes"]["model"] = json!({"string": "b"});
    }),
    (Rule::Distinct, |scenario, _| {
        device(scenario, 0, 1)["attributes"]["number"] = json!({"int": 0});
    }),
    (Rule::AdminAccess, |_, result| results(result)[0]["adminAccess"] = json!(true)),
    (Rule::Tolerations, |_, result| results(result)[0]["tolerations"] = json!([{"operator": "Exists"}])),
    (Rule::ResultConditions, |_, result| results(result)[0]["bindingConditions"] = json!(["ready"])),
    (Rule::ResultNodeOperations, |_, result| {
        results(result)[0]["skipNodeOperations"] = json!(["prepare"]);
    }),
    (Rule::Configuration, |_, result| {
        result[0][1]["devices"]["config"][0]["requests"] = json!(["one"]);
    }),
];

#[test]
fn each_wrong_result_is_rejected_with_the_name_of_the_rule() {
    let scenario = scenario();
    let allocations = allocated(&scenario);
    assert_eq!(broken(&scenario, &allocations), BTreeSet::new());
    for (rule, change) in CHANGES {
        let (mut scenario, mut allocations) = (scenario.clone(), allocations.clone());
        change(&mut scenario, &mut allocations);
        assert_eq!(broken(&scenario, &allocations), BTreeSet::from([rule]));
    }
}

#[test]
fn an_allocation_without_its_node_is_rejected() {
    let (scenario, mut allocations) = (scenario(), allocated(&scenario()));
    allocations[0][1]["nodeSelector"] = Value::Null;
    assert_eq!(broken(&scenario, &allocations), BTreeSet::from([Rule::NodeSelector]));
}

#[test]
fn a_solution_that_is_not_the_first_is_rejected() {
    let (scenario, mut allocations) = (scenario(), allocated(&scenario()));
    let this = of(&mut allocations, "either/this");
    results(&mut allocations)[this]["device"] = json!("gpu-9");
    assert_eq!(broken(&scenario, &allocations), BTreeSet::from([Rule::First]));
}

#[test]
fn everything_is_tried_or_it_is_said_that_it_was_not() {
    let mut scenario = scenario();
    scenario["resourceClaims"][0]["spec"]["devices"]["requests"][3]["exactly"]["count"] = json!(3);
    let read: Scenario = serde_json::from_value(scenario).unwrap();
    let (cluster, expressions) = (read.cluster(), Expressions::default());
    let gates = read.gates().unwrap();
    let checker = Checker::new(&cluster, "node", &read.wanted(), gates, &expressions).unwrap();
    assert_eq!(checker.first(100, &|_| true), Tried::TooMuch);
    let mut small = cluster.clone();
    small.slices[0].devices.truncate(5);
    let checker = Checker::new(&small, "node", &read.wanted(), gates, &expressions).unwrap();
    assert_eq!(checker.first(1_000_000, &|_| true), Tried::None);
}
