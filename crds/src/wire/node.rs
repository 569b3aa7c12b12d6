//! `v1` Node.

use dragoman_accounting::amounts::{Amounts, ResourceList};
use dragoman_accounting::cluster;
use serde::Deserialize;

use super::{Meta, Name, or_default};

/// A Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

/// `spec` of a Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// `taints`.
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
    /// `unschedulable`: the node is cordoned.
    #[serde(deserialize_with = "or_default")]
    pub unschedulable: bool,
}

/// An entry of `spec.taints`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// `key`.
    #[serde(deserialize_with = "or_default")]
    pub key: Name,
    /// `value`.
    #[serde(deserialize_with = "or_default")]
    pub value: Name,
    /// `effect`.
    #[serde(deserialize_with = "or_default")]
    pub effect: Name,
}

/// The taint by which an administrator says that nothing runs on a node any more, with any effect.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    allocatable: ResourceList,
}

impl Node {
    /// Whether an administrator said that nothing runs on it any more.
    pub fn is_out_of_service(&self) -> bool {
        self.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE)
    }

    /// Returns the Node as accounting reads it. An unreadable amount is in `unaccounted`.
    pub fn accounted(&self) -> cluster::Node {
        let mut unaccounted = Vec::new();
        let name: Box<str> = self.metadata.name.as_ref().into();
        let object = format!("Node {name}");
        let list = &self.status.allocatable;
        let allocatable = Amounts::of_fact(list, &object, "status.allocatable", &mut unaccounted);
        cluster::Node { name, allocatable, unaccounted }
    }
}
