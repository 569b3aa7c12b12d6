//! Questions about Pods and claims, and about the deletion of objects.

use serde_json::{Value, json};

use super::{
    CLAIMS, CONFIG_MAPS, Chapter, JSON_PATCH, MERGE, PODS, SLICES, STRATEGIC, TABLE, TEMPLATES, Writer,
    config_map,
};
use dragoman_e2e::objects;

fn consumer(number: usize) -> Value {
    json!({"resource": "pods", "name": format!("pod-{number}"), "uid": format!("uid-{number}")})
}

fn allocation(device: &str) -> Value {
    json!({"devices": {"results": [{"request": "device", "driver": objects::DRIVER, "pool": "node-a", "device": device}]}})
}

pub(super) fn claims() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    w.post("claim", CLAIMS, objects::claim("a"));
    let mut bad = objects::claim("b");
    bad["spec"]["devices"]["requests"][0] = json!({"name": "device"});
    w.post("neither exactly nor first", CLAIMS, bad).free = vec!["/message"];
    let mut bad = objects::claim("b");
    bad["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!("");
    w.post("no class", CLAIMS, bad).free = vec!["/message"];
    let mut bad = objects::claim("b");
    bad["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] = json!("Some");
    w.post("an unknown mode", CLAIMS, bad).free = vec!["/message", "/details/causes/0/message"];
    let mut bad = objects::claim("b");
    bad["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(-1);
    w.post("less than nothing", CLAIMS, bad);
    let mut bad = objects::claim("b");
    let request = bad["spec"]["devices"]["requests"][0].clone();
    bad["spec"]["devices"]["requests"] = json!([request.clone(), request]);
    w.post("a name twice", CLAIMS, bad);
    let mut admin = objects::claim("admin");
    admin["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    w.post("admin access without the label", CLAIMS, admin);
    w.patch("another spec", &format!("{CLAIMS}/a"), MERGE, json!({"spec": {"devices": {"requests": []}}}))
        .free = vec!["/message", "/details/causes/0/message"];
    w.patch(
        "a finalizer",
        &format!("{CLAIMS}/a"),
        MERGE,
        json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}),
    );
    w.patch(
        "a status by the main door",
        &format!("{CLAIMS}/a"),
        MERGE,
        json!({"status": {"reservedFor": [{"resource": "pods", "name": "x", "uid": "y"}]}}),
    );
    w.post("template", TEMPLATES, objects::template("t"));
    w.patch(
        "another template",
        &format!("{TEMPLATES}/t"),
        MERGE,
        json!({"spec": {"spec": {"devices": {"requests": []}}}}),
    )
    .free = vec!["/message", "/details/causes/0/message"];
    w.post("a class", "/apis/resource.k8s.io/v1/deviceclasses", objects::class());
    w.post("a slice", SLICES, objects::slice("node-c", 2));
    let mut bad = objects::slice("node-d", 2);
    bad["spec"]["allNodes"] = json!(true);
    w.post("a slice of two minds", SLICES, bad).free = vec!["/message", "/details/causes/0/message"];
    w.patch(
        "a slice that moves",
        &format!("{SLICES}/node-c"),
        MERGE,
        json!({"spec": {"nodeName": "elsewhere"}}),
    )
    .free = vec!["/message"];
    w.done("claims")
}

pub(super) fn claim_status() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let status = format!("{CLAIMS}/a/status");
    w.post("claim", CLAIMS, objects::claim("a"));
    w.patch("reserved before allocated", &status, MERGE, json!({"status": {"reservedFor": [consumer(0)]}}));
    let mut other = allocation("d");
    other["devices"]["results"][0]["request"] = json!("nobody");
    w.patch("allocated for nobody", &status, MERGE, json!({"status": {"allocation": other}}));
    w.patch(
        "allocated and reserved",
        &status,
        MERGE,
        json!({"status": {"allocation": allocation("d"), "reservedFor": [consumer(0)]}}),
    );
    w.patch("allocated otherwise", &status, MERGE, json!({"status": {"allocation": allocation("e")}})).free =
        vec!["/message", "/details/causes/0/message"];
    let add =
        |number: usize| json!([{"op": "add", "path": "/status/reservedFor/-", "value": consumer(number)}]);
    w.patch("one more", &status, JSON_PATCH, add(1));
    w.patch("one twice", &status, JSON_PATCH, add(1)).free = vec!["/message", "/details/causes/0/message"];
    w.patch(
        "a spec by the side door",
        &status,
        MERGE,
        json!({"spec": {"devices": {"requests": []}}, "metadata": {"labels": {"a": "b"}}}),
    );
    let most: Vec<Value> = (0..256).map(consumer).collect();
    w.patch("as many as can be", &status, MERGE, json!({"status": {"reservedFor": most}})).free =
        vec!["/metadata/managedFields"];
    w.patch("one too many", &status, JSON_PATCH, add(256)).free = vec!["/message"];
    w.patch("a device that reports", &status, MERGE, json!({"status": {"reservedFor": [consumer(0)], "devices": [{"driver": objects::DRIVER, "pool": "node-a", "device": "d"}]}}));
    w.patch("deallocated while reserved", &status, MERGE, json!({"status": {"allocation": null}}));
    w.patch(
        "a finalizer",
        &format!("{CLAIMS}/a"),
        MERGE,
        json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}),
    );
    w.delete("deleted while held", &format!("{CLAIMS}/a"), Value::Null);
    w.patch("reserved while deleted", &status, JSON_PATCH, add(2));
    w.patch(
        "released and deallocated",
        &status,
        MERGE,
        json!({"status": {"allocation": null, "reservedFor": null}}),
    );
    w.patch(
        "another finalizer",
        &format!("{CLAIMS}/a"),
        MERGE,
        json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection", "example.com/late"]}}),
    )
    .free = vec!["/message", "/details/causes/0/message"];
    w.patch("let go", &format!("{CLAIMS}/a"), MERGE, json!({"metadata": {"finalizers": null}}));
    w.get("gone", &format!("{CLAIMS}/a"));
    w.done("claim-status")
}

