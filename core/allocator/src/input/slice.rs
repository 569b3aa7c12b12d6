//! `ResourceSlice`: devices and the counters that they draw from.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_quantity::Quantity;
use serde::Deserialize;

use super::unreadable::each;
use super::{Name, NodeSelector, Taint, or_default};

/// A `ResourceSlice`: its `spec` and its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    /// `metadata.name`.
    #[serde(skip)]
    pub name: Name,
    /// `driver`.
    #[serde(deserialize_with = "or_default")]
    pub driver: Name,
    /// `pool`.
    #[serde(deserialize_with = "or_default")]
    pub pool: Pool,
    /// `nodeName`: the only node with access.
    pub node_name: Option<Name>,
    /// `nodeSelector`: the nodes with access.
    pub node_selector: Option<NodeSelector>,
    /// `allNodes`.
    #[serde(deserialize_with = "or_default")]
    pub all_nodes: bool,
    /// `perDeviceNodeSelection`: every device has its own node selection.
    #[serde(deserialize_with = "or_default")]
    pub per_device_node_selection: bool,
    /// `devices`.
    #[serde(deserialize_with = "each")]
    pub devices: Vec<Device>,
    /// `sharedCounters`.
    #[serde(deserialize_with = "each")]
    pub shared_counters: Vec<CounterSet>,
    /// `skipNodeOperations`.
    #[serde(deserialize_with = "or_default")]
    pub skip_node_operations: Vec<Name>,
}

/// `pool` of a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// `name`, unique within the driver.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `generation`. Only the highest one counts.
    #[serde(deserialize_with = "or_default")]
    pub generation: i64,
    /// `resourceSliceCount`: the number of slices of this generation.
    #[serde(deserialize_with = "or_default")]
    pub resource_slice_count: i64,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// `name`, unique within the pool.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `attributes`, by qualified name. Devices that have the same may share them.
    #[serde(deserialize_with = "or_default")]
    pub attributes: Arc<BTreeMap<Name, Attribute>>,
    /// `capacity`, by qualified name. Devices that have the same may share them.
    #[serde(deserialize_with = "or_default")]
    pub capacity: Arc<BTreeMap<Name, DeviceCapacity>>,
    /// `consumesCounters`.
    #[serde(deserialize_with = "or_default")]
    pub consumes_counters: Vec<CounterConsumption>,
    /// `nodeName`, with `perDeviceNodeSelection`.
    pub node_name: Option<Name>,
    /// `nodeSelector`, with `perDeviceNodeSelection`.
    pub node_selector: Option<NodeSelector>,
    /// `allNodes`, with `perDeviceNodeSelection`.
    #[serde(deserialize_with = "or_default")]
    pub all_nodes: bool,
    /// `taints`.
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
    /// `bindsToNode`.
    #[serde(deserialize_with = "or_default")]
    pub binds_to_node: bool,
    /// `bindingConditions`.
    #[serde(deserialize_with = "or_default")]
    pub binding_conditions: Vec<Name>,
    /// `bindingFailureConditions`.
    #[serde(deserialize_with = "or_default")]
    pub binding_failure_conditions: Vec<Name>,
    /// `allowMultipleAllocations`.
    #[serde(deserialize_with = "or_default")]
    pub allow_multiple_allocations: bool,
    /// The reason why the rest cannot be read, if that is so.
    #[serde(skip)]
    pub unreadable: Option<Name>,
}

/// An attribute. If several fields are set, the first one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "AttributeFields")]
pub enum Attribute {
    /// `int`.
    Int(i64),
    /// `bool`.
    Bool(bool),
    /// `string`.
    String(Name),
    /// `version`, a semantic version.
    Version(Name),
    /// `ints`.
    Ints(Vec<i64>),
    /// `bools`.
    Bools(Vec<bool>),
    /// `strings`.
    Strings(Vec<Name>),
    /// `versions`.
    Versions(Vec<Name>),
    /// No field is set, or a field that this version does not know.
    #[default]
    Unknown,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AttributeFields {
    int: Option<i64>,
    bool: Option<bool>,
    string: Option<Name>,
    version: Option<Name>,
    ints: Option<Vec<i64>>,
    bools: Option<Vec<bool>>,
    strings: Option<Vec<Name>>,
    versions: Option<Vec<Name>>,
}

impl From<AttributeFields> for Attribute {
    fn from(fields: AttributeFields) -> Self {
        let scalar = fields
            .int
            .map(Self::Int)
            .or_else(|| fields.bool.map(Self::Bool))
            .or_else(|| fields.string.map(Self::String))
            .or_else(|| fields.version.map(Self::Version));
        scalar
            .or_else(|| fields.ints.map(Self::Ints))
            .or_else(|| fields.bools.map(Self::Bools))
            .or_else(|| fields.strings.map(Self::Strings))
            .or_else(|| fields.versions.map(Self::Versions))
            .unwrap_or_default()
    }
}

/// A capacity of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCapacity {
    /// `value`.
    #[serde(deserialize_with = "or_default")]
    pub value: Quantity,
    /// `requestPolicy`. It is boxed because few capacities have one and it is large.
    pub request_policy: Option<Box<CapacityRequestPolicy>>,
}

/// `requestPolicy`: the amounts that may be consumed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRequestPolicy {
    /// `default`.
    pub default: Option<Quantity>,
    /// `validValues`.
    #[serde(deserialize_with = "or_default")]
    pub valid_values: Vec<Quantity>,
    /// `validRange`.
    pub valid_range: Option<CapacityRange>,
}

/// `validRange`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct CapacityRange {
    /// `min`.
    pub min: Option<Quantity>,
    /// `max`.
    pub max: Option<Quantity>,
    /// `step`.
    pub step: Option<Quantity>,
}

/// A set of counters that devices of the pool share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CounterSet {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `counters`.
    #[serde(deserialize_with = "or_default")]
    pub counters: BTreeMap<Name, Counter>,
    /// The reason why the rest cannot be read, if that is so.
    #[serde(skip)]
    pub unreadable: Option<Name>,
}

/// A counter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Counter {
    /// `value`.
    #[serde(deserialize_with = "or_default")]
    pub value: Quantity,
}

/// The amounts that a device draws from a counter set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterConsumption {
    /// `counterSet`.
    #[serde(deserialize_with = "or_default")]
    pub counter_set: Name,
    /// `counters`.
    #[serde(deserialize_with = "or_default")]
    pub counters: BTreeMap<Name, Counter>,
    /// `compatibilityGroups`.
    #[serde(deserialize_with = "or_default")]
    pub compatibility_groups: Vec<Name>,
}

/// The name of a capacity without the domain of its driver: with it and without it, it is the same capacity. A driver may
/// change the spelling while shares are held, and API servers from 1.38 on may record either.
pub fn own_name<'a>(driver: &str, capacity: &'a str) -> &'a str {
    capacity.strip_prefix(driver).and_then(|rest| rest.strip_prefix('/')).unwrap_or(capacity)
}

impl Device {
    /// Returns an attribute by its qualified name. If no attribute has that name and the domain is
    /// the driver, the unqualified name is looked up.
    pub fn attribute(&self, driver: &str, name: &str) -> Option<&Attribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            self.attributes.get(id).filter(|_| domain == driver)
        })
    }
}
