//! Locks by name.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// A lock for each key that is in use.
#[derive(Debug)]
pub(crate) struct Locks<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash + Ord> Locks<K> {
    /// Waits until no other call has one of `keys`, and takes all of them. They are taken in one order everywhere, so that
    /// two calls never wait for each other.
    pub(crate) async fn lock(&self, mut keys: Vec<K>) -> Vec<OwnedMutexGuard<()>> {
        keys.sort();
        keys.dedup();
        let mut guards = Vec::with_capacity(keys.len());
        for key in keys {
            let lock = {
                let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
                Arc::clone(locks.entry(key).or_default())
            };
            guards.push(lock.lock_owned().await);
        }
        guards
    }
}
