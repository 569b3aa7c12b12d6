//! Devices that are held for nothing, and devices that a node may still hold (docs/claim-lifecycle.md 4.6, 4.7).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::times;
use dragoman_objects::Name;
use jiff::Timestamp;

use super::key::{Key, Subject};

/// Options for devices that no consumer uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaim {
    /// A claim that has been allocated and reserved for no consumer for so long is idle.
    pub idle_for: Duration,
    /// Whether idle claims are released. If not, they are reported.
    pub release: bool,
    /// Time for which a claim is held for a Pod that is gone while its containers may be running
    /// (kubernetes/kubernetes#141471). `None`: no claim is held.
    pub guard: Option<Duration>,
}

impl Default for Reclaim {
    /// Upstream's behaviour: nothing is released that an allocator may be about to reserve, and nothing is held.
    fn default() -> Self {
        Self { idle_for: Duration::from_secs(3600), release: false, guard: None }
    }
}

/// Options for devices that no consumer uses, at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct At {
    /// Options in force.
    pub chosen: Reclaim,
    /// Now.
    pub now: Timestamp,
}

impl At {
    /// When a claim that has been idle since then counts as idle.
    pub(super) fn idle_at(&self, since: Timestamp) -> Timestamp {
        times::after(since, self.chosen.idle_for)
    }

    /// Until when a claim is held for a consumer that vanished, if the guard is on and that time is to come.
    pub(super) fn held_until(&self, vanished: &Vanished) -> Option<Timestamp> {
        let until = times::after(vanished.at, self.chosen.guard?);
        (!vanished.is_node_out && until > self.now).then_some(until)
    }

    /// The time from now until then.
    pub(super) fn until(&self, then: Timestamp) -> Duration {
        times::passed(self.now, then)
    }
}

/// A consumer that is gone, and did not end first as far as was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vanished {
    /// When its absence was first known, or could have been.
    pub at: Timestamp,
    /// Node of the consumer, if it was seen.
    pub node: Option<Name>,
    /// The node is gone or out of service: nothing runs there any more.
    pub is_node_out: bool,
}

/// The claims that are held for consumers that vanished, and since when.
///
/// The ends of consumers are forgotten when many others end, and the first sight of a claim counts anew when others join it.
/// Neither may shorten or prolong a hold that has begun: it has a record of its own.
#[derive(Debug, Default)]
pub struct Held(HashMap<(Arc<str>, Arc<str>), BTreeMap<Name, Vanished>>);

impl Held {
    /// A claim is held for the consumer with `uid`. Returns whether that is new.
    pub(super) fn insert(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        uid: &Name,
        vanished: Vanished,
    ) -> bool {
        let consumers = self.0.entry((Arc::clone(namespace), Arc::clone(name))).or_default();
        if consumers.contains_key(uid) {
            return false;
        }
        consumers.insert(uid.clone(), vanished);
        true
    }

    /// Returns what was known of the consumer with `uid` when its hold on a claim began.
    pub(super) fn of(&self, namespace: &str, name: &str, uid: &str) -> Option<&Vanished> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(namespace.into(), name.into()))?.get(uid)
    }

    /// A claim is not held any more.
    pub(super) fn remove(&mut self, namespace: &Arc<str>, name: &Arc<str>) {
        if !self.0.is_empty() {
            self.0.remove(&(Arc::clone(namespace), Arc::clone(name)));
        }
    }

    /// The claims that are held for Pods of a node.
    pub(super) fn on(&self, node: &str) -> Vec<Key> {
        let is_on = |of: &Vanished| of.node.as_deref() == Some(node);
        let held = self.0.iter().filter(|(_, consumers)| consumers.values().any(is_on));
        Key::in_order(held.map(|((ns, name), _)| Key::new(Subject::Claim, Arc::clone(ns), Arc::clone(name))))
    }

    /// Counts the claims that are held.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
