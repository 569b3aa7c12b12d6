//! Pods that ask for Pods near them, to be apart from some, or that use volumes.

use dragoman_objects::{PersistentVolume, PersistentVolumeClaim};

use super::passes::{World, no_answers};
use super::*;

const HOST: &str = "kubernetes.io/hostname";

/// Three nodes: the first two are in zone 0, the third is in zone 1.
fn world() -> World {
    let mut index = cluster(3, 0);
    for number in 0..3 {
        let mut node = node(number, "26");
        node["metadata"]["labels"] = json!({HOST: name(number), "zone": (number / 2).to_string()});
        applied::<Node>(&mut index, &node);
    }
    World::of(index)
}

/// A term about the Pods with the label `app`.
fn term(kind: &str, app: &str, key: &str) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]}})
}

fn labelled(number: usize, app: &str, affinity: &Value) -> Value {
    let mut pod = pod(number, "1");
    // What no term is about tells no Pods apart.
    pod["metadata"]["labels"] = json!({"app": app, "number": number.to_string()});
    pod["spec"]["affinity"] = affinity.clone();
    pod
}

/// A Pod that may run in the first zone alone.
fn in_zone_0(number: usize, app: &str) -> Value {
    let mut pod = labelled(number, app, &json!({}));
    pod["spec"]["nodeSelector"] = json!({"zone": "0"});
    pod
}

/// A Pod without claims that is bound to a node.
fn bound(number: usize, app: &str, affinity: &Value, on: usize) -> Value {
    let mut pod = labelled(number, app, affinity);
    pod["spec"]["nodeName"] = json!(name(on));
    pod["spec"]["resourceClaims"] = json!([]);
    // It takes nothing of its node.
    pod["spec"]["containers"] = json!([{"name": "main"}]);
    pod
}

impl World {
    /// Lets a Pod come and looks at it. Returns its node.
    fn places(&mut self, number: usize, pod: &Value) -> Option<String> {
        applied::<ResourceClaim>(&mut self.index, &claim(number, &json!({})));
        applied::<Pod>(&mut self.index, pod);
        self.node_of(number)
    }

    fn node_of(&mut self, number: usize) -> Option<String> {
        self.look(number, no_answers()).expect("it waits");
        self.decided.assumed.node_of(&key(number)).map(ToString::to_string)
    }

    fn ends(&mut self, pod: &Value) -> Vec<ObjectKey> {
        let meta = serde_json::from_value(pod["metadata"].clone()).expect("metadata");
        Fed::<Pod>::deleted(&mut self.index, &meta)
    }
}

#[test]
fn pods_that_have_to_be_apart_get_nodes_of_their_own() {
    let mut world = world();
    let apart = term("podAntiAffinity", "a", HOST);
    let nodes: Vec<_> = (0..3).map(|number| world.places(number, &labelled(number, "a", &apart))).collect();
    assert_eq!(nodes, [0, 1, 2].map(|number| Some(name(number))));
    assert_eq!(world.places(3, &labelled(3, "a", &apart)), None);
    let shape = |world: &World, number| {
        let (_, pod) = world.index.pod(&key(number)).expect("it waits");
        let claims = [world.index.snapshot.claim(&format!("claim-{number}")).cloned()];
        let claims = claims.into_iter().flatten().collect();
        Question::new(&key(number), &pod, claims, &world.index, &world.decided).equivalence_class()
    };
    assert_eq!(shape(&world, 2), shape(&world, 3), "one waits for all");
    let said = |world: &World, number: usize| world.index.shapes.reasons(shape(world, number))[0].to_string();
    assert!(said(&world, 3).ends_with(
        "a Pod that the required Pod anti-affinity excludes runs in the same kubernetes.io/hostname"
    ));
    // A Pod without such a wish is excluded by theirs if they name it.
    assert_eq!(world.places(4, &labelled(4, "a", &json!({}))), None);
    assert_eq!(world.places(5, &labelled(5, "b", &json!({}))), Some(name(0)));
    // One of them is bound and ends.
    let mut first = labelled(1, "a", &apart);
    first["spec"]["nodeName"] = json!(name(1));
    first["metadata"]["resourceVersion"] = json!("2");
    applied::<Pod>(&mut world.index, &first);
    assert!(world.look(1, no_answers()).is_none());
    assert_eq!(world.node_of(3), None, "a Pod that runs is there as before");
    assert!(world.ends(&first).contains(&key(3)));
    assert_eq!(world.node_of(3), Some(name(1)));
}

