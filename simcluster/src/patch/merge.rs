//! JSON merge patch (RFC 7386).

use serde_json::Value;

/// Applies `patch` to `object`: objects are merged, null removes a field, and any other value replaces the
/// old one.
pub(crate) fn merge_patch(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge_patch(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_merged_and_lists_replaced() {
        let mut object = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge_patch(
            &mut object,
            &json!({"a": {"b": null, "c": [3], "e": {"f": null, "g": 1}}, "d": {"x": 1}}),
        );
        assert_eq!(object, json!({"a": {"c": [3], "e": {"g": 1}}, "d": {"x": 1}}));
    }
}
