//! Rules whose code the search and the checker share, beside a second statement of each: taints and amounts
//! of capacity.

use dragoman_allocator::Options;
use dragoman_objects::DeviceResult;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::answer::{Answer, Question};
use crate::drawn::{Drawn, config};

/// A node with one device, and a claim for it.
fn one_device(device: &Value, asked: &Value, rules: &Value) -> Value {
    let mut exactly = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1});
    exactly.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
    let mut devices = json!([{"name": "dev"}]);
    devices[0].as_object_mut().unwrap().extend(device.as_object().unwrap().clone());
    json!({
        "nodes": [{"metadata": {"name": "node"}}],
        "resourceSlices": [{"metadata": {"name": "slice"}, "spec": {
            "driver": "gpu.example.com", "nodeName": "node", "devices": devices,
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
        }}],
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceClaims": [{"metadata": {"namespace": "default", "name": "c", "uid": "c"}, "spec": {
            "devices": {"requests": [{"name": "r", "exactly": exactly}]},
        }}],
        "deviceTaintRules": rules,
        "allocate": ["default/c"],
        "candidates": ["node"],
        "featureGates": {
            "DRADeviceTaints": true, "DRADeviceTaintRules": true, "DRAConsumableCapacity": true,
        },
    })
}

fn answered(scenario: &Value) -> Answer {
    Question::read(scenario).unwrap().answer("node", Options::default())
}

fn is_solved(scenario: &Value) -> bool {
    matches!(answered(scenario), Answer::Solution(_))
}

#[test]
fn a_toleration_tolerates_a_taint_unless_it_names_another_effect_key_operator_or_value() {
    let toleration = |key: &str, operator: &str, value: &str, effect: &str| json!({"key": key, "operator": operator, "value": value, "effect": effect});
    for (taint_key, taint_value) in [("a", ""), ("a", "x"), ("b", "x")] {
        for taint_effect in ["NoSchedule", "NoExecute", "None"] {
            let taint = json!({"key": taint_key, "value": taint_value, "effect": taint_effect});
            let device = json!({"taints": [taint]});
            let without = is_solved(&one_device(&device, &json!({}), &json!([])));
            assert_eq!(without, taint_effect == "None", "{taint}");
            for (key, operator, value) in [
                ("", "Exists", ""),
                ("", "Equal", "x"),
                ("a", "", ""),
                ("a", "Equal", "x"),
                ("a", "Exists", "y"),
                ("b", "Exists", ""),
                ("b", "Like", "x"),
                ("b", "", "x"),
            ] {
                for effect in ["", "NoSchedule", "NoExecute"] {
                    let toleration = toleration(key, operator, value, effect);
                    let asked = json!({"tolerations": [toleration]});
                    let solved = is_solved(&one_device(&device, &asked, &json!([])));
                    let other_key = !key.is_empty() && key != taint_key;
                    let other_effect = !effect.is_empty() && effect != taint_effect;
                    let other_value = operator != "Exists" && value != taint_value;
                    let refused = other_key || other_effect || other_value || operator == "Like";
                    assert_eq!(solved, without || !refused, "{taint} {toleration}");
                }
            }
        }
    }
}

#[test]
fn a_taint_rule_taints_the_devices_of_which_it_names_nothing_that_differs() {
    let names = |name: &'static str| [Value::Null, json!(name), json!("another")];
    for driver in names("gpu.example.com") {
        for pool in names("pool") {
            for device in names("dev") {
                let selector = json!({"driver": driver, "pool": pool, "device": device});
                let differs = [&driver, &pool, &device].iter().any(|name| **name == "another");
                let taint = json!({"key": "a", "effect": "NoSchedule"});
                let rule = json!([{"metadata": {"name": "rule"}, "spec": {"deviceSelector": selector, "taint": taint}}]);
                let solved = is_solved(&one_device(&json!({}), &json!({}), &rule));
                assert_eq!(solved, differs, "{selector}");
            }
        }
    }
}

/// The amounts that a policy allows, in ascending order, and the one that is consumed without a request.
#[derive(Debug, Clone)]
enum Policy {
    None,
    Default(i64),
    Values(Vec<i64>),
    /// From the first, in steps, at most so many.
    Range(i64, i64, i64),
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::None),
        (0..12_i64).prop_map(Policy::Default),
        proptest::collection::btree_set(0..20_i64, 1..4)
            .prop_map(|values| Policy::Values(values.into_iter().collect())),
        (0..5_i64, 1..6_i64, 0..4_i64).prop_map(|(min, step, count)| Policy::Range(min, step, count)),
    ]
}

impl Policy {
    fn to_json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Default(default) => json!({"default": default.to_string()}),
            Self::Values(values) => {
                let texts: Vec<String> = values.iter().map(i64::to_string).collect();
                json!({"default": texts.first(), "validValues": texts})
            }
            Self::Range(min, step, count) => json!({"default": min.to_string(), "validRange": {
                "min": min.to_string(), "step": step.to_string(), "max": (min + step * count).to_string(),
            }}),
        }
    }

    /// Counts up from the request to the first amount that is allowed.
    fn consumed(&self, request: Option<i64>, value: i64) -> Option<i64> {
        let allowed: Vec<i64> = match self {
            Self::None => return request.or(Some(value)),
            Self::Default(default) => return request.or(Some(*default)),
            Self::Values(values) => values.clone(),
            Self::Range(min, step, count) => (0..=*count).map(|steps| min + steps * step).collect(),
        };
        let most = *allowed.last()?;
        request.map_or_else(
            || allowed.first().copied(),
            |request| (request..=most).find(|amount| allowed.contains(amount)),
        )
    }
}

#[test]
fn a_share_consumes_the_least_amount_that_the_policy_allows() {
    let inputs = (policy(), proptest::option::of(0..30_i64), 0..25_i64, proptest::bool::weighted(0.1))
        .prop_map(|(policy, request, value, other)| {
            let memory = json!({"value": value.to_string(), "requestPolicy": policy.to_json()});
            let device = json!({"allowMultipleAllocations": true, "capacity": {"memory": memory}});
            let mut requests = json!({});
            if let Some(request) = request {
                requests["memory"] = request.to_string().into();
            }
            if other {
                requests["absent"] = "1".into();
            }
            let asked = json!({"capacity": {"requests": requests}});
            let expected = policy.consumed(request, value).filter(|amount| *amount <= value && !other);
            (Drawn(one_device(&device, &asked, &json!([]))), expected)
        });
    let run = TestRunner::new(config(2_000)).run(&inputs, |(Drawn(scenario), expected)| {
        let consumed = match answered(&scenario) {
            Answer::Solution(allocations) => {
                let result: &DeviceResult = &allocations[0].1.devices.results[0];
                serde_json::to_value(result).unwrap()["consumedCapacity"]["memory"]
                    .as_str()
                    .map(str::to_owned)
            }
            Answer::None => None,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(consumed, expected.map(|amount| amount.to_string()));
        Ok(())
    });
    if let Err(why) = run {
        panic!("{why}");
    }
}
