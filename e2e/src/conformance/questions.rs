//! What is asked, in chapters that know nothing of each other.

use serde_json::{Value, json};

use super::Question;
use crate::objects;

/// Questions that build on each other.
pub(super) struct Chapter {
    pub(super) name: &'static str,
    pub(super) questions: Vec<Question>,
}

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

const PODS: &str = "/api/v1/namespaces/c/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/c/configmaps";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/c/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/c/resourceclaimtemplates";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Everything.
pub(super) fn chapters() -> Vec<Chapter> {
    vec![
        discovery(),
        objects_and_versions(),
        lists(),
        watches(),
        patches(),
        apply(),
        claims(),
        claim_status(),
        pods(),
        deletion(),
        refusals(),
        tables(),
    ]
}

#[derive(Default)]
struct Writer(Vec<Question>);

impl Writer {
    fn ask(
        &mut self,
        label: &str,
        method: &'static str,
        path: &str,
        content_type: &'static str,
        body: Value,
    ) -> &mut Question {
        self.0.push(Question {
            label: label.to_owned(),
            method,
            path: path.to_owned(),
            content_type,
            accept: JSON,
            body,
            free: Vec::new(),
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    fn get(&mut self, label: &str, path: &str) -> &mut Question {
        self.ask(label, "GET", path, JSON, Value::Null)
    }

    fn post(&mut self, label: &str, path: &str, body: Value) -> &mut Question {
        self.ask(label, "POST", path, JSON, body)
    }

    fn put(&mut self, label: &str, path: &str, body: Value) -> &mut Question {
        self.ask(label, "PUT", path, JSON, body)
    }

    fn delete(&mut self, label: &str, path: &str, body: Value) -> &mut Question {
        self.ask(label, "DELETE", path, JSON, body)
    }

    fn patch(&mut self, label: &str, path: &str, form: &'static str, body: Value) -> &mut Question {
        self.ask(label, "PATCH", path, form, body)
    }

    fn namespace(&mut self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c"}});
        self.post("namespace", "/api/v1/namespaces", namespace).free = vec![
            "/metadata",
            "/code",
            "/message",
            "/reason",
            "/details",
            "/spec",
            "/status",
            "/kind",
            "/apiVersion",
        ];
    }

    fn done(self, name: &'static str) -> Chapter {
        // Every chapter has its own namespace, and its own objects in the cluster.
        let own = |text: String| {
            text.replace("/namespaces/c/", &format!("/namespaces/c-{name}/"))
                .replace("\"name\":\"c\"", &format!("\"name\":\"c-{name}\""))
                .replace("/namespaces/c?", &format!("/namespaces/c-{name}?"))
        };
        let questions = self.0.into_iter().map(|mut question| {
            question.path = own(question.path);
            if question.path.ends_with("/namespaces/c") {
                question.path = question.path + "-" + name;
            }
            question.body = serde_json::from_str(&own(question.body.to_string())).unwrap_or_default();
            question
        });
        Chapter { name, questions: questions.collect() }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what json! makes")]
fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn discovery() -> Chapter {
    let mut w = Writer::default();
    w.get("api", "/api").free = vec!["/serverAddressByClientCIDRs"];
    w.get("ready", "/readyz");
    for path in ["/apis/resource.k8s.io", "/apis/coordination.k8s.io", "/apis/nobody.example.com"] {
        w.get(path, path).free = vec!["/versions", "/preferredVersion"];
    }
    w.get("unserved version", "/apis/resource.k8s.io/v7");
    w.get("unserved resource", "/apis/resource.k8s.io/v1/namespaces/default/toasters");
    w.get("unserved object", "/apis/resource.k8s.io/v1/namespaces/default/toasters/x");
    w.get("unserved subresource", "/api/v1/namespaces/default/configmaps/x/status");
    w.post("a method that a collection does not know", "/api/v1/namespaces/default/configmaps/x", json!({}));
    w.done("discovery")
}

fn objects_and_versions() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    w.post("created", CONFIG_MAPS, config_map("a", json!({"x": "1"})));
    w.post("twice", CONFIG_MAPS, config_map("a", json!({"x": "1"})));
    w.get("read", &format!("{CONFIG_MAPS}/a"));
    w.get("missing", &format!("{CONFIG_MAPS}/b"));
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}});
    w.post("a generated name", CONFIG_MAPS, generated);
    w.post("no name", CONFIG_MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
    w.post("a bad name", CONFIG_MAPS, config_map("A_b", json!({})));
    let mut elsewhere = config_map("x", json!({}));
    elsewhere["metadata"]["namespace"] = json!("default");
    w.post("another namespace in the body", CONFIG_MAPS, elsewhere);
    let mut versioned = config_map("v", json!({}));
    versioned["metadata"]["resourceVersion"] = json!("1");
    w.post("a version in the body of a creation", CONFIG_MAPS, versioned);
    w.post("no such namespace", "/api/v1/namespaces/nowhere/configmaps", config_map("a", json!({})));
    let mut replaced = config_map("a", json!({"x": "2"}));
    w.put("replaced without a version", &format!("{CONFIG_MAPS}/a"), replaced.clone());
    replaced["metadata"]["resourceVersion"] = json!("{{created.resourceVersion}}");
    w.put("replaced with an old version", &format!("{CONFIG_MAPS}/a"), replaced.clone());
    replaced["metadata"]["resourceVersion"] = json!("{{replaced without a version.resourceVersion}}");
    replaced["data"] = json!({"x": "3"});
    w.put("replaced with the version", &format!("{CONFIG_MAPS}/a"), replaced.clone());
    replaced["metadata"]["resourceVersion"] = json!("{{replaced with the version.resourceVersion}}");
    w.put("replaced by the same", &format!("{CONFIG_MAPS}/a"), replaced.clone());
    replaced["metadata"]["uid"] = json!("11111111-1111-4111-8111-111111111111");
    w.put("replaced with another uid", &format!("{CONFIG_MAPS}/a"), replaced.clone()).free = vec!["/message"];
    w.put("replaced under another name", &format!("{CONFIG_MAPS}/b"), config_map("a", json!({})));
    w.put("replaced what is missing", &format!("{CONFIG_MAPS}/b"), config_map("b", json!({})));
    w.post("dry run", &format!("{CONFIG_MAPS}?dryRun=All"), config_map("dry", json!({})));
    w.get("dry run left nothing", &format!("{CONFIG_MAPS}/dry"));
    w.done("objects")
}

fn lists() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    for (name, color) in [("a", "red"), ("b", "blue"), ("d", "red"), ("e", "green")] {
        let mut object = config_map(name, json!({}));
        object["metadata"]["labels"] = json!({"color": color, "list": "yes"});
        w.post(name, CONFIG_MAPS, object);
    }
    for selector in [
        "color=red",
        "color!=red,list",
        "color in (blue,green)",
        "color notin (red)",
        "!color",
        "list=yes,color",
    ] {
        w.get(
            selector,
            &format!(
                "{CONFIG_MAPS}?labelSelector={}",
                selector.replace(' ', "+").replace('!', "%21").replace('=', "%3D")
            ),
        );
    }
    w.get("a bad selector", &format!("{CONFIG_MAPS}?labelSelector=a+b+c")).free = vec!["/message"];
    w.get("by name", &format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da"));
    w.get("by an unknown field", &format!("{CONFIG_MAPS}?fieldSelector=data.x%3Da")).free = vec!["/message"];
    w.get("page one", &format!("{CONFIG_MAPS}?limit=2&labelSelector=list"));
    w.get(
        "page two",
        &format!("{CONFIG_MAPS}?limit=2&labelSelector=list&continue={{{{page one.continue}}}}"),
    );
    w.get("counted", &format!("{CONFIG_MAPS}?limit=1&fieldSelector=metadata.name%3Da"));
    w.get("everywhere", "/api/v1/configmaps?labelSelector=list%3Dyes,color%3Dgreen");
    w.get("a bad token", &format!("{CONFIG_MAPS}?limit=2&continue=nonsense")).free = vec!["/message"];
    w.delete("all red", &format!("{CONFIG_MAPS}?labelSelector=color%3Dred"), Value::Null).free =
        vec!["/items"];
    w.get("what is left", &format!("{CONFIG_MAPS}?labelSelector=list"));
    w.done("lists")
}

fn watches() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let mut object = config_map("a", json!({}));
    object["metadata"]["labels"] = json!({"color": "red"});
    w.post("first", CONFIG_MAPS, object);
    let label = |color: &str| json!({"metadata": {"labels": {"color": color}}});
    w.patch("second", &format!("{CONFIG_MAPS}/a"), MERGE, label("blue"));
    w.patch("third", &format!("{CONFIG_MAPS}/a"), MERGE, label("red"));
    w.post("other", CONFIG_MAPS, config_map("b", json!({})));
    w.delete("gone", &format!("{CONFIG_MAPS}/b"), Value::Null);
    let from = |version: &str, more: &str| {
        format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version}{more}")
    };
    w.get("everything since", &from("{{first.resourceVersion}}", ""));
    w.get("what a selector sees", &from("{{first.resourceVersion}}", "&labelSelector=color%3Dred"));
    w.get("one by name", &from("{{first.resourceVersion}}", "&fieldSelector=metadata.name%3Db"));
    w.get("what is there", &from("0", "&fieldSelector=metadata.name%3Da"));
    w.get("from the end", &from("{{other.resourceVersion}}", ""));
    w.get("a version that is none", &from("x", "")).free = vec!["/message", "/details", "/metadata"];
    w.done("watches")
}

