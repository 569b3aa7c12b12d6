//! The scenarios of files: written by a person, or made of what kubectl prints.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use dragoman_allocator::scenario::Scenario;
use serde_json::{Value, json};

use super::AllocateFlags;
use super::fields;
use dragoman_dump::manifests;

/// A scenario, and its place in the files.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) place: String,
    pub(super) scenario: Scenario,
    /// What its reader should know.
    pub(super) notes: Vec<String>,
}

/// Reads the scenarios of the files. All objects of kubectl together are one.
///
/// # Errors
/// A file cannot be read, or does not hold together.
pub(super) fn of(flags: &AllocateFlags) -> anyhow::Result<Vec<Placed>> {
    let mut scenarios = Vec::new();
    let mut objects = BTreeMap::<&str, Vec<(String, Value)>>::new();
    let mut notes = Vec::new();
    let mut all = Vec::new();
    manifests::each(&flags.files, &mut |found| all.push(found))?;
    for found in all {
        let found = found?;
        let (object, place) = (found.object()?, found.place);
        let Some(kind) = found.head.kind else {
            scenarios.push(written(object).with_context(|| place.clone()).map(|scenario| Placed {
                place,
                scenario,
                notes: Vec::new(),
            })?);
            continue;
        };
        let Some((list, kind)) = fields::LISTS.iter().find(|(_, known)| *known == &*kind) else {
            bail!("{place}: a {kind} says nothing about devices");
        };
        // A newer API server may know fields that we do not.
        let unknown = fields::unknown_of(kind, &object);
        notes.extend(unknown.into_iter().map(|path| format!("{place}: unknown field {path}")));
        objects.entry(list).or_default().push((place, object));
    }
    if !objects.is_empty() {
        ensure!(!flags.claim.is_empty(), "--claim: name the claims to allocate");
        let scenario = printed(objects, &flags.claim, &flags.node)?;
        scenarios.push(Placed { place: "the objects".to_owned(), scenario, notes });
    }
    Ok(scenarios)
}

/// A scenario that a person wrote.
fn written(mut scenario: Value) -> anyhow::Result<Scenario> {
    ensure!(scenario.is_object(), "it is neither a scenario nor a Kubernetes object");
    let unknown = fields::unknown_in(&scenario);
    ensure!(unknown.is_empty(), "unknown field: {}", unknown.join(", "));
    for (list, kind) in fields::LISTS {
        let objects = scenario.get_mut(list).and_then(Value::as_array_mut);
        let mut known = BTreeMap::new();
        for (number, object) in objects.into_iter().flatten().enumerate() {
            defaults(object);
            let place = format!("{list}[{number}]");
            once(&mut known, kind, object, &place)?;
        }
    }
    finished(scenario)
}

/// The scenario of objects that kubectl printed.
fn printed(
    objects: BTreeMap<&str, Vec<(String, Value)>>,
    claims: &[String],
    nodes: &[String],
) -> anyhow::Result<Scenario> {
    let mut whole = serde_json::Map::new();
    for (list, objects) in objects {
        let kind = fields::LISTS.iter().find(|(known, _)| *known == list).map_or("", |(_, kind)| kind);
        let mut known = BTreeMap::new();
        for (place, object) in &objects {
            once(&mut known, kind, object, place)?;
        }
        whole.insert(list.to_owned(), objects.into_iter().map(|(_, object)| object).collect());
    }
    let all = || whole.get("nodes").and_then(Value::as_array).into_iter().flatten();
    let name = |node: &Value| node.pointer("/metadata/name").cloned().unwrap_or_default();
    let candidates = if nodes.is_empty() { all().map(name).collect() } else { json!(nodes) };
    whole.insert("candidates".to_owned(), candidates);
    whole.insert("allocate".to_owned(), json!(claims));
    finished(Value::Object(whole))
}

/// # Errors
/// The objects do not decode, or what is to be allocated is named twice.
fn finished(scenario: Value) -> anyhow::Result<Scenario> {
    let scenario: Scenario = serde_json::from_value(scenario)?;
    for (field, names) in [("allocate", &scenario.allocate), ("candidates", &scenario.candidates)] {
        let twice = names
            .iter()
            .enumerate()
            .find(|(number, name)| names.iter().take(*number).any(|known| known == *name));
        if let Some((_, name)) = twice {
            bail!("{field}: {name} is named twice");
        }
    }
    Ok(scenario)
}

