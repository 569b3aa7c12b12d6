//! The objects of one kind, as small as their readers allow.

use std::collections::HashMap;
use std::sync::Arc;

use dragoman_objects::{Meta, Name};

use super::item::Unread;

/// Content of an object, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body<P> {
    /// The projection that its readers need.
    Readable(P),
    /// The object exists and does not decode. Its last readable state is dropped on purpose: it may be wrong
    /// by now.
    Unreadable(Box<Unread>),
}

/// An object in a [`Store`].
#[derive(Debug, Clone)]
pub struct Record<P> {
    /// `metadata.uid`.
    pub uid: Name,
    /// Content of the object.
    pub body: Body<P>,
    /// The list it was last seen in or after.
    list: u32,
}

impl<P> Record<P> {
    /// The projection, where the object is readable.
    pub fn readable(&self) -> Option<&P> {
        match &self.body {
            Body::Readable(projection) => Some(projection),
            Body::Unreadable(_) => None,
        }
    }
}

/// An object that left a [`Store`].
#[derive(Debug)]
pub struct Removed<P> {
    /// Namespace of the object.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
    /// Last record of the object.
    pub record: Record<P>,
}

/// The objects of one kind by namespace and name.
///
/// Namespaces are stored once. An object leaves only through [`Store::remove`] or [`Store::pass_over`], or by
/// being absent from a complete list.
#[derive(Debug)]
pub struct Store<P> {
    namespaces: HashMap<Arc<str>, HashMap<Arc<str>, Record<P>>>,
    list: u32,
    /// A list is in progress: it tells of objects page by page, and of nothing completely.
    listing: bool,
    synced: bool,
    reached: u64,
    unreadable: usize,
    /// When the list in progress began, on the index's clock.
    list_began: u64,
    /// When the last complete list had begun.
    listed_at: u64,
}

impl<P> Default for Store<P> {
    fn default() -> Self {
        Self {
            namespaces: HashMap::new(),
            list: 0,
            listing: false,
            synced: false,
            reached: 0,
            unreadable: 0,
            list_began: 0,
            listed_at: 0,
        }
    }
}

/// The state of a [`Store`], whatever it keeps.
pub trait StoreState {
    /// Everything up to this resourceVersion has been seen.
    fn reached(&self) -> u64;
    /// Whether a complete list has been taken in.
    fn synced(&self) -> bool;
    /// The number of objects, and how many of them do not decode.
    fn count(&self) -> (usize, usize);
    /// The store in words: a line about its size, and one for each object that does not decode.
    fn describe(&self, plural: &str) -> Vec<String>;
}

impl<P> StoreState for Store<P> {
    fn reached(&self) -> u64 {
        self.reached
    }

    fn synced(&self) -> bool {
        self.synced
    }

    fn count(&self) -> (usize, usize) {
        (self.len(), self.unreadable)
    }

    fn describe(&self, plural: &str) -> Vec<String> {
        let complete = if self.synced { "complete" } else { "not complete" };
        let (len, unreadable, reached) = (self.len(), self.unreadable, self.reached);
        let head = format!(
            "{plural}: {len} objects, {unreadable} unreadable, at resourceVersion {reached}, {complete}"
        );
        let unreadable = self.iter().filter_map(|(namespace, name, record)| match &record.body {
            Body::Unreadable(unread) => {
                let why = &unread.why;
                let place =
                    if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") };
                Some(format!("  unreadable {place} uid {}: {why}", record.uid))
            }
            Body::Readable(_) => None,
        });
        std::iter::once(head).chain(unreadable).collect()
    }
}

impl<P> Store<P> {
    /// A complete list begins, at this time of the index's clock.
    pub fn begin(&mut self, tick: u64) {
        self.list = self.list.wrapping_add(1);
        self.listing = true;
        self.list_began = tick;
    }

    /// Whether the last complete list had begun after `tick`: what it lacks did not exist then.
    pub fn listed_after(&self, tick: u64) -> bool {
        self.listed_at > tick
    }

    /// Takes in a new state; returns the record that it replaces and the shared
    /// spelling of namespace and name.
    pub fn insert(&mut self, meta: &Meta, body: Body<P>) -> (Arc<str>, Arc<str>, Option<Record<P>>) {
        if !self.listing {
            self.advance(&meta.resource_version);
        }
        let namespace = match self.namespaces.get_key_value(&*meta.namespace) {
            Some((namespace, _)) => Arc::clone(namespace),
            None => Arc::clone(&meta.namespace),
        };
        let objects = self.namespaces.entry(Arc::clone(&namespace)).or_default();
        let name = match objects.get_key_value(&*meta.name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::clone(&meta.name),
        };
        self.unreadable += usize::from(matches!(body, Body::Unreadable(_)));
        let record = Record { uid: meta.uid.clone(), body, list: self.list };
        let old = objects.insert(Arc::clone(&name), record);
        self.unreadable -= usize::from(old.as_ref().is_some_and(|r| r.readable().is_none()));
        (namespace, name, old)
    }

