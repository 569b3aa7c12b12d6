//! Validation of types, limits and patterns.

use serde_json::Value;

use super::member;
use crate::api::meta::items;
use crate::api::status::FieldError;

/// Validates a value at `path`.
pub(super) fn value(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let wrong_type = wrong_type(schema, value);
    if let Some(wanted) = wrong_type {
        errors.push(FieldError::wrong_type(path, value, wanted));
        return;
    }
    let invalid = |why: String| FieldError::invalid(path, value, &format!("{path} in body {why}"));
    let all_of = items(&schema["allOf"]);
    all_of.for_each(|schema| self::value(schema, value, path, errors));
    let fits = |schema: &Value| {
        let mut errors = Vec::new();
        self::value(schema, value, path, &mut errors);
        errors.is_empty()
    };
    let (one_of, any_of) = (items(&schema["oneOf"]), items(&schema["anyOf"]));
    if !schema["oneOf"].is_null() && one_of.filter(|schema| fits(schema)).count() != 1 {
        errors.push(invalid("must validate one and only one schema (oneOf)".to_owned()));
    }
    if !schema["anyOf"].is_null() && !{ any_of }.any(fits) {
        errors.push(invalid("must validate at least one schema (anyOf)".to_owned()));
    }
    if !schema["not"].is_null() && fits(&schema["not"]) {
        errors.push(invalid("must not validate the schema (not)".to_owned()));
    }
    if !schema["enum"].is_null() && !items(&schema["enum"]).any(|one| one == value) {
        errors.push(FieldError::unsupported(path, value, items(&schema["enum"])));
    }
    match value {
        Value::String(text) => string(schema, text, path, errors),
        Value::Number(_) => number(schema, value, path, errors),
        Value::Array(elements) => {
            limit(schema, "Items", elements.len(), path, errors);
            duplicates(schema, elements, path, errors);
            for (number, element) in elements.iter().enumerate() {
                self::value(&schema["items"], element, &format!("{path}[{number}]"), errors);
            }
        }
        Value::Object(fields) => {
            limit(schema, "Properties", fields.len(), path, errors);
            errors.extend(missing(schema, value, path));
            for (name, one) in fields {
                let Some(schema) = member(schema, name) else { continue };
                self::value(schema, one, &format!("{path}.{name}"), errors);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Reports elements of a set list, or keys of a map list, that occur more than once.
fn duplicates(schema: &Value, elements: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let keys: Vec<&str> = items(&schema["x-kubernetes-list-map-keys"]).filter_map(Value::as_str).collect();
    let key = |element: &Value| match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(element.clone()),
        Some("map") => Some(keys.iter().map(|key| (*key, element[*key].clone())).collect()),
        _ => None,
    };
    let mut seen = std::collections::BTreeSet::new();
    for (number, element) in elements.iter().enumerate() {
        if let Some(key) = key(element)
            && !seen.insert(key.to_string())
        {
            errors.push(FieldError::duplicate(format!("{path}[{number}]"), &key));
        }
    }
}

/// Returns an error for every required member that is missing.
pub(super) fn missing(schema: &Value, value: &Value, path: &str) -> Vec<FieldError> {
    let required = items(&schema["required"]).filter_map(Value::as_str);
    let missing = required.filter(|name| value.get(name).is_none());
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    missing.map(|name| FieldError::required(at(name), "")).collect()
}

/// Returns the type that the schema requires, if the value is of another type.
fn wrong_type<'a>(schema: &'a Value, value: &Value) -> Option<&'a str> {
    if schema["x-kubernetes-int-or-string"] == true {
        let fits = value.is_i64() || value.is_u64() || value.is_string();
        return (!fits).then_some("integer,string");
    }
    let wanted = schema["type"].as_str()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0),
        _ => true,
    };
    (!fits).then_some(wanted)
}

fn string(schema: &Value, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, most));
    }
    let value = Value::from(text);
    let invalid = |why: String| FieldError::invalid(path, &value, &format!("{path} in body {why}"));
    if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
        errors.push(invalid(format!("should be at least {least} chars long")));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
    {
        errors.push(invalid(format!("should match '{pattern}'")));
    }
    let badly_formed = match schema["format"].as_str() {
        Some("date-time") => text.parse::<jiff::Timestamp>().is_err(),
        _ => false,
    };
    if badly_formed {
        let error = invalid(format!("must be of type date-time: {text:?}"));
        errors.push(FieldError { reason: "FieldValueTypeInvalid", ..error });
    }
}

fn number(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let invalid = |why: String| FieldError::invalid(path, value, &format!("{path} in body {why}"));
    let number = value.as_f64().unwrap_or_default();
    for (bound, strict, word, low) in
        [("minimum", "exclusiveMinimum", "greater", true), ("maximum", "exclusiveMaximum", "less", false)]
    {
        let Some(limit) = schema[bound].as_f64() else { continue };
        let exclusive = schema[strict] == true;
        let within = match (low, exclusive) {
            (true, true) => number > limit,
            (true, false) => number >= limit,
            (false, true) => number < limit,
            (false, false) => number <= limit,
        };
        if !within {
            let or = if exclusive { "" } else { " or equal to" };
            errors.push(invalid(format!("should be {word} than{or} {}", schema[bound])));
        }
    }
}

fn limit(schema: &Value, what: &str, count: usize, path: &str, errors: &mut Vec<FieldError>) {
    let bound = |word: &str| schema[format!("{word}{what}")].as_u64().and_then(|n| usize::try_from(n).ok());
    if let Some(most) = bound("max").filter(|most| count > *most) {
        errors.push(FieldError::too_many(path, count, most));
    }
    if let Some(least) = bound("min").filter(|least| count < *least) {
        let why = format!("{path} in body should have at least {least} {}", what.to_lowercase());
        errors.push(FieldError::invalid(path, &count.into(), &why));
    }
}
