//! The indexes of a process under one lock: a reader of several indexes reads one moment.
//!
//! A watch takes an object into all indexes that keep its kind before anything else reads them. The locks of queues and expectations
//! are taken inside this one, or alone. A controller that has a lock of its own takes both in one order, always the same.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use super::feed::{Group, Part, Parts};
use super::{Controller, Index, ObjectKey, locked};
use crate::kind::Watchable;
use crate::watch::{Selectors, Watches};

/// Everything that the controllers of a process know, in one value.
pub trait Whole: Default + Send + Sync + 'static {
    /// The keys that a change or a decision has made dirty for other controllers since the last call, each with the
    /// name of its controller.
    fn take_woken(&mut self) -> Vec<(&'static str, ObjectKey)> {
        Vec::new()
    }
}

/// A whole of which the index `I` is a part.
pub trait Holds<I>: Whole {
    /// The index.
    fn part(&self) -> &I;
    /// The index, to change it.
    fn part_mut(&mut self) -> &mut I;
}

/// An index that stands alone.
impl<I: Index<Whole = I>> Whole for I {}

impl<I: Index<Whole = I>> Holds<I> for I {
    fn part(&self) -> &I {
        self
    }

    fn part_mut(&mut self) -> &mut I {
        self
    }
}

/// Enqueues keys of one controller.
type Waker = Box<dyn Fn(Vec<ObjectKey>) + Send + Sync>;

/// A whole with its lock, and the queues of the controllers that have a part of it.
pub struct Shared<W> {
    whole: RwLock<W>,
    wakers: Mutex<BTreeMap<&'static str, Waker>>,
    /// The feeds of each kind and selection. The watch owns them: a process that ends drops them.
    feeds: Mutex<Vec<(TypeId, Selectors, Box<dyn Any + Send>)>>,
}

impl<W: Whole> Default for Shared<W> {
    fn default() -> Self {
        Self { whole: RwLock::default(), wakers: Mutex::default(), feeds: Mutex::default() }
    }
}

impl<W: Whole> Shared<W> {
    /// Reads all indexes at one moment.
    pub fn read<T>(&self, read: impl FnOnce(&W) -> T) -> T {
        read(&self.whole.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the indexes, and enqueues the keys that the change has made dirty for others.
    pub(super) fn update<T>(&self, update: impl FnOnce(&mut W) -> T) -> T {
        let (updated, woken) = {
            let mut whole = self.whole.write().unwrap_or_else(PoisonError::into_inner);
            (update(&mut whole), whole.take_woken())
        };
        self.wake(woken);
        updated
    }

    /// Enqueues keys, each for the controller of the name. One that does not run has no keys.
    pub(super) fn wake(&self, woken: Vec<(&'static str, ObjectKey)>) {
        if woken.is_empty() {
            return;
        }
        let mut keys: BTreeMap<&'static str, Vec<ObjectKey>> = BTreeMap::new();
        woken.into_iter().for_each(|(controller, key)| keys.entry(controller).or_default().push(key));
        let wakers = locked(&self.wakers);
        for (controller, keys) in keys {
            if let Some(wake) = wakers.get(controller) {
                wake(keys);
            }
        }
    }

    /// Keys for `controller` are enqueued from now on, where its keys are those of objects.
    pub(super) fn wakes<I: Index<Whole = W>>(&self, controller: &Arc<Controller<I>>) {
        let name = controller.name();
        // The controller has this whole: a strong reference would keep both for ever.
        let controller = Arc::downgrade(controller);
        let wake = move |keys: Vec<ObjectKey>| {
            if let Some(controller) = controller.upgrade() {
                controller.enqueue(keys.into_iter().filter_map(I::key_of).collect());
            }
        };
        locked(&self.wakers).insert(name, Box::new(wake));
    }

    /// Has the watch of `T` for what `selectors` select feed `part`, beside the other parts that it feeds.
    pub(super) fn feed<T: Watchable>(
        self: &Arc<Self>,
        watches: &mut Watches,
        selectors: Selectors,
        part: Box<dyn Part<W, T>>,
    ) {
        let mut feeds = locked(&self.feeds);
        let same = feeds.iter().filter(|(kind, of, _)| *kind == TypeId::of::<T>() && *of == selectors);
        let mut same = same.filter_map(|(.., parts)| parts.downcast_ref::<Weak<Parts<W, T>>>()?.upgrade());
        if let Some(parts) = same.next() {
            locked(&parts).push(part);
            return;
        }
        let parts: Arc<Parts<W, T>> = Arc::new(Mutex::new(vec![part]));
        feeds.push((TypeId::of::<T>(), selectors.clone(), Box::new(Arc::downgrade(&parts))));
        watches.feed(selectors, Group::new(Arc::clone(self), parts));
    }
}

/// The wholes of a process, by their types: there is one, unless a table mixes controllers of several.
#[derive(Default)]
pub(super) struct Wholes(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl Wholes {
    /// The whole of this type, made when it is first asked for.
    pub(super) fn of<W: Whole>(&mut self) -> Arc<Shared<W>> {
        let fresh = || Box::new(Arc::<Shared<W>>::default());
        let known = self.0.entry(TypeId::of::<W>()).or_insert_with(|| fresh());
        // The key tells the type of the value.
        known.downcast_ref::<Arc<Shared<W>>>().map_or_else(Arc::default, Arc::clone)
    }

    /// The whole of this type, if a controller has a part of it.
    pub(super) fn known<W: Whole>(&self) -> Option<Arc<Shared<W>>> {
        self.0.get(&TypeId::of::<W>())?.downcast_ref::<Arc<Shared<W>>>().map(Arc::clone)
    }
}
