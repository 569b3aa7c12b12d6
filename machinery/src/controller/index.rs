//! The index: the objects of the cluster as a controller knows them.

use std::fmt::Debug;
use std::sync::Arc;

use dragoman_objects::{Meta, Name};

use super::ObjectKey;
use super::shared::Holds;
use crate::kind::{Kind, Watchable};
use crate::queue::Keyed;
use crate::watch::{Body, Item, Record, Removed, Store, StoreState};

/// An index: a store for each kind, and whatever links between them tell what a change makes dirty.
///
/// Watches write it through [`Keeps`], snapshots read it. It decides nothing.
pub trait Index: Default + Send + Sync + 'static {
    /// Keys of the controller's queue.
    type Key: Keyed + Debug + Sync;
    /// The indexes that this one is read with, at one moment; `Self` where it stands alone.
    type Whole: Holds<Self>;
    /// The store of each kind that it keeps. A kind comes in its newest version, where several may
    /// be served.
    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)>;
    /// The store of a kind, and the kind in its newest version.
    fn store_of(&self, kind: Kind) -> Option<(Kind, &dyn StoreState)> {
        self.stores().find(|(kept, _)| kept.is(kind))
    }
    /// Whether a kind counts as complete without having been listed, because the API server does
    /// not serve it.
    fn is_unserved(&self, _kind: Kind) -> bool {
        false
    }
    /// The kinds of our own that the index keeps and the API server does not serve.
    fn undefined(&self) -> Vec<Kind> {
        let own = self.stores().map(|(kind, _)| kind).filter(|kind| kind.is_own());
        own.filter(|kind| self.is_unserved(*kind)).collect()
    }
    /// The plurals of the kinds that have not been listed completely.
    fn missing(&self) -> Vec<&'static str> {
        let missing = self.stores().filter(|(kind, store)| !self.is_unserved(*kind) && !store.synced());
        missing.map(|(kind, _)| kind.plural).collect()
    }
    /// The time at which the index is fed with what comes next.
    fn at(&mut self, _now: jiff::Timestamp) {}
    /// Every key there is, in order: what the level timer enqueues.
    fn all_keys(&self) -> Vec<Self::Key>;
    /// The key of an object for which another controller wakes this one, where the keys are objects.
    fn key_of(_object: ObjectKey) -> Option<Self::Key> {
        None
    }
    /// More lines for the dump of the stores, for people.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Way in which an object left a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The deletion of the object was seen.
    Deleted,
    /// A complete list lacked it, or another object took its name: its end was not seen.
    Missed,
}

/// The object of a change.
#[derive(Debug)]
pub struct Place {
    /// Namespace of the object, shared with the store.
    pub namespace: Arc<str>,
    /// Name of the object, shared with the store.
    pub name: Arc<str>,
    /// Uid of the object.
    pub uid: Name,
}

/// An index that keeps objects of the type `T`.
///
/// Every change is: project the object, put the projection into the store, tell the index what was
/// there before and what is there now. The index updates its links and says which keys are dirty.
pub trait Keeps<T: Watchable>: Index {
    /// Part of an object that the index keeps.
    type Projection: Clone + Send;
    /// Where the projections are.
    fn store_mut(&mut self) -> &mut Store<Self::Projection>;
    /// Makes the projection of an object, before the store has it. `None`: no decision needs the object, and the store keeps
    /// nothing of it, its existence included. The end of such an object is not told, so nothing may be kept of it elsewhere either.
    fn project(&mut self, object: &T) -> Option<Self::Projection>;
    /// An object appeared or changed: `old` and `new` are its projections before and after, absent
    /// where there was none, none is kept, or it does not decode. Returns the keys that this makes dirty.
    fn changed(
        &mut self,
        place: &Place,
        old: Option<&Self::Projection>,
        new: Option<&Self::Projection>,
    ) -> Vec<Self::Key>;
    /// An object is gone; `last` is what was known of it. Returns the keys that this makes dirty.
    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<Self::Projection>,
        _how: Left,
    ) -> Vec<Self::Key> {
        let (namespace, name) = (Arc::clone(namespace), Arc::clone(name));
        self.changed(&Place { namespace, name, uid: last.uid.clone() }, last.readable(), None)
    }
    /// The clock of the index, advanced: everything read from here on is read later.
    fn tick(&mut self) -> u64 {
        0
    }
    /// The kind is served, and watched in this version from now on.
    fn serving(&mut self, _kind: Kind) {}
    /// The API server does not serve the kind: nothing is known of its objects any more.
    fn unserved(&mut self) -> Vec<Self::Key> {
        Vec::new()
    }
    /// This process may not list the kind: nothing is known of its objects any more.
    fn forbidden(&mut self) -> Vec<Self::Key> {
        self.unserved()
    }
    /// A complete list has been taken in, before what it lacked is removed.
    fn listed(&mut self) -> Vec<Self::Key> {
        Vec::new()
    }
}

/// The changes of a store, the same for every kind.
pub trait Fed<T: Watchable>: Keeps<T> {
    /// A complete list begins.
    fn began(&mut self) {
        let tick = self.tick();
        self.store_mut().begin(tick);
    }

    /// An object was added or changed.
    fn applied(&mut self, item: &Item<T>) -> Vec<Self::Key> {
        let body = match item {
            Item::Readable(object) => match self.project(object) {
                Some(projection) => Body::Readable(projection),
                None => return self.passed_over(object.meta()),
            },
            Item::Unreadable { unread, .. } => Body::Unreadable(unread.clone().into()),
        };
        let new = match &body {
            Body::Readable(projection) => Some(projection.clone()),
            Body::Unreadable(_) => None,
        };
        let meta = item.meta();
        let (namespace, name, old) = self.store_mut().insert(meta, body);
        let mut dirty = Vec::new();
        let old = match old {
            // Another object of the name: the end of the one before went unseen.
            Some(old) if old.uid != meta.uid => {
                dirty = self.removed(&namespace, &name, &old, Left::Missed);
                None
            }
            old => old.and_then(|record| record.readable().cloned()),
        };
        let place = Place { namespace, name, uid: meta.uid.clone() };
        dirty.extend(self.changed(&place, old.as_ref(), new.as_ref()));
        dirty
    }

    /// No decision needs an object as it is now: what was kept of it is dropped.
    fn passed_over(&mut self, meta: &Meta) -> Vec<Self::Key> {
        match self.store_mut().pass_over(meta) {
            Some(Removed { namespace, name, record }) if record.uid != meta.uid => {
                self.removed(&namespace, &name, &record, Left::Missed)
            }
            Some(Removed { namespace, name, record }) => {
                self.changed(&Place { namespace, name, uid: record.uid.clone() }, record.readable(), None)
            }
            None => Vec::new(),
        }
    }

    /// The deletion of an object was seen.
    fn deleted(&mut self, meta: &Meta) -> Vec<Self::Key> {
        match self.store_mut().remove(meta) {
            Some(Removed { namespace, name, record }) => {
                self.removed(&namespace, &name, &record, Left::Deleted)
            }
            None => Vec::new(),
        }
    }

    /// A complete list at `version` has ended: what it lacked is gone.
    fn completed(&mut self, version: &str) -> Vec<Self::Key> {
        let missing = self.store_mut().complete(version);
        let mut dirty = self.listed();
        for Removed { namespace, name, record } in &missing {
            dirty.extend(self.removed(namespace, name, record, Left::Missed));
        }
        dirty
    }
}

impl<T: Watchable, I: Keeps<T>> Fed<T> for I {}
