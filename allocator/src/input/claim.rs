//! `ResourceClaim`.

use std::collections::BTreeMap;

use dragoman_quantity::Quantity;
use serde::Deserialize;

use super::unreadable::each;
use super::{Allocation, Name, OpaqueConfiguration, Toleration, or_default};

/// A `ResourceClaim`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// `metadata.uid`.
    pub uid: Name,
    /// `metadata.namespace`.
    pub namespace: Name,
    /// `metadata.name`.
    pub name: Name,
    /// `spec.devices`.
    pub devices: ClaimDevices,
    /// `status.allocation`.
    pub allocation: Option<Allocation>,
}

/// `spec.devices`: the requested devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimDevices {
    /// `requests`.
    #[serde(deserialize_with = "each")]
    pub requests: Vec<Request>,
    /// `constraints`.
    #[serde(deserialize_with = "or_default")]
    pub constraints: Vec<Constraint>,
    /// `config`.
    #[serde(deserialize_with = "or_default")]
    pub config: Vec<ClaimConfiguration>,
}

/// A request: `exactly`, or the first available of several sub-requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `exactly`.
    pub exactly: Option<ExactRequest>,
    /// `firstAvailable`.
    #[serde(deserialize_with = "or_default")]
    pub first_available: Vec<SubRequest>,
    /// The reason why the rest cannot be read, if that is so.
    #[serde(skip)]
    pub unreadable: Option<Name>,
}

/// `exactly` of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactRequest {
    /// `adminAccess`: access to devices that other claims may hold.
    pub admin_access: Option<bool>,
    /// The fields that requests and sub-requests have in common.
    #[serde(flatten)]
    pub asked: SubRequest,
}

/// The fields that requests and sub-requests have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubRequest {
    /// `name`, of sub-requests only.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `deviceClassName`.
    #[serde(deserialize_with = "or_default")]
    pub device_class_name: Name,
    /// `selectors`: all must hold.
    #[serde(deserialize_with = "or_default")]
    pub selectors: Vec<Selector>,
    /// `allocationMode`.
    #[serde(deserialize_with = "or_default")]
    pub allocation_mode: AllocationMode,
    /// `count`, of mode `ExactCount`.
    #[serde(deserialize_with = "or_default")]
    pub count: i64,
    /// `tolerations`.
    #[serde(deserialize_with = "or_default")]
    pub tolerations: Vec<Toleration>,
    /// `capacity`.
    pub capacity: Option<CapacityRequirements>,
    /// `derivedAttributes`.
    #[serde(deserialize_with = "or_default")]
    pub derived_attributes: Vec<DerivedAttribute>,
}

/// `allocationMode`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Name")]
pub enum AllocationMode {
    /// As many devices as `count`.
    #[default]
    ExactCount,
    /// All matching devices.
    All,
    /// A mode that this version does not know, or the empty string.
    Unknown(Name),
}

impl From<Name> for AllocationMode {
    fn from(text: Name) -> Self {
        match &*text {
            "ExactCount" => Self::ExactCount,
            "All" => Self::All,
            _ => Self::Unknown(text),
        }
    }
}

/// A selector of devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Selector {
    /// `cel`. A selector without it is of a kind that this version does not know.
    pub cel: Option<CelSelector>,
}

/// `cel` of a selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct CelSelector {
    /// `expression`.
    #[serde(deserialize_with = "or_default")]
    pub expression: Name,
}

impl Selector {
    /// Returns the expression; empty if the selector is of an unknown kind.
    pub fn expression(&self) -> &str {
        self.cel.as_ref().map_or("", |cel| &cel.expression)
    }
}

/// `capacity` of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CapacityRequirements {
    /// `requests`, by qualified name of the capacity.
    #[serde(deserialize_with = "or_default")]
    pub requests: BTreeMap<Name, Quantity>,
}

/// An attribute that a request computes (feature gate `DRADerivedAttributes`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct DerivedAttribute {
    /// `name`, fully qualified.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `expression`: CEL over `device`.
    #[serde(deserialize_with = "or_default")]
    pub expression: Name,
}

/// A constraint on the devices of several requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Constraint {
    /// `requests`: names of requests or `request/subrequest`; empty: all requests.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<Name>,
    /// `matchAttribute`: all devices have the same value.
    pub match_attribute: Option<Name>,
    /// `distinctAttribute`: no two devices have the same value.
    pub distinct_attribute: Option<Name>,
}

/// An entry of `config`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimConfiguration {
    /// `requests`: names of requests or `request/subrequest`; empty: all requests.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<Name>,
    /// `opaque`.
    pub opaque: Option<OpaqueConfiguration>,
}
