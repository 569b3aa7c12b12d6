//! `OpenAPI` v3: by it kubectl sees that the server validates fields itself, and explains kinds.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::meta;
use super::schemas::described;
use crate::kinds::Resource;
use crate::schema::Schemas;

/// Returns the index of the documents.
pub(super) fn index<'a>(served: impl Iterator<Item = &'a Arc<Resource>>) -> Value {
    let paths: Map<String, Value> = served
        .map(|resource| {
            let path = version_path(resource);
            (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash=simcluster")}))
        })
        .collect();
    json!({"paths": paths})
}

/// Returns the document of a group version: its paths, and the schemas that `kubectl explain` prints.
pub(super) fn document<'a>(
    of: &str,
    served: impl Iterator<Item = &'a Arc<Resource>>,
    custom: &Schemas,
) -> Option<Value> {
    let resources: Vec<&Resource> =
        served.filter(|resource| version_path(resource) == of).map(|resource| &**resource).collect();
    let first = resources.first()?;
    let paths: Map<String, Value> = resources.iter().map(|resource| path(resource)).collect();
    let mut schemas = described(&first.group, &first.version);
    for resource in resources {
        let kind = kind_of(resource);
        let known = schemas.values().any(|schema| schema[KIND][0] == kind);
        if !known {
            let schema = custom.get(&resource.qualified(), &resource.version);
            schemas.insert(name_of(resource), bare(&kind, schema.map(|schema| schema.root().clone())));
        }
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "simcluster", "version": "v1"}, "paths": paths,
        "components": {"schemas": schemas},
    }))
}

const KIND: &str = "x-kubernetes-group-version-kind";

fn kind_of(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

/// The name of a schema that the API types do not have.
fn name_of(resource: &Resource) -> String {
    let group = if resource.group.is_empty() { "core" } else { &resource.group };
    format!("{}.{}.{}", group.split('.').rev().collect::<Vec<_>>().join("."), resource.version, resource.kind)
}

/// The schema of a custom kind, or of one of which only the common fields are known.
fn bare(kind: &Value, schema: Option<Value>) -> Value {
    let mut schema = schema.unwrap_or_else(|| json!({"type": "object"}));
    schema[KIND] = json!([kind]);
    for field in ["apiVersion", "kind"] {
        meta::put(&mut schema, &["properties", field], json!({"type": "string"}));
    }
    meta::put(&mut schema, &["properties", "metadata"], json!({"type": "object"}));
    schema
}

fn version_path(resource: &Resource) -> String {
    if resource.group.is_empty() {
        "api/v1".to_owned()
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

fn path(resource: &Resource) -> (String, Value) {
    let place = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let path = format!("/{}{place}/{}/{{name}}", version_path(resource), resource.plural);
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let operation = json!({
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation"), parameter("force")],
        "responses": {},
    });
    (path, json!({"patch": operation}))
}
