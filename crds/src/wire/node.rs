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
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Taint {
    #[serde(deserialize_with = "or_default")]
    key: Name,
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
