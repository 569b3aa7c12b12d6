//! The subset of `JSONPath` that printed columns use: fields, indices, all elements, and elements whose field
//! has a given value.

use serde_json::Value;

/// Returns the first value at a path such as `.status.conditions[?(@.type=='Ready')].status`, or null if no
/// value is there or the path is outside the subset.
pub(super) fn first(object: &Value, path: &str) -> Value {
    let mut at = vec![object];
    let mut rest = path;
    while !rest.is_empty() {
        let Some((step, behind)) = step(rest) else { return Value::Null };
        at = at.into_iter().flat_map(|value| step.from(value)).collect();
        rest = behind;
    }
    at.first().map(|value| (*value).clone()).unwrap_or_default()
}

enum Step {
    Field(String),
    Number(usize),
    All,
    /// The elements whose value at a path equals a text.
    With(String, String),
}

impl Step {
    fn from<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let elements = || value.as_array().into_iter().flatten();
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Number(number) => value.get(*number).into_iter().collect(),
            Self::All => elements().collect(),
            Self::With(path, text) => elements().filter(|one| first(one, path) == **text).collect(),
        }
    }
}

/// Splits the first step off a path.
fn step(path: &str) -> Option<(Step, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        // A backslash escapes a dot that belongs to the name.
        let (mut name, mut chars) = (String::new(), rest.char_indices());
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                '.' | '[' => return Some((Step::Field(name), rest.get(at..)?)),
                other => name.push(other),
            }
        }
        return (!name.is_empty()).then_some((Step::Field(name), ""));
    }
    let filter = path.strip_prefix("[?(@").and_then(|rest| rest.split_once(")]"));
    if let Some((condition, rest)) = filter {
        let (path, text) = condition.split_once("==")?;
        return Some((Step::With(path.trim().to_owned(), unquoted(text.trim())?.to_owned()), rest));
    }
    let (inside, rest) = path.strip_prefix('[')?.split_once(']')?;
    let step = match inside {
        "*" => Step::All,
        inside => match inside.parse() {
            Ok(number) => Step::Number(number),
            Err(_) => Step::Field(unquoted(inside)?.to_owned()),
        },
    };
    Some((step, rest))
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "Full", "status": "False"}]);
        let object = json!({
            "metadata": {"labels": {"a.b/c": "d"}}, "spec": {"size": 3}, "status": {"conditions": conditions},
        });
        for (path, value) in [
            (".spec.size", json!(3)),
            (".metadata.labels.a\\.b/c", json!("d")),
            (".metadata.labels['a.b/c']", json!("d")),
            (".status.conditions[1].type", json!("Full")),
            (".status.conditions[*].type", json!("Ready")),
            (".status.conditions[?(@.type=='Full')].status", json!("False")),
            (".status.conditions[?(@.type == \"Full\")].status", json!("False")),
            (".status.conditions[?(@.type=='None')].status", Value::Null),
            (".status.conditions[?(@.type)]", Value::Null),
            (".spec.none", Value::Null),
            ("spec", Value::Null),
        ] {
            assert_eq!(first(&object, path), value, "{path}");
        }
    }
}
