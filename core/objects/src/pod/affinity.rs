//! `spec.affinity` and `spec.topologySpreadConstraints` of a Pod.

use serde::{Deserialize, Deserializer};

use crate::{LabelSelector, Name, NodeSelector, NodeSelectorTerm, Tolerated, or_default};

/// `spec.affinity`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// `nodeAffinity`.
    pub node_affinity: Option<NodeAffinity>,
    /// `podAffinity`.
    pub pod_affinity: Tolerated<PodAffinity>,
    /// `podAntiAffinity`.
    pub pod_anti_affinity: Tolerated<PodAffinity>,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// `requiredDuringSchedulingIgnoredDuringExecution`.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// `preferredDuringSchedulingIgnoredDuringExecution`.
    #[serde(deserialize_with = "or_default")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredTerm>,
}

/// An entry of `preferredDuringSchedulingIgnoredDuringExecution`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(default)]
pub struct PreferredTerm {
    /// `weight`.
    #[serde(deserialize_with = "or_default")]
    pub weight: i32,
    /// `preference`.
    #[serde(deserialize_with = "or_default")]
    pub preference: NodeSelectorTerm,
}

/// `podAffinity` or `podAntiAffinity`, as far as a node has to meet it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// `requiredDuringSchedulingIgnoredDuringExecution`.
    #[serde(deserialize_with = "or_default")]
    pub required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
}

/// A `PodAffinityTerm`: other Pods, and the label of nodes by which they are near. The API server has merged
/// `matchLabelKeys` and `mismatchLabelKeys` into the selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// `labelSelector`; without one no Pod matches.
    pub label_selector: Option<LabelSelector>,
    /// `topologyKey`.
    #[serde(deserialize_with = "or_default")]
    pub topology_key: Name,
    /// `namespaces`.
    #[serde(deserialize_with = "or_default")]
    pub namespaces: Vec<Name>,
    /// `namespaceSelector`. Without it and without `namespaces` the term is about the namespace of its Pod.
    pub namespace_selector: Option<LabelSelector>,
}

/// An entry of `spec.topologySpreadConstraints`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// `maxSkew`.
    #[serde(deserialize_with = "or_default")]
    pub max_skew: i32,
    /// `topologyKey`.
    #[serde(deserialize_with = "or_default")]
    pub topology_key: Name,
    /// `whenUnsatisfiable`: `DoNotSchedule` or `ScheduleAnyway`.
    #[serde(deserialize_with = "or_default")]
    pub when_unsatisfiable: Name,
    /// `labelSelector`; without one no Pod matches.
    pub label_selector: Option<LabelSelector>,
    /// `matchLabelKeys`.
    #[serde(deserialize_with = "or_default")]
    pub match_label_keys: Vec<Name>,
    /// `minDomains`.
    pub min_domains: Option<i32>,
    /// `nodeAffinityPolicy`: `Honor` if unset, or `Ignore`.
    pub node_affinity_policy: Option<Name>,
    /// `nodeTaintsPolicy`: `Ignore` if unset, or `Honor`.
    pub node_taints_policy: Option<Name>,
}

impl Affinity {
    /// The same without other Pods: what a person may write about those has no bound.
    #[must_use]
    pub fn to_nodes(&self) -> Self {
        Self { node_affinity: self.node_affinity.clone(), is_there: self.is_there, ..Self::default() }
    }

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