fn patches() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let path = &format!("{CONFIG_MAPS}/a");
    w.post("a", CONFIG_MAPS, config_map("a", json!({"x": "1", "y": "2"})));
    let test = |pointer: &str, value: &str| json!({"op": "test", "path": pointer, "value": value});
    let add = |pointer: &str, value: &str| json!({"op": "add", "path": pointer, "value": value});
    w.patch(
        "guarded",
        path,
        JSON_PATCH,
        json!([
            test("/metadata/uid", "{{a.uid}}"),
            test("/metadata/resourceVersion", "{{a.resourceVersion}}"),
            add("/data/z", "3")
        ]),
    );
    w.patch(
        "guarded by an old version",
        path,
        JSON_PATCH,
        json!([test("/metadata/resourceVersion", "{{a.resourceVersion}}"), add("/data/z", "4")]),
    );
    w.patch(
        "guarded by another uid",
        path,
        JSON_PATCH,
        json!([test("/metadata/uid", "x"), add("/data/z", "4")]),
    );
    w.patch(
        "removing what is not there",
        path,
        JSON_PATCH,
        json!([{"op": "remove", "path": "/data/nothing"}]),
    );
    w.patch("no operations", path, JSON_PATCH, json!([]));
    w.patch("not a patch", path, JSON_PATCH, json!({"data": {}})).free = vec!["/message"];
    w.patch("merged", path, MERGE, json!({"data": {"x": null, "w": "0"}}));
    w.patch(
        "merged with an old version",
        path,
        MERGE,
        json!({"metadata": {"resourceVersion": "{{a.resourceVersion}}"}, "data": {"w": "1"}}),
    );
    w.patch(
        "merged with another uid",
        path,
        MERGE,
        json!({"metadata": {"uid": "11111111-1111-4111-8111-111111111111"}, "data": {"w": "1"}}),
    );
    w.patch("merged into nothing new", path, MERGE, json!({"data": {"w": "0"}}));
    w.patch("merged under another name", path, MERGE, json!({"metadata": {"name": "b"}})).free =
        vec!["/message"];
    w.patch(
        "strategic",
        path,
        STRATEGIC,
        json!({"data": {"v": "1"}, "metadata": {"finalizers": ["example.com/a"]}}),
    );
    w.patch(
        "strategic, finalizers are merged",
        path,
        STRATEGIC,
        json!({"metadata": {"finalizers": ["example.com/b"]}}),
    );
    w.patch(
        "strategic, one is removed",
        path,
        STRATEGIC,
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}),
    );
    w.patch("an unknown form", path, "application/toast", json!({})).free = vec!["/message", "/details"];
    w.patch("what is missing", &format!("{CONFIG_MAPS}/b"), MERGE, json!({"data": {}}));
    w.done("patches")
}

