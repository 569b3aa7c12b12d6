//! Everything at once.

use super::{Claim, Class, Node, Slice, TaintRule};

/// A cluster as far as devices go: what a dump of it holds.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// Nodes, by name.
    pub nodes: Vec<Node>,
    /// All slices.
    pub slices: Vec<Slice>,
    /// Device classes, by name.
    pub classes: Vec<Class>,
    /// All claims, those that are allocated with what they have.
    pub claims: Vec<Claim>,
    /// Taint rules.
    pub taint_rules: Vec<TaintRule>,
}
