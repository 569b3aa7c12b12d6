//! Questions about objects of every kind.

use serde_json::{Value, json};

use super::{APPLY, CONFIG_MAPS, Chapter, JSON, JSON_PATCH, MERGE, PODS, STRATEGIC, Writer, config_map};
use crate::conformance::FORGET;
use dragoman_e2e::objects;

pub(super) fn discovery() -> Chapter {
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

pub(super) fn objects_and_versions() -> Chapter {
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

pub(super) fn lists() -> Chapter {
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

pub(super) fn watches() -> Chapter {
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

/// Lists and watches that begin before all history is forgotten, and continue after it.
pub(super) fn compaction() -> Chapter {
    let mut w = Writer::default();
    w.namespace();
    for name in ["a", "b", "d"] {
        w.post(name, CONFIG_MAPS, config_map(name, json!({})));
    }
    let page = |label: &str| format!("{CONFIG_MAPS}?limit=1&continue={{{{{label}.continue}}}}");
    w.get("page one", &format!("{CONFIG_MAPS}?limit=1"));
    w.get("page two", &page("page one"));
    let changed = json!({"data": {"x": "1"}});
    w.patch("changed", &format!("{CONFIG_MAPS}/b"), MERGE, changed);
    w.delete("gone", &format!("{CONFIG_MAPS}/d"), Value::Null);
    let watch = |version: &str| {
        format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={{{{{version}.resourceVersion}}}}")
    };
    w.get("a watch from before", &watch("a"));
    w.ask("all history", FORGET, "", JSON, Value::Null);
    w.get("page two of what is forgotten", &page("page one"));
    w.get("page three of what is forgotten", &page("page two"));
    w.get("the rest as it is now", &page("page two of what is forgotten"));
    w.get("a watch of what is forgotten", &watch("a"));
    let after = config_map("e", json!({}));
    w.post("after", CONFIG_MAPS, after);
    w.patch("later", &format!("{CONFIG_MAPS}/e"), MERGE, json!({"data": {"x": "2"}}));
    w.get("a watch from after", &watch("after"));
    w.get("a watch from any state", &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0"));
    w.done("compaction")
}

pub(super) fn patches() -> Chapter {
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

pub(super) fn apply() -> Chapter {
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
    w.post("nobody's", CONFIG_MAPS, config_map("n", json!({})));
    let nobodys = format!("{CONFIG_MAPS}/n?fieldManager=x");
    w.patch("nobody's, updated", &nobodys, MERGE, json!({"data": {"x": "1"}}));
    w.patch("nobody's, applied", &nobodys, APPLY, config_map("n", json!({"y": "1"})));
    w.patch("nobody's no more", &nobodys, MERGE, json!({"data": {"x": "2"}}));
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
