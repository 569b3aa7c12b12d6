//! `scheduling.k8s.io` PodGroup: `v1alpha2` in Kubernetes 1.36, `v1beta1` from 1.37.

use serde::Deserialize;

use super::{ClaimEntries, ClaimEntryStatus, Meta, or_default};

/// The API group of PodGroups, in owner references and in `reservedFor`.
pub const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// A PodGroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodGroup {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodGroupSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: PodGroupStatus,
}

/// `spec` of a PodGroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// `schedulingPolicy`.
    #[serde(deserialize_with = "or_default")]
    pub scheduling_policy: SchedulingPolicy,
    /// `resourceClaims`; dropped by API servers without `DRAWorkloadResourceClaims`.
    pub resource_claims: ClaimEntries,
}

/// `spec.schedulingPolicy` of a PodGroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SchedulingPolicy {
    /// `gang`: none of the Pods runs before so many can.
    pub gang: Option<GangPolicy>,
}

/// `gang` of a scheduling policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPolicy {
    /// `minCount`.
    #[serde(deserialize_with = "or_default")]
    pub min_count: i32,
}

/// `status` of a PodGroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// `resourceClaimStatuses`.
    #[serde(deserialize_with = "or_default")]
    pub resource_claim_statuses: Vec<ClaimEntryStatus>,
}
