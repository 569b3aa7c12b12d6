//! JSON patch (RFC 6902).

use serde_json::Value;

/// The reason why a patch fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The patch is malformed or exceeds a limit.
    Malformed(String),
    /// The patch does not fit the object, or a `test` fails.
    Unfit,
}

/// The maximum number of operations in a patch, as upstream.
const MOST: usize = 10_000;

/// The maximum number of bytes that a patch may copy, as upstream. Repeated copies grow exponentially.
const MOST_COPIED: usize = 3 << 20;
/// The maximum depth of an object, which is the recursion limit of the JSON parser.
const DEEPEST: usize = 128;

/// Applies `patch` to a copy of `object`, all operations or none.
///
/// # Errors
/// The patch is malformed, exceeds a limit, does not fit the object, or has a `test` that fails.
pub(crate) fn json_patch(object: &Value, patch: &Value) -> Result<Value, Failed> {
    let Some(operations) = patch.as_array() else {
        return Err(Failed::Malformed("a JSON patch is a list of operations".to_owned()));
    };
    if operations.len() > MOST {
        return Err(Failed::Malformed(format!("more than {MOST} operations")));
    }
    let mut copied = 0;
    operations.iter().try_fold(object.clone(), |object, operation| {
        if operation["op"] == "copy" {
            let from = operation["from"].as_str().and_then(|from| object.pointer(from));
            copied += from.map_or(0, |from| from.to_string().len());
            if copied > MOST_COPIED {
                return Err(Failed::Malformed(format!("more than {MOST_COPIED} bytes are copied")));
            }
        }
        let object = operate(object, operation)?;
        if is_deeper(&object, DEEPEST) {
            return Err(Failed::Malformed(format!("the object gets deeper than {DEEPEST} levels")));
        }
        Ok(object)
    })
}

/// Whether a value is nested deeper than `levels`.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |inner: &Value| levels == 0 || is_deeper(inner, levels - 1);
    match value {
        Value::Object(fields) => fields.values().any(below),
        Value::Array(items) => items.iter().any(below),
        _ => false,
    }
}

fn operate(mut object: Value, operation: &Value) -> Result<Value, Failed> {
    let text = |field: &str| operation[field].as_str();
    let (Some(op), Some(path)) = (text("op"), text("path")) else {
        return Err(Failed::Malformed("an operation needs op and path".to_owned()));
    };
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match op {
        "add" => add(&mut object, path, value())?,
        "remove" => {
            remove(&mut object, path)?;
        }
        "replace" => {
            *object.pointer_mut(path).ok_or(Failed::Unfit)? = value();
        }
        "test" => {
            let there = object.pointer(path).unwrap_or(&Value::Null);
            if *there != value() {
                return Err(Failed::Unfit);
            }
        }
        "move" => {
            let moved = remove(&mut object, text("from").ok_or(Failed::Unfit)?)?;
            add(&mut object, path, moved)?;
        }
        "copy" => {
            let from = text("from").ok_or(Failed::Unfit)?;
            let copied = object.pointer(from).ok_or(Failed::Unfit)?.clone();
            add(&mut object, path, copied)?;
        }
        other => return Err(Failed::Malformed(format!("unexpected kind: {other}"))),
    }
    Ok(object)
}

/// Returns the parent of a location, and the last segment of its path.
fn parent<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), Failed> {
    let (before, last) = path.rsplit_once('/').ok_or(Failed::Unfit)?;
    let parent = object.pointer_mut(before).ok_or(Failed::Unfit)?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), Failed> {
    if path.is_empty() {
        *object = value;
        return Ok(());
    }
    let (parent, last) = parent(object, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let place = last.parse().ok().filter(|place| *place <= items.len()).ok_or(Failed::Unfit)?;
            items.insert(place, value);
        }
        _ => return Err(Failed::Unfit),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, Failed> {
    let (parent, last) = parent(object, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&last).ok_or(Failed::Unfit),
        Value::Array(items) => {
            let place = last.parse().ok().filter(|place| *place < items.len()).ok_or(Failed::Unfit)?;
            Ok(items.remove(place))
        }
        _ => Err(Failed::Unfit),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations() {
        let object = json!({"a": {"b": [1, 2]}, "x/y": 1});
        for (patch, expected) in [
            (json!([{"op": "add", "path": "/a/b/-", "value": 3}]), json!({"a": {"b": [1, 2, 3]}, "x/y": 1})),
            (json!([{"op": "add", "path": "/a/b/0", "value": 0}]), json!({"a": {"b": [0, 1, 2]}, "x/y": 1})),
            (json!([{"op": "remove", "path": "/a/b/0"}]), json!({"a": {"b": [2]}, "x/y": 1})),
            (json!([{"op": "replace", "path": "/x~1y", "value": 2}]), json!({"a": {"b": [1, 2]}, "x/y": 2})),
            (json!([{"op": "move", "from": "/x~1y", "path": "/c"}]), json!({"a": {"b": [1, 2]}, "c": 1})),
            (
                json!([{"op": "copy", "from": "/a/b/1", "path": "/c"}]),
                json!({"a": {"b": [1, 2]}, "c": 2, "x/y": 1}),
            ),
            (json!([{"op": "test", "path": "/a/b/1", "value": 2}]), object.clone()),
        ] {
            assert_eq!(json_patch(&object, &patch), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn copies_of_copies_come_to_an_end() {
        let object = json!({"a": {"x": "y"}});
        let doubling: Value =
            (0..60).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a/{n}")})).collect();
        assert!(matches!(json_patch(&object, &doubling), Err(Failed::Malformed(_))));
        let nesting: Value = (0..1000).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/b"})).collect();
        assert!(matches!(json_patch(&object, &nesting), Err(Failed::Malformed(_))));
    }

    #[test]
    fn what_does_not_fit() {
        let object = json!({"a": [1]});
        for patch in [
            json!([{"op": "test", "path": "/a/0", "value": 2}]),
            json!([{"op": "remove", "path": "/b"}]),
            json!([{"op": "replace", "path": "/b", "value": 1}]),
            json!([{"op": "add", "path": "/a/3", "value": 1}]),
            json!([{"op": "add", "path": "/b/c", "value": 1}]),
        ] {
            assert_eq!(json_patch(&object, &patch), Err(Failed::Unfit), "{patch}");
        }
        for patch in [json!({}), json!([{"op": "add"}]), json!([{"op": "dance", "path": "/a"}])] {
            assert!(matches!(json_patch(&object, &patch), Err(Failed::Malformed(_))), "{patch}");
        }
    }
}