#[test]
fn pods_go_where_those_are_that_they_ask_for() {
    let mut world = world();
    let near = term("podAffinity", "db", "zone");
    assert_eq!(world.places(0, &labelled(0, "a", &near)), None);
    let woken = applied::<Pod>(&mut world.index, &bound(7, "web", &json!({}), 0));
    assert!(woken.contains(&key(0)), "it may be one of those");
    assert_eq!(world.node_of(0), None);
    applied::<Pod>(&mut world.index, &bound(8, "db", &json!({}), 2));
    assert_eq!(world.node_of(0), Some(name(2)));
    // Another node of its zone.
    let mut beside = labelled(1, "a", &near);
    beside["spec"]["nodeSelector"] = json!({HOST: name(1)});
    assert_eq!(world.places(1, &beside), None);
    applied::<Pod>(&mut world.index, &bound(9, "db", &json!({}), 0));
    assert_eq!(world.node_of(1), Some(name(1)));
}

#[test]
fn pods_are_spread_over_zones() {
    let mut world = world();
    let spread = |number: usize| {
        let mut pod = labelled(number, "a", &json!({}));
        pod["spec"]["topologySpreadConstraints"] = json!([{"labelSelector": {"matchLabels": {"app": "a"}},
            "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]);
        pod
    };
    let zones: Vec<_> = (0..6).map(|number| world.places(number, &spread(number)).expect("a node")).collect();
    let second = zones.iter().filter(|node| **node == name(2)).count();
    assert_eq!(second, 3, "{zones:?}");
}

/// A Pod that has its node is judged by its topology spread when it is bound. Until then no Pod that it counts, and that
/// spreads otherwise, takes its place.
#[test]
fn a_pod_leaves_room_for_the_spread_of_one_that_is_about_to_be_bound() {
    let mut world = world();
    let mut even = labelled(0, "a", &json!({}));
    even["spec"]["topologySpreadConstraints"] = json!([{"labelSelector": {"matchLabels": {"app": "a"}},
        "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]);
    assert_eq!(world.places(0, &even), Some(name(0)));
    assert_eq!(world.places(1, &in_zone_0(1, "a")), None);
    assert_eq!(world.places(2, &in_zone_0(2, "b")), Some(name(0)), "it is not counted");
    assert_eq!(world.places(3, &labelled(3, "a", &json!({}))), Some(name(2)), "the other zone has room");
    assert_eq!(world.node_of(1), None, "that one may be bound later");
    let mut there = labelled(3, "a", &json!({}));
    there["spec"]["nodeName"] = json!(name(2));
    there["metadata"]["resourceVersion"] = json!("2");
    applied::<Pod>(&mut world.index, &there);
    assert!(world.look(3, no_answers()).is_none());
    assert_eq!(world.node_of(1), Some(name(0)), "one here and one there");
    assert_eq!(world.places(4, &in_zone_0(4, "a")), None);
    even["spec"]["nodeName"] = json!(name(0));
    even["metadata"]["resourceVersion"] = json!("2");
    let woken = applied::<Pod>(&mut world.index, &even);
    assert!(world.look(0, no_answers()).is_none());
    assert!(woken.contains(&key(4)), "{woken:?}");
    assert_eq!(world.node_of(4), Some(name(0)), "it was bound");
}

/// A Pod on one node excludes all nodes of its zone, and none once it has moved.
#[test]
fn a_pod_that_keeps_others_from_its_zone_moves() {
    let mut world = world();
    let repels = term("podAntiAffinity", "a", "zone");
    let (here, there) = (bound(8, "x", &repels, 0), bound(9, "x", &repels, 2));
    applied::<Pod>(&mut world.index, &here);
    applied::<Pod>(&mut world.index, &there);
    assert_eq!(world.places(0, &labelled(0, "a", &json!({}))), None);
    assert!(world.ends(&here).contains(&key(0)));
    assert_eq!(world.node_of(0), Some(name(0)), "it is of the zone, and not the node");
    // A Pod that none keeps away does not wait behind it.
    applied::<Pod>(&mut world.index, &bound(8, "x", &repels, 1));
    assert_eq!(world.places(1, &labelled(1, "a", &json!({}))), None);
    assert_eq!(world.places(2, &labelled(2, "b", &json!({}))), Some(name(0)));
}

/// A Pod goes where its volume is, as soon as there is one.
#[test]
fn pods_go_where_their_volumes_are() {
    let mut world = world();
    let using = |number: usize| {
        let mut pod = labelled(number, "a", &json!({}));
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        pod
    };
    assert_eq!(world.places(0, &using(0)), None);
    assert_eq!(world.places(1, &labelled(1, "a", &json!({}))), Some(name(0)), "it has no volume");
    let object = |namespace: &str, name: &str, version: u8, rest: Value| {
        let mut object = json!({"metadata": {"namespace": namespace, "name": name, "uid": name,
            "resourceVersion": version.to_string()}});
        object.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
        object
    };
    let open = object("ns", "data", 1, json!({"spec": {"storageClassName": "slow"}}));
    assert!(applied::<PersistentVolumeClaim>(&mut world.index, &open).contains(&key(0)));
    assert_eq!(world.node_of(0), None);
    let zone = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]);
    let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": zone}}}});
    applied::<PersistentVolume>(&mut world.index, &object("", "pv", 1, volume));
    let bound = json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
    let woken = applied::<PersistentVolumeClaim>(&mut world.index, &object("ns", "data", 2, bound));
    assert!(woken.contains(&key(0)));
    assert_eq!(world.node_of(0), Some(name(2)));
}

/// A node that has the first alternative of a request is chosen before nodes that have the second.
#[test]
fn a_node_with_a_better_alternative_comes_first() {
    let mut world = world();
    let class = |name: &str| {
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"selectors": [{"cel": {"expression": format!("device.attributes[{DRIVER:?}].model == {name:?}")}}]}})
    };
    for (number, model) in ["slow", "slow", "fast"].into_iter().enumerate() {
        let mut slice = slice(number);
        slice["metadata"]["resourceVersion"] = json!("2");
        slice["spec"]["devices"] = json!([{"name": "gpu-0", "attributes": {"model": {"string": model}}}]);
        applied::<ResourceSlice>(&mut world.index, &slice);
        applied::<DeviceClass>(&mut world.index, &class(model));
    }
    let comes = |world: &mut World, number: usize| {
        let mut claim = claim(number, &json!({}));
        let alternative = |name: &str| json!({"name": name, "deviceClassName": name, "allocationMode": "ExactCount", "count": 1});
        claim["spec"]["devices"]["requests"] =
            json!([{"name": "gpu", "firstAvailable": [alternative("fast"), alternative("slow")]}]);
        applied::<ResourceClaim>(&mut world.index, &claim);
        applied::<Pod>(&mut world.index, &pod(number, "1"));
        world.node_of(number)
    };
    let nodes: Vec<_> = (0..4).map(|number| comes(&mut world, number)).collect();
    assert_eq!(nodes, [Some(name(2)), Some(name(0)), Some(name(1)), None]);
}

#[test]
fn the_pods_of_a_gang_are_apart() {
    let apart = term("podAntiAffinity", "a", HOST);
    let mut world = world();
    let group = |min: usize| {
        json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g", "resourceVersion": "1"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": min}}}})
    };
    let member = |number: usize| {
        let mut pod = labelled(number, "a", &apart);
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        pod
    };
    applied::<dragoman_objects::PodGroup>(&mut world.index, &group(4));
    for number in 0..4 {
        applied::<ResourceClaim>(&mut world.index, &claim(number, &json!({})));
        applied::<Pod>(&mut world.index, &member(number));
    }
    assert_eq!(world.node_of(0), None, "there are three nodes");
    applied::<dragoman_objects::PodGroup>(&mut world.index, &group(3));
    world.look(0, no_answers()).expect("it waits");
    let nodes: Vec<_> = (0..4).filter_map(|number| world.decided.assumed.node_of(&key(number))).collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    assert!((1..3).all(|at| !nodes[..at].contains(&nodes[at])), "{nodes:?}");
}

