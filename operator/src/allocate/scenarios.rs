//! The scenarios of files: written by a person, or made of what kubectl prints.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use dragoman_allocator::Gates;
use dragoman_allocator::scenario::Scenario;
use dragoman_objects::{Name, unknown_fields};
use serde_json::{Value, json};

use super::AllocateFlags;
use super::fields;
use dragoman_report::manifests;

/// A scenario, and its place in the files.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) place: String,
    pub(super) scenario: Scenario,
    /// Notes for the reader of the answer: unknown fields, and objects that were not looked at.
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
    let mut others = BTreeMap::<Name, usize>::new();
    let mut all = Vec::new();
    manifests::each(&flags.files, &mut |found| all.push(found))?;
    for found in all {
        let found = found?;
        let is_of_its_group = found.head.is_of_its_group();
        let (object, place) = (found.object()?, found.place);
        let Some(kind) = found.head.kind else {
            scenarios.push(written(object).with_context(|| place.clone()).map(|scenario| Placed {
                place,
                scenario,
                notes: Vec::new(),
            })?);
            continue;
        };
        let Some((list, kind)) = fields::LISTS.iter().find(|(_, known)| is_of_its_group && *known == &*kind)
        else {
            *others.entry(kind).or_default() += 1;
            continue;
        };
        // A newer API server may know fields that we do not.
        let unknown = unknown_fields(kind, &object);
        notes.extend(unknown.into_iter().map(|path| format!("{place}: unknown field {path}")));
        objects.entry(list).or_default().push((place, object));
    }
    // One dump is for every command; a kind that is misspelt should not go unseen.
    let others = others.iter().map(|(kind, count)| format!("not looked at: {count} of kind {kind}"));
    notes.extend(others);
    if !objects.is_empty() {
        ensure!(!flags.claim.is_empty(), "--claim: name the claims to allocate");
        let scenario = printed(objects, &flags.claim, &flags.node)?;
        scenarios.push(Placed { place: "the objects".to_owned(), scenario, notes });
    } else if scenarios.is_empty() {
        bail!(
            "there is nothing to allocate: no scenario, and no object with devices or claims; {}",
            notes.join("; ")
        );
    } else if !flags.claim.is_empty() || !flags.node.is_empty() {
        bail!(
            "--claim and --node are for objects: a scenario names its own claims and nodes (`allocate`, `candidates`)"
        );
    } else if let Some(last) = scenarios.last_mut() {
        last.notes.extend(notes);
    }
    Ok(scenarios)
}

/// A scenario that a person wrote.
fn written(scenario: Value) -> anyhow::Result<Scenario> {
    ensure!(scenario.is_object(), "it is neither a scenario nor a Kubernetes object");
    let unknown = fields::unknown_in(&scenario);
    ensure!(unknown.is_empty(), "unknown field: {}", unknown.join(", "));
    for (list, kind) in fields::LISTS {
        let objects = scenario.get(list).and_then(Value::as_array);
        let mut known = BTreeMap::new();
        for (number, object) in objects.into_iter().flatten().enumerate() {
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
    // An API server has stored the objects: what they have was served.
    let mut gates = Gates::SERVED;
    whole.insert(
        "featureGates".to_owned(),
        gates.by_name().into_iter().map(|(name, is_on)| (name, *is_on)).collect(),
    );
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
}