    /// Takes out an object whose deletion was seen. An object of the same name
    /// with another uid stays.
    pub fn remove(&mut self, meta: &Meta) -> Option<Removed<P>> {
        self.advance(&meta.resource_version);
        let record = self.get(&meta.namespace, &meta.name)?;
        if record.uid == meta.uid { self.take_out(&meta.namespace, &meta.name) } else { None }
    }

    /// Sees an object of which nothing is to be kept, and takes out what was kept under its name: of itself, or of another object
    /// that is therefore gone.
    pub fn pass_over(&mut self, meta: &Meta) -> Option<Removed<P>> {
        if !self.listing {
            self.advance(&meta.resource_version);
        }
        self.take_out(&meta.namespace, &meta.name)
    }

    fn take_out(&mut self, namespace: &str, name: &str) -> Option<Removed<P>> {
        let (name, record) = self.namespaces.get_mut(namespace)?.remove_entry(name)?;
        let (shared, _) = self.namespaces.get_key_value(namespace)?;
        let shared = Arc::clone(shared);
        if self.namespaces.get(namespace).is_some_and(HashMap::is_empty) {
            self.namespaces.remove(namespace);
        }
        self.unreadable -= usize::from(record.readable().is_none());
        Some(Removed { namespace: shared, name, record })
    }

    /// The list is complete at `version`: takes out and returns what it lacked.
    pub fn complete(&mut self, version: &str) -> Vec<Removed<P>> {
        self.listing = false;
        // Lower than before where etcd was restored from a backup: what is written from now on has
        // lower versions, too.
        self.reached = version.parse().unwrap_or(self.reached);
        self.synced = true;
        self.listed_at = self.list_began;
        let list = self.list;
        let mut removed = Vec::new();
        for (namespace, objects) in &mut self.namespaces {
            let gone = objects.extract_if(|_, record| record.list != list);
            removed.extend(gone.map(|(name, record)| Removed {
                namespace: Arc::clone(namespace),
                name,
                record,
            }));
        }
        self.namespaces.retain(|_, objects| !objects.is_empty());
        // The same history has the same consequences, in the same order.
        removed.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        self.unreadable -= removed.iter().filter(|r| r.record.readable().is_none()).count();
        removed
    }

    /// Everything up to `version` has been seen.
    pub fn advance(&mut self, version: &str) {
        // resourceVersions of every supported server are decimal and comparable
        // within a kind; one that is not would only shorten a wait.
        self.reached = self.reached.max(version.parse().unwrap_or(0));
    }

    /// The record of an object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Record<P>> {
        self.namespaces.get(namespace)?.get(name)
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.namespaces.values().map(HashMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Record<P>)> {
        self.namespaces.iter().flat_map(|(namespace, objects)| {
            objects.iter().map(move |(name, record)| (namespace, name, record))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, version: u64) -> Meta {
        Meta { name: name.into(), resource_version: version.to_string().into(), ..Meta::default() }
    }

    #[test]
    fn a_page_of_a_list_says_nothing_of_what_the_next_one_brings() {
        let mut store = Store::default();
        store.begin(1);
        store.insert(&meta("a", 90), Body::Readable(()));
        assert_eq!(store.reached(), 0);
        store.insert(&meta("b", 70), Body::Readable(()));
        store.complete("100");
        assert_eq!(store.reached(), 100);
        store.insert(&meta("c", 101), Body::Readable(()));
        assert_eq!(store.reached(), 101);
    }

    #[test]
    fn an_object_of_no_use_takes_the_place_of_what_was_kept_under_its_name() {
        let mut store = Store::default();
        store.begin(1);
        store.insert(&meta("a", 4), Body::Readable("useful"));
        assert!(store.pass_over(&meta("b", 90)).is_none());
        assert_eq!(store.reached(), 0, "a list is in progress");
        store.complete("100");
        let taken = store.pass_over(&meta("a", 101)).map(|gone| gone.record.readable().copied());
        assert_eq!((taken, store.len(), store.reached()), (Some(Some("useful")), 0, 101));
        assert!(store.is_empty(), "no empty namespace stays");
    }

    #[test]
    fn a_restored_etcd_begins_again_with_lower_versions() {
        let mut store = Store::<()>::default();
        store.complete("5000");
        store.begin(2);
        store.complete("40");
        assert_eq!(store.reached(), 40);
    }
}
