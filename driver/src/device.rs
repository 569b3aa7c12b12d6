//! Devices as a driver describes them; field names are those of a `ResourceSlice`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The devices that are published together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// `spec.pool.name`; by convention the name of the node.
    pub name: String,
    /// `spec.sharedCounters`: what devices of the pool consume together.
    pub shared_counters: Vec<CounterSet>,
    /// `spec.devices`.
    pub devices: Vec<Device>,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Name of the device in its pool.
    pub name: String,
    /// Attributes of the device. A name without a domain is in the domain of the driver.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Attribute>,
    /// Capacities of the device, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Capacity>,
    /// Taints of the device: claims without a toleration for them do not get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Counters of the pool that the device takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumes_counters: Vec<ConsumedCounters>,
    /// Whether several claims may have shares of the device (KEP-5075).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_multiple_allocations: bool,
    /// Amounts that the device takes of the node itself, by resource (KEP-5517). They are published in the
    /// shape of the API server's version.
    #[serde(skip)]
    pub node_allocatable: BTreeMap<String, NodeAllocatable>,
}

/// Amount that a device takes of a resource of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAllocatable {
    /// This quantity for each device that is allocated.
    PerDevice(String),
    /// This quantity for each unit of a capacity that is consumed.
    PerCapacity {
        /// The capacity, as it stands in `capacity`.
        key: String,
        /// The quantity for a unit.
        multiplier: String,
    },
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attribute {
    /// A text of 64 characters at most.
    String(String),
    /// A number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// A version as semver has it.
    Version(String),
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::String(text) | Self::Version(text) => f.write_str(text),
            Self::Int(number) => number.fmt(f),
            Self::Bool(is) => is.fmt(f),
        }
    }
}

/// A capacity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capacity {
    /// A quantity.
    pub value: String,
    /// Rules for the amount that a share may take (KEP-5075), as the API has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<serde_json::Value>,
}

impl Capacity {
    /// A capacity of this quantity.
    pub fn of(value: &str) -> Self {
        Self { value: value.to_owned(), request_policy: None }
    }
}

/// A taint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key of the taint, with a domain.
    pub key: String,
    /// Value of the taint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `None`.
    pub effect: String,
}

/// Counters that devices of a pool share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterSet {
    /// Name of the set in its pool.
    pub name: String,
    /// The counters, each with its quantity.
    pub counters: BTreeMap<String, Capacity>,
}

/// Counters of one set that a device takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumedCounters {
    /// Name of the set.
    pub counter_set: String,
    /// Counters of the set, each with its quantity.
    pub counters: BTreeMap<String, Capacity>,
}
