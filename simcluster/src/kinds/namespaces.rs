//! Namespaces.

use serde_json::{Value, json};

use crate::api::meta;

/// The finalizer in `spec` that the namespace controller takes away when nothing is left.
pub(crate) const FINALIZER: &str = "kubernetes";

pub(crate) fn prepare_create(object: &mut Value) {
    meta::put(object, &["spec", "finalizers"], json!([FINALIZER]));
    meta::put(object, &["status"], json!({"phase": "Active"}));
}

/// Every namespace has its name as a label.
pub(crate) fn default(object: &mut Value) {
    let name = meta::text(object, "name").to_owned();
    meta::put(object, &["metadata", "labels", "kubernetes.io/metadata.name"], json!(name));
}
