//! `spec.devices` of a ResourceClaim: the devices that it asks for.

use std::collections::BTreeMap;

use dragoman_quantity::Quantity;
use serde::{Deserialize, Deserializer};

use crate::unreadable::each;
use crate::{Name, OpaqueConfiguration, Toleration, or_default};

/// `spec.devices`: the requested devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
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
    /// The reason why it cannot be decided what is asked for, if that is so; requests say it themselves.
    #[serde(skip)]
    pub unreadable: Option<Name>,
}

impl ClaimDevices {
    /// Reads JSON. Where it does not decode, the requests say what can be read of them.
    pub(super) fn of(text: &str) -> Self {
        #[derive(Deserialize)]
        struct Requests {
            #[serde(default, deserialize_with = "each")]
            requests: Vec<Request>,
        }
        serde_json::from_str(text).unwrap_or_else(|why: serde_json::Error| {
            let requests = serde_json::from_str(text).map(|Requests { requests }| requests);
            let unreadable = Some(why.to_string().into());
            Self { requests: requests.unwrap_or_default(), unreadable, ..Self::default() }
        })
    }
}

/// A request: `exactly`, or the first available of several sub-requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
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

impl Request {
    /// The DeviceClass that `exactly` names; nothing in a list of alternatives.
    pub fn class(&self) -> Option<&Name> {
        let class = &self.exactly.as_ref()?.asked.device_class_name;
        (!class.is_empty()).then_some(class)
    }

    /// Whether it asks for admin access. Alternatives cannot.
    pub fn is_admin(&self) -> bool {
        self.exactly.as_ref().is_some_and(|of| of.admin_access == Some(true))
    }
}

/// `exactly` of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactRequest {
    /// `adminAccess`: access to devices that other claims may hold.
    pub admin_access: Option<bool>,
    /// The fields that requests and sub-requests have in common.
    #[serde(flatten)]
    pub asked: SubRequest,
}

/// The fields that requests and sub-requests have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
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
    /// `count`, of mode `ExactCount`. Without it, and for zero, it is one, as the API server sets it.
    #[serde(default = "one", deserialize_with = "or_one")]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(from = "Name")]
pub enum AllocationMode {
    /// As many devices as `count`.
    #[default]
    ExactCount,
    /// All matching devices.
    All,
    /// A mode that this version does not know.
    Unknown(Name),
}

fn one() -> i64 {
    1
}

fn or_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(Option::<i64>::deserialize(deserializer)?.filter(|count| *count != 0).unwrap_or_else(one))
}

impl From<Name> for AllocationMode {
    fn from(text: Name) -> Self {
        match &*text {
            // The API server sets the empty string to that.
            "ExactCount" | "" => Self::ExactCount,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(default)]
pub struct ClaimConfiguration {
    /// `requests`: names of requests or `request/subrequest`; empty: all requests.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<Name>,
    /// `opaque`.
    pub opaque: Option<OpaqueConfiguration>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn mode_and_count_are_those_that_the_api_server_sets() {
        let asked = |written: Value| {
            let exact: ExactRequest = serde_json::from_value(written.clone()).expect("a request");
            let sub: SubRequest = serde_json::from_value(written).expect("a sub-request");
            assert_eq!(exact.asked, sub);
            (sub.allocation_mode, sub.count)
        };
        for unset in [
            json!({}),
            json!({"count": 0, "allocationMode": ""}),
            json!({"count": null, "allocationMode": null}),
        ] {
            assert_eq!(asked(unset), (AllocationMode::ExactCount, 1));
        }
        assert_eq!(asked(json!({"count": 3})), (AllocationMode::ExactCount, 3));
        assert_eq!(asked(json!({"allocationMode": "All"})).0, AllocationMode::All);
        assert_eq!(asked(json!({"allocationMode": "Some"})).0, AllocationMode::Unknown("Some".into()));
    }
}
