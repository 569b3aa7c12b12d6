//! Access to fields of untyped JSON objects. A value of an unexpected shape counts as missing and is never an
//! error.

use serde_json::{Map, Value};

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type Name = (String, String);

/// Returns a string field of `metadata`, or the empty string.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Returns namespace and name of an object.
pub(crate) fn name_of(object: &Value) -> Name {
    (text(object, "namespace").to_owned(), text(object, "name").to_owned())
}

/// Sets a field of `metadata`; null removes it.
pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    put(object, &["metadata", field], value);
}

/// Sets a value at a path of fields and creates the objects on the way. Null removes the field. A path
/// through another value than an object changes nothing.
pub(crate) fn put(object: &mut Value, path: &[&str], value: Value) {
    let Some((last, before)) = path.split_last() else { return };
    let mut at = object;
    for field in before {
        if value.is_null() && at.get(field).is_none() {
            return;
        }
        let Some(fields) = fields(at) else { return };
        at = fields.entry(*field).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(fields) = fields(at) else { return };
    if value.is_null() {
        fields.remove(*last);
    } else {
        fields.insert((*last).to_owned(), value);
    }
}

/// Returns the fields of an object. Null becomes an empty object.
fn fields(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Sets a value at a path that has none, or null.
pub(crate) fn default(object: &mut Value, path: &[&str], value: Value) {
    let there = path.iter().try_fold(&*object, |at, field| at.get(field));
    if there.is_none_or(Value::is_null) {
        put(object, path, value);
    }
}

/// Returns the elements of a list, or none for any other value.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns `metadata.ownerReferences`.
pub(crate) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    items(&object["metadata"]["ownerReferences"])
}

pub(crate) fn owner_uid(owner: &Value) -> &str {
    owner["uid"].as_str().unwrap_or_default()
}

/// Whether the object has finalizers in `metadata`.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    items(&object["metadata"]["finalizers"]).next().is_some()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_made_and_removed() {
        let mut object = json!({});
        put(&mut object, &["a", "b"], json!(1));
        assert_eq!(object, json!({"a": {"b": 1}}));
        default(&mut object, &["a", "b"], json!(2));
        default(&mut object, &["a", "c"], json!(3));
        assert_eq!(object, json!({"a": {"b": 1, "c": 3}}));
        put(&mut object, &["a", "b"], Value::Null);
        put(&mut object, &["x", "y"], Value::Null);
        assert_eq!(object, json!({"a": {"c": 3}}));
        // A shape that does not fit is left alone.
        put(&mut object, &["a", "c", "d"], json!(4));
        assert_eq!(object, json!({"a": {"c": 3}}));
    }
}
