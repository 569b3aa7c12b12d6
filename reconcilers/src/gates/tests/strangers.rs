//! Pods of other tenants without the gate, of which not all claims are named.

use std::time::Duration;

use super::passes::{Answers, World, nominated};
use super::*;
use crate::gates::pass::Purpose;

/// Reserves the other claims for the stranger: they have no devices, and say nothing of where the Pod goes.
fn reserve(world: &mut World, entries: &[Value]) {
    for entry in entries {
        let name = &entry["resourceClaimName"];
        let allocation = json!({"devices": {"results": []}});
        let status = json!({"allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": "stranger", "uid": "stranger"}]});
        world.applied::<ResourceClaim>(&json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"devices": {"requests": []}}, "status": status}));
    }
    if world.index.pod(&World::key("stranger")).is_some() {
        world.look("stranger", Answers::new());
    }
}

/// A claim of the stranger beyond the entries that are read, with this allocation.
fn last(world: &mut World, allocation: &Value) {
    let claim = json!({"metadata": {"namespace": "ns", "name": "last", "uid": "last", "resourceVersion": "1"},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": "stranger", "uid": "stranger"}]}});
    world.applied::<ResourceClaim>(&claim);
}

/// The node has another device, which takes nothing.
fn world(cost: Option<&str>) -> World {
    let mut world = World::with_node(cost);
    world.applied::<Node>(&json!({"metadata": {"name": "m", "uid": "m", "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": "10", "memory": "8Gi", "pods": "110"}}}));
    world.slice(&json!({"metadata": {"name": "free", "uid": "free", "resourceVersion": "1"},
        "spec": {"driver": "d", "nodeName": "n", "devices": [{"name": "free"}, {"name": "other"}],
            "pool": {"name": "free", "generation": 1, "resourceSliceCount": 1}}}));
    world
}

fn stranger(world: &mut World, entries: &[Value], spec: &Value) {
    let change = json!({"spec": {"schedulingGates": Value::Null, "resourceClaims": entries}});
    let mut pod = World::pod_object("stranger", 1, &change);
    super::passes::merge(&mut pod, &json!({"spec": spec}));
    world.applied::<Pod>(&pod);
}

fn by_name(number: usize) -> Value {
    json!({"name": format!("e{number}"), "resourceClaimName": format!("c{number}")})
}

/// The claims of the stranger count by their reservations, and no other Pod waits for more.
#[test]
fn a_pod_with_more_entries_than_are_read_keeps_no_other_gate_closed() {
    let entries: Vec<Value> = (0..300).map(by_name).collect();
    let everywhere = json!({"devices": {"results": []}});
    let (device, on_node) =
        (json!({"request": "r", "driver": "d", "pool": "n", "device": "gpu"}), ready(&["n"]));
    let mut dear = on_node["allocation"].clone();
    dear["devices"]["results"] = json!([device]);
    for (allocation, cost, fits) in
        [(&everywhere, None, true), (&dear, Some("2"), true), (&dear, Some("9"), false)]
    {
        for is_bound in [true, false] {
            let mut world = self::world(cost);
            let spec = if is_bound { json!({"nodeName": "n"}) } else { json!({}) };
            stranger(&mut world, &entries, &spec);
            last(&mut world, allocation);
            reserve(&mut world, &entries);
            let mut free = on_node["allocation"].clone();
            free["devices"]["results"] =
                json!([{"request": "r", "driver": "d", "pool": "free", "device": "free"}]);
            world.pod("p", 1, &nominated("n"));
            world.claim("p", 1, &json!({"status": {"allocation": free}}));
            world.look("p", Answers::new());
            world.now += Duration::from_millis(250);
            let purposes = world.look("p", Answers::new()).purposes();
            let opened = purposes.iter().any(|purpose| matches!(purpose, Purpose::Open(..)));
            assert_eq!(opened, fits, "{allocation} {cost:?} bound: {is_bound}: {purposes:?}");
        }
    }
}

/// Another writer has replaced the status of a Pod on its way: its node is uncertain until the Pod is bound. A claim without devices takes
/// nothing.
#[test]
fn a_pod_that_has_lost_the_names_of_its_claims_is_waited_for_until_it_has_its_node() {
    let opened = |allocation: &Value, spec: &Value| {
        let mut world = self::world(None);
        stranger(&mut world, &[json!({"name": "made", "resourceClaimTemplateName": "t"})], spec);
        last(&mut world, allocation);
        world.pod("p", 1, &nominated("n"));
        world.claim("p", 1, &json!({}));
        world.look("p", Answers::new());
        world.now += Duration::from_millis(250);
        let purposes = world.look("p", Answers::new()).purposes();
        purposes.iter().any(|purpose| matches!(purpose, Purpose::Open(..)))
    };
    let (on_way, there) = (json!({}), json!({"nodeName": "n"}));
    let mut device = ready(&["n"])["allocation"].clone();
    device["devices"]["results"] = json!([{"request": "r", "driver": "d", "pool": "free", "device": "free"}]);
    assert!(!opened(&device, &on_way));
    assert!(opened(&device, &there), "the ledger counts it");
    assert!(opened(&json!({"devices": {"results": []}}), &on_way));
}