pub(super) fn pods() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let pod = |name: &str| objects::Pod::new(name).with_template("gpu", "t");
    w.post("pod", PODS, pod("a").object().clone());
    w.post("gated", PODS, pod("g").gated().object().clone());
    w.post("gated and bound", PODS, pod("x").gated().on("node").object().clone()).free = vec!["/message"];
    let mut both = pod("x").object().clone();
    both["spec"]["resourceClaims"][0]["resourceClaimName"] = json!("c");
    w.post("both names", PODS, both).free = vec!["/message", "/details/causes/0/message"];
    let mut unknown = pod("x").object().clone();
    unknown["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "nobody"}]);
    w.post("an unknown entry", PODS, unknown);
    let binding = |name: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    w.post("bound while gated", &format!("{PODS}/g/binding"), binding("g")).free = vec!["/details"];
    w.post("bound", &format!("{PODS}/a/binding"), binding("a"));
    w.post("bound by another name", &format!("{PODS}/a/binding"), binding("b"));
    w.post("bound twice", &format!("{PODS}/a/binding"), binding("a"));
    w.get("after binding", &format!("{PODS}/a"));
    let gates = |gates: Value| json!([{"op": "add", "path": "/spec/schedulingGates", "value": gates}]);
    w.patch(
        "one more gate",
        &format!("{PODS}/g"),
        JSON_PATCH,
        gates(json!([{"name": "e2e.dragoman.dev/gate"}, {"name": "example.com/more"}])),
    );
    w.patch(
        "the gate is opened",
        &format!("{PODS}/g"),
        JSON_PATCH,
        json!([
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "e2e.dragoman.dev/gate"},
        {"op": "remove", "path": "/spec/schedulingGates/0"}]),
    );
    w.patch("a gate anew", &format!("{PODS}/g"), JSON_PATCH, gates(json!([{"name": "example.com/late"}])));
    w.patch(
        "other claims",
        &format!("{PODS}/g"),
        JSON_PATCH,
        json!([{"op": "remove", "path": "/spec/resourceClaims/0"}]),
    )
    .free = vec!["/message", "/details/causes"];
    w.patch("runs", &format!("{PODS}/a/status"), MERGE, json!({"status": {"phase": "Running"}}));
    w.patch(
        "condition",
        &format!("{PODS}/a/status"),
        STRATEGIC,
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    w.patch(
        "a claim that the Pod does not have",
        &format!("{PODS}/a/status"),
        MERGE,
        json!({"status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "y"}]}}),
    )
    .free = vec!["/message", "/details/causes/0/message"];
    w.patch("named, by the other door", &format!("{PODS}/a"), MERGE, json!({"status": {"phase": "Failed"}}));
    w.get("by node", &format!("{PODS}?fieldSelector=spec.nodeName%3Dn"));
    w.get("by phase", &format!("{PODS}?fieldSelector=status.phase%21%3DRunning"));
    w.done("pods")
}

pub(super) fn deletion() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let options = |options: Value| {
        let mut options = options;
        options["kind"] = json!("DeleteOptions");
        options["apiVersion"] = json!("v1");
        options
    };
    w.post("a", CONFIG_MAPS, config_map("a", json!({})));
    let path = format!("{CONFIG_MAPS}/a");
    w.delete(
        "another uid",
        &path,
        options(json!({"preconditions": {"uid": "11111111-1111-4111-8111-111111111111"}})),
    );
    w.delete("another version", &path, options(json!({"preconditions": {"resourceVersion": "1"}})));
    w.delete(
        "exactly this one",
        &path,
        options(json!({"preconditions": {"uid": "{{a.uid}}", "resourceVersion": "{{a.resourceVersion}}"}})),
    );
    w.delete("once more", &path, Value::Null);
    w.post("claim", CLAIMS, objects::claim("c1"));
    let other = options(json!({"preconditions": {"uid": "11111111-1111-4111-8111-111111111111"}}));
    w.delete("another claim", &format!("{CLAIMS}/c1"), other);
    let version = options(json!({"preconditions": {"uid": "{{claim.uid}}", "resourceVersion": "1"}}));
    w.delete("another version of a claim", &format!("{CLAIMS}/c1"), version);
    w.delete("a claim", &format!("{CLAIMS}/c1"), Value::Null);
    let running = objects::Pod::new("p").on("n").object().clone();
    let mut graceful = running.clone();
    graceful["spec"]["terminationGracePeriodSeconds"] = json!(30);
    w.post("pod", PODS, graceful);
    w.delete("gracefully", &format!("{PODS}/p"), Value::Null);
    w.delete("gracefully again", &format!("{PODS}/p"), Value::Null);
    w.patch("ends", &format!("{PODS}/p/status"), MERGE, json!({"status": {"phase": "Succeeded"}}));
    w.delete("by force", &format!("{PODS}/p"), options(json!({"gracePeriodSeconds": 0})));
    w.get("the Pod is gone", &format!("{PODS}/p"));
    w.post("unscheduled", PODS, objects::Pod::new("u").object().clone());
    w.delete("an unscheduled Pod goes at once", &format!("{PODS}/u"), Value::Null);
    w.get("and is gone", &format!("{PODS}/u"));
    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/a"]);
    w.post("held", CONFIG_MAPS, held);
    w.delete("held back", &format!("{CONFIG_MAPS}/held"), Value::Null);
    w.patch("and let go", &format!("{CONFIG_MAPS}/held"), MERGE, json!({"metadata": {"finalizers": null}}));
    w.get("is gone", &format!("{CONFIG_MAPS}/held"));
    w.done("deletion")
}

pub(super) fn refusals() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    w.post("another kind", CONFIG_MAPS, objects::claim("a")).free = vec!["/message"];
    w.post("no kind", CONFIG_MAPS, json!({"metadata": {"name": "a"}})).free = vec!["/message"];
    w.ask("not JSON", "POST", CONFIG_MAPS, "text/plain", json!({})).free = vec!["/message", "/details"];
    w.get("binding is not read", &format!("{PODS}/a/binding")).free = vec!["/message", "/details"];
    w.delete("a namespace that is not there", "/api/v1/namespaces/nowhere", Value::Null);
    w.done("refusals")
}

