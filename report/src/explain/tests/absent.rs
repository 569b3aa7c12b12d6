//! Consumers, nodes and claims that are not there, and what is said of those that hold devices for them.

use super::*;

#[test]
fn a_claim_whose_consumers_are_not_there_holds_devices_for_nothing() {
    let two = json!([consumer("train")[0], consumer("other")[0]]);
    let of_claim = |consumers: &Value, pods: &[Value]| {
        let objects = [&cluster(&[allocated("c", "a", consumers)]), pods].concat();
        let mut facts = facts(&objects);
        facts.expect_pods(Some(&("ml".to_owned(), "c".to_owned())));
        crate::explain::claim::explain(facts, "ml", "c", now())
    };
    let other = with(by_name(), "/metadata", meta("other"));
    let ended = with(by_name(), "/status/phase", json!("Succeeded"));
    let anew = with(by_name(), "/metadata/uid", json!("new"));
    let gone = "holds device a of pool node-0 (d) for nothing: Pod train is not in the files";
    says("gone", &of_claim(&consumer("train"), std::slice::from_ref(&other)), "ConsumersGone", gone);
    says(
        "ended",
        &of_claim(&consumer("train"), std::slice::from_ref(&ended)),
        "ConsumersGone",
        "Pod train has ended",
    );
    says("another", &of_claim(&consumer("train"), &[anew]), "ConsumersGone", "Pod train is another one now");
    says("one is left", &of_claim(&two, &[ended, other]), "InUse", "for Pod train, Pod other");
    let unknown = of_claim(&consumer("train"), &[]);
    says("no Pods in the files", &unknown, "InUse", "for Pod train");
    assert!(unknown.lacks[0].contains("the files have no pods of some namespaces"), "{:?}", unknown.lacks);
    let elsewhere = |name: &str, namespace: &str| {
        with(with(by_name(), "/metadata", meta(name)), "/metadata/namespace", json!(namespace))
    };
    let of_one = of_claim(&consumer("train"), &[elsewhere("x", "a")]);
    says("Pods of another namespace", &of_one, "InUse", "for Pod train");
    let of_all = of_claim(&consumer("train"), &[elsewhere("x", "a"), elsewhere("y", "b")]);
    says("Pods of several namespaces", &of_all, "ConsumersGone", "Pod train is not in the files");
    let group = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]);
    says("a group", &of_claim(&group, &[by_name()]), "InUse", "for PodGroup g");
}

#[test]
fn a_holder_that_is_not_there_is_said_wherever_it_holds() {
    let other = with(by_name(), "/metadata", meta("other"));
    let objects = cluster(&[allocated("c", "a", &consumer("train")), other]);
    let of_device = crate::explain::device::explain(facts(&objects), "node-0/a", now()).expect("a device");
    says("device", &of_device, "Taken", "held by claim ml/c for nothing (Pod train is not in the files)");
    let of_node = crate::explain::node::explain(&facts(&objects), "node-0", now());
    assert_eq!(of_node.chain[0].says, "claim ml/c for nothing (Pod train is not in the files)");
    // Of a cluster only the Pods are known that were looked up.
    let mut live = facts(&objects);
    live.from_files = false;
    live.pods.clear();
    assert_eq!(
        crate::explain::node::explain(&live, "node-0", now()).chain[0].says,
        "claim ml/c for Pod train"
    );
    live.looked_up.insert(("ml".to_owned(), "c".to_owned()));
    assert_eq!(
        crate::explain::node::explain(&live, "node-0", now()).chain[0].says,
        "claim ml/c for nothing (Pod train is gone)"
    );
}

#[test]
fn devices_of_a_node_that_does_not_exist() {
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["node-9"]}]}]});
    let held = with(allocated("c", "a", &consumer("train")), "/status/allocation/nodeSelector", selector);
    let of_claim = |objects: &[Value]| crate::explain::claim::explain(facts(objects), "ml", "c", now());
    let words = "device a of pool node-0 (d) of node node-9, and the node does not exist in the files";
    says("gone", &of_claim(&[held.clone(), node()]), "NodeGone", words);
    says("no nodes in the files", &of_claim(std::slice::from_ref(&held)), "InUse", "for Pod train");
    let runs = with(with(by_name(), "/status/phase", json!("Running")), "/spec/nodeName", json!("node-9"));
    says("Pod", &of_pod(&[runs, held, node()]), "NodeGone", "node node-9, and the node does not exist");
}

