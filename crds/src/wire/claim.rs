//! `resource.k8s.io/v1` ResourceClaim.

use serde::{Deserialize, Serialize};

use super::{Meta, Name, is_present, or_default};

/// A ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: ClaimSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: ResourceClaimStatus,
}

impl ResourceClaim {
    /// Whether any request asks for admin access. Only `exactly` can carry it:
    /// sub-requests of `firstAvailable` have no such field.
    pub fn admin_access(&self) -> bool {
        self.spec.devices.requests.iter().any(|r| r.exactly.admin_access)
    }
}

/// `spec` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    /// `devices`.
    #[serde(deserialize_with = "or_default")]
    pub devices: DeviceClaim,
}

/// `spec.devices`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// `requests`.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<DeviceRequest>,
}

/// `spec.devices.requests[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceRequest {
    /// `exactly`.
    #[serde(deserialize_with = "or_default")]
    pub exactly: ExactDeviceRequest,
}

/// `spec.devices.requests[].exactly`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// `adminAccess`.
    #[serde(deserialize_with = "or_default")]
    pub admin_access: bool,
}

/// `status` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// Whether `allocation` is set.
    #[serde(rename = "allocation", deserialize_with = "is_present")]
    pub allocated: bool,
    /// `reservedFor`, in order: the position of an entry is what a JSON patch names.
    #[serde(deserialize_with = "or_default")]
    pub reserved_for: Vec<ConsumerReference>,
}

/// An entry of `status.reservedFor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerReference {
    /// `apiGroup`; empty for Pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub api_group: Name,
    /// `resource`, plural and lower case.
    #[serde(deserialize_with = "or_default")]
    pub resource: Name,
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `uid`.
    #[serde(deserialize_with = "or_default")]
    pub uid: Name,
}
