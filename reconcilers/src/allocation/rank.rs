//! Which of the nodes that take a Pod comes first: what the Pod prefers, then the devices that a node has
//! left.

use std::cmp::Reverse;
use std::collections::HashMap;

use dragoman_objects::Name;

use crate::placement::{NodeView, SchedulingConstraints};

/// The order of nodes that a Pod likes equally.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Nodes with few free devices first, so that others stay free for Pods that need many.
    #[default]
    Pack,
    /// Nodes with many free devices first.
    Spread,
}

/// The place of a node for a Pod; the least comes first, and the name decides between equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The taints with effect `PreferNoSchedule` that the Pod does not tolerate.
    repels: usize,
    /// The weights of the preferred node affinity terms that select the node.
    preferred: Reverse<i64>,
    room: i64,
}

impl Rank {
    /// The place of a node with so many free devices.
    pub(super) fn of(site: Option<&NodeView>, pod: &SchedulingConstraints, free: i64, order: Order) -> Self {
        let (repels, preferred) = site.map_or((0, 0), |site| site.preference(pod));
        let room = match order {
            Order::Pack => free,
            Order::Spread => -free,
        };
        Self { repels, preferred: Reverse(preferred), room }
    }
}

/// Counts of devices by node. A shared device counts as often as it is given.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<Name, i64>);

impl Tally {
    /// Adds to the count of a node.
    pub(super) fn add(&mut self, node: &str, devices: i64) {
        let count = self.0.entry(node.into()).or_default();
        *count += devices;
        if *count == 0 {
            self.0.remove(node);
        }
    }

    /// The count of a node.
    pub(super) fn of(&self, node: &str) -> i64 {
        self.0.get(node).copied().unwrap_or_default()
    }
}
