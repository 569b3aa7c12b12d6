//! `v1` Node.

use dragoman_accounting::amounts::{Amounts, ResourceList};
use dragoman_accounting::cluster;
use serde::Deserialize;

use super::{Meta, or_default};

/// A Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    allocatable: ResourceList,
}

impl Node {
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
