//! Pods that other Pods, or their volumes, keep from every node.

use super::*;

#[test]
fn a_pod_that_other_pods_of_the_files_keep_away() {
    let of = |object: Value| with(object, "/metadata/labels", json!({"app": "train"}));
    let term = json!({"labelSelector": {"matchLabels": {"app": "train"}}, "topologyKey": "zone"});
    let affinity =
        |kind: &str| json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term.clone()]}});
    let zoned = || with(node(), "/metadata/labels", json!({"zone": "a"}));
    let other = |affinity: Value| {
        let spec = json!({"nodeName": "node-0", "affinity": affinity});
        of(json!({"kind": "Pod", "metadata": meta("other"), "spec": spec, "status": {"phase": "Running"}}))
    };
    let objects = |waits: Value, more: &[Value]| {
        let all = [of(waits), claim("c"), class(), slice(&["a", "b"]), zoned()];
        [&all[..], more].concat()
    };
    let apart = || with(by_name(), "/spec/affinity", affinity("podAntiAffinity"));
    let reason = "NoNodeTakesThePod";
    let answer = of_pod(&objects(apart(), &[other(Value::Null)]));
    says(
        "apart",
        &answer,
        reason,
        "a Pod that the required Pod anti-affinity excludes runs in the same zone",
    );
    assert!(answer.verdict.advice.contains("wait until the Pods"), "{}", answer.verdict.advice);
    // The other Pod has it, and not this one.
    let answer = of_pod(&objects(by_name(), &[other(affinity("podAntiAffinity"))]));
    says("repelled", &answer, reason, "the anti-affinity of another Pod in the same zone excludes the Pod");
    let elsewhere = with(by_name(), "/spec/affinity", affinity("podAffinity"));
    let elsewhere = with(
        elsewhere,
        "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/topologyKey",
        json!("rack"),
    );
    says(
        "no rack",
        &of_pod(&objects(elsewhere, &[])),
        reason,
        "the node does not have the label rack (topologyKey)",
    );
    // One that has ended is in no one's way.
    let ended = with(other(Value::Null), "/status/phase", json!("Succeeded"));
    assert_ne!(of_pod(&objects(apart(), &[ended])).verdict.reason, reason);
}

#[test]
fn a_pod_whose_volume_is_elsewhere() {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let waits = || with(by_name(), "/spec/volumes", volumes.clone());
    let zone = json!({"topology.kubernetes.io/zone": "a"});
    let zoned = with(node(), "/metadata/labels", zone);
    let of = |more: &[Value]| {
        of_pod(&[&[waits(), claim("c"), class(), slice(&["a", "b"]), zoned.clone()], more].concat())
    };
    let bound = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta(name),
            "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})
    };
    let volume = |zone: &str| {
        let labels = json!({"topology.kubernetes.io/zone": zone});
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "labels": labels}, "spec": {}})
    };
    let reason = "NoNodeTakesThePod";
    let answer = of(&[bound("data"), volume("b")]);
    says("zone", &answer, reason, "PersistentVolumeClaim data is bound to a volume of another zone");
    assert!(answer.verdict.advice.contains("PersistentVolumeClaim of the Pod"), "{}", answer.verdict.advice);
    says("missing", &of(&[bound("other"), volume("a")]), reason, "PersistentVolumeClaim data does not exist");
    assert_ne!(of(&[bound("data"), volume("a")]).verdict.reason, reason);
    // Files without such claims say nothing of them.
    assert_ne!(of(&[volume("b")]).verdict.reason, reason);
}

/// Neither device says where it is.
#[test]
fn a_pod_that_asks_for_aligned_devices() {
    let annotations = json!({"dragoman.dev/aligned-by": "resource.kubernetes.io/numaNode"});
    let asks = with(by_name(), "/metadata/annotations", annotations);
    let answer = of_pod(&[asks, claim("c"), class(), slice(&["a", "b"]), node()]);
    let words = answer.in_words();
    assert!(words.contains("no value of attribute resource.kubernetes.io/numaNode"), "{words}");
}
