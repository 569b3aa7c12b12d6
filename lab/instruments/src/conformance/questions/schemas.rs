//! Questions about custom objects with a schema: validation, defaults and pruning.

use serde_json::{Value, json};

use super::{Chapter, MERGE, Writer};
use crate::conformance::Until;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GAUGES: &str = "/apis/schemas.example.com/v1/gauges";

fn definition() -> Value {
    let amount = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+$", "minimum": 0});
    let spec = json!({
        "type": "object", "required": ["unit"],
        "properties": {
            "unit": {"type": "string", "minLength": 2, "maxLength": 5},
            "mode": {"type": "string", "enum": ["Slow", "Fast"], "default": "Slow"},
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "level": {"type": "number"},
            "on": {"type": "boolean"},
            "since": {"type": "string", "format": "date-time"},
            "amount": amount,
            "marks": {"type": "array", "maxItems": 2, "items": {"type": "object", "required": ["at"],
                "properties": {"at": {"type": "string"}, "name": {"type": "string", "default": "mark"}}}},
            "limits": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 5},
            "parts": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}},
            "steps": {"type": "object", "properties": {"count": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.count % 2 == 1 && self.count + 1 < 10", "message": "even, or too many"}]},
            "bounds": {
                "type": "object", "properties": {"least": {"type": "integer"}, "most": {"type": "integer"}},
                "x-kubernetes-validations": [
                    {"rule": "!has(self.least) || !has(self.most) || self.least <= self.most", "message": "least is more than most", "fieldPath": ".least"},
                    {"rule": "self.most < 100 || !has(self.most)"},
                ],
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.amount) || quantity(string(self.amount)).isLessThan(quantity('1k'))", "message": "too much"},
            {"rule": "self.unit == oldSelf.unit", "message": "the unit stays", "reason": "FieldValueForbidden", "fieldPath": ".unit"},
        ],
    });
    let status = json!({"type": "object", "properties": {"ready": {"type": "boolean"}}});
    let schema =
        json!({"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.schemas.example.com"},
        "spec": {
            "group": "schemas.example.com", "scope": "Cluster",
            "names": {"kind": "Gauge", "plural": "gauges", "singular": "gauge"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

fn gauge(name: &str, spec: Value) -> Value {
    let mut gauge =
        json!({"apiVersion": "schemas.example.com/v1", "kind": "Gauge", "metadata": {"name": name}});
    gauge["spec"] = spec;
    gauge
}

pub(super) fn schemas() -> Chapter {
    let mut w = Writer::default();
    w.post("definition", DEFINITIONS, definition()).free =
        vec!["/status", "/metadata/managedFields", "/spec"];
    w.get("served", GAUGES).until = Some(Until::Code(200));
    let wrong = [
        ("a missing field", json!({})),
        ("a short text", json!({"unit": "K"})),
        ("a long text", json!({"unit": "kelvin"})),
        ("a number for a text", json!({"unit": 4})),
        ("a list for a text", json!({"unit": []})),
        ("null", json!({"unit": null})),
        ("none of those", json!({"unit": "mm", "mode": "Medium"})),
        ("too small", json!({"unit": "mm", "size": 0})),
        ("too large", json!({"unit": "mm", "size": 10})),
        ("not whole", json!({"unit": "mm", "size": 1.5})),
        ("no number", json!({"unit": "mm", "level": "high"})),
        ("neither true nor false", json!({"unit": "mm", "on": "yes"})),
        ("no time", json!({"unit": "mm", "since": "yesterday"})),
        ("neither number nor text", json!({"unit": "mm", "amount": true})),
        ("not of the pattern", json!({"unit": "mm", "amount": "ten"})),
        ("a negative amount", json!({"unit": "mm", "amount": -1})),
        ("too much", json!({"unit": "mm", "amount": "1000"})),
        ("a mark without a place", json!({"unit": "mm", "marks": [{"at": "a"}, {}]})),
        ("too many marks", json!({"unit": "mm", "marks": [{"at": "a"}, {"at": "b"}, {"at": "c"}]})),
        ("a tag twice", json!({"unit": "mm", "tags": ["a", "b", "a"]})),
        (
            "a part twice",
            json!({"unit": "mm", "parts": [{"name": "a", "size": 1}, {"name": "a", "size": 2}]}),
        ),
        ("even", json!({"unit": "mm", "steps": {"count": 2}})),
        ("no limits", json!({"unit": "mm", "limits": {}})),
        ("too many limits", json!({"unit": "mm", "limits": {"a": "1", "b": "2", "c": "3"}})),
        ("a limit of the wrong type", json!({"unit": "mm", "limits": {"a": 1}})),
        ("a rule broken", json!({"unit": "mm", "bounds": {"least": 2, "most": 1}})),
        ("a rule without a message", json!({"unit": "mm", "bounds": {"most": 100}})),
        ("a rule that fails", json!({"unit": "mm", "bounds": {}})),
    ];
    // kube-apiserver reports these several times, in words that depend on the place of the check.
    let verbose = ["not whole", "neither number nor text", "a negative amount"];
    for (label, spec) in wrong {
        let question = w.post(label, GAUGES, gauge("wrong", spec));
        if verbose.contains(&label) {
            question.free = vec!["/message", "/details"];
        }
    }
    let full = json!({
        "unit": "mm", "amount": 5, "steps": {"count": 3}, "tags": ["a"], "parts": [{"name": "a"}], "marks": [{"at": "a"}, {"at": "b", "name": "end"}], "limits": {"a": "1"},
        "free": {"any": {"thing": 1}}, "typo": true, "size": null,
    });
    w.post("dropped and filled", GAUGES, gauge("full", full.clone()));
    w.post("told about a typo", &format!("{GAUGES}?fieldValidation=Strict"), gauge("strict", full));
    let one = format!("{GAUGES}/full");
    w.patch("another unit", &one, MERGE, json!({"spec": {"unit": "cm"}}));
    w.patch("another mode", &one, MERGE, json!({"spec": {"mode": "Fast"}}));
    w.patch("the default again", &one, MERGE, json!({"spec": {"mode": null}}));
    w.patch(
        "a status of the wrong type",
        &format!("{one}/status"),
        MERGE,
        json!({"status": {"ready": "yes"}}),
    )
    .free = vec!["/message", "/details"];
    w.patch(
        "a status with a typo",
        &format!("{one}/status"),
        MERGE,
        json!({"status": {"ready": true, "raedy": 1}}),
    );
    w.delete("definition goes", &format!("{DEFINITIONS}/gauges.schemas.example.com"), Value::Null).free =
        vec!["/metadata", "/status", "/spec"];
    w.done("schemas")
}
