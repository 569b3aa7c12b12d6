//! Definitions of custom resources.

use serde_json::{Value, json};

use crate::api::meta;

pub(crate) fn default(object: &mut Value) {
    let kind = object["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let names = &object["spec"]["names"];
    let (no_list, no_singular) = (names["listKind"].is_null(), names["singular"].is_null());
    if no_list {
        meta::put(object, &["spec", "names", "listKind"], json!(format!("{kind}List")));
    }
    if no_singular {
        meta::put(object, &["spec", "names", "singular"], json!(kind.to_lowercase()));
    }
    if object["spec"]["conversion"].is_null() {
        meta::put(object, &["spec", "conversion"], json!({"strategy": "None"}));
    }
}
