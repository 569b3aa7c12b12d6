//! Strategic merge patch: a merge patch that merges certain lists by key.

use serde_json::{Map, Value};

use super::lists::{List, Lists, key_of};
use crate::api::meta::items;

/// Applies `patch` to `object`.
///
/// # Errors
/// The patch has an unknown `$patch` directive.
pub(crate) fn strategic_merge_patch(object: &mut Value, patch: &Value, lists: &Lists) -> Result<(), String> {
    merge(object, patch, lists, &mut Vec::new())
}

fn merge(object: &mut Value, patch: &Value, lists: &Lists, path: &mut Vec<String>) -> Result<(), String> {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return Ok(());
    };
    match patch["$patch"].as_str() {
        None | Some("merge") => {}
        Some("replace") => {
            *object = without_directives(changes);
            return Ok(());
        }
        Some("delete") => {
            *object = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => return Err(format!("unknown patch type: {other:?}")),
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return Ok(()) };
    if let Some(kept) = patch["$retainKeys"].as_array() {
        fields.retain(|name, _| kept.iter().any(|kept| kept.as_str() == Some(name)));
    }
    for (name, change) in changes {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let Some(Value::Array(elements)) = fields.get_mut(list) {
                elements.retain(|element| items(change).all(|gone| gone != element));
            }
            continue;
        }
        // Directives are not fields. `$setElementOrder` is ignored: the order of the patch decides.
        if name.starts_with('$') {
            continue;
        }
        if change.is_null() {
            fields.remove(name);
            continue;
        }
        path.push(name.clone());
        let place = fields.entry(name).or_insert(Value::Null);
        match change {
            Value::Array(changes) => merge_list(place, changes, lists, path)?,
            change => merge(place, change, lists, path)?,
        }
        path.pop();
    }
    Ok(())
}

fn merge_list(
    place: &mut Value,
    changes: &[Value],
    lists: &Lists,
    path: &mut Vec<String>,
) -> Result<(), String> {
    let list = lists.at(path).clone();
    if !place.is_array() || list == List::Atomic {
        *place = Value::Array(Vec::new());
    }
    let Value::Array(elements) = place else { return Ok(()) };
    if changes.iter().any(|change| change["$patch"] == "replace") {
        *elements = changes.iter().filter(|change| change["$patch"].is_null()).cloned().collect();
        return Ok(());
    }
    let before = elements.clone();
    let mut named = Vec::new();
    for change in changes {
        match &list {
            List::Atomic => elements.push(change.clone()),
            List::Set => {
                if !elements.contains(change) {
                    elements.push(change.clone());
                }
                named.push(change.clone());
            }
            List::Map(keys) => {
                let keys = first(keys);
                let key = key_of(change, keys);
                let found = elements.iter().position(|element| key_of(element, keys) == key);
                match (found, change["$patch"].as_str()) {
                    (Some(found), Some("delete")) => {
                        elements.remove(found);
                    }
                    (None, Some("delete")) => {}
                    (Some(found), _) => {
                        if let Some(element) = elements.get_mut(found) {
                            merge(element, change, lists, path)?;
                        }
                        named.push(key);
                    }
                    (None, _) => {
                        let mut element = Value::Null;
                        merge(&mut element, change, lists, path)?;
                        elements.push(element);
                        named.push(key);
                    }
                }
            }
        }
    }
    in_order(elements, &before, &named, &list);
    Ok(())
}

/// Returns the merge key: a strategic merge identifies elements by the first key alone.
fn first(keys: &[String]) -> &[String] {
    keys.get(..1).unwrap_or_default()
}

/// Orders the elements. Those in the patch keep the order of the patch, and the others their previous order.
/// The previous order also decides between the two groups, and new elements come first.
fn in_order(elements: &mut Vec<Value>, before: &[Value], named: &[Value], list: &List) {
    let key = |element: &Value| match list {
        List::Map(keys) => key_of(element, first(keys)),
        _ => element.clone(),
    };
    if *list == List::Atomic {
        return;
    }
    let place = |element: &Value| before.iter().position(|other| key(other) == key(element));
    let (mut ours, theirs): (Vec<Value>, Vec<Value>) =
        elements.drain(..).partition(|element| named.contains(&key(element)));
    ours.sort_by_key(|element| named.iter().position(|name| *name == key(element)));
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    while let Some(next) = ours.peek() {
        match theirs.peek() {
            Some(other) if place(next).is_some_and(|next| Some(next) > place(other)) => {
                elements.extend(theirs.next());
            }
            _ => elements.extend(ours.next()),
        }
    }
    elements.extend(theirs);
}

fn without_directives(fields: &Map<String, Value>) -> Value {
    fields
        .iter()
        .filter(|(name, _)| !name.starts_with('$'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::lists_of;
    use super::*;

    fn patched(mut object: Value, patch: &Value) -> Value {
        strategic_merge_patch(&mut object, patch, &lists_of("Pod")).expect("patch");
        object
    }

    #[test]
    fn lists_are_merged_by_key() {
        let object = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c"}, {"name": "b", "$patch": "delete"}],
            "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}]}});
        assert_eq!(
            patched(object, &patch),
            json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}})
        );
    }

    #[test]
    fn other_lists_are_replaced() {
        let object = json!({"spec": {"tolerations": [{"key": "a"}]}, "metadata": {"finalizers": ["x", "y"]}});
        let patch = json!({"spec": {"tolerations": [{"key": "b"}]}, "metadata": {"finalizers": ["z"], "$deleteFromPrimitiveList/finalizers": ["x"]}});
        assert_eq!(
            patched(object, &patch),
            json!({"spec": {"tolerations": [{"key": "b"}]}, "metadata": {"finalizers": ["z", "y"]}})
        );
    }

    #[test]
    fn directives() {
        let object = json!({"spec": {"a": {"b": 1}, "c": {"x": 1, "y": 2}}});
        let patch =
            json!({"spec": {"a": {"$patch": "replace", "d": 1}, "c": {"$retainKeys": ["y"], "y": 3}}});
        assert_eq!(patched(object, &patch), json!({"spec": {"a": {"d": 1}, "c": {"y": 3}}}));
        let mut object = json!({});
        assert!(strategic_merge_patch(&mut object, &json!({"$patch": "dance"}), &lists_of("Pod")).is_err());
    }
}
