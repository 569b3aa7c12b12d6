//! `ResourceSlice`: devices and the counters that they draw from.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_quantity::Quantity;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::known::costs;
use super::unreadable::each;
use super::{
    Definitions, Meta, Name, NativeResourceMapping, NodeAllocatableResource, NodeAllocatableResourceMapping,
    NodeSelector, Taint, Tolerated, known, or_default,
};

/// A ResourceSlice as the API server sends it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// `spec`, without the name.
    #[serde(deserialize_with = "decided")]
    pub spec: Slice,
}

impl ResourceSlice {
    /// The slice with its name.
    pub fn slice(&self) -> Slice {
        Slice { name: self.metadata.name.clone(), ..self.spec.clone() }
    }
}

/// The nodes of a slice, as they are written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfNodes {
    node_selector: Option<Value>,
}

/// A field that this version does not know may narrow every device and every counter of the slice.
fn decided<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Slice, D::Error> {
    let Some(text) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(Slice::default()) };
    let mut slice: Slice = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
    if let Some(why) = known::unknown_in(&known::SLICE, &text) {
        // A part of a node selector that is not known may add nodes.
        let selector: OfNodes = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        if selector.node_selector.is_some_and(|of| known::unknown(&known::NODE_SELECTOR, &of).is_some()) {
            slice.all_nodes = true;
            slice.node_selector = None;
        }
        for device in &mut slice.devices {
            device.unreadable.get_or_insert_with(|| why.clone());
        }
        for set in &mut slice.shared_counters {
            set.unreadable.get_or_insert_with(|| why.clone());
        }
    }
    Ok(slice)
}

/// Content of a ResourceSlice: its `spec` and its name.
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
    /// `nativeResourceMappings`, the draft of KEP-5517.
    #[serde(deserialize_with = "costs")]
    pub native_resource_mappings: Costs<NativeResourceMapping>,
    /// `nodeAllocatableResourceMappings`, Kubernetes 1.36.
    #[serde(deserialize_with = "costs")]
    pub node_allocatable_resource_mappings: Costs<NodeAllocatableResourceMapping>,
    /// `nodeAllocatableResources`, Kubernetes 1.37 and later.
    #[serde(deserialize_with = "costs")]
    pub node_allocatable_resources: Costs<NodeAllocatableResource>,
    /// Whether it draws from counters what cannot be read: while a claim holds it, nothing is known of the counters of its pool.
    #[serde(skip)]
    pub draws_unknown: bool,
    /// The reason why the rest cannot be read, if that is so.
    #[serde(skip)]
    pub unreadable: Option<Name>,
    /// The same, if attributes or capacities are missing because of it.
    #[serde(skip)]
    pub incomplete: Option<Name>,
}

/// The costs of a device for its node, by resource. They are boxed because few devices have any.
pub type Costs<T> = Option<Box<Tolerated<Definitions<T>>>>;

/// An attribute. If several fields are set, the first one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(from = "AttributeFields", into = "AttributeFields")]
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

#[derive(Deserialize, Serialize, Default)]
#[serde(default)]
struct AttributeFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    int: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bool: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    string: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ints: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bools: Option<Vec<bool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strings: Option<Vec<Name>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<Vec<Name>>,
}

impl From<Attribute> for AttributeFields {
    /// Nothing is set for a value that this version does not know.
    fn from(attribute: Attribute) -> Self {
        let none = Self::default();
        match attribute {
            Attribute::Int(value) => Self { int: Some(value), ..none },
            Attribute::Bool(value) => Self { bool: Some(value), ..none },
            Attribute::String(value) => Self { string: Some(value), ..none },
            Attribute::Version(value) => Self { version: Some(value), ..none },
            Attribute::Ints(values) => Self { ints: Some(values), ..none },
            Attribute::Bools(values) => Self { bools: Some(values), ..none },
            Attribute::Strings(values) => Self { strings: Some(values), ..none },
            Attribute::Versions(values) => Self { versions: Some(values), ..none },
            Attribute::Unknown => none,
        }
    }
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
    /// Drops its costs, for a reader that asks for its node's account elsewhere.
    pub fn forget_costs(&mut self) {
        self.native_resource_mappings = None;
        self.node_allocatable_resource_mappings = None;
        self.node_allocatable_resources = None;
    }

    /// Returns an attribute by its qualified name. If no attribute has that name and the domain is
    /// the driver, the unqualified name is looked up.
    pub fn attribute(&self, driver: &str, name: &str) -> Option<&Attribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            self.attributes.get(id).filter(|_| domain == driver)
        })
    }
}
