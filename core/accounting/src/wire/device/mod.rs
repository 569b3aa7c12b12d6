//! The costs of a device in a ResourceSlice, from the draft of KEP-5517 to Kubernetes 1.38:
//! conversions to the canonical model and back.
//!
//! The fields are definitions. An invalid definition is refused as a whole, with the field, because
//! a partial definition would count only a part of the costs.

mod print;
mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use dragoman_quantity::QuantityText;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use print::{Loss, to_1_36, to_1_37, to_draft};
pub use read::{Refused, Warning, from_1_36, from_1_37, from_draft, read};

/// Definitions by resource, each name once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Definitions<T>(pub BTreeMap<Box<str>, T>);

impl<T> Default for Definitions<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Definitions<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Once(PhantomData))
    }
}

/// Refuses a name that comes twice, because either definition could be the intended one.
struct Once<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Once<T> {
    type Value = Definitions<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("definitions by resource")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut definitions = BTreeMap::new();
        while let Some((name, definition)) = map.next_entry::<Box<str>, T>()? {
            if definitions.contains_key(&name) {
                return Err(A::Error::custom(format!("[{name}] is defined twice")));
            }
            definitions.insert(name, definition);
        }
        Ok(Definitions(definitions))
    }
}

/// The fields of a device, of all generations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceFields {
    /// `nativeResourceMappings`, the draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_resource_mappings: Option<NativeResourceMappings>,
    /// `nodeAllocatableResourceMappings`, Kubernetes 1.36.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_allocatable_resource_mappings: Option<NodeAllocatableResourceMappings>,
    /// `nodeAllocatableResources`, Kubernetes 1.37 and later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_allocatable_resources: Option<NodeAllocatableResources>,
}

/// The draft, never shipped: `nativeResourceMappings`.
pub type NativeResourceMappings = Definitions<NativeResourceMapping>;
/// Kubernetes 1.36: `nodeAllocatableResourceMappings`.
pub type NodeAllocatableResourceMappings = Definitions<NodeAllocatableResourceMapping>;
/// Kubernetes 1.37 and later: `nodeAllocatableResources`.
pub type NodeAllocatableResources = Definitions<NodeAllocatableResource>;

/// A resource in the draft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeResourceMapping {
    /// The source of the amount; exactly one field is set.
    pub quantity_from: QuantityFrom,
}

/// The source of an amount in the draft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuantityFrom {
    /// The amount for each allocated device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_instance_quantity: Option<QuantityText>,
    /// The capacity whose consumption is the amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Box<str>>,
}

/// A resource in Kubernetes 1.36.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceMapping {
    /// The capacity whose consumption is counted. If it is absent, devices are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<Box<str>>,
    /// Units of the resource for each counted unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_multiplier: Option<QuantityText>,
}

/// A resource in Kubernetes 1.37 and later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResource {
    /// The amount that the device is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<ResourceMapping>,
    /// The cost of use besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<ResourceOverhead>,
    /// The amount that the driver holds (KEP-6352).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ResourceReservation>,
}

/// `mapping` in Kubernetes 1.37 and later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceMapping {
    /// The capacity whose consumption is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<Box<str>>,
    /// Units of the resource for each unit of that capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_multiplier: Option<QuantityText>,
    /// Units of the resource for each allocated device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_multiplier: Option<QuantityText>,
}

/// `overhead` in Kubernetes 1.37 and later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceOverhead {
    /// Once for each Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<QuantityText>,
    /// Once for each container that names the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<QuantityText>,
}

/// `reservation` of KEP-6352.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceReservation {
    /// Once for each device in use.
    pub per_device: Option<QuantityText>,
}
