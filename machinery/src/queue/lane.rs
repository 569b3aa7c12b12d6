//! Keys of one rank, in turn by tenant.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Keys that wait, in a queue for each tenant. Tenants take turns, so that the keys of one do not
/// make those of another wait for more than one key each.
#[derive(Debug)]
pub(super) struct Lane<K> {
    /// The tenants with keys; the first is next.
    turns: VecDeque<Tenant>,
    keys: HashMap<Tenant, VecDeque<K>>,
    len: usize,
}

/// The namespace of a key; `None` for cluster-scoped objects.
pub(super) type Tenant = Option<Arc<str>>;

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), keys: HashMap::new(), len: 0 }
    }
}

impl<K> Lane<K> {
    pub(super) fn push(&mut self, tenant: Tenant, key: K) {
        let keys = self.keys.entry(tenant.clone()).or_default();
        if keys.is_empty() {
            self.turns.push_back(tenant);
        }
        keys.push_back(key);
        self.len += 1;
    }

    /// Takes the next key of the first tenant in turn that `may` have another key in work.
    pub(super) fn take(&mut self, may: impl Fn(&Tenant) -> bool) -> Option<K> {
        let turn = self.turns.iter().position(may)?;
        let tenant = self.turns.remove(turn)?;
        let keys = self.keys.get_mut(&tenant)?;
        let key = keys.pop_front()?;
        self.len -= 1;
        if keys.is_empty() {
            self.keys.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        Some(key)
    }

    /// The next key of each tenant, in turn.
    pub(super) fn heads(&self) -> impl Iterator<Item = (&Tenant, &K)> {
        self.turns.iter().filter_map(|tenant| Some((tenant, self.keys.get(tenant)?.front()?)))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
