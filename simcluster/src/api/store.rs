//! The storage of the API server: objects, their history for watches, and an index of owners.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::meta::{self, Name};
use crate::clock::Clock;

/// The key of an object: the storage name of its resource, and its name.
pub(crate) type Key = (String, Name);

/// A change in the chronicle: its time, the storage name of the resource, and the change.
pub(crate) type Told = (Timestamp, String, Change);

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happened {
    Added,
    Modified,
    Deleted,
}

/// One change in the history of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) happened: Happened,
    pub(crate) object: Arc<Value>,
    /// The object before the change: a watch compares both states with its selector.
    pub(crate) before: Option<Arc<Value>>,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Name, Arc<Value>>,
    history: VecDeque<Change>,
    /// The oldest revision from which a watch can start.
    kept_from: u64,
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Store {
    revision: u64,
    tables: BTreeMap<String, Table>,
    by_uid: HashMap<String, Key>,
    /// The dependents by the uid of an owner, whether or not the owner exists.
    dependents: HashMap<String, Vec<Key>>,
    /// Every change since recording was switched on, unaffected by compaction.
    chronicle: Option<(Clock, Vec<Told>)>,
}

/// The changes of one resource that are kept for late or resumed watches.
const HISTORY: usize = 20_000;

impl Store {
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, stored_as: &str, name: &Name) -> Option<&Arc<Value>> {
        self.tables.get(stored_as)?.objects.get(name)
    }

    /// Returns the objects of a resource in the order of their names, optionally of one namespace.
    pub(crate) fn list<'a>(
        &'a self,
        stored_as: &str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Name, &'a Arc<Value>)> + use<'a> {
        let objects = self.tables.get(stored_as).map(|table| &table.objects);
        let from = (namespace.unwrap_or_default().to_owned(), String::new());
        let objects = objects.into_iter().flat_map(move |objects| objects.range(from.clone()..));
        objects.take_while(move |((of, _), _)| namespace.is_none_or(|namespace| namespace == of))
    }

    pub(crate) fn count(&self, stored_as: &str) -> usize {
        self.tables.get(stored_as).map_or(0, |table| table.objects.len())
    }

    /// Returns the storage names that are in use.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &String> {
        self.tables.keys()
    }

    /// Stores an object under the next resourceVersion.
    pub(crate) fn put(&mut self, stored_as: &str, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        meta::set(&mut object, "resourceVersion", self.revision.to_string().into());
        let name = meta::name_of(&object);
        let object = Arc::new(object);
        let key = (stored_as.to_owned(), name.clone());
        let table = self.tables.entry(stored_as.to_owned()).or_default();
        let before = table.objects.insert(name, object.clone());
        if let Some(before) = &before {
            unlink(&mut self.dependents, before, &key);
        } else {
            self.by_uid.insert(meta::text(&object, "uid").to_owned(), key.clone());
        }
        for owner in meta::owners(&object) {
            self.dependents.entry(meta::owner_uid(owner).to_owned()).or_default().push(key.clone());
        }
        let happened = if before.is_some() { Happened::Modified } else { Happened::Added };
        let change = Change { revision: self.revision, happened, object: object.clone(), before };
        tell(&mut self.chronicle, stored_as, &change);
        table.record(change);
        object
    }

    /// Removes an object. Returns its last state with a new resourceVersion.
    pub(crate) fn remove(&mut self, stored_as: &str, name: &Name) -> Option<Arc<Value>> {
        let table = self.tables.get_mut(stored_as)?;
        let before = table.objects.remove(name)?;
        self.revision += 1;
        let mut last = Value::clone(&before);
        meta::set(&mut last, "resourceVersion", self.revision.to_string().into());
        let last = Arc::new(last);
        unlink(&mut self.dependents, &before, &(stored_as.to_owned(), name.clone()));
        self.by_uid.remove(meta::text(&before, "uid"));
        let (revision, happened) = (self.revision, Happened::Deleted);
        let change = Change { revision, happened, object: last.clone(), before: Some(before) };
        tell(&mut self.chronicle, stored_as, &change);
        table.record(change);
        Some(last)
    }

    /// Returns the key of the object with this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Key> {
        self.by_uid.get(uid)
    }

    /// Returns the keys of the objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> &[Key] {
        self.dependents.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Returns the changes of a resource after `revision`.
    ///
    /// # Errors
    /// The history before the returned revision is compacted.
    pub(crate) fn since<'a>(
        &'a self,
        stored_as: &str,
        revision: u64,
    ) -> Result<impl Iterator<Item = &'a Change> + use<'a>, u64> {
        let table = self.tables.get(stored_as);
        if let Some(table) = table.filter(|table| revision < table.kept_from) {
            return Err(table.kept_from);
        }
        let history = table.map(|table| {
            let from = table.history.partition_point(|change| change.revision <= revision);
            table.history.range(from..)
        });
        Ok(history.into_iter().flatten())
    }

    /// Records every change from now on, unaffected by compaction.
    pub(crate) fn chronicle(&mut self, clock: Clock) {
        self.chronicle.get_or_insert_with(|| (clock, Vec::new()));
    }

    /// Returns the recorded changes.
    pub(crate) fn chronicled(&self) -> &[Told] {
        self.chronicle.as_ref().map_or(&[], |(_, told)| told)
    }

    /// Drops the history. A later read from an older revision expires.
    pub(crate) fn compact(&mut self) {
        for table in self.tables.values_mut() {
            table.history.clear();
            table.kept_from = self.revision;
        }
    }
}

