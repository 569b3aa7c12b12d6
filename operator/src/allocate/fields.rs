//! The fields that the allocator knows. The API server drops a field that it does not know and says so
//! (`--validate`); a scenario that a person wrote has no API server before it, and a `selector` that
//! should be `selectors` would select every device.

use dragoman_objects::unknown_fields;
use serde_json::Value;

/// The lists of a scenario, each with the kind of its objects.
pub(super) const LISTS: [(&str, &str); 5] = [
    ("nodes", "Node"),
    ("resourceSlices", "ResourceSlice"),
    ("deviceClasses", "DeviceClass"),
    ("resourceClaims", "ResourceClaim"),
    ("deviceTaintRules", "DeviceTaintRule"),
];

/// The fields of a scenario beside its lists.
const OTHERS: [&str; 3] = ["allocate", "candidates", "featureGates"];

/// Returns the paths of the unknown fields in a scenario and in its objects.
pub(super) fn unknown_in(scenario: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (field, objects) in scenario.as_object().into_iter().flatten() {
        let Some((_, kind)) = LISTS.iter().find(|(list, _)| list == field) else {
            if !OTHERS.contains(&&**field) {
                unknown.push(field.clone());
            }
            continue;
        };
        for (number, object) in objects.as_array().into_iter().flatten().enumerate() {
            let known =
                |name: &&String| ["kind", "apiVersion", "metadata", "spec", "status"].contains(&&***name);
            let fields = object.as_object().into_iter().flatten().map(|(name, _)| name);
            let fields = fields.filter(|name| !known(name)).cloned().chain(unknown_fields(kind, object));
            unknown.extend(fields.map(|path| format!("{field}[{number}].{path}")));
        }
    }
    unknown
}
