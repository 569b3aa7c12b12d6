//! Server-side apply.

use serde_json::{Map, Value};

use super::fields::{Fields, Managed, Owners, Step, at, fields_of, says};
use super::lists::{List, Lists, key_of};

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) manager: String,
    pub(crate) operation: &'static str,
    pub(crate) subresource: String,
    pub(crate) api_version: String,
    /// The path for people: `.spec.replicas`.
    pub(crate) field: String,
}

/// The result of an apply.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) object: Value,
    pub(crate) owners: Owners,
}

/// Merges `configuration` into `object`. `by` becomes an owner of every field in the configuration. A field
/// that `by` applied before and that the configuration no longer has is removed, unless another manager owns
/// it too.
///
/// # Errors
/// Other managers own changed fields, and `force` is off.
pub(crate) fn apply(
    object: &Value,
    configuration: &Value,
    by: &Managed,
    force: bool,
    lists: &Lists,
    now: &Value,
) -> Result<Applied, Vec<Conflict>> {
    let mut owners = Owners::of(object);
    let wanted = fields_of(configuration, lists);
    let taken: Fields =
        wanted.iter().filter(|path| differs(path, object, configuration, lists)).cloned().collect();
    let conflicts: Vec<Conflict> = owners
        .others(by)
        .flat_map(|(managed, theirs)| {
            taken.iter().filter(|path| theirs.contains(*path)).map(|path| Conflict {
                manager: managed.manager.clone(),
                operation: managed.operation,
                subresource: managed.subresource.clone(),
                api_version: managed.api_version.clone(),
                field: for_people(path),
            })
        })
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut merged = object.clone();
    merge(&mut merged, configuration, lists, &mut Vec::new());
    let others: Fields = owners.others(by).flat_map(|(_, theirs)| theirs.iter().cloned()).collect();
    let given_up = owners.applied_by(by);
    for path in given_up.iter().filter(|path| !wanted.contains(*path)) {
        // A field stays if another manager or the new configuration owns it or a part of it.
        let needed = |path: &[Step]| others.iter().chain(&wanted).any(|other| other.starts_with(path));
        if !needed(path) {
            remove(&mut merged, path, lists, &mut Vec::new());
        }
    }
    owners.applied(by.clone(), wanted, &taken, now);
    owners.keep_only(&merged, lists);
    Ok(Applied { object: merged, owners })
}

/// Whether the configuration changes the value of an existing field. A list element itself never differs: its
/// fields are compared one by one.
fn differs(path: &[Step], object: &Value, configuration: &Value, lists: &Lists) -> bool {
    let there = at(object, path, lists);
    match path.last() {
        Some(Step::Key(_) | Step::Value(_)) => false,
        _ => there.is_some() && there != at(configuration, path, lists),
    }
}

fn merge(object: &mut Value, configuration: &Value, lists: &Lists, place: &mut Vec<String>) {
    match configuration {
        Value::Object(wanted) => {
            if !object.is_object() || lists.is_whole(place) {
                *object = Value::Object(Map::new());
            }
            let Value::Object(fields) = object else { return };
            for (name, value) in wanted {
                place.push(name.clone());
                merge(fields.entry(name).or_insert(Value::Null), value, lists, place);
                place.pop();
            }
        }
        Value::Array(wanted) => {
            let list = lists.at(place).clone();
            if list == List::Atomic || !object.is_array() {
                *object = Value::Array(Vec::new());
            }
            let Value::Array(elements) = object else { return };
            for value in wanted {
                let found = match &list {
                    List::Atomic => None,
                    List::Set => elements.iter_mut().find(|element| *element == value),
                    List::Map(keys) => {
                        let key = key_of(value, keys);
                        elements.iter_mut().find(|element| key_of(element, keys) == key)
                    }
                };
                match found {
                    Some(element) => merge(element, value, lists, place),
                    None => elements.push(value.clone()),
                }
            }
            in_the_order_wanted(elements, wanted, &list);
        }
        value => *object = value.clone(),
    }
}

