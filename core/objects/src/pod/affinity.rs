//! `spec.affinity` of a Pod.

use serde::{Deserialize, Deserializer};

use crate::{Name, NodeSelector, NodeSelectorTerm, is_present, or_default};

/// `spec.affinity`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// `nodeAffinity`.
    pub node_affinity: Option<NodeAffinity>,
    /// Whether there is a `podAffinity`.
    #[serde(deserialize_with = "is_present")]
    pub pod_affinity: bool,
    /// Whether there is a `podAntiAffinity`.
    #[serde(deserialize_with = "is_present")]
    pub pod_anti_affinity: bool,
    /// Whether the field is there at all: a patch has to know.
    #[serde(skip)]
    pub is_there: bool,
}

/// Reads `spec.affinity`, which may be missing.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Affinity, D::Error> {
    let affinity = Option::<Affinity>::deserialize(deserializer)?;
    Ok(affinity.map(|affinity| Affinity { is_there: true, ..affinity }).unwrap_or_default())
}

/// `nodeAffinity`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// `requiredDuringSchedulingIgnoredDuringExecution`.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// `preferredDuringSchedulingIgnoredDuringExecution`.
    #[serde(deserialize_with = "or_default")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredTerm>,
}

/// An entry of `preferredDuringSchedulingIgnoredDuringExecution`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PreferredTerm {
    /// `weight`.
    #[serde(deserialize_with = "or_default")]
    pub weight: i32,
    /// `preference`.
    #[serde(deserialize_with = "or_default")]
    pub preference: NodeSelectorTerm,
}

impl Affinity {
    /// The node selector that a node has to match.
    pub fn required(&self) -> Option<&NodeSelector> {
        self.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
    }

    /// The terms by which a scheduler prefers a node.
    pub fn preferred(&self) -> &[PreferredTerm] {
        self.node_affinity.as_ref().map_or(&[], |of| &of.preferred_during_scheduling_ignored_during_execution)
    }

    /// The only node that the required terms leave, by its name. Terms are alternatives.
    pub fn node(&self) -> Option<&Name> {
        self.required()?.node()
    }
}