impl Table {
    fn record(&mut self, change: Change) {
        self.history.push_back(change);
        if self.history.len() > HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.kept_from = oldest.revision;
        }
    }
}

fn tell(chronicle: &mut Option<(Clock, Vec<Told>)>, stored_as: &str, change: &Change) {
    if let Some((clock, told)) = chronicle {
        told.push((clock.now(), stored_as.to_owned(), change.clone()));
    }
}

fn unlink(dependents: &mut HashMap<String, Vec<Key>>, object: &Value, key: &Key) {
    for owner in meta::owners(object) {
        let uid = meta::owner_uid(owner);
        let Some(keys) = dependents.get_mut(uid) else { continue };
        keys.retain(|known| known != key);
        if keys.is_empty() {
            dependents.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str, owner: &str) -> Value {
        json!({"metadata": {"namespace": "a", "name": name, "uid": uid,
            "ownerReferences": [{"uid": owner}]}})
    }

    fn name(name: &str) -> Name {
        ("a".to_owned(), name.to_owned())
    }

    #[test]
    fn every_change_has_a_revision_and_a_place_in_the_history() {
        let mut store = Store::default();
        store.put("pods", object("x", "1", "o"));
        store.put("pods", object("x", "1", "p"));
        store.remove("pods", &name("x"));
        let happened: Vec<_> =
            store.since("pods", 0).expect("kept").map(|c| (c.revision, c.happened)).collect();
        assert_eq!(happened, [(1, Happened::Added), (2, Happened::Modified), (3, Happened::Deleted)]);
        store.compact();
        assert_eq!(store.since("pods", 2).err(), Some(3));
        assert_eq!(store.since("pods", 3).expect("kept").count(), 0);
    }

    #[test]
    fn dependents_follow_their_references() {
        let mut store = Store::default();
        store.put("pods", object("x", "1", "o"));
        assert_eq!(store.dependents("o").len(), 1);
        store.put("pods", object("x", "1", "p"));
        assert!(store.dependents("o").is_empty());
        assert_eq!(store.dependents("p").len(), 1);
        store.remove("pods", &name("x"));
        assert!(store.dependents("p").is_empty());
        assert!(store.by_uid("1").is_none());
    }

    #[test]
    fn lists_are_of_one_namespace_or_of_all() {
        let mut store = Store::default();
        store.put("pods", object("x", "1", "o"));
        store.put("pods", json!({"metadata": {"namespace": "b", "name": "y", "uid": "2"}}));
        assert_eq!(store.list("pods", Some("a")).count(), 1);
        assert_eq!(store.list("pods", None).count(), 2);
        assert_eq!(store.list("nodes", None).count(), 0);
    }
}