#[test]
fn a_pod_with_an_extended_resource_says_which_devices_it_waits_for() {
    let class = with(class(), "/spec/extendedResourceName", json!("example.com/gpu"));
    let wants = |count: &str| {
        let containers = json!([{"name": "main", "resources": {"requests": {"example.com/gpu": count}}}]);
        json!({"kind": "Pod", "metadata": meta("train"), "spec": {"containers": containers}, "status": {"phase": "Pending"}})
    };
    let held = allocated("c", "a", &consumer("other"));
    let all = |pod: Value, node: Value| [class.clone(), slice(&["a", "b"]), node, held.clone(), pod];
    let short = of_pod(&all(wants("2"), node()));
    says(
        "short",
        &short,
        "NoDevicesFree",
        "request example.com/gpu of claim ml/extended-resources-of-train wants 2 devices",
    );
    assert_eq!(short.chain[1].object, "extended resource example.com/gpu");
    says("free", &of_pod(&all(wants("1"), node())), "DevicesFree", "free on node node-0");
    // A device plugin has the resource: no claim is made for it.
    let plugin = with(node(), "/status/allocatable", json!({"pods": "10", "example.com/gpu": "4"}));
    says("plugin", &of_pod(&all(wants("1"), plugin)), "SchedulerSilent", "uses no claims");
}

#[test]
fn the_advice_is_to_wait_only_where_waiting_helps() {
    let advice = |count: i64| {
        let wanted = with(claim("c"), "/spec/devices/requests/0/exactly/count", json!(count));
        let objects = cluster(&[allocated("held", "a", &consumer("other")), by_name(), wanted]);
        let answer = of_pod(&objects);
        says("short", &answer, "NoDevicesFree", "wants");
        answer.verdict.advice
    };
    assert!(advice(2).starts_with("wait until a claim that holds one ends"));
    assert!(advice(3).starts_with("no node has as many such devices"));
}

#[test]
fn nodes_that_do_not_take_the_pod_are_told_with_what_to_do() {
    let cordoned = with(node(), "/spec", json!({"unschedulable": true}));
    let waits = of_pod(&[class(), slice(&["a"]), cordoned.clone(), by_name(), claim("c")]);
    says("cordoned", &waits, "NoNodeTakesThePod", "the node is cordoned");
    assert!(waits.verdict.advice.contains("kubectl uncordon"), "{}", waits.verdict.advice);
    let down = with(
        node(),
        "/spec",
        json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}),
    );
    let waits = of_pod(&[class(), slice(&["a"]), down, by_name(), claim("c")]);
    assert!(waits.verdict.advice.contains("kubelets"), "{}", waits.verdict.advice);
    says(
        "no nodes",
        &of_pod(&[class(), slice(&["a"]), by_name(), claim("c")]),
        "NoNodes",
        "the files have no Node",
    );
    // The devices are allocated already.
    let on = |name: &str, node: &str| {
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]}]}]});
        with(allocated(name, "a", &consumer("train")), "/status/allocation/nodeSelector", selector)
    };
    let stuck = of_pod(&[slice(&["a"]), cordoned, by_name(), on("c", "node-0")]);
    says(
        "allocated",
        &stuck,
        "NodeUnsuitable",
        "on node node-0, and the node does not take it: the node is cordoned",
    );
    let entries =
        json!([{"name": "gpu", "resourceClaimName": "c"}, {"name": "other", "resourceClaimName": "e"}]);
    let both = with(by_name(), "/spec/resourceClaims", entries);
    let second = with(node(), "/metadata/name", json!("node-1"));
    let apart = of_pod(&[slice(&["a"]), node(), second, both, on("c", "node-0"), on("e", "node-1")]);
    says("apart", &apart, "NoCommonNode", "claim c are on node node-0, and those of claim e on node node-1");
}
