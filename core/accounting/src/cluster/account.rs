//! The accounts of nodes, and the changes that an event makes to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::notice::Notice;
use crate::ledger::NodeLedger;

/// The ledger of a node, with notices for people.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeAccount {
    /// The Node exists.
    pub(super) listed: bool,
    pub(super) ledger: NodeLedger,
    /// Each notice, with the number of Pods that it comes from.
    notices: BTreeMap<Notice, usize>,
}

impl NodeAccount {
    pub(super) fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.keys()
    }

    /// Replaces the notices of one Pod.
    pub(super) fn notice(&mut self, before: &BTreeSet<Notice>, after: &BTreeSet<Notice>) {
        for new in after.difference(before) {
            *self.notices.entry(new.clone()).or_default() += 1;
        }
        for old in before.difference(after) {
            if let Some(pods) = self.notices.get_mut(old) {
                *pods -= 1;
                if *pods == 0 {
                    self.notices.remove(old);
                }
            }
        }
    }

    /// Whether nothing keeps the account: no Node object, no Pod and no device in use.
    fn is_obsolete(&self) -> bool {
        !self.listed && self.ledger.is_idle()
    }

    fn state(&self) -> State {
        State { revision: self.ledger.revision(), notices: self.notices.keys().cloned().collect() }
    }
}

/// The comparable state of an account. Every fact is written at most once in an event, so that the
/// ledger differs if and only if its revision has risen.
#[derive(Debug, PartialEq, Eq)]
struct State {
    revision: u64,
    notices: Vec<Notice>,
}

/// The accounts of all nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts(BTreeMap<Arc<str>, NodeAccount>);

/// The accounts that an event has touched, as they were before it; `None`: there was none.
#[derive(Debug, Default)]
pub(super) struct Event(BTreeMap<Arc<str>, Option<State>>);

impl Accounts {
    pub(super) fn get(&self, node: &str) -> Option<&NodeAccount> {
        self.0.get(node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &NodeAccount)> {
        self.0.iter()
    }

    /// Returns the account of a node, to be changed, if there is one.
    pub(super) fn touch(&mut self, node: &str, event: &mut Event) -> Option<&mut NodeAccount> {
        let (name, _) = self.0.get_key_value(node)?;
        let name = name.clone();
        let account = self.0.get_mut(node)?;
        event.0.entry(name).or_insert_with(|| Some(account.state()));
        Some(account)
    }

    /// Opens an account that begins with `ledger`, for a node that has none.
    pub(super) fn open(&mut self, node: &str, ledger: NodeLedger, event: &mut Event) {
        let name: Arc<str> = node.into();
        event.0.entry(name.clone()).or_insert(None);
        self.0.entry(name).or_insert_with(|| NodeAccount { ledger, ..NodeAccount::default() });
    }

    /// Closes the accounts that nothing keeps any more. Returns the nodes whose account differs from
    /// the one before the event.
    pub(super) fn settle(&mut self, event: Event) -> BTreeSet<Arc<str>> {
        let mut changed = BTreeSet::new();
        for (node, before) in event.0 {
            if self.0.get(&node).is_some_and(NodeAccount::is_obsolete) {
                self.0.remove(&node);
            }
            if self.0.get(&node).map(NodeAccount::state) != before {
                changed.insert(node);
            }
        }
        changed
    }
}
