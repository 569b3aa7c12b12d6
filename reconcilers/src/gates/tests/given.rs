//! Allocations that give a claim other devices than it asks for.

use dragoman_accounting::cluster::{Slice, SliceDevice};
use dragoman_machinery::controller::Fed;
use dragoman_machinery::watch::decode_item;
use dragoman_objects::{DeviceClass, DeviceResult};

use super::passes::{Answers, World, nominate, nominated};
use super::*;
use crate::gates::configured::JudgedClass;
use crate::gates::given::Given;
use crate::gates::pass::{Notice, Purpose};

/// Two GPUs, a large one and a small one, and a NIC of another driver.
fn slices() -> [Slice; 2] {
    let gpu = |name: &str, size: &str| {
        json!({"name": name, "attributes": {"size": {"string": size}, "numa": {"int": 0}},
            "capacity": {"memory": {"value": "40Gi"}}})
    };
    let slice = |driver: &str, devices: Value| {
        let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 1});
        let slice = json!({"metadata": {"name": driver}, "spec": {"driver": driver, "nodeName": "n", "pool": pool, "devices": devices}});
        Slice::from(&serde_json::from_value::<ResourceSlice>(slice).expect("a slice"))
    };
    [
        slice("gpu.example.com", json!([gpu("large", "80"), gpu("small", "40")])),
        slice("nic.example.com", json!([{"name": "nic"}])),
    ]
}

/// A class of the GPUs.
fn class(name: &str) -> Option<Arc<JudgedClass>> {
    let selectors = json!([{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]);
    let class = json!({"metadata": {"name": name}, "spec": {"selectors": selectors}});
    let class = serde_json::from_str::<DeviceClass>(&class.to_string()).expect("a class");
    (name == "gpu").then(|| Arc::new(JudgedClass::of(&class)))
}

fn claim_of(devices: &Value, results: &Value) -> ResourceClaim {
    let claim = json!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "u"},
        "spec": {"devices": devices},
        "status": {"allocation": {"devices": {"results": results}}},
    });
    serde_json::from_value(claim).expect("a claim")
}

