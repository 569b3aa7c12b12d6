//! Quantities that the API server stores and no integer holds, and fields of an API that is newer than this version: what
//! has one is unusable, and nothing else is.

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

/// The explanation of a node without a solution, for people.
fn words(scenario: &Scenario) -> Result<String, Box<dyn Error>> {
    Ok(match outcome(scenario)? {
        Outcome::Unsatisfiable(unsolved) => unsolved.explain().to_string(),
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
    // What it draws is what cannot be read: while it is held, nothing is known of the counter.
    let amount = "/resourceSlices/1/spec/devices/0/consumesCounters/0/counters/c/value";
    let drawn = |held: &'static str, counter: Value| {
        cluster(|whole| {
            set(whole, amount.trim_end_matches("/value"), counter);
            set(whole, "/resourceSlices/2/spec/sharedCounters/0/counters/c/value", json!("9"));
            set(whole, "/resourceClaims/1/status/allocation/devices/results/0/pool", json!(held));
            set(whole, "/resourceClaims/1/status/allocation/devices/results/0/device", json!("part-0"));
        })
    };
    for counter in [json!({"value": "1e1001"}), json!({"valueFrom": {"capacityName": "memory"}})] {
        let said_of = said(&drawn("parts", counter.clone())?)?;
        assert!(said_of.contains("Counters 1"), "{said_of}");
        let words = words(&drawn("parts", counter.clone())?)?;
        assert!(words.contains("is not known: device part-0, which is held: "), "{words}");
        assert_eq!(said(&drawn("elsewhere", counter)?)?, "gpu-0 gpu-1 part-1");
    }
    // An entry of a new kind, which names no counter set.
    let entry = "/resourceSlices/1/spec/devices/0/consumesCounters/0";
    let odd = cluster(|whole| set(whole, entry, json!({"uplink": "one"})))?;
    assert_eq!(said(&odd)?, "gpu-0 gpu-1 part-1");
    Ok(())
}

#[test]
fn of_a_counter_set_that_cannot_be_read_no_device_draws() -> Result<(), Box<dyn Error>> {
    let with = |draws: Value| {
        cluster(|whole| {
            set(whole, "/resourceSlices/2/spec/sharedCounters/0/counters/c/value", json!("1e1001"));
            set(whole, "/resourceSlices/1/spec/devices/0/consumesCounters", draws);
        })
    };
    let drawing = with(json!([{"counterSet": "set", "counters": {"c": {"value": "1"}}}]))?;
    let refused = said(&drawing)?;
    assert!(refused.contains("Counters 2"), "{refused}");
    let words = words(&drawing)?;
    let why = "what is left of the counters of its pool is not known: counter set set: ";
    assert!(words.contains(why) && words.contains("1e1001"), "{words}");
    // A device of the pool that draws on no counter.
    assert_eq!(said(&with(json!([]))?)?, "gpu-0 gpu-1 part-0");
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

/// A newer API server stores what narrows a claim or a class in fields that this version does not read.
#[test]
fn a_claim_or_a_class_with_an_unknown_field_gets_no_devices() -> Result<(), Box<dyn Error>> {
    let spec = "/resourceClaims/0/spec";
    let request = "/resourceClaims/0/spec/devices/requests/0";
    for (at, field, value, why) in [
        (spec, "priority", json!(1), "spec: field spec.priority is not known"),
        ("/resourceClaims/0/spec/devices", "odd", json!(1), "field spec.devices.odd is not known"),
        (request, "optional", json!(true), "request r: field optional is not known"),
        (
            "/resourceClaims/0/spec/devices/requests/0/exactly",
            "odd",
            json!({}),
            "request r: field exactly.odd is not known",
        ),
        (
            "/resourceClaims/0/spec/devices",
            "constraints",
            json!([{"requests": [], "matchAttribute": "a.b/c", "maxDistance": 1}]),
            "field spec.devices.constraints[0].maxDistance is not known",
        ),
        ("/deviceClasses/0", "spec", json!({"odd": 1}), "device class any: field spec.odd is not known"),
        (
            "/deviceClasses/0",
            "spec",
            json!({"selectors": [{"cel": {"expression": "true"}, "odd": 1}]}),
            "device class any: field spec.selectors[0].odd is not known",
        ),
    ] {
        let whole = |field_value: Value| {
            cluster(|whole| {
                let object = whole.pointer_mut(at).and_then(Value::as_object_mut);
                drop(object.map(|object| object.insert(field.to_owned(), field_value)));
            })
        };
        let said_of = said(&whole(value)?)?;
        assert!(said_of.contains(why) && said_of.contains("to this version"), "{at}/{field}: {said_of}");
        assert_eq!(said(&whole(Value::Null)?)?, "gpu-0 gpu-1 part-0", "null is absent");
    }
    Ok(())
}

#[test]
fn a_device_with_an_unknown_field_is_not_used_and_others_are() -> Result<(), Box<dyn Error>> {
    let with = |at: &str, field: &str, value: Value| {
        cluster(|whole| {
            let object = whole.pointer_mut(at).and_then(Value::as_object_mut);
            drop(object.map(|object| object.insert(field.to_owned(), value)));
        })
    };
    let device = "/resourceSlices/0/spec/devices/0";
    assert_eq!(said(&with(device, "sharing", json!({"mode": "x"}))?)?, "gpu-1 part-0 part-1");
    let policy = "/resourceSlices/0/spec/devices/0/capacity/memory/requestPolicy";
    assert_eq!(said(&with(policy, "limits", json!(["1Gi"]))?)?, "gpu-1 part-0 part-1");
    // What it would draw is not known. No claim holds it.
    let counter = "/resourceSlices/1/spec/devices/0/consumesCounters/0/counters/c";
    assert_eq!(said(&with(counter, "valueFrom", json!({"capacityName": "memory"}))?)?, "gpu-0 gpu-1 part-1");
    // A value of an unknown type, and a term that narrows the nodes.
    assert_eq!(said(&with(device, "attributes", json!({"a": {"newtype": 1}}))?)?, "gpu-1 part-0 part-1");
    let selector = json!({"nodeSelectorTerms": [{"matchDevices": []}]});
    assert_eq!(said(&with(device, "nodeSelector", selector)?)?, "gpu-1 part-0 part-1");
    let two = |whole: &mut Value| {
        set(whole, "/resourceClaims/0/spec/devices/requests/0/exactly/count", json!(2));
    };
    // All devices of a slice that says something unknown.
    let slice = cluster(|whole| {
        two(whole);
        let pool = whole.pointer_mut("/resourceSlices/0/spec/pool").and_then(Value::as_object_mut);
        drop(pool.map(|pool| pool.insert("odd".to_owned(), json!(1))));
    })?;
    assert_eq!(said(&slice)?, "part-0 part-1");
    let counters = cluster(|whole| {
        let spec = whole.pointer_mut("/resourceSlices/2/spec").and_then(Value::as_object_mut);
        drop(spec.map(|spec| spec.insert("odd".to_owned(), json!(1))));
        two(whole);
    })?;
    assert_eq!(said(&counters)?, "gpu-0 gpu-1", "what the parts draw from is not known");
    Ok(())
}

/// The Pod is refused, and is not placed on another device: there the amount would be another one.
#[test]
fn an_amount_that_is_no_integer_once_it_is_rounded_is_an_error_of_the_pod() -> Result<(), Box<dyn Error>> {
    let asked = |amount: &str, step: &str| {
        cluster(|whole| {
            set(whole, "/resourceClaims/0/spec/devices/requests/0/exactly/count", json!(1));
            let exactly = whole.pointer_mut("/resourceClaims/0/spec/devices/requests/0/exactly");
            drop(
                exactly
                    .and_then(Value::as_object_mut)
                    .map(|of| of.insert("capacity".to_owned(), json!({"requests": {"memory": amount}}))),
            );
            for (device, step) in [(0, step), (1, "1")] {
                let memory = format!("/resourceSlices/0/spec/devices/{device}/capacity/memory");
                let range = json!({"default": "2", "validRange": {"min": "2", "step": step}});
                set(whole, &memory, json!({"value": "9223372036854775807", "requestPolicy": range}));
            }
        })
    };
    // Counted in whole numbers, in thousandths, and in neither.
    let most = "9223372036854775807";
    for (amount, step) in [
        ("5000000000000000003", "5000000000000000000"),
        ("5000000000000003", "5000000000000000"),
        (most, "2"),
    ] {
        let why = said(&asked(amount, step)?)?;
        assert!(why.contains("memory") && why.contains("cannot be counted in steps"), "{why}");
    }
    assert_eq!(said(&asked("5000000000000000", "2")?)?, "gpu-0");
    Ok(())
}

/// A share with an unknown field takes an unknown amount of its device.
#[test]
fn of_a_device_that_is_held_with_an_unknown_field_nothing_is_left() -> Result<(), Box<dyn Error>> {
    let held = cluster(|whole| {
        let result = "/resourceClaims/1/status/allocation/devices/results/0";
        let result = whole.pointer_mut(result).and_then(Value::as_object_mut);
        drop(result.map(|result| result.insert("consumedCounters".to_owned(), json!([]))));
    })?;
    assert_eq!(said(&held)?, "gpu-0 part-0 part-1");
    // An allocation says in a field of its own what else it holds.
    for (at, field) in [("/devices", "sharedResults"), ("", "reservations")] {
        let held = cluster(|whole| {
            let at = format!("/resourceClaims/1/status/allocation{at}");
            let of = whole.pointer_mut(&at).and_then(Value::as_object_mut);
            drop(of.map(|of| of.insert(field.to_owned(), json!([{"device": "gpu-0"}]))));
        })?;
        assert_eq!(said(&held)?, "gpu-0 part-0 part-1", "{field}");
    }
    Ok(())
}

/// Up to `v1beta1` the fields of a device are under `basic`: without its taint the device would be given.
#[test]
fn a_device_of_an_older_version_is_read_whole() -> Result<(), Box<dyn Error>> {
    let older = |taints: Value| {
        cluster(|whole| {
            let capacity = json!({"memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}});
            let basic = json!({"allowMultipleAllocations": true, "capacity": capacity, "taints": taints});
            set(whole, "/resourceSlices/0/spec/devices/0", json!({"name": "gpu-0", "basic": basic}));
        })
    };
    assert_eq!(said(&older(json!([]))?)?, "gpu-0 gpu-1 part-0");
    let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
    assert_eq!(said(&older(taint)?)?, "gpu-1 part-0 part-1");
    Ok(())
}

#[test]
fn a_taint_rule_with_an_unknown_field_is_not_tolerated() -> Result<(), Box<dyn Error>> {
    let ruled = |spec: Value| {
        cluster(|whole| {
            let tolerates = json!([{"operator": "Exists"}]);
            let request = whole.pointer_mut("/resourceClaims/0/spec/devices/requests/0/exactly");
            drop(
                request
                    .and_then(Value::as_object_mut)
                    .map(|of| of.insert("tolerations".to_owned(), tolerates)),
            );
            drop(whole.as_object_mut().map(|whole| {
                whole.insert(
                    "deviceTaintRules".to_owned(),
                    json!([{"metadata": {"name": "rule"}, "spec": spec}]),
                )
            }));
        })
    };
    let taint = json!({"key": "k", "effect": "NoSchedule"});
    let selector = json!({"pool": "gpus", "device": "gpu-0"});
    let known = json!({"deviceSelector": selector, "taint": taint});
    assert_eq!(said(&ruled(known)?)?, "gpu-0 gpu-1 part-0");
    let unknown = json!({"deviceSelector": selector, "taint": taint, "odd": 1});
    assert_eq!(said(&ruled(unknown)?)?, "gpu-1 part-0 part-1");
    let by_another_selector = ruled(json!({"selector": {"odd": 1}, "taint": taint}))?;
    assert!(said(&by_another_selector)?.contains("Taint"), "{}", said(&by_another_selector)?);
    Ok(())
}

/// A driver may change the spelling while shares are held, and API servers from 1.38 on may record either.
#[test]
fn a_share_counts_whichever_way_its_capacity_is_spelled() -> Result<(), Box<dyn Error>> {
    let spelled = |of_device: &str, of_share: &str, consumed: &str| {
        cluster(|whole| {
            let capacity = json!({of_device: {"value": "40Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}});
            set(whole, "/resourceSlices/0/spec/devices/1/capacity", capacity);
            let result = "/resourceClaims/1/status/allocation/devices/results/0/consumedCapacity";
            set(whole, result, json!({of_share: consumed}));
        })
    };
    for (of_device, of_share) in [
        ("memory", "memory"),
        ("memory", "gpu.example.com/memory"),
        ("gpu.example.com/memory", "memory"),
        ("gpu.example.com/memory", "gpu.example.com/memory"),
    ] {
        assert_eq!(
            said(&spelled(of_device, of_share, "39Gi")?)?,
            "gpu-0 gpu-1 part-0",
            "{of_device} {of_share}"
        );
        let full = said(&spelled(of_device, of_share, "40Gi")?)?;
        assert_eq!(full, "gpu-0 part-0 part-1", "{of_device} {of_share}");
    }
    let other = spelled("memory", "other.example.com/memory", "40Gi")?;
    assert_eq!(said(&other)?, "gpu-0 gpu-1 part-0", "another domain is another capacity");
    Ok(())
}

/// A request for all devices is for the one that cannot be read as well: the rest is not all.
#[test]
fn all_devices_of_a_node_include_the_one_that_cannot_be_read() -> Result<(), Box<dyn Error>> {
    let all = |fields: Value| {
        cluster(|whole| {
            set(whole, "/resourceClaims/0/spec/devices/requests/0/exactly/allocationMode", json!("All"));
            let spec = whole.pointer_mut("/resourceSlices/0/spec").and_then(Value::as_object_mut);
            if let Some(spec) = spec {
                spec.remove("nodeName");
                spec.insert("perDeviceNodeSelection".to_owned(), json!(true));
                spec.insert("devices".to_owned(), json!([fields, {"name": "gpu-1", "nodeName": "node"}]));
            }

            set(whole, "/resourceClaims/1/status/allocation/devices/results", json!([]));
        })
    };
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["node"]}]}]});
    for here in [
        json!({"nodeName": "node"}),
        json!({"allNodes": true}),
        json!({"nodeSelector": selector}),
        json!({"nodeSelector": {"nodeSelectorTerms": 7}}),
        json!({"nodeSelector": {"nodeSelectorTerms": [{"matchDevices": []}]}}),
    ] {
        let mut device = json!({"name": "gpu-0", "odd": 1});
        if let (Value::Object(device), Value::Object(here)) = (&mut device, here.clone()) {
            device.extend(here);
        }
        let why = said(&all(device)?)?;
        assert!(why.contains("is not known to this version"), "{here}: {why}");
    }
    let elsewhere = said(&all(json!({"name": "gpu-0", "odd": 1, "nodeName": "another"}))?)?;
    assert!(!elsewhere.contains("not known"), "{elsewhere}");
    Ok(())
}
