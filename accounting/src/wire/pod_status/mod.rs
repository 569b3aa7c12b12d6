//! What Pod status records of claims: the draft of KEP-5517, Kubernetes 1.36 (one total for
//! each resource), 1.37 (mapping and overhead) and 1.38 (under a new name, with a source).

mod print;
mod read;

use serde::{Deserialize, Serialize};

use super::or_default;
use crate::amounts::{ResourceList, Text};

pub use print::{Loss, to_1_36, to_1_37, to_1_38, to_draft};
pub use read::{Conflict, Reading, Recorded, read};

/// An entry of `status.nativeResourceClaimStatus`, the draft, never shipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeResourceClaimStatus {
    /// The claim.
    pub claim_info: ObjectReference,
    /// The containers that name it.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Box<str>>,
    /// By resource; the same one twice counts twice.
    #[serde(deserialize_with = "or_default")]
    pub resources: Vec<NativeResource>,
}

/// What of an `ObjectReference` counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Name.
    pub name: Box<str>,
    /// Uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<Box<str>>,
}

/// The amount of a resource in the draft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeResource {
    /// The resource.
    pub resource_name: Box<str>,
    /// How much.
    pub quantity: Text,
}

/// An entry of `status.nodeAllocatableResourceClaimStatuses`, 1.36 or 1.37.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceClaimStatus {
    /// Name of the claim object.
    pub resource_claim_name: Box<str>,
    /// The containers that name it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Box<str>>,
    /// 1.36: mapping and overhead in one.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub resources: ResourceList,
    /// 1.37: by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// 1.37: by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadStatus>,
}

/// An entry of `status.additionalNodeAllocatableResources`, 1.38.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdditionalNodeAllocatableResources {
    /// Where they come from.
    pub source: SourceReference,
    /// The containers that name it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Box<str>>,
    /// By resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// By resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadStatus>,
}

/// An object in the namespace of the Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceReference {
    /// API group.
    pub api_group: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
}

/// The mapped amount of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MappingStatus {
    /// The resource.
    pub name: Box<str>,
    /// How much.
    pub quantity: Text,
}

/// The overhead of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverheadStatus {
    /// The resource.
    pub name: Box<str>,
    /// Once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Text>,
    /// For each container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Text>,
}
