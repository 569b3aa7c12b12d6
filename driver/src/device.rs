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
    /// Its name in the pool.
    pub name: String,
    /// Its attributes. A name without a domain is in that of the driver.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Attribute>,
    /// What can be taken of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Capacity>,
    /// Why claims do not get it unless they tolerate that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// What it takes of the counters of its pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumes_counters: Vec<ConsumedCounters>,
    /// Whether several claims may have shares of it (KEP-5075).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_multiple_allocations: bool,
    /// What it takes of the node itself, by resource (KEP-5517). It is published in the shape of the API server's version.
    #[serde(skip)]
    pub node_allocatable: BTreeMap<String, NodeAllocatable>,
}

/// What a device takes of a resource of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAllocatable {
    /// This quantity for each device that is allocated.
    PerDevice(String),
    /// For each unit of a capacity that is consumed this quantity.
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
    /// How much a share may take (KEP-5075), as the API has it.
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
    /// Its key, with a domain.
    pub key: String,
    /// Its value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `None`.
    pub effect: String,
}

/// Counters that devices of a pool share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterSet {
    /// Its name in the pool.
    pub name: String,
    /// The counters, each with its quantity.
    pub counters: BTreeMap<String, Capacity>,
}

/// What a device takes of a set of counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumedCounters {
    /// The set.
    pub counter_set: String,
    /// The counters of it, each with its quantity.
    pub counters: BTreeMap<String, Capacity>,
}
