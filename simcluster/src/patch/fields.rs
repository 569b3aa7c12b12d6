//! Field ownership: `metadata.managedFields`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::lists::{List, Lists, key_of};
use crate::api::meta::{self, items};

/// A step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Field(String),
    /// An element of a map list, by its keys as JSON text.
    Key(String),
    /// An element of a set list, as JSON text.
    Value(String),
}

pub(crate) type Path = Vec<Step>;

/// A set of fields. A part of an object or an element has a path of its own.
pub(crate) type Fields = BTreeSet<Path>;

/// The identity of an entry: manager, operation, version and subresource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Managed {
    pub(crate) manager: String,
    /// `Apply` or `Update`.
    pub(crate) operation: &'static str,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// The owners of an object's fields, with the time of each owner's last change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners(BTreeMap<Managed, (Fields, Value)>);

/// Fields without an owner: the server sets them.
const NOBODYS: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata.creationTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.deletionTimestamp",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.name",
    "metadata.namespace",
    "metadata.resourceVersion",
    "metadata.selfLink",
    "metadata.uid",
];

/// Returns every leaf of `object`, and every element of a merged list. An apply owns these.
pub(crate) fn fields_of(object: &Value, lists: &Lists) -> Fields {
    let mut fields = Fields::new();
    walk(object, lists, &mut Vec::new(), &mut Vec::new(), &mut fields, false);
    fields
}

/// Returns the leaves and also the objects and lists above them. An update owns those that it adds.
fn nodes_of(object: &Value, lists: &Lists) -> Fields {
    let mut fields = Fields::new();
    walk(object, lists, &mut Vec::new(), &mut Vec::new(), &mut fields, true);
    fields
}

fn walk(
    value: &Value,
    lists: &Lists,
    place: &mut Vec<String>,
    path: &mut Path,
    fields: &mut Fields,
    nodes: bool,
) {
    if nodes && !path.is_empty() {
        fields.insert(path.clone());
    }
    match value {
        Value::Object(_) if lists.is_whole(place) => {
            fields.insert(path.clone());
        }
        Value::Object(members) => {
            for (name, member) in members {
                place.push(name.clone());
                if !NOBODYS.contains(&&*place.join(".")) {
                    path.push(Step::Field(name.clone()));
                    walk(member, lists, place, path, fields, nodes);
                    path.pop();
                }
                place.pop();
            }
            // An empty object is a leaf.
            if members.is_empty() && !path.is_empty() {
                fields.insert(path.clone());
            }
        }
        Value::Array(elements) => match lists.at(place) {
            List::Atomic => {
                fields.insert(path.clone());
            }
            List::Set => {
                for element in elements {
                    path.push(Step::Value(element.to_string()));
                    fields.insert(path.clone());
                    path.pop();
                }
            }
            List::Map(keys) => {
                for element in elements {
                    path.push(Step::Key(key_of(element, keys).to_string()));
                    fields.insert(path.clone());
                    // An owner reference is owned as a whole.
                    if !place.iter().eq(["metadata", "ownerReferences"]) {
                        walk(element, lists, place, path, fields, nodes);
                    }
                    path.pop();
                }
            }
        },
        _ => {
            fields.insert(path.clone());
        }
    }
}

/// Whether `text` is the JSON of a value.
pub(crate) fn says(value: &Value, text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value)
}

/// Returns the value at a path.
pub(crate) fn at<'a>(object: &'a Value, path: &[Step], lists: &Lists) -> Option<&'a Value> {
    let (mut at, mut place) = (object, Vec::new());
    for step in path {
        at = match step {
            Step::Field(name) => {
                place.push(name.clone());
                at.get(name)?
            }
            Step::Value(text) => items(at).find(|element| says(element, text))?,
            Step::Key(text) => {
                let List::Map(keys) = lists.at(&place) else { return None };
                items(at).find(|element| says(&key_of(element, keys), text))?
            }
        };
    }
    Some(at)
}

impl Owners {
    /// Reads `metadata.managedFields`.
    pub(crate) fn of(object: &Value) -> Self {
        let entries = items(&object["metadata"]["managedFields"]);
        let owner = |entry: &Value| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let managed = Managed {
                manager: text("manager"),
                operation: if entry["operation"] == "Apply" { "Apply" } else { "Update" },
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let mut fields = Fields::new();
            read(&entry["fieldsV1"], &mut Vec::new(), &mut fields);
            (managed, (fields, entry["time"].clone()))
        };
        Self(entries.map(owner).collect())
    }

