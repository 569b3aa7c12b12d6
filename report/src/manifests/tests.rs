use std::io::BufReader;
use std::path::Path;

use super::*;

fn objects(text: &str) -> Vec<anyhow::Result<Found>> {
    let mut all = Vec::new();
    // A small buffer, so that every text comes in several parts.
    let text = BufReader::with_capacity(7, text.as_bytes());
    read(Path::new("f"), text, &mut |found| all.push(found)).expect("a text");
    all
}

fn found(text: &str) -> Vec<String> {
    let told = |found: Found| format!("{} {}", found.place, found.object().expect("an object")["kind"]);
    let found = objects(text).into_iter();
    found.map(|found| found.map_or_else(|why| format!("{why:#}"), told)).collect()
}

#[test]
fn yaml_of_any_size_is_read_as_kubectl_prints_it() {
    let pod = "- kind: Pod\n  metadata:\n    labels:\n      hash: 12e4567\n      off: n\n    name: p\n";
    let script = "  spec:\n    args:\n    - |\n      x: 1e999\n      ---\n    - 9e999\n    - \"ends in\n      \
                  1e999\n      or 1e999\n      not\"\n    env:\n    - text: |\n        - 1e999\n      name: 2e999\n";
    let text = format!("apiVersion: v1\nitems:\n{}kind: List\n", [pod, script].concat().repeat(2_000));
    let pods = objects(&text);
    assert_eq!(pods.len(), 2_000);
    for found in pods {
        let object = found.and_then(|found| found.object()).expect("a Pod");
        assert_eq!(object["metadata"]["labels"], serde_json::json!({"hash": "12e4567", "off": "n"}));
        assert_eq!(
            object["spec"]["args"],
            serde_json::json!(["x: 1e999\n---\n", "9e999", "ends in 1e999 or 1e999 not"])
        );
        assert_eq!(object["spec"]["env"], serde_json::json!([{"text": "- 1e999\n", "name": "2e999"}]));
    }
    // An object alone may have as many values as its store takes bytes.
    let text = format!("kind: ConfigMap\ndata:\n{}", "- a\n".repeat(100_000));
    let object = objects(&text).remove(0).and_then(|found| found.object()).expect("an object");
    assert_eq!(object["data"].as_array().map(Vec::len), Some(100_000));
}

#[test]
fn every_object_has_a_place_and_a_kind() {
    let text = "kind: Pod\n---\napiVersion: v1\nkind: List\nitems: [{kind: Pod}, {kind: Node}]\n";
    assert_eq!(found(text), ["f:1 \"Pod\"", "f:3: item 0 \"Pod\"", "f:3: item 1 \"Node\""]);
    assert_eq!(found("{\"kind\": \"PodList\", \"items\": [{}]}"), ["f:1: item 0 \"Pod\""]);
    assert_eq!(found("{\"kind\": \"Pod\"}\n{\"kind\": \"Node\"}"), ["f:1 \"Pod\"", "f:2 \"Node\""]);
    assert!(found("kind: PodList\n")[0].contains("without items"));
    assert_eq!(found("---\n---\n"), ["f: it is empty"]);
    assert_eq!(found(""), ["f: it is empty"]);
}

#[test]
fn items_are_found_wherever_their_list_says_its_kind() {
    for list in [
        r#"{"kind": "PodList", "items": [{"a": 1}, {"kind": "Node"}], "x": {}}"#,
        r#"{"items": [{"a": 1}, {"kind": "Node"}], "kind": "PodList"}"#,
        "kind: PodList\nitems:\n- a: 1\n- kind: Node\n",
        "items:\n  # two\n  - a: |\n      - b\n\n  -\n    kind: Node\nkind: PodList\n",
    ] {
        let mut kinds: Vec<String> =
            found(list).iter().map(|found| found.replace("f:1: item ", "")).collect();
        kinds.sort();
        assert_eq!(kinds, ["0 \"Pod\"", "1 \"Node\""], "{list}");
    }
    let nested = r#"{"kind": "List", "items": [{"kind": "PodList", "items": [{}, {}]}, {"kind": "Node"}]}"#;
    let places = ["f:1: item 0: item 0 \"Pod\"", "f:1: item 0: item 1 \"Pod\"", "f:1: item 1 \"Node\""];
    assert_eq!(found(nested), places);
    let other = found("kind: Box\nitems:\n- kind: Pod\n");
    assert_eq!(other, ["f:1: item 0 \"Pod\"", "f:1: a \"Box\" with items, which only lists have"]);
}

#[test]
fn what_is_cut_off_is_said() {
    for text in [
        r#"{"kind": "PodList", "items": [{}"#,
        r#"{"kind": "PodList", "items": [{"#,
        r#"{"kind": "Pod""#,
        r#"{"kind": "PodList", "items": [{}, 7]}"#,
        "kind: List\nitems:\n- kind: Pod\n  metadata: {\n",
        "kind: Pod\nmetadata: {\n",
        "[{\"kind\": \"Pod\"}",
    ] {
        let said = found(text);
        let last = said.last().expect("an error");
        assert!(last.contains("neither YAML nor JSON") || last.contains("not an object"), "{text}: {said:?}");
    }
}

#[test]
fn comments_separate_documents_and_are_none() {
    let text = "# first\n---\n# nothing\n--- # a Pod\nkind: Pod\n---\t# a Node\nkind: Node\n---\nnull\n";
    assert_eq!(found(text), ["f:5 \"Pod\"", "f:7 \"Node\""]);
    // A text that begins like a mark is none.
    assert_eq!(found("kind: Pod\ntext: |\n  ---\n  --- x\n"), ["f:1 \"Pod\""]);
    assert_eq!(found("# nothing\n---\n# at all\n"), ["f: it is empty"]);
}

#[test]
fn objects_without_a_namespace_and_requests_of_an_older_version_get_their_usual_form() {
    let of = |text: &str| objects(text).remove(0).expect("an object");
    let claim = of("kind: ResourceClaim\nmetadata: {name: c}\n");
    assert_eq!(claim.object().expect("JSON")["metadata"]["namespace"], "default");
    assert_eq!(claim.head.metadata.expect("metadata").namespace.as_deref(), Some("default"));
    assert!(
        of("kind: Node\nmetadata: {name: n}\n").object().expect("JSON")["metadata"]["namespace"].is_null()
    );
    let before = "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaimTemplate\nmetadata: {name: t, namespace: a}\nspec:\n  \
                  spec:\n    devices:\n      requests:\n      - {name: r, deviceClassName: gpu, count: 2}\n      \
                  - {name: s, firstAvailable: [{name: t, deviceClassName: gpu}]}\n";
    let requests = of(before).object().expect("JSON")["spec"]["spec"]["devices"]["requests"].clone();
    assert_eq!(
        requests,
        serde_json::json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}},
            {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "gpu"}]}])
    );
}
