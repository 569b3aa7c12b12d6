//! From a watch into the indexes that keep its kind, and from there into the queues of their controllers.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use dragoman_objects::Meta;

use super::index::{Fed, Keeps};
use super::shared::{Shared, Whole};
use super::{Controller, Holds as _, Index, locked};
use crate::kind::{Kind, Watchable};
use crate::watch::{Failure, Item, Selectors, Sink, Watches};

/// News of a watch.
pub(super) enum News<'a, T> {
    Serving(Kind),
    Unserved,
    Forbidden,
    Began,
    Applied(&'a Item<T>),
    Deleted(&'a Meta),
    Completed(&'a str),
    Advanced(&'a str),
}

/// An index of a whole that a watch feeds.
pub(super) trait Part<W, T>: Send {
    /// The name of its controller.
    fn name(&self) -> &'static str;
    /// Takes news into the index.
    fn take_in(&mut self, whole: &mut W, news: &News<'_, T>, now: jiff::Timestamp);
    /// The lock is free again: enqueues what the news made dirty.
    fn settle(&mut self);
    /// The process, and with it every part, may not list or watch the kind.
    fn forbidden(&self, rule: &str);
}

/// The indexes that one watch feeds.
pub(super) type Parts<W, T> = Mutex<Vec<Box<dyn Part<W, T>>>>;

/// Feeds all indexes of a whole that keep a kind, each object in one step.
pub(super) struct Group<W, T> {
    shared: Arc<Shared<W>>,
    parts: Arc<Parts<W, T>>,
}

impl<W: Whole, T: Watchable> Group<W, T> {
    pub(super) fn new(shared: Arc<Shared<W>>, parts: Arc<Parts<W, T>>) -> Self {
        Self { shared, parts }
    }

    fn change(&self, news: &News<'_, T>) {
        let now = crate::clock::now();
        let mut parts = locked(&self.parts);
        self.shared.update(|whole| parts.iter_mut().for_each(|part| part.take_in(whole, news, now)));
        parts.iter_mut().for_each(|part| part.settle());
    }
}

impl<W: Whole, T: Watchable> Sink for Group<W, T> {
    type Object = T;

    fn name(&self) -> String {
        locked(&self.parts).iter().map(|part| part.name()).collect::<Vec<_>>().join(", ")
    }

    fn serving(&mut self, kind: Kind) {
        self.change(&News::Serving(kind));
    }

    fn began(&mut self) {
        self.change(&News::Began);
    }

    fn applied(&mut self, item: &Item<T>) {
        self.change(&News::Applied(item));
    }

    fn deleted(&mut self, meta: &Meta) {
        self.change(&News::Deleted(meta));
    }

    fn completed(&mut self, version: &str) {
        self.change(&News::Completed(version));
    }

    fn advanced(&mut self, version: &str) {
        self.change(&News::Advanced(version));
    }

    fn failed(&mut self, failure: &Failure) {
        match failure {
            Failure::Forbidden(rule) => {
                locked(&self.parts).first().into_iter().for_each(|part| part.forbidden(rule));
            }
            Failure::Unserved => self.change(&News::Unserved),
            _ => {}
        }
    }

    fn forbidden(&mut self) {
        self.change(&News::Forbidden);
    }
}

/// The index of one controller, fed with the objects of one kind.
struct Feed<I: Index, T> {
    controller: Arc<Controller<I>>,
    /// The keys that the last news made dirty.
    dirty: Vec<I::Key>,
    /// The version that the index has reached with it.
    reached: Option<(Kind, u64)>,
    kind: PhantomData<fn(T)>,
}

impl<I: Index> Controller<I> {
    /// Has the watch of `T` feed the index.
    pub fn watch<T: Watchable>(self: &Arc<Self>, watches: &mut Watches)
    where
        I: Keeps<T>,
    {
        self.watch_selected::<T>(watches, Selectors::default());
    }

    /// Has a watch of what `selectors` select feed the index.
    pub fn watch_selected<T: Watchable>(self: &Arc<Self>, watches: &mut Watches, selectors: Selectors)
    where
        I: Keeps<T>,
    {
        if let Some(kind) = T::KINDS.first() {
            self.context.machinery.watched(kind.kind);
        }
        let (controller, kind) = (Arc::clone(self), PhantomData);
        let feed = Feed::<I, T> { controller, dirty: Vec::new(), reached: None, kind };
        self.shared.feed(watches, selectors, Box::new(feed));
    }
}

impl<T: Watchable, I: Keeps<T>> Part<I::Whole, T> for Feed<I, T> {
    fn name(&self) -> &'static str {
        self.controller.name()
    }

    fn take_in(&mut self, whole: &mut I::Whole, news: &News<'_, T>, now: jiff::Timestamp) {
        let index: &mut I = whole.part_mut();
        index.at(now);
        let nothing = Vec::new;
        self.dirty = match *news {
            News::Serving(kind) => {
                Keeps::<T>::serving(index, kind);
                nothing()
            }
            News::Unserved => Keeps::<T>::unserved(index),
            News::Forbidden => Keeps::<T>::forbidden(index),
            News::Began => {
                Fed::<T>::began(index);
                nothing()
            }
            News::Applied(item) => Fed::<T>::applied(index, item),
            News::Deleted(meta) => Fed::<T>::deleted(index, meta),
            News::Completed(version) => Fed::<T>::completed(index, version),
            News::Advanced(version) => {
                Keeps::<T>::store_mut(index).advance(version);
                nothing()
            }
        };
        self.reached = index.store_of(T::NEWEST).map(|(kind, store)| (kind, store.reached()));
    }

    fn settle(&mut self) {
        self.controller.settled(self.reached, std::mem::take(&mut self.dirty));
    }

    fn forbidden(&self, rule: &str) {
        self.controller.context.rights.doubt(rule);
    }
}
