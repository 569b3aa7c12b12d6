//! Findings about a node that people should look at.

use std::fmt;
use std::sync::Arc;

/// A finding about a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// The finding, for people.
    pub text: Arc<str>,
    /// Subject of the finding.
    pub about: About,
}

/// Subject of a [`Notice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The status of a Pod records another amount than its claims have now, or contradicts itself.
    Drift,
    /// The definition of a device, or an allocation of it.
    Device,
    /// The claims of a Pod exceed its Pod-level resources.
    Budget,
    /// A claim that a Pod of the node waits for, or whose device is on another node. It takes nothing
    /// from the node: the kubelet starts no container without it.
    Waiting,
}

impl Notice {
    /// A finding.
    pub(super) fn new(about: About, text: &str) -> Self {
        Self { text: text.into(), about }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
