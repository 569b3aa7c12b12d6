//! Questions about requests and limits of Pods, and about resizes.

use serde_json::{Value, json};

use super::{Chapter, PODS, STRATEGIC, Writer};

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
    pod["spec"] = spec;
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for (number, container) in containers.into_iter().flatten().enumerate() {
            container["name"] = json!(format!("{list}-{number}").to_lowercase());
            container["image"] = json!("none");
        }
    }
    pod
}

fn of(resources: Value) -> Value {
    let mut container = json!({});
    container["resources"] = resources;
    container
}

fn one(resources: Value) -> Value {
    json!({"containers": [of(resources)]})
}

fn level(containers: Value, resources: Value) -> Value {
    let mut spec = json!({});
    spec["containers"] = containers;
    spec["resources"] = resources;
    spec
}

pub(super) fn pods() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let dry = format!("{PODS}?dryRun=All");
    let cases = [
        ("a limit", one(json!({"limits": {"cpu": "1", "memory": "1Gi"}}))),
        ("a request", one(json!({"requests": {"cpu": "500m"}}))),
        ("a request that is too much", one(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}))),
        ("a number", one(json!({"requests": {"cpu": 1}, "limits": {"cpu": 1.5}}))),
        (
            "other spellings",
            one(
                json!({"requests": {"cpu": "1000m", "memory": "0.5Gi"}, "limits": {"cpu": "2e3", "memory": "2048Mi", "ephemeral-storage": "3000"}}),
            ),
        ),
        ("nonsense", one(json!({"requests": {"cpu": "lots"}}))),
        ("a negative one", one(json!({"requests": {"cpu": "-1"}}))),
        ("pages alone", one(json!({"limits": {"hugepages-2Mi": "2Mi"}}))),
        ("pages", one(json!({"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "2Mi"}}))),
        (
            "pages that differ",
            one(
                json!({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}),
            ),
        ),
        ("pages without a limit", one(json!({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}))),
        ("part of a device", one(json!({"limits": {"example.com/gpu": "500m"}}))),
        ("devices", one(json!({"limits": {"example.com/gpu": "2"}}))),
        (
            "for the Pod",
            level(json!([of(json!({"requests": {"cpu": "1"}}))]), json!({"limits": {"cpu": "2"}})),
        ),
        ("for the Pod alone", level(json!([{}]), json!({"limits": {"cpu": "2", "memory": "1Gi"}}))),
        (
            "less for the Pod",
            level(json!([of(json!({"requests": {"cpu": "3"}}))]), json!({"requests": {"cpu": "2"}})),
        ),
        (
            "less than one container",
            level(
                json!([of(json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}))]),
                json!({"limits": {"cpu": "2"}}),
            ),
        ),
        (
            "pages for the Pod",
            level(
                json!([of(json!({"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "4Mi"}}))]),
                json!({"requests": {"cpu": "2"}}),
            ),
        ),
    ];
    for (label, spec) in cases {
        w.post(label, &dry, pod("pod", spec));
    }
    let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}});
    let mut beside = level(json!([of(json!({"requests": {"cpu": "1"}}))]), json!({"limits": {"cpu": "9"}}));
    beside["initContainers"] = json!([sidecar, of(json!({"requests": {"cpu": "4"}}))]);
    w.post("sidecars", &dry, pod("pod", beside));
    w.done("pod-resources")
}

pub(super) fn resizes() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let gated = |mut spec: Value| {
        spec["schedulingGates"] = json!([{"name": "example.com/gate"}]);
        spec
    };
    let both = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}});
    w.post("pod", PODS, pod("sized", gated(one(both))));
    let mut claims = one(json!({"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}));
    claims["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "a"}]);
    w.post("pod with a claim", PODS, pod("claimed", gated(claims)));
    let change = |resources: Value| json!({"spec": {"containers": [{"name": "containers-0", "resources": resources}]}});
    let resize = |name: &str| format!("{PODS}/{name}/resize");
    w.patch("more", &resize("sized"), STRATEGIC, change(json!({"requests": {"cpu": "1500m"}}))).free =
        vec!["/status"];
    w.patch("another class", &resize("sized"), STRATEGIC, change(json!({"requests": {"cpu": "2"}})));
    w.patch(
        "another resource",
        &resize("sized"),
        STRATEGIC,
        change(json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}})),
    )
    .free = vec!["/message", "/details"];
    w.patch("more than the limit", &resize("sized"), STRATEGIC, change(json!({"requests": {"cpu": "3"}})));
    let image = json!({"spec": {"containers": [{"name": "containers-0", "image": "other"}]}, "metadata": {"labels": {"a": "b"}}});
    w.patch("what a resize is not for", &resize("sized"), STRATEGIC, image).free =
        vec!["/status", "/metadata/managedFields"];
    w.patch("with a claim", &resize("claimed"), STRATEGIC, change(json!({"requests": {"cpu": "2"}})));
    w.patch(
        "not by itself",
        &format!("{PODS}/sized"),
        STRATEGIC,
        change(json!({"requests": {"cpu": "1"}})),
    )
    .free = vec!["/message", "/details"];
    w.get("read", &resize("sized")).free = vec!["/status", "/metadata/managedFields"];
    w.done("resizes")
}
