//! Questions about the work of controllers: garbage collection, namespaces, custom resources and quotas.

use serde_json::{Value, json};

use super::{CONFIG_MAPS, Chapter, MERGE, Writer, config_map};
use crate::conformance::Until;

fn owned(name: &str, owner: &str, uid: &str) -> Value {
    let mut object = config_map(name, json!({}));
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}]);
    object
}

pub(super) fn garbage() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    w.post("owner", CONFIG_MAPS, config_map("owner", json!({})));
    w.post("dependent", CONFIG_MAPS, owned("dependent", "owner", "{{owner.uid}}"));
    w.post("further", CONFIG_MAPS, owned("further", "dependent", "{{dependent.uid}}"));
    let nobody = "11111111-1111-4111-8111-111111111111";
    w.post("of nobody", CONFIG_MAPS, owned("of-nobody", "nobody", nobody));
    w.get("what nobody owns goes", &format!("{CONFIG_MAPS}/of-nobody")).until = Some(Until::Code(404));
    let mut kept = owned("kept", "dependent", "{{dependent.uid}}");
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    w.post("kept", CONFIG_MAPS, kept);
    w.delete("owner goes", &format!("{CONFIG_MAPS}/owner"), Value::Null);
    for name in ["dependent", "further"] {
        w.get(&format!("{name} goes"), &format!("{CONFIG_MAPS}/{name}")).until = Some(Until::Code(404));
    }
    w.get("kept is on its way out", &format!("{CONFIG_MAPS}/kept")).until =
        Some(Until::Has("/metadata/deletionTimestamp"));
    let free = json!({"metadata": {"finalizers": null}});
    w.patch("kept is let go", &format!("{CONFIG_MAPS}/kept"), MERGE, free);
    w.get("kept has gone", &format!("{CONFIG_MAPS}/kept")).until = Some(Until::Code(404));
    w.done("garbage")
}

/// Owners that are deleted before, after or without their dependents.
pub(super) fn propagation() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let at = |name: &str| format!("{CONFIG_MAPS}/{name}");
    let options =
        |policy: &str| json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    let blocking = |name: &str, owner: &str| {
        let mut object = owned(name, owner, &format!("{{{{{owner}.uid}}}}"));
        object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
        object
    };
    let held = |mut object: Value| {
        object["metadata"]["finalizers"] = json!(["example.com/held"]);
        object
    };
    let free = json!({"metadata": {"finalizers": null}});
    for name in ["first", "second", "before", "without", "undecided"] {
        w.post(name, CONFIG_MAPS, config_map(name, json!({})));
    }
    let mut shared = owned("shared", "first", "{{first.uid}}");
    let other = owned("shared", "second", "{{second.uid}}")["metadata"]["ownerReferences"][0].clone();
    shared["metadata"]["ownerReferences"] = json!([shared["metadata"]["ownerReferences"][0], other]);
    w.post("shared", CONFIG_MAPS, shared);
    w.delete("one of two owners goes", &at("first"), Value::Null);
    w.get("the other stays", &at("shared")).until = Some(Until::Lacks("/metadata/ownerReferences/1"));
    w.delete("the other goes", &format!("{}?propagationPolicy=Background", at("second")), Value::Null);
    w.get("and what was theirs", &at("shared")).until = Some(Until::Code(404));

    w.post("quick", CONFIG_MAPS, blocking("quick", "before"));
    w.post("deep", CONFIG_MAPS, blocking("deep", "quick"));
    w.post("slow", CONFIG_MAPS, held(blocking("slow", "before")));
    w.post("free", CONFIG_MAPS, owned("free", "before", "{{before.uid}}"));
    w.delete("goes after what it owns", &at("before"), options("Foreground"));
    for name in ["deep", "quick", "free"] {
        w.get(&format!("{name} goes first"), &at(name)).until = Some(Until::Code(404));
    }
    w.get("slow is told to go", &at("slow")).until = Some(Until::Has("/metadata/deletionTimestamp"));
    w.get("and waited for", &at("before"));
    w.patch("slow is let go", &at("slow"), MERGE, free.clone());
    w.get("then it goes", &at("before")).until = Some(Until::Code(404));

    w.post("left", CONFIG_MAPS, owned("left", "without", "{{without.uid}}"));
    w.delete("goes without what it owns", &at("without"), options("Orphan"));
    w.get("is gone", &at("without")).until = Some(Until::Code(404));
    w.get("left is nobody's", &at("left")).until = Some(Until::Lacks("/metadata/ownerReferences"));

    w.post("waits", CONFIG_MAPS, held(blocking("waits", "undecided")));
    w.delete("first so", &at("undecided"), options("Foreground"));
    w.delete("and again", &at("undecided"), Value::Null);
    w.delete("then otherwise", &at("undecided"), options("Background"));
    w.get("gone at once", &at("undecided"));
    w.delete("no such policy", &at("waits"), options("Sideways"));
    let mut both = options("Orphan");
    both["orphanDependents"] = json!(true);
    w.delete("said twice", &at("waits"), both);
    w.delete("all of them", &format!("{CONFIG_MAPS}?propagationPolicy=Foreground"), Value::Null).free =
        vec!["/items"];
    w.patch("waits is let go", &at("waits"), MERGE, free);
    w.get("nothing is left of it", &at("waits")).until = Some(Until::Code(404));
    w.done("propagation")
}

