//! The key of controllers that work on one object at a time.

use std::sync::Arc;

use super::Place;
use crate::queue::Keyed;
use crate::watch::Store;

/// The namespace and name of an object. Keys go in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; empty for a cluster-scoped kind.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Keyed for ObjectKey {
    type Rank = ();
    fn rank(&self) {}
    fn namespace(&self) -> Option<Arc<str>> {
        (!self.namespace.is_empty()).then(|| Arc::clone(&self.namespace))
    }
}

impl ObjectKey {
    /// The keys of all objects of a store.
    pub fn all<P>(store: &Store<P>) -> Vec<Self> {
        let key = |(namespace, name, _): (&Arc<str>, &Arc<str>, _)| Self {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        store.iter().map(key).collect()
    }
}

impl From<&Place> for ObjectKey {
    fn from(place: &Place) -> Self {
        Self { namespace: Arc::clone(&place.namespace), name: Arc::clone(&place.name) }
    }
}