/// The Pods of a gang are bound after all of them have devices: none waits until another one is bound.
#[test]
fn a_gang_does_not_wait_for_the_spread_of_its_own() {
    let mut world = world();
    let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g", "resourceVersion": "1"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}});
    applied::<dragoman_objects::PodGroup>(&mut world.index, &group);
    for number in 0..2 {
        let mut pod = labelled(number, "a", &json!({}));
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        pod["spec"]["nodeSelector"] = json!({"zone": "0"});
        if number == 0 {
            pod["spec"]["topologySpreadConstraints"] = json!([{"labelSelector": {"matchLabels": {"app": "a"}},
                "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": "Ignore"}]);
        }
        applied::<ResourceClaim>(&mut world.index, &claim(number, &json!({})));
        applied::<Pod>(&mut world.index, &pod);
    }
    world.look(0, no_answers()).expect("it waits");
    let nodes: Vec<_> = (0..2).filter_map(|number| world.decided.assumed.node_of(&key(number))).collect();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
}

/// A promised Pod has a constraint about one app over zones and one about another over nodes: Pods of the two are not of one
/// shape, for what excludes one does not exclude the other.
#[test]
fn promised_constraints_tell_apart_whom_they_count() {
    let mut world = world();
    let constraint = |app: &str, key: &str| {
        json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule"})
    };
    let mut promised = labelled(0, "x", &json!({}));
    promised["spec"]["topologySpreadConstraints"] = json!([constraint("x", "zone"), constraint("y", HOST)]);
    assert_eq!(world.places(0, &promised), Some(name(0)));
    assert_eq!(world.places(1, &in_zone_0(1, "x")), None);
    assert_eq!(world.places(2, &in_zone_0(2, "y")), Some(name(0)), "it may be one there");
    assert_eq!(
        world.places(3, &in_zone_0(3, "y")),
        Some(name(1)),
        "the second one on the node would be too many"
    );
}

