//! The CustomResourceDefinitions of Dragoman's kinds, generated from the Rust types.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::claim_gate::ClaimGateSpec;
use crate::device_footprint::DeviceFootprintSpec;
use crate::driver_owner::DriverOwnerSpec;
use crate::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimStateStatus;

/// The API group of Dragoman's kinds.
pub const GROUP: &str = "dragoman.dev";
/// The only version of the group.
pub const VERSION: &str = "v1alpha1";

/// A kind of Dragoman, as input to its definition.
struct Own {
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    about: &'static str,
    /// The only property besides `apiVersion`, `kind` and `metadata`.
    part: &'static str,
    schema: Value,
    /// The name, type and JSON path of each column that kubectl prints.
    columns: &'static [(&'static str, &'static str, &'static str)],
}

/// Returns all definitions, sorted by name, as `apiextensions.k8s.io/v1` objects.
pub fn definitions() -> Vec<Value> {
    let kinds = [
        Own {
            kind: "ClaimGate",
            plural: "claimgates",
            short: "cgate",
            about: "The service accounts that open and close the gate of this name on ResourceClaims.",
            part: "spec",
            schema: structural::<ClaimGateSpec>(),
            columns: &[("Owners", "string", ".spec.owners[*].name")],
        },
        Own {
            kind: "DeviceFootprint",
            plural: "devicefootprints",
            short: "dfp",
            about: "What the devices of a driver cost the node they are on.",
            part: "spec",
            schema: structural::<DeviceFootprintSpec>(),
            columns: &[("Driver", "string", ".spec.driver"), ("Selector", "string", ".spec.selector")],
        },
        Own {
            kind: "DriverOwner",
            plural: "driverowners",
            short: "downer",
            about: "The service accounts that allocate the devices of the driver of this name.",
            part: "spec",
            schema: structural::<DriverOwnerSpec>(),
            columns: &[
                ("Owner namespace", "string", ".spec.owners[0].namespace"),
                ("Owner", "string", ".spec.owners[0].name"),
            ],
        },
        Own {
            kind: "NodeAllocatableDRAClaimState",
            plural: "nodeallocatabledraclaimstates",
            short: "nadcs",
            about: "What Pods and claims take from the node of the same name.",
            part: "status",
            schema: structural::<NodeAllocatableDRAClaimStateStatus>(),
            columns: &[
                ("CPU free", "string", ".status.headroom.cpu"),
                ("Memory free", "string", ".status.headroom.memory"),
                ("Overcommitted", "string", ".status.conditions[?(@.type=='Overcommitted')].status"),
                ("Revision", "integer", ".status.revision"),
            ],
        },
    ];
    kinds.into_iter().map(definition).collect()
}

fn definition(own: Own) -> Value {
    let Own { kind, plural, short, about, part, schema, columns } = own;
    let age = [("Age", "date", ".metadata.creationTimestamp")];
    let columns = columns.iter().chain(&age);
    let columns: Vec<_> =
        columns.map(|(name, kind, path)| json!({"name": name, "type": kind, "jsonPath": path})).collect();
    // The status is a subresource, so write access to the object does not include what was
    // observed.
    let (required, subresources) =
        if part == "status" { (json!([]), json!({"status": {}})) } else { (json!([part]), json!({})) };
    let version = json!({
        "name": VERSION, "served": true, "storage": true, "additionalPrinterColumns": columns,
        "subresources": subresources,
        "schema": {"openAPIV3Schema": {
            "type": "object", "description": about, "required": required,
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                part: schema,
            },
        }},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}"), "labels": {"app.kubernetes.io/name": "dragoman"}},
        "spec": {
            "group": GROUP, "scope": "Cluster", "versions": [version],
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase(), "shortNames": [short], "categories": ["dra"],
            },
        },
    })
}

/// Returns the structural schema of a type, as the API server requires: references inlined, no
/// unknown annotations, and every enumeration as one list of strings.
fn structural<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator()
        .into_root_schema_for::<T>();
    RecursiveTransform(strict).transform(&mut schema);
    schema.to_value()
}

fn strict(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("title");
    // An optional field is absent, never `null`. Unknown fields are pruned, or rejected under
    // strict field validation.
    optional_without_null(object);
    if object.get("additionalProperties") == Some(&Value::Bool(false)) {
        object.remove("additionalProperties");
    }
    object.remove("nullable");
    flatten_enumeration(object);
}

/// `anyOf: [X, {enum: [null]}]` → `X`.
fn optional_without_null(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.get("anyOf") else { return };
    let [Value::Object(inner), null] = choices.as_slice() else { return };
    if null["enum"] == json!([null]) {
        let inner = inner.clone();
        object.remove("anyOf");
        for (key, value) in inner {
            object.entry(key).or_insert(value);
        }
    }
}

/// `oneOf: [{const: A}, {const: B}]` → `enum: [A, B]`: a structural schema has no types inside
/// `oneOf`.
fn flatten_enumeration(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.get("oneOf") else { return };
    let word = |choice: &Value| choice.get("const").or_else(|| choice.get("enum")?.get(0)).cloned();
    if let Some(words) = choices.iter().map(word).collect::<Option<Vec<_>>>() {
        object.remove("oneOf");
        object.insert("type".to_owned(), json!("string"));
        object.insert("enum".to_owned(), Value::Array(words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the keywords in a schema that the generator must have removed.
    fn forbidden(schema: &Value) -> Vec<String> {
        match schema {
            Value::Object(object) => {
                let wrong = ["$ref", "$schema", "definitions", "nullable", "const", "oneOf", "title"];
                let here = object.keys().filter(|key| wrong.contains(&key.as_str())).cloned();
                here.chain(object.values().flat_map(forbidden)).collect()
            }
            Value::Array(values) => values.iter().flat_map(forbidden).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn the_schemas_are_structural() {
        for definition in definitions() {
            assert_eq!(forbidden(&definition), Vec::<String>::new(), "{definition:#}");
        }
    }

    #[test]
    fn what_is_optional_here_is_optional_there() {
        let all = definitions();
        let spec = &all[1]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(spec["required"], json!(["driver", "resources"]));
        let policy =
            &spec["properties"]["resources"]["additionalProperties"]["properties"]["accountingPolicy"];
        assert_eq!(policy["enum"], json!(["AddPerClaim", "AddPerReference", "Max", "ConsumeFrom"]));
        assert_eq!(policy["type"], "string");
    }
}