fn apply() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let path = |manager: &str, more: &str| format!("{CONFIG_MAPS}/a?fieldManager={manager}{more}");
    w.patch("applied", &path("x", ""), APPLY, config_map("a", json!({"x": "1", "y": "1"})));
    w.patch("without a manager", &format!("{CONFIG_MAPS}/a"), APPLY, config_map("a", json!({})));
    w.patch("again the same", &path("x", ""), APPLY, config_map("a", json!({"x": "1", "y": "1"})));
    w.patch("less", &path("x", ""), APPLY, config_map("a", json!({"x": "1"})));
    w.patch("by another, beside it", &path("z", ""), APPLY, config_map("a", json!({"z": "1"})));
    w.patch("by another, against it", &path("z", ""), APPLY, config_map("a", json!({"x": "2", "z": "1"})));
    w.patch(
        "by another, by force",
        &path("z", "&force=true"),
        APPLY,
        config_map("a", json!({"x": "2", "z": "1"})),
    );
    w.patch("what was taken is given up in silence", &path("x", ""), APPLY, config_map("a", json!({})));
    w.patch(
        "updated by a third",
        &format!("{CONFIG_MAPS}/a?fieldManager=u"),
        MERGE,
        json!({"data": {"x": "3"}}),
    );
    w.patch("against an update", &path("z", ""), APPLY, config_map("a", json!({"x": "2", "z": "1"})));
    let mut other = config_map("a", json!({"x": "3"}));
    other["metadata"]["uid"] = json!("11111111-1111-4111-8111-111111111111");
    w.patch("to another uid", &path("z", "&force=true"), APPLY, other.clone());
    w.patch("to one that is gone", &format!("{CONFIG_MAPS}/gone?fieldManager=z"), APPLY, {
        other["metadata"]["name"] = json!("gone");
        other
    });
    w.post(
        "pod",
        PODS,
        objects::Pod::new("p").with_template("a", "t").with_template("b", "t").gated().object().clone(),
    );
    let statuses = |entries: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "{{pod.uid}}"}, "status": {"resourceClaimStatuses": entries}});
    let status = format!("{PODS}/p/status?fieldManager=m&force=true");
    w.patch("one status", &status, APPLY, statuses(json!([{"name": "a", "resourceClaimName": "p-a"}])));
    w.patch(
        "two",
        &status,
        APPLY,
        statuses(
            json!([{"name": "a", "resourceClaimName": "p-a"}, {"name": "b", "resourceClaimName": "p-b"}]),
        ),
    );
    w.patch("only the other", &status, APPLY, statuses(json!([{"name": "b", "resourceClaimName": "p-b"}])));
    w.patch(
        "of an entry that is none",
        &status,
        APPLY,
        statuses(json!([{"name": "x", "resourceClaimName": "p-b"}])),
    )
    .free = vec!["/message"];
    w.done("apply")
}

fn claims() -> Chapter {
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

fn consumer(number: usize) -> Value {
    json!({"resource": "pods", "name": format!("pod-{number}"), "uid": format!("uid-{number}")})
}

fn allocation(device: &str) -> Value {
    json!({"devices": {"results": [{"request": "device", "driver": objects::DRIVER, "pool": "node-a", "device": device}]}})
}

fn claim_status() -> Chapter {
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

fn pods() -> Chapter {
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

fn deletion() -> Chapter {
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

fn refusals() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    w.post("another kind", CONFIG_MAPS, objects::claim("a")).free = vec!["/message"];
    w.post("no kind", CONFIG_MAPS, json!({"metadata": {"name": "a"}})).free = vec!["/message"];
    w.ask("not JSON", "POST", CONFIG_MAPS, "text/plain", json!({})).free = vec!["/message", "/details"];
    w.get("binding is not read", &format!("{PODS}/a/binding")).free = vec!["/message", "/details"];
    w.delete("a namespace that is not there", "/api/v1/namespaces/nowhere", Value::Null);
    w.done("refusals")
}

fn tables() -> Chapter {
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
