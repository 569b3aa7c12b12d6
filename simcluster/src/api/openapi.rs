//! The part of `OpenAPI` v3 by which kubectl sees that the server validates fields itself.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::kinds::Resource;

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

/// Returns the paths of a group version, without schemas.
pub(super) fn paths<'a>(of: &str, served: impl Iterator<Item = &'a Arc<Resource>>) -> Option<Value> {
    let paths: Map<String, Value> =
        served.filter(|resource| version_path(resource) == of).map(|resource| path(resource)).collect();
    (!paths.is_empty()).then(|| {
        json!({"openapi": "3.0.0", "info": {"title": "simcluster", "version": "v1"}, "paths": paths, "components": {"schemas": {}}})
    })
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