    /// Whether no field has an owner.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes `metadata.managedFields`.
    pub(crate) fn write(&self, object: &mut Value) {
        let mut entries: Vec<_> = self.0.iter().filter(|(_, (fields, _))| !fields.is_empty()).collect();
        // Upstream's order: applies before updates, then by time, then by name.
        entries.sort_by_key(|(managed, (_, time))| {
            (managed.operation, time.to_string(), managed.manager.clone(), managed.subresource.clone())
        });
        let entry = |(managed, (fields, time)): (&Managed, &(Fields, Value))| {
            let mut tree = Map::new();
            fields.iter().for_each(|path| plant(&mut tree, path));
            let tree = pruned(tree);
            let mut entry = json!({
                "manager": managed.manager, "operation": managed.operation, "apiVersion": managed.api_version,
                "time": time, "fieldsType": "FieldsV1", "fieldsV1": tree,
            });
            if !managed.subresource.is_empty() {
                entry["subresource"] = json!(managed.subresource);
            }
            entry
        };
        let entries: Vec<Value> = entries.into_iter().map(entry).collect();
        let entries = if entries.is_empty() { Value::Null } else { Value::Array(entries) };
        meta::set(object, "managedFields", entries);
    }

    /// Records an update: every changed field belongs to `by` alone.
    pub(crate) fn updated(&mut self, by: Managed, before: &Value, after: &Value, lists: &Lists, now: &Value) {
        let was = nodes_of(before, lists);
        let is = nodes_of(after, lists);
        let leaves = fields_of(after, lists);
        let changes = |path: &&Path| {
            !was.contains(*path) || (leaves.contains(*path) && is_leaf_changed(path, before, after, lists))
        };
        let changed: Fields = is.iter().filter(changes).cloned().collect();
        let lost = |path: &Path| (was.contains(path) && !is.contains(path)) || changed.contains(path);
        for (managed, (fields, _)) in &mut self.0 {
            fields.retain(|path| !lost(path) || (*managed == by && is.contains(path)));
        }
        if !changed.is_empty() {
            let (fields, time) = self.0.entry(by).or_default();
            fields.extend(changed);
            *time = now.clone();
        }
        self.0.retain(|_, (fields, _)| !fields.is_empty());
    }

    /// Returns the fields that a manager has applied.
    pub(crate) fn applied_by(&self, by: &Managed) -> Fields {
        self.0.get(by).map(|(fields, _)| fields.clone()).unwrap_or_default()
    }

    /// Records an apply: `by` owns `fields`, and the other managers lose those in `taken`.
    pub(crate) fn applied(&mut self, by: Managed, fields: Fields, taken: &Fields, now: &Value) {
        for (managed, (theirs, _)) in &mut self.0 {
            if *managed != by {
                theirs.retain(|path| !taken.contains(path));
            }
        }
        let (mine, time) = self.0.entry(by).or_default();
        if *mine != fields || time.is_null() {
            *time = now.clone();
        }
        *mine = fields;
        self.0.retain(|_, (fields, _)| !fields.is_empty());
    }

    /// Returns the other managers and their fields.
    pub(crate) fn others(&self, than: &Managed) -> impl Iterator<Item = (&Managed, &Fields)> {
        self.0
            .iter()
            .filter(move |(managed, _)| *managed != than)
            .map(|(managed, (fields, _))| (managed, fields))
    }

    /// Drops fields that do not exist in `object`.
    pub(crate) fn keep_only(&mut self, object: &Value, lists: &Lists) {
        let there = nodes_of(object, lists);
        for (fields, _) in self.0.values_mut() {
            fields.retain(|path| there.contains(path));
        }
        self.0.retain(|_, (fields, _)| !fields.is_empty());
    }
}

fn is_leaf_changed(path: &Path, before: &Value, after: &Value, lists: &Lists) -> bool {
    match (at(before, path, lists), at(after, path, lists)) {
        (Some(before), Some(after)) => {
            // An element keeps its identity when its fields change.
            let element = matches!(path.last(), Some(Step::Key(_)));
            !element && before != after
        }
        _ => true,
    }
}

fn plant(tree: &mut Map<String, Value>, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else { return };
    let name = match step {
        Step::Field(name) => format!("f:{name}"),
        Step::Key(key) => format!("k:{key}"),
        Step::Value(value) => format!("v:{value}"),
    };
    let place = tree.entry(name).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(inner) = place else { return };
    // A dot names a node that is owned itself, besides its parts. `pruned` drops the dot of a node without
    // parts.
    if rest.is_empty() {
        inner.insert(".".to_owned(), json!({}));
    } else {
        plant(inner, rest);
    }
}

/// Drops the dots of nodes without parts.
fn pruned(tree: Map<String, Value>) -> Map<String, Value> {
    if tree.len() == 1 && tree.contains_key(".") {
        return Map::new();
    }
    let each = tree.into_iter().map(|(name, inner)| match inner {
        Value::Object(inner) => (name, Value::Object(pruned(inner))),
        inner => (name, inner),
    });
    each.collect()
}

fn read(tree: &Value, path: &mut Path, fields: &mut Fields) {
    let Some(members) = tree.as_object() else { return };
    if members.is_empty() && !path.is_empty() {
        fields.insert(path.clone());
    }
    for (name, inner) in members {
        let step = match name.split_once(':') {
            Some(("f", field)) => Step::Field(field.to_owned()),
            Some(("k", key)) => Step::Key(key.to_owned()),
            Some(("v", value)) => Step::Value(value.to_owned()),
            _ => {
                fields.insert(path.clone());
                continue;
            }
        };
        path.push(step);
        read(inner, path, fields);
        path.pop();
    }
}