/// Returns the fault of these results for this `spec.devices`.
fn wrong(devices: &Value, results: &Value) -> Option<String> {
    let slices = slices();
    let device = |of: &DeviceResult| -> Option<&SliceDevice> {
        let slice = slices.iter().find(|slice| *slice.driver == *of.driver)?;
        slice.devices.iter().find(|device| *device.name == *of.device)
    };
    let given = Given::of(&claim_of(devices, results))?;
    given.wrong(class, &given.devices(device)?.0)
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
    let mut alike = one(&json!({"count": 2}));
    alike["constraints"] = json!([{"requests": ["r"], "matchAttribute": "gpu.example.com/size"}]);
    let either = json!({"requests": [{"name": "r", "firstAvailable": [
        {"name": "a", "deviceClassName": "gpu"}, {"name": "b", "deviceClassName": "gpu"}]}]});
    let of_either = |which: &str, device: &str| json!({"request": format!("r/{which}"), "driver": "gpu.example.com", "pool": "n", "device": device});
    let plain = one(&json!({}));
    let cases = [
        (
            &alike,
            json!([large, small]),
            "request r: device small has another value of an attribute that has to be the same for all",
        ),
        (
            &either,
            json!([of_either("a", "large"), of_either("b", "small")]),
            "request r: is met by more than one of its alternatives",
        ),
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

/// Selectors of more characters than are kept are not looked at, and those of as many are.
#[test]
fn long_selectors_are_not_judged() {
    let never = |length: usize| {
        let padded = |word: &str, length: usize| format!("{}{word}", " ".repeat(length - word.len()));
        let all = [padded("true", 10_000), padded("false", length - 10_000)];
        one(&json!({"selectors": all.map(|expression| json!({"cel": {"expression": expression}}))}))
    };
    let given = json!([result("gpu", "large")]);
    let excluded = "request r: device large is excluded by its selectors";
    assert_eq!(wrong(&never(20_000), &given).as_deref(), Some(excluded));
    assert_eq!(wrong(&never(20_001), &given), None);
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

/// The class of a request is looked at, whatever the selectors of another request have cost.
#[test]
fn no_selector_of_a_tenant_hides_a_class() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let dear = format!("{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, a + b + c + d > 0))))");
    let selectors: Vec<Value> = (0..32).map(|_| json!({"cel": {"expression": dear}})).collect();
    let request = |name: &str, selectors: &[Value]| json!({"name": name, "exactly": {"deviceClassName": "gpu", "count": 1, "selectors": selectors}});
    let devices = json!({"requests": [request("dear", &selectors), request("r", &[])]});
    let mut first = result("gpu", "large");
    first["request"] = json!("dear");
    let none = "request r: device nic is none of its class";
    assert_eq!(wrong(&devices, &json!([first, result("nic", "nic")])).as_deref(), Some(none));
    let long = json!({"cel": {"expression": format!("device.driver != '{}'", "x".repeat(9_000))}});
    let devices =
        json!({"requests": [request("dear", &[long.clone(), long.clone(), long]), request("r", &[])]});
    assert_eq!(wrong(&devices, &json!([first, result("nic", "nic")])).as_deref(), Some(none));
}

/// A newer API server knows functions, types of attributes and expressions that this version does not.
#[test]
fn what_cannot_be_evaluated_here_excludes_nothing() {
    let with = |expression: &str| one(&json!({"selectors": [{"cel": {"expression": expression}}]}));
    for expression in
        ["device.newerField == 1", "device.attributes['gpu.example.com'].missing == 'x'", "true ||"]
    {
        assert_eq!(wrong(&with(expression), &json!([result("gpu", "large")])), None, "{expression}");
    }
    let mut expressions = one(&json!({"count": 2}));
    expressions["constraints"] = json!([{"requests": ["r"], "matchAttribute": "gpu.example.com/links"}]);
    let listed = |value: Value, results: &Value| {
        let device = |name: &str| json!({"name": name, "attributes": {"links": value}});
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [device("large"), device("small")]}});
        let slice = Slice::from(&serde_json::from_value::<ResourceSlice>(slice).expect("a slice"));
        let given = Given::of(&claim_of(&expressions, results)).expect("it is allocated");
        let device = |of: &DeviceResult| slice.devices.iter().find(|device| *device.name == *of.device);
        given.wrong(class, &given.devices(device).expect("they are there").0)
    };
    let both = json!([result("gpu", "large"), result("gpu", "small")]);
    assert_eq!(listed(json!({"ints": [0, 1]}), &both), None, "a list in common");
    assert_eq!(listed(json!({"newerType": [0, 1]}), &both), None, "a type of a newer API");
}

/// A device may be published after it was allocated, and a driver may change what it says of it.
#[test]
fn an_allocation_is_looked_at_again_when_its_devices_are_seen_otherwise() {
    let mut world = World::with_node(None);
    let selectors = json!([{"cel": {"expression": "device.attributes['d'].size == '80'"}}]);
    let exactly = json!({"deviceClassName": "gpu", "selectors": selectors});
    world.pod("p", 1, &json!({}));
    let result = json!({"request": "r", "driver": "d", "pool": "late", "device": "gpu"});
    let late = json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": [result]}}}});
    world.claim("p", 1, &late);
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![], "nothing is known of it");
    let reject = Purpose::Reject("p-claim".into());
    for (generation, size, rejected) in [(1, "80", false), (2, "40", true)] {
        let pool = json!({"name": "late", "generation": generation, "resourceSliceCount": 1});
        let device = json!({"name": "gpu", "attributes": {"size": {"string": size}}});
        world.slice(&json!({"metadata": {"name": "late", "uid": "late", "resourceVersion": "1"},
            "spec": {"driver": "d", "nodeName": "n", "pool": pool, "devices": [device]}}));
        let purposes = world.look("p", [Ok(nominated("n"))].into()).purposes();
        assert_eq!(purposes.contains(&reject), rejected, "{size}: {purposes:?}");
    }
}

