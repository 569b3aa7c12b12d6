//! PersistentVolumes, the claims for them, and their classes, as far as they decide where a Pod may run.

use dragoman_quantity::Quantity;
use serde::Deserialize;

use super::{LabelSelector, Meta, Name, NodeSelector, ResourceList, or_default};

/// A `v1` `PersistentVolumeClaim`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: PersistentVolumeClaimSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: VolumeStatus,
}

/// `spec` of a `PersistentVolumeClaim`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// `accessModes`.
    #[serde(deserialize_with = "or_default")]
    pub access_modes: Vec<Name>,
    /// `selector`.
    pub selector: Option<LabelSelector>,
    /// `resources`.
    #[serde(deserialize_with = "or_default")]
    pub resources: VolumeRequirements,
    /// `storageClassName`; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub storage_class_name: Name,
    /// `volumeMode`; empty for `Filesystem`.
    #[serde(deserialize_with = "or_default")]
    pub volume_mode: Name,
    /// `volumeName`: the volume that it is bound to, or is to be.
    #[serde(deserialize_with = "or_default")]
    pub volume_name: Name,
}

/// `resources` of a `PersistentVolumeClaim`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeRequirements {
    /// `requests`, of `storage`.
    #[serde(deserialize_with = "or_default")]
    pub requests: ResourceList,
}

/// `status` of a `PersistentVolumeClaim` or of a `PersistentVolume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    /// `phase`: `Bound` once the two are bound to each other; `Available` for a volume that no claim has.
    #[serde(deserialize_with = "or_default")]
    pub phase: Name,
}

/// A `v1` `PersistentVolume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: PersistentVolumeSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: VolumeStatus,
}

/// `spec` of a `PersistentVolume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// `accessModes`.
    #[serde(deserialize_with = "or_default")]
    pub access_modes: Vec<Name>,
    /// `capacity`, of `storage`.
    #[serde(deserialize_with = "or_default")]
    pub capacity: ResourceList,
    /// `nodeAffinity`: the nodes that can use it.
    #[serde(deserialize_with = "or_default")]
    pub node_affinity: VolumeNodeAffinity,
    /// `storageClassName`; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub storage_class_name: Name,
    /// `volumeMode`; empty for `Filesystem`.
    #[serde(deserialize_with = "or_default")]
    pub volume_mode: Name,
}

/// `nodeAffinity` of a `PersistentVolume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// `required`.
    pub required: Option<NodeSelector>,
}

/// A `storage.k8s.io/v1` `StorageClass`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// `metadata`.
    pub metadata: Meta,
    /// `provisioner`; `kubernetes.io/no-provisioner` for volumes that people make.
    #[serde(deserialize_with = "or_default")]
    pub provisioner: Name,
    /// `volumeBindingMode`; empty for `Immediate`.
    #[serde(deserialize_with = "or_default")]
    pub volume_binding_mode: Name,
    /// `allowedTopologies`: alternatives; empty for every node.
    #[serde(deserialize_with = "or_default")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

/// A term of `allowedTopologies`. A node matches if it has one of the values for each key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    /// `matchLabelExpressions`.
    #[serde(deserialize_with = "or_default")]
    pub match_label_expressions: Vec<TopologySelectorRequirement>,
}

/// A requirement of a term.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct TopologySelectorRequirement {
    /// `key` of a label.
    #[serde(deserialize_with = "or_default")]
    pub key: Name,
    /// `values`.
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<Name>,
}

/// Whether the capacity of a volume is at least the storage that a claim requests. What is no quantity is zero.
pub fn has_storage(capacity: &ResourceList, requests: &ResourceList) -> bool {
    let storage = |of: &ResourceList| {
        let text = of.get("storage").and_then(|text| text.0.parse::<Quantity>().ok());
        text.unwrap_or_default().amount
    };
    storage(capacity) >= storage(requests)
}
