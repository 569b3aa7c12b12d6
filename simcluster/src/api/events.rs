//! Events are one kind in two groups, with different field names for the same values.

use serde_json::Value;

use super::meta;
use crate::kinds::Resource;

/// The field names in `events.k8s.io` and in the core group.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Returns the object in the spelling of the group of `resource`.
pub(super) fn shown(resource: &Resource, mut object: Value) -> Value {
    if resource.plural == "events" {
        meta::put(&mut object, &["apiVersion"], resource.api_version().into());
        if resource.group.is_empty() {
            rename(&mut object, |(new, old)| (new, old));
        }
    }
    object
}

/// Returns the object in the spelling in which it is stored.
pub(super) fn kept(resource: &Resource, mut object: Value) -> Value {
    if resource.plural == "events" && resource.group.is_empty() {
        rename(&mut object, |(new, old)| (old, new));
    }
    object
}

fn rename(object: &mut Value, direction: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(fields) = object.as_object_mut() else { return };
    for names in NAMES {
        let (from, to) = direction(names);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