/// The allocator may have seen a device or a class that is not seen here yet.
#[test]
fn nothing_is_taken_back_while_a_watch_catches_up() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    let two = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]});
    world.claim("p", 1, &json!({"spec": {"devices": two}}));
    let reject = Purpose::Reject("p-claim".into());
    for (is_behind, rejected) in [(true, false), (false, true)] {
        world.is_behind = is_behind;
        let purposes = world.look("p", [Ok(nominated("n"))].into()).purposes();
        assert_eq!(purposes.contains(&reject), rejected, "{purposes:?}");
    }
}

/// A class that an administrator narrows is read by its new words.
#[test]
fn an_allocation_is_looked_at_again_when_a_class_changes() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    for (version, expression, rejected) in
        [(1, "device.driver == 'd'", false), (2, "device.driver == 'x'", true)]
    {
        let selectors = json!([{"cel": {"expression": expression}}]);
        let class = json!({"metadata": {"name": "gpu", "uid": "gpu", "resourceVersion": version.to_string()}, "spec": {"selectors": selectors}});
        let class = decode_item(class.to_string().as_bytes()).expect("metadata");
        Fed::<DeviceClass>::applied(&mut world.index, &class);
        let purposes = world.look("p", [Ok(nominated("n"))].into()).purposes();
        assert_eq!(
            purposes.contains(&Purpose::Reject("p-claim".into())),
            rejected,
            "{expression}: {purposes:?}"
        );
    }
}

/// The allocator of the right claim has done nothing wrong.
#[test]
fn of_two_claims_the_wrong_one_alone_is_given_back() {
    let mut world = World::with_node(None);
    let entries =
        json!([{"name": "a", "resourceClaimName": "p-gpu"}, {"name": "b", "resourceClaimName": "q-gpu"}]);
    world.pod("p", 1, &json!({"spec": {"resourceClaims": entries}}));
    let for_p = json!([{"resource": "pods", "name": "p", "uid": "p"}]);
    let two = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]});
    let none = json!({"requests": []});
    let nothing = json!({"devices": {"results": []}});
    world.claim(
        "p",
        1,
        &json!({"spec": {"devices": none}, "status": {"allocation": nothing, "reservedFor": for_p}}),
    );
    world.claim("q", 1, &json!({"spec": {"devices": two}, "status": {"reservedFor": for_p}}));
    let purposes = world.look("p", Answers::new()).purposes();
    let only = vec![Purpose::Reject("q-claim".into()), Purpose::Confirm, Purpose::TakeOut("q-claim".into())];
    assert_eq!(purposes, only);
}

/// A claim that a Pod uses which may run keeps its devices: taking this Pod out of it would mend nothing.
#[test]
fn devices_that_were_not_asked_for_are_given_back_unless_a_pod_may_use_them() {
    let looked = |consumers: &[&str]| {
        let mut world = World::with_node(None);
        world.pod("p", 1, &json!({}));
        world.pod("gated", 1, &json!({}));
        world.pod("runs", 1, &json!({"spec": {"schedulingGates": [], "nodeName": "n"}}));
        let consumers: Vec<Value> =
            consumers.iter().map(|pod| json!({"resource": "pods", "name": pod, "uid": pod})).collect();
        let two = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]});
        world.claim("p", 1, &json!({"spec": {"devices": two}, "status": {"reservedFor": consumers}}));
        world.look("p", [Ok(json!({})), Ok(json!({})), Ok(json!({}))].into())
    };
    for consumers in [&["p"][..], &["p", "gated"]] {
        let rejected = looked(consumers);
        assert_eq!(rejected.purposes().last(), Some(&Purpose::TakeOut("p-claim".into())), "{consumers:?}");
        let said = "claim p-gpu: request r: has 1 device, and asks for 2";
        assert!(matches!(rejected.said.last(), Some(Notice::Warning(Reason::WrongDevices, "Reject", why))
            if why.ends_with(said)));
    }
    assert_eq!(looked(&["p", "runs"]).purposes(), vec![nominate()]);
}