pub(super) fn namespaces() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    w.post("held", CONFIG_MAPS, held);
    w.post("free", CONFIG_MAPS, config_map("free", json!({})));
    let namespace = "/api/v1/namespaces/c";
    w.delete("ends", namespace, Value::Null);
    w.get("what is free goes", &format!("{CONFIG_MAPS}/free")).until = Some(Until::Code(404));
    w.get("what is held is on its way out", &format!("{CONFIG_MAPS}/held")).until =
        Some(Until::Has("/metadata/deletionTimestamp"));
    w.post("nothing new comes in", CONFIG_MAPS, config_map("new", json!({})));
    // Conditions say why the namespace is not empty; they are not compared.
    w.get("is ending", namespace).free = vec!["/status/conditions", "/metadata/managedFields"];
    w.delete("ends again", namespace, Value::Null).free =
        vec!["/status/conditions", "/metadata/managedFields"];
    let free = json!({"metadata": {"finalizers": null}});
    w.patch("held is let go", &format!("{CONFIG_MAPS}/held"), MERGE, free);
    w.get("has gone", namespace).until = Some(Until::Code(404));
    w.done("namespaces")
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(plural: &str, scope: &str) -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.conformance.example.com")},
        "spec": {
            "group": "conformance.example.com", "scope": scope,
            "names": {"kind": "Toaster", "plural": plural, "singular": plural.trim_end_matches('s')},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    })
}

fn toaster(name: &str, size: i64) -> Value {
    json!({
        "apiVersion": "conformance.example.com/v1", "kind": "Toaster", "metadata": {"name": name},
        "spec": {"size": size}, "status": {"ready": true},
    })
}

/// Custom resources, namespaced or cluster-scoped.
pub(super) fn custom(name: &'static str, plural: &str, scope: &str) -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let collection = match scope {
        "Cluster" => format!("/apis/conformance.example.com/v1/{plural}"),
        _ => format!("/apis/conformance.example.com/v1/namespaces/c/{plural}"),
    };
    let one = format!("{collection}/one");
    w.get("before", &collection);
    w.post("definition", DEFINITIONS, definition(plural, scope)).free = vec!["/status"];
    w.get("served", &collection).until = Some(Until::Code(200));
    w.post("created", &collection, toaster("one", 1));
    w.post("twice", &collection, toaster("one", 1));
    w.get("read", &one);
    w.get("missing", &format!("{collection}/two"));
    let status = json!({"status": {"ready": true}});
    w.patch("status", &format!("{one}/status"), MERGE, status);
    let spec = json!({"spec": {"size": 2}, "status": {"ready": false}});
    w.patch("spec, and a status that is not meant", &one, MERGE, spec);
    w.patch("spec by status", &format!("{one}/status"), MERGE, json!({"spec": {"size": 3}}));
    w.get("list", &collection);
    w.get("subresource that is not declared", &format!("{one}/scale"));
    w.delete("deleted", &one, Value::Null);
    w.get("gone", &one);
    w.post("left behind", &collection, toaster("left", 1));
    let definition_of = format!("{DEFINITIONS}/{plural}.conformance.example.com");
    // The status of a terminating definition depends on the moment.
    w.delete("definition goes", &definition_of, Value::Null).free = vec!["/metadata", "/status"];
    w.get("definition has gone", &definition_of).until = Some(Until::Code(404));
    w.get("not served", &collection).until = Some(Until::Code(404));
    w.post("definition once more", DEFINITIONS, definition(plural, scope)).free = vec!["/status"];
    w.get("empty", &collection).until = Some(Until::Code(200));
    w.delete("definition goes for good", &definition_of, Value::Null).free = vec!["/metadata", "/status"];
    w.done(name)
}

pub(super) fn quotas() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    let claims = "/apis/resource.k8s.io/v1/namespaces/c/resourceclaims";
    let quota = "/api/v1/namespaces/c/resourcequotas";
    w.post(
        "quota",
        quota,
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
            "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "1"}}}),
    );
    let counted = w.get("counted", &format!("{quota}/few"));
    counted.until = Some(Until::Has("/status/used/count~1resourceclaims.resource.k8s.io"));
    // The field manager of the quota controller is not compared.
    counted.free = vec!["/metadata/managedFields"];
    let claim = |name: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}})
    };
    w.post("within", claims, claim("one"));
    w.post("beyond", claims, claim("two"));
    w.delete("room is made", &format!("{claims}/one"), Value::Null);
    w.post("within again", claims, claim("two")).until = Some(Until::Code(201));
    w.delete("the quota goes", &format!("{quota}/few"), Value::Null).free =
        vec!["/metadata/managedFields", "/status"];
    let devices = "gpu.deviceclass.resource.k8s.io/devices";
    w.post(
        "quota by class",
        quota,
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
            "spec": {"hard": {devices: "5"}}}),
    );
    let counted = w.get("counted by class", &format!("{quota}/few"));
    counted.until = Some(Until::Has("/status/used/gpu.deviceclass.resource.k8s.io~1devices"));
    counted.free = vec!["/metadata/managedFields"];
    let asks = |name: &str, request: Value| {
        let mut claim = claim(name);
        claim["spec"]["devices"]["requests"][0] = request;
        claim
    };
    let several = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3});
    w.post(
        "all devices",
        claims,
        asks("all", json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})),
    );
    w.post("several devices", claims, asks("several", json!({"name": "r", "exactly": several})));
    w.post("several more", claims, asks("more", json!({"name": "r", "exactly": several})));
    let alternatives = json!([{"name": "large", "deviceClassName": "gpu", "count": 2},
        {"name": "other", "deviceClassName": "nic", "count": 9}, {"name": "small", "deviceClassName": "gpu"}]);
    w.post("alternatives", claims, asks("first", json!({"name": "r", "firstAvailable": alternatives})));
    let free = json!({"name": "r", "exactly": {"deviceClassName": "nic"}});
    w.post("another class", claims, asks("nic", free));
    w.post(
        "admin access",
        claims,
        asks("admin", json!({"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true}})),
    );
    w.done("quotas")
}
