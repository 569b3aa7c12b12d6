//! Taints of devices, and objects that cannot be read.

use super::super::undecidable::KINDS;
use super::*;

/// A DeviceTaintRule as a cluster has it: its controller writes a status within a second.
fn rule(spec: &Value) -> Value {
    json!({"metadata": {"name": "broken", "uid": "rule", "resourceVersion": "1"}, "spec": spec,
        "status": {"conditions": [{"type": "EvictionInProgress", "status": "False", "reason": "NotStarted",
            "message": "0 pods need to be evicted", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

#[test]
fn a_taint_rule_with_a_status_keeps_its_devices_from_every_claim() {
    let mut index = cluster(1, 1);
    let taint = json!({"key": "example.com/broken", "effect": "NoExecute"});
    applied::<DeviceTaintRule>(
        &mut index,
        &rule(&json!({"deviceSelector": {"driver": DRIVER}, "taint": taint})),
    );
    comes(&mut index, 0, "1");
    let why = decided(&mut index, &InFlightAllocations::default(), 0)
        .expect_err("every device is tainted")
        .concat();
    assert!(why.contains("example.com/broken:NoExecute is not tolerated (DeviceTaintRule broken)"), "{why}");
    let elsewhere = json!({"deviceSelector": {"driver": "another.example.com"}, "taint": taint});
    applied::<DeviceTaintRule>(&mut index, &rule(&elsewhere));
    decided(&mut index, &InFlightAllocations::default(), 0).expect("no device is tainted");
}

#[test]
fn a_taint_rule_that_does_not_decode_holds_back_what_it_may_taint_until_it_is_gone() {
    let mut index = cluster(1, 1);
    let unreadable = rule(&json!({"deviceSelector": {"driver": DRIVER}, "taint": "of a later release"}));
    applied::<DeviceTaintRule>(&mut index, &unreadable);
    comes(&mut index, 0, "1");
    let mut tolerant = claim(0, &json!({}));
    tolerant["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = json!([{"operator": "Exists"}]);
    applied::<ResourceClaim>(&mut index, &tolerant);
    let why =
        decided(&mut index, &InFlightAllocations::default(), 0).expect_err("the taint is not known").concat();
    assert!(why.contains("(cannot be read) is not tolerated (DeviceTaintRule broken)"), "{why}");
    let item = decode_item::<DeviceTaintRule>(unreadable.to_string().as_bytes()).expect("metadata");
    Fed::<DeviceTaintRule>::deleted(&mut index, item.meta());
    decided(&mut index, &InFlightAllocations::default(), 0).expect("it is gone");
}

/// An object that takes an unknown amount of a node keeps the allocator from that node, as it keeps the
/// operator from opening a gate there.
#[test]
fn no_devices_are_given_where_it_is_not_known_what_is_taken() {
    let mut index = cluster(2, 1);
    comes(&mut index, 0, "1");
    let node_of =
        |index: &mut Allocation| decided(index, &InFlightAllocations::default(), 0).map(|found| found.node);
    assert_eq!(node_of(&mut index).as_deref(), Ok("node-00000"));
    let mut unreadable = pod(9, "1");
    unreadable["spec"] = json!({"nodeName": name(0), "containers": "none"});
    applied::<Pod>(&mut index, &unreadable);
    assert_eq!(node_of(&mut index).as_deref(), Ok("node-00001"), "a Pod that was never read is on the other");
    let meta = |object: &Value| serde_json::from_value(object["metadata"].clone()).expect("metadata");
    Fed::<Pod>::deleted(&mut index, &meta(&unreadable));
    assert_eq!(node_of(&mut index).as_deref(), Ok("node-00000"));
    // A DeviceFootprint that is refused may be about any device.
    let footprint = json!({"metadata": {"name": "odd", "uid": "odd", "resourceVersion": "1"},
        "spec": {"driver": DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": "-1"}}}}});
    applied::<DeviceFootprint>(&mut index, &footprint);
    let why = node_of(&mut index).expect_err("nothing is certain").concat();
    assert!(why.contains("it is not known what the node has left"), "{why}");
    Fed::<DeviceFootprint>::deleted(&mut index, &meta(&footprint));
    assert_eq!(node_of(&mut index).as_deref(), Ok("node-00000"));
}

/// The end of an object was missed, and another one has taken its name: what is known of the other one stays.
#[test]
fn an_object_that_takes_the_name_of_another_counts() {
    let mut index = cluster(1, 1);
    comes(&mut index, 0, "1");
    let is_found = |index: &mut Allocation| decided(index, &InFlightAllocations::default(), 0).is_ok();
    let of_another = |mut object: Value| {
        object["metadata"]["uid"] = json!("another");
        object
    };
    applied::<Node>(&mut index, &of_another(node(0, "26")));
    applied::<ResourceSlice>(&mut index, &of_another(slice(0)));
    assert!(is_found(&mut index));
    let footprint = |uid: &str, cpu: &str| {
        json!({"metadata": {"name": "odd", "uid": uid, "resourceVersion": "1"},
            "spec": {"driver": DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": cpu}}}}})
    };
    applied::<DeviceFootprint>(&mut index, &footprint("odd", "1"));
    applied::<DeviceFootprint>(&mut index, &footprint("another", "-1"));
    assert!(!is_found(&mut index), "the other one is refused");
    let meta = |object: &Value| serde_json::from_value(object["metadata"].clone()).expect("metadata");
    Fed::<DeviceFootprint>::deleted(&mut index, &meta(&footprint("another", "-1")));
    assert!(is_found(&mut index));
    let class =
        |uid: &str| json!({"metadata": {"name": "gpu", "uid": uid, "resourceVersion": "1"}, "spec": {}});
    applied::<DeviceClass>(&mut index, &class("class"));
    applied::<DeviceClass>(&mut index, &class("another"));
    assert!(is_found(&mut index), "the other class is there");
    let taint = json!({"deviceSelector": {"driver": DRIVER}, "taint": {"key": "k", "effect": "NoSchedule"}});
    applied::<DeviceTaintRule>(&mut index, &rule(&taint));
    let another = of_another(rule(&taint));
    applied::<DeviceTaintRule>(&mut index, &another);
    assert!(!is_found(&mut index), "the other rule taints every device");
    applied::<DeviceTaintRule>(
        &mut index,
        &rule(&json!({"deviceSelector": {"driver": DRIVER}, "taint": "odd"})),
    );
    assert!(!is_found(&mut index), "and so may one that does not decode");
    Fed::<DeviceTaintRule>::deleted(&mut index, &meta(&rule(&taint)));
    assert!(is_found(&mut index), "no rule is left");
    // A Pod that does not decode, and then none.
    applied::<Pod>(&mut index, &pod(9, "1"));
    let mut unreadable = of_another(pod(9, "1"));
    unreadable["spec"] = json!({"nodeName": name(0), "containers": "none"});
    applied::<Pod>(&mut index, &unreadable);
    assert!(!is_found(&mut index));
    Fed::<Pod>::deleted(&mut index, &meta(&unreadable));
    assert!(is_found(&mut index), "nothing is left of it");
}

/// Each store of the index hands what is not understood on, and forgets it with the object.
#[test]
fn objects_of_which_a_part_is_not_understood_say_so_until_they_are_gone() {
    let mut index = cluster(1, 1);
    assert_eq!(index.undecidable.news(), Vec::new());
    let mut odd = slice(0);
    odd["spec"]["devices"][0]["sharing"] = json!(1);
    let class = json!({"metadata": {"name": "odd", "uid": "class", "resourceVersion": "1"}, "spec": {"onlyFor": "tenants"}});
    let rule = rule(&json!({"deviceSelector": {"rack": "x"}, "taint": {"key": "k", "effect": "NoSchedule"}}));
    applied::<ResourceSlice>(&mut index, &odd);
    applied::<DeviceClass>(&mut index, &class);
    applied::<DeviceTaintRule>(&mut index, &rule);
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": name(0), "device": "gpu-7", "consumedCounters": []});
    let held = claim(9, &json!({"allocation": {"devices": {"results": [result]}}}));
    applied::<ResourceClaim>(&mut index, &held);
    let told: Vec<_> = index.undecidable.news().into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(told.len(), KINDS.len(), "{told:?}");
    let meta = |object: &Value| serde_json::from_value(object["metadata"].clone()).expect("metadata");
    Fed::<ResourceSlice>::deleted(&mut index, &meta(&odd));
    Fed::<DeviceClass>::deleted(&mut index, &meta(&class));
    Fed::<DeviceTaintRule>::deleted(&mut index, &meta(&rule));
    Fed::<ResourceClaim>::deleted(&mut index, &meta(&held));
    assert_eq!(KINDS.map(|kind| index.undecidable.count(kind)), [0; KINDS.len()]);
}
