//! `v1` Node.

use serde::Deserialize;

use super::{Condition, Meta, Name, ResourceList, Taint, or_default};

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: NodeSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// `taints`.
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
    /// `unschedulable`: the node is cordoned.
    #[serde(deserialize_with = "or_default")]
    pub unschedulable: bool,
}

/// `status` of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// `allocatable`.
    #[serde(deserialize_with = "or_default")]
    pub allocatable: ResourceList,
    /// `declaredFeatures`.
    #[serde(deserialize_with = "or_default")]
    pub declared_features: Vec<Name>,
    /// `conditions`.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// The taint by which an administrator says that nothing runs on a node any more, with any effect.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

impl Node {
    /// Whether the kubelet says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|of| &*of.r#type == "Ready" && &*of.status == "True")
    }

    /// Whether an administrator said that nothing runs on it any more.
    pub fn is_out_of_service(&self) -> bool {
        self.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE)
    }
}
