//! `ResourceClaim`.

use std::collections::BTreeMap;

use dragoman_quantity::Quantity;
use serde::Deserialize;

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

/// `spec.devices`: what is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimDevices {
    /// `requests`.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<Request>,
    /// `constraints`.
    #[serde(deserialize_with = "or_default")]
    pub constraints: Vec<Constraint>,
    /// `config`.
    #[serde(deserialize_with = "or_default")]
    pub config: Vec<ClaimConfiguration>,
}

/// A request: exactly one thing, or the first of several that is available.
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
}

/// `exactly` of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactRequest {
    /// `adminAccess`: to devices that others may hold.
    pub admin_access: Option<bool>,
    /// What every request asks for.
    #[serde(flatten)]
    pub asked: SubRequest,
}

/// What a request or a sub-request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubRequest {
    /// `name`, of sub-requests.
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
    /// As many as `count` says.
    #[default]
    ExactCount,
    /// All that match.
    All,
    /// One that this version does not know; the empty text too.
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
    /// `cel`; without it the selector is of a kind that this version does not know.
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
    /// The expression; empty where the selector is of an unknown kind.
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

/// An attribute that a request computes (KEP: derived attributes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct DerivedAttribute {
    /// `name`, fully qualified.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `expression`, CEL over `device`.
    #[serde(deserialize_with = "or_default")]
    pub expression: Name,
}

/// A constraint on the devices of several requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Constraint {
    /// `requests`: names of requests or `request/subrequest`; empty: all of them.
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
    /// `requests`: names of requests or `request/subrequest`; empty: all of them.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<Name>,
    /// `opaque`.
    pub opaque: Option<OpaqueConfiguration>,
}