/// # Errors
/// The object is not the first of its name.
fn once(known: &mut BTreeMap<String, String>, kind: &str, object: &Value, place: &str) -> anyhow::Result<()> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    ensure!(!name.is_empty(), "{place}: a {kind} without metadata.name");
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    match known.insert(name.clone(), place.to_owned()) {
        Some(first) => bail!("{place}: {kind} {name} is there already ({first})"),
        None => Ok(()),
    }
}

/// Sets what the API server would set in a claim: the mode of a request, and its count.
fn defaults(claim: &mut Value) {
    let requests = claim.pointer_mut("/spec/devices/requests").and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly").and_then(Value::as_object_mut) {
            default(exactly);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().filter_map(Value::as_object_mut).for_each(default);
    }
}

fn default(asked: &mut serde_json::Map<String, Value>) {
    let is_unset =
        |value: Option<&Value>, zero: Value| value.is_none_or(|value| value.is_null() || *value == zero);
    if is_unset(asked.get("allocationMode"), json!("")) {
        asked.insert("allocationMode".to_owned(), json!("ExactCount"));
    }
    let is_exact = asked.get("allocationMode").and_then(Value::as_str) == Some("ExactCount");
    if is_exact && is_unset(asked.get("count"), json!(0)) {
        asked.insert("count".to_owned(), json!(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(exactly: &Value) -> Value {
        json!({"nodes": [{"metadata": {"name": "n"}}], "resourceClaims": [{"metadata": {"namespace": "ns", "name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}],
            "allocate": ["ns/c"], "candidates": ["n"]})
    }

    fn refused(scenario: Value) -> String {
        written(scenario).err().map(|why| format!("{why:#}")).unwrap_or_default()
    }

    #[test]
    fn a_misspelt_field_is_an_error() {
        let path = "resourceClaims[0].spec.devices.requests[0].exactly";
        let asked = json!({"deviceClassName": "gpu", "selector": [{}]});
        assert_eq!(refused(claim(&asked)), format!("unknown field: {path}.selector"));
        let asked = json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expresion": "true"}}]});
        assert_eq!(refused(claim(&asked)), format!("unknown field: {path}.selectors[0].cel.expresion"));
        let mut scenario = claim(&json!({"deviceClassName": "gpu", "count": 1}));
        scenario["resourceSlice"] = json!([]);
        assert_eq!(refused(scenario), "unknown field: resourceSlice");
    }

    #[test]
    fn an_object_or_claim_that_is_there_twice_is_an_error() {
        let mut scenario = claim(&json!({"deviceClassName": "gpu"}));
        scenario["nodes"] = json!([{"metadata": {"name": "n"}}, {"metadata": {"name": "n"}}]);
        assert_eq!(refused(scenario), "nodes[1]: Node n is there already (nodes[0])");
        let mut scenario = claim(&json!({"deviceClassName": "gpu"}));
        scenario["allocate"] = json!(["ns/c", "ns/c"]);
        assert_eq!(refused(scenario), "allocate: ns/c is named twice");
    }

    #[test]
    fn mode_and_count_are_those_that_the_api_server_sets() {
        let mut requests = claim(&json!({"deviceClassName": "gpu"}));
        let object = &mut requests["resourceClaims"][0];
        object["spec"]["devices"]["requests"][0]["firstAvailable"] =
            json!([{"name": "a", "allocationMode": "All"}, {"count": 0}]);
        defaults(object);
        let request = &object["spec"]["devices"]["requests"][0];
        let exact = json!({"allocationMode": "ExactCount", "count": 1});
        assert_eq!(request["exactly"]["count"], exact["count"]);
        assert_eq!(request["exactly"]["allocationMode"], exact["allocationMode"]);
        assert_eq!(request["firstAvailable"], json!([{"name": "a", "allocationMode": "All"}, exact]));
    }
}
