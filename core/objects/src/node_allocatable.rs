//! Node-allocatable resources of devices and claims (KEP-5517), in every generation of the API: the draft, Kubernetes 1.36,
//! 1.37 and 1.38. A device says what it costs, and the status of a Pod records what its claims take.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use dragoman_quantity::QuantityText;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Name, ResourceList, or_default};

/// Definitions by resource, each name once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Definitions<T>(pub BTreeMap<Name, T>);

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
        while let Some((name, definition)) = map.next_entry::<Name, T>()? {
            if definitions.contains_key(&name) {
                return Err(A::Error::custom(format!("[{name}] is defined twice")));
            }
            definitions.insert(name, definition);
        }
        Ok(Definitions(definitions))
    }
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
    pub capacity: Option<Name>,
}

/// A resource in Kubernetes 1.36.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceMapping {
    /// The capacity whose consumption is counted. If it is absent, devices are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<Name>,
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
    pub capacity_key: Option<Name>,
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

/// An entry of `status.nativeResourceClaimStatus`, the draft, which was never released.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeResourceClaimStatus {
    /// The claim.
    pub claim_info: ObjectReference,
    /// The containers that name the claim.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Name>,
    /// The amounts. A resource that comes twice counts twice.
    #[serde(deserialize_with = "or_default")]
    pub resources: Vec<NativeResource>,
}

/// The fields of an `ObjectReference` that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Name.
    pub name: Name,
    /// Uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<Name>,
}

/// The amount of a resource in the draft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeResource {
    /// The resource.
    pub resource_name: Name,
    /// The amount.
    pub quantity: QuantityText,
}

/// An entry of `status.nodeAllocatableResourceClaimStatuses`, Kubernetes 1.36 or 1.37.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceClaimStatus {
    /// The name of the claim.
    pub resource_claim_name: Name,
    /// The containers that name the claim.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Name>,
    /// Kubernetes 1.36: mapping and overhead in one amount.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub resources: ResourceList,
    /// Kubernetes 1.37: mappings by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// Kubernetes 1.37: overhead by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadStatus>,
}

/// An entry of `status.additionalNodeAllocatableResources`, Kubernetes 1.38.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdditionalNodeAllocatableResources {
    /// The object that the resources come from.
    pub source: SourceReference,
    /// The containers that name the source.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Name>,
    /// Mappings by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// Overhead by resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadStatus>,
}

/// An object in the namespace of the Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceReference {
    /// API group.
    pub api_group: Name,
    /// Kind.
    pub kind: Name,
    /// Name.
    pub name: Name,
}

/// The mapped amount of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MappingStatus {
    /// The resource.
    pub name: Name,
    /// The amount.
    pub quantity: QuantityText,
}

/// The overhead of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverheadStatus {
    /// The resource.
    pub name: Name,
    /// The amount for the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<QuantityText>,
    /// The amount for each container that names the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<QuantityText>,
}