/// Orders applied elements as in the configuration. Each other element stays behind the applied element that
/// it followed.
fn in_the_order_wanted(elements: &mut Vec<Value>, wanted: &[Value], list: &List) {
    let List::Map(keys) = list else { return };
    let rank = |element: &Value| {
        let key = key_of(element, keys);
        wanted.iter().position(|value| key_of(value, keys) == key)
    };
    let mut last = None;
    let ranked = elements.drain(..).map(|element| {
        last = rank(&element).or(last);
        (rank(&element), last, element)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(own, last, _)| (own.or(*last), own.is_none()));
    elements.extend(ranked.into_iter().map(|(.., element)| element));
}

fn remove(object: &mut Value, path: &[Step], lists: &Lists, place: &mut Vec<String>) {
    let Some((step, rest)) = path.split_first() else { return };
    match (step, object) {
        (Step::Field(name), Value::Object(fields)) => {
            if rest.is_empty() {
                fields.remove(name);
            } else if let Some(inner) = fields.get_mut(name) {
                place.push(name.clone());
                remove(inner, rest, lists, place);
                // A parent that becomes empty is removed too.
                if inner.as_object().is_some_and(Map::is_empty) || inner.as_array().is_some_and(Vec::is_empty)
                {
                    fields.remove(name);
                }
            }
        }
        (Step::Key(key), Value::Array(elements)) => {
            let List::Map(keys) = lists.at(place) else { return };
            let found = elements.iter().position(|element| says(&key_of(element, keys), key));
            let Some(found) = found else { return };
            if rest.is_empty() {
                elements.remove(found);
            } else if let Some(element) = elements.get_mut(found) {
                remove(element, rest, lists, place);
            }
        }
        (Step::Value(value), Value::Array(elements)) => {
            elements.retain(|element| !says(element, value));
        }
        _ => {}
    }
}

/// Formats a path for people: `.spec.containers[name="a"].image`.
fn for_people(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Value(value) => format!("[={value}]"),
            Step::Key(key) => {
                let keys: Value = serde_json::from_str(key).unwrap_or_default();
                let pairs = keys.as_object().into_iter().flatten();
                let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
                format!("[{}]", pairs.join(","))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::lists_of;
    use super::*;
    use crate::api::meta::items;

    fn by(manager: &str) -> Managed {
        Managed {
            manager: manager.to_owned(),
            operation: "Apply",
            api_version: "v1".to_owned(),
            subresource: String::new(),
        }
    }

    fn applied(
        object: &Value,
        configuration: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, Vec<Conflict>> {
        let applied = apply(object, configuration, &by(manager), force, &lists_of("Pod"), &json!("now"))?;
        let mut object = applied.object;
        applied.owners.write(&mut object);
        Ok(object)
    }

    fn statuses(names: &[(&str, &str)]) -> Value {
        let entries: Vec<Value> =
            names.iter().map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})).collect();
        json!({"status": {"resourceClaimStatuses": entries}})
    }

    #[test]
    fn what_is_no_longer_applied_goes() {
        let first = applied(&json!({}), &statuses(&[("a", "1"), ("b", "2")]), "x", false).expect("applies");
        let second = applied(&first, &statuses(&[("b", "2")]), "x", false).expect("applies");
        assert_eq!(second["status"], statuses(&[("b", "2")])["status"]);
        let third = applied(&second, &json!({}), "x", false).expect("applies");
        assert!(third.get("status").is_none_or(|status| *status == json!({})), "{third}");
        assert!(third["metadata"]["managedFields"].is_null());
    }

    #[test]
    fn what_somebody_else_owns_too_stays() {
        let first = applied(&json!({}), &statuses(&[("a", "1")]), "x", false).expect("applies");
        let both = applied(&first, &statuses(&[("a", "1"), ("b", "2")]), "y", false).expect("applies");
        let without = applied(&both, &json!({}), "y", false).expect("applies");
        assert_eq!(without["status"], statuses(&[("a", "1")])["status"]);
    }

    #[test]
    fn a_value_of_somebody_else_is_a_conflict() {
        let first = applied(&json!({}), &statuses(&[("a", "1")]), "x", false).expect("applies");
        let conflicts = applied(&first, &statuses(&[("a", "2")]), "y", false).expect_err("conflict");
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].field, ".status.resourceClaimStatuses[name=\"a\"].resourceClaimName");
        assert_eq!(conflicts[0].manager, "x");
        let forced = applied(&first, &statuses(&[("a", "2")]), "y", true).expect("forced");
        assert_eq!(forced["status"], statuses(&[("a", "2")])["status"]);
        // The field no longer belongs to the first manager.
        let again = applied(&forced, &statuses(&[("a", "1")]), "x", false).expect_err("conflict");
        assert_eq!(again[0].manager, "y");
    }

    #[test]
    fn updates_take_what_they_change() {
        let lists = lists_of("Pod");
        let object = applied(&json!({}), &json!({"spec": {"a": 1, "b": 1}}), "x", false).expect("applies");
        let mut owners = Owners::of(&object);
        let after = json!({"spec": {"a": 1, "b": 2}});
        let update = Managed { operation: "Update", ..by("z") };
        owners.updated(update, &object, &after, &lists, &json!("later"));
        let mut after = after;
        owners.write(&mut after);
        let entries: Vec<_> = items(&after["metadata"]["managedFields"]).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:a": {}}}));
        assert_eq!(entries[1]["fieldsV1"], json!({"f:spec": {"f:b": {}}}));
    }
}