/// Cost of decisions about Pods that have to be apart and are spread over zones. The environment variable `NODES` sets the
/// number of nodes.
#[test]
fn a_large_cluster_has_pods_that_are_apart() {
    let nodes: usize = std::env::var("NODES").ok().and_then(|nodes| nodes.parse().ok()).unwrap_or(40);
    let mut index = cluster(nodes, 0);
    for number in 0..nodes {
        let mut node = node(number, "26");
        node["metadata"]["labels"] = json!({HOST: name(number), "zone": (number % 5).to_string()});
        applied::<Node>(&mut index, &node);
    }
    let mut world = World::of(index);
    let mut used = std::collections::BTreeSet::new();
    let began = Instant::now();
    let all = nodes.min(200);
    for number in 0..all {
        let mut pod = labelled(number, "a", &term("podAntiAffinity", "a", HOST));
        pod["spec"]["topologySpreadConstraints"] = json!([{"labelSelector": {"matchLabels": {"app": "a"}},
            "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]);
        let node = world.places(number, &pod).expect("a node");
        assert!(used.insert(node.clone()), "{node} has two");
    }
    println!("{nodes} nodes: {all} Pods that are apart in {:?}", began.elapsed());
    let mut zones = [0; 5];
    for node in &used {
        zones[node.trim_start_matches("node-").parse::<usize>().expect("a number") % 5] += 1;
    }
    assert_eq!(zones, [all / 5; 5]);
}

/// A host port, and the only unit of a device plugin's resource: the Pod that is decided on first has it, before it is bound.
#[test]
fn ports_and_resources_of_pods_on_their_way_are_taken() {
    let port = json!({"ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "1"}}});
    let plugin = json!({"resources": {"requests": {"cpu": "1", "example.com/nic": "1"}}});
    for takes in [port, plugin] {
        let mut world = World::of(cluster(2, 0));
        for number in 0..2 {
            let mut node = node(number, "26");
            node["status"]["allocatable"]["example.com/nic"] = json!("1");
            applied::<Node>(&mut world.index, &node);
        }
        let taking = |number: usize| {
            let mut pod = pod(number, "1");
            for (field, value) in takes.as_object().expect("an object") {
                pod["spec"]["containers"][0][field] = value.clone();
            }
            pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
            pod
        };
        let nodes: Vec<_> = (0..2).map(|number| world.places(number, &taking(number))).collect();
        assert!(nodes.iter().all(Option::is_some) && nodes[0] != nodes[1], "{nodes:?}: {takes}");
        assert_eq!(world.places(2, &taking(2)), None, "{takes}");
        assert!(world.places(3, &pod(3, "1")).is_some(), "it takes nothing of the kind");
        // Bound and ended: it is free again.
        let mut ended = taking(0);
        ended["metadata"]["resourceVersion"] = json!("9");
        ended["status"] = json!({"phase": "Succeeded"});
        applied::<Pod>(&mut world.index, &ended);
        world.look(0, no_answers());
        assert_eq!(world.node_of(2), nodes[0], "{takes}");
    }
}
