//! The records about claims in Pod status: the draft of KEP-5517, Kubernetes 1.36 (one total for
//! each resource), 1.37 (mapping and overhead) and 1.38 (another list, with a source).

mod print;
mod read;

use dragoman_quantity::QuantityText;
use serde::{Deserialize, Serialize};

use super::or_default;
use crate::amounts::ResourceList;

pub use print::{Loss, to_1_36, to_1_37, to_1_38, to_draft};
pub use read::{Conflict, Reading, Recorded, read};

/// An entry of `status.nativeResourceClaimStatus`, the draft, which was never released.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeResourceClaimStatus {
    /// The claim.
    pub claim_info: ObjectReference,
    /// The containers that name the claim.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Box<str>>,
    /// The amounts. A resource that comes twice counts twice.
    #[serde(deserialize_with = "or_default")]
    pub resources: Vec<NativeResource>,
}

/// The fields of an `ObjectReference` that are read.
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
    /// The amount.
    pub quantity: QuantityText,
}

/// An entry of `status.nodeAllocatableResourceClaimStatuses`, Kubernetes 1.36 or 1.37.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceClaimStatus {
    /// The name of the claim.
    pub resource_claim_name: Box<str>,
    /// The containers that name the claim.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Box<str>>,
    /// Kubernetes 1.36: mapping and overhead in one amount.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub resources: ResourceList,
    /// Kubernetes 1.37: mappings by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// Kubernetes 1.37: overhead by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadStatus>,
}

/// An entry of `status.additionalNodeAllocatableResources`, Kubernetes 1.38.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdditionalNodeAllocatableResources {
    /// The object that the resources come from.
    pub source: SourceReference,
    /// The containers that name the source.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Box<str>>,
    /// Mappings by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// Overhead by resource.
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
    /// The amount.
    pub quantity: QuantityText,
}

/// The overhead of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverheadStatus {
    /// The resource.
    pub name: Box<str>,
    /// The amount for the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<QuantityText>,
    /// The amount for each container that names the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<QuantityText>,
}
