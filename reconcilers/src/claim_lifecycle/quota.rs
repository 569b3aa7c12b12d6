//! Waiting for a `ResourceQuota` to have room again.

use std::collections::HashMap;
use std::sync::Arc;

use super::key::Key;

/// Quick attempts of a creation after a claim went, two seconds apart.
const QUOTA_ATTEMPTS: u8 = 5;

/// Keys whose creation was refused until a claim of their namespace goes, with the
/// quick attempts they have left.
#[derive(Debug, Default)]
pub struct QuotaWait(HashMap<Arc<str>, HashMap<Key, u8>>);

impl QuotaWait {
    /// `key` was refused. Returns whether a claim just went: then the quota may only
    /// not have been counted anew yet, which its controller does within seconds, and
    /// a quick attempt is due.
    pub fn refused(&mut self, key: &Key) -> bool {
        let waiting = self.0.entry(Arc::clone(&key.namespace)).or_default();
        let attempts = waiting.entry(key.clone()).or_default();
        let quick = *attempts > 0;
        *attempts = attempts.saturating_sub(1);
        quick
    }

    /// `key` does not wait any more.
    pub fn passed(&mut self, key: &Key) {
        if let Some(waiting) = self.0.get_mut(&key.namespace) {
            waiting.remove(key);
            if waiting.is_empty() {
                self.0.remove(&key.namespace);
            }
        }
    }

    /// A claim of `namespace` went: these keys are to be tried again.
    pub fn claim_went(&mut self, namespace: &str) -> Vec<Key> {
        let waiting = self.0.get_mut(namespace).into_iter().flatten();
        let again = waiting.map(|(key, attempts)| {
            *attempts = QUOTA_ATTEMPTS;
            key.clone()
        });
        again.collect()
    }
}
