//! `v1` Pod.

use serde::Deserialize;

use super::{Meta, Name, or_default};

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// `spec` of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// `nodeName`; empty while unscheduled.
    #[serde(deserialize_with = "or_default")]
    pub node_name: Name,
    /// `resourceClaims`.
    #[serde(deserialize_with = "or_default")]
    pub resource_claims: Vec<ClaimEntry>,
    /// `schedulingGroup`.
    #[serde(deserialize_with = "or_default")]
    pub scheduling_group: SchedulingGroup,
}

/// `spec.schedulingGroup` of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// `podGroupName`.
    pub pod_group_name: Option<Name>,
}

/// An entry of `spec.resourceClaims`, of a Pod or of a PodGroup.
///
/// Every version known today sets exactly one of the two references. An entry with neither comes
/// from a later API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimEntry {
    /// `name` of the entry, unique in its Pod.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `resourceClaimName`: an existing claim.
    pub resource_claim_name: Option<Name>,
    /// `resourceClaimTemplateName`: the claim template from which a claim is generated.
    pub resource_claim_template_name: Option<Name>,
}

/// `status` of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `phase`.
    #[serde(deserialize_with = "or_default")]
    pub phase: Name,
    /// `resourceClaimStatuses`.
    #[serde(deserialize_with = "or_default")]
    pub resource_claim_statuses: Vec<ClaimEntryStatus>,
    /// `extendedResourceClaimStatus`.
    pub extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
}

/// An entry of `status.resourceClaimStatuses`, of a Pod or of a PodGroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimEntryStatus {
    /// `name` of the entry of `spec.resourceClaims`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `resourceClaimName`; absent means that no claim is needed.
    pub resource_claim_name: Option<Name>,
}

/// `status.extendedResourceClaimStatus` of a Pod (KEP-5004).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedResourceClaimStatus {
    /// `resourceClaimName`.
    #[serde(deserialize_with = "or_default")]
    pub resource_claim_name: Name,
}
