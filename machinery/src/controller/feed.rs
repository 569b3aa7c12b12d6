//! From a watch into the index of a controller, and from there into its queue.

use std::marker::PhantomData;
use std::sync::Arc;

use dragoman_objects::Meta;

use super::index::{Fed, Keeps};
use super::{Controller, Index};
use crate::kind::{Kind, Watchable};
use crate::watch::{Failure, Item, Selectors, Sink, Watches};

/// Feeds the index of a controller with the objects of one kind.
struct Feed<I: Index, T> {
    controller: Arc<Controller<I>>,
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
        watches.feed(selectors, Feed::<I, T> { controller: Arc::clone(self), kind: PhantomData });
    }
}

impl<T: Watchable, I: Keeps<T>> Feed<I, T> {
    fn change(&self, change: impl FnOnce(&mut I) -> Vec<I::Key>) {
        let now = crate::clock::now();
        self.controller.change(T::NEWEST, |index| {
            index.at(now);
            change(index)
        });
    }
}

impl<T: Watchable, I: Keeps<T>> Sink for Feed<I, T> {
    type Object = T;

    fn name(&self) -> &'static str {
        self.controller.name()
    }

    fn serving(&mut self, kind: Kind) {
        self.change(|index| {
            Keeps::<T>::serving(index, kind);
            Vec::new()
        });
    }

    fn began(&mut self) {
        self.change(|index| {
            Fed::<T>::began(index);
            Vec::new()
        });
    }

    fn applied(&mut self, item: &Item<T>) {
        self.change(|index| Fed::<T>::applied(index, item));
    }

    fn deleted(&mut self, meta: &Meta) {
        self.change(|index| Fed::<T>::deleted(index, meta));
    }

    fn completed(&mut self, version: &str) {
        self.change(|index| Fed::<T>::completed(index, version));
    }

    fn advanced(&mut self, version: &str) {
        self.change(|index| {
            Keeps::<T>::store_mut(index).advance(version);
            Vec::new()
        });
    }

    fn failed(&mut self, failure: &Failure) {
        match failure {
            Failure::Forbidden(rule) => self.controller.context.rights.doubt(rule),
            Failure::Unserved => self.change(Keeps::<T>::unserved),
            _ => {}
        }
    }
}
