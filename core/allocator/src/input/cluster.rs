//! The objects of a cluster.

use super::{Claim, Class, Node, Slice, TaintRule};

/// The objects of a cluster that concern devices.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The nodes. Names are unique.
    pub nodes: Vec<Node>,
    /// The slices.
    pub slices: Vec<Slice>,
    /// The device classes. Names are unique.
    pub classes: Vec<Class>,
    /// The claims, allocated or not.
    pub claims: Vec<Claim>,
    /// The taint rules.
    pub taint_rules: Vec<TaintRule>,
}
