//! Namespaces.

use serde_json::{Value, json};

use crate::api::meta;

/// The finalizer in `spec` that the namespace controller removes once the namespace is empty.
pub(crate) const FINALIZER: &str = "kubernetes";

pub(crate) fn prepare_create(object: &mut Value) {
    meta::put(object, &["spec", "finalizers"], json!([FINALIZER]));
    meta::put(object, &["status"], json!({"phase": "Active"}));
}

/// Adds the name of the namespace as a label.
pub(crate) fn default(object: &mut Value) {
    let name = meta::text(object, "name").to_owned();
    meta::put(object, &["metadata", "labels", "kubernetes.io/metadata.name"], json!(name));
}
