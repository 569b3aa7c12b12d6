//! A Node as accounting reads it.

use dragoman_objects::{Name, Node};

use crate::amounts::Amounts;
use crate::cluster;

impl From<&Node> for cluster::Node {
    /// An unreadable amount is in `unaccounted`.
    fn from(node: &Node) -> Self {
        let mut unaccounted = Vec::new();
        let name: Name = node.metadata.name.clone();
        let list = &node.status.allocatable;
        let allocatable =
            Amounts::of_fact(list, &format!("Node {name}"), "status.allocatable", &mut unaccounted);
        Self { name, allocatable, unaccounted }
    }
}