/// Unknown fields.
pub(super) fn typos() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let mut claim = objects::claim("a");
    claim["spec"]["devices"]["requests"][0]["exactly"]["cuont"] = json!(2);
    let strict = |path: &str| format!("{path}?fieldValidation=Strict");
    w.post("claim, told", &strict(CLAIMS), claim.clone());
    w.post("claim, dropped", CLAIMS, claim.clone());
    claim["metadata"]["name"] = json!("two");
    claim["satus"] = json!({});
    w.post("claim with two, told", &strict(CLAIMS), claim);
    let mut pod = objects::Pod::new("p").with_claim("gpu", "a").gated().object().clone();
    pod["spec"]["resourceClaims"][0]["source"] = json!({"resourceClaimName": "a"});
    w.post("Pod, told", &strict(PODS), pod.clone());
    w.post("Pod, dropped", PODS, pod);
    let mut slice = objects::slice("typos", 1);
    slice["spec"]["devices"][0]["basic"] = json!({"attributes": {}});
    w.post("slice, told", &strict(SLICES), slice);
    let change = json!({"spec": {"devices": {"request": []}}});
    // The message of kube-apiserver repeats the whole object.
    w.patch("claim, patched and told", &strict(&format!("{CLAIMS}/a")), MERGE, change.clone()).free =
        vec!["/message", "/details/causes/0/message"];
    w.patch("claim, patched and dropped", &format!("{CLAIMS}/a"), MERGE, change);
    w.done("typos")
}

pub(super) fn tables() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    w.post("claim", CLAIMS, objects::claim("a"));
    w.post("gated", PODS, objects::Pod::new("g").gated().object().clone());
    w.post("map", CONFIG_MAPS, config_map("a", json!({"x": "1"})));
    for (label, path) in [
        ("claims", CLAIMS),
        ("templates", TEMPLATES),
        ("pods", PODS),
        ("slices", SLICES),
        ("one claim", &format!("{CLAIMS}/a")),
    ] {
        let question = w.get(label, path);
        question.accept = TABLE;
        question.free = vec![
            "/rows/0/cells",
            "/rows/1/cells",
            "/columnDefinitions",
            "/metadata",
            "/rows/0/object/metadata",
            "/rows/1",
        ];
    }
    w.done("tables")
}
