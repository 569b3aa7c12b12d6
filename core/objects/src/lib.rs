//! Kubernetes objects as Dragoman reads them: one type for each kind, with every field that any crate reads. A new field
//! of the API is added here, and nowhere else.
//!
//! Every field is optional or has a default. `null` equals absent for each field that may be absent in the API.
//! `managedFields` is never allocated. Decoding is therefore the same on every supported version of Kubernetes.
//!
//! There is one rule for what cannot be read. An object of which a field has another type than the API says is not
//! decoded, with these exceptions, which say why they cannot be read and leave the rest of the object readable: the fields
//! of type [`Tolerated`], the devices that a claim asks for, and each element of the lists of devices, counter sets, requests
//! and results. Of the configuration in an allocation nothing is read then. A field of `resource.k8s.io` that
//! this version does not know makes its device, request or class undecidable ([`unknown_fields`]).
//!
//! Objects that Dragoman copies (claim templates) keep their payload as raw JSON, so that fields that this version does
//! not know survive.

mod claim;
mod class;
mod cutter;
mod device_id;
mod known;
mod label_selector;
mod meta;
mod node;
mod node_allocatable;
mod node_selector;
mod pod;
mod pod_group;
mod slice;
mod taint;
mod taint_rule;
mod template;
mod tolerated;
mod unreadable;
mod volume;
mod well_known;

pub use claim::{
    Allocation, AllocationConfiguration, AllocationMode, CapacityRequirements, CelSelector,
    ClaimConfiguration, ClaimDevices, ClaimSpec, ConfigSource, Constraint, ConsumerReference,
    DELETE_PROTECTION, DerivedAttribute, DeviceAllocation, DeviceResult, ExactRequest, MAX_CONSUMERS,
    Request, ResourceClaim, ResourceClaimStatus, Selector, SubRequest,
};
pub use class::{Class, Configuration, DeviceClass, OpaqueConfiguration, Parameters};
pub use cutter::Cutter;
pub use device_id::DeviceId;
pub use known::unknown_fields;
pub use label_selector::LabelSelector;
pub use meta::{Condition, ControllerRef, Meta, Object, annotation};
pub use node::{Node, NodeSpec, NodeStatus, OUT_OF_SERVICE};
pub use node_allocatable::{
    AdditionalNodeAllocatableResources, Definitions, MappingStatus, NativeResource,
    NativeResourceClaimStatus, NativeResourceMapping, NativeResourceMappings, NodeAllocatableResource,
    NodeAllocatableResourceClaimStatus, NodeAllocatableResourceMapping, NodeAllocatableResourceMappings,
    NodeAllocatableResources, ObjectReference, OverheadStatus, QuantityFrom, ResourceMapping,
    ResourceOverhead, ResourceReservation, SourceReference,
};
pub use node_selector::{BadSelector, Labels, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
pub use pod::{
    Affinity, ClaimEntries, ClaimEntry, ClaimEntryStatus, Container, ContainerPort, ContainerStatus,
    ExtendedResourceClaimStatus, Named, NodeAffinity, Pod, PodAffinity, PodAffinityTerm, PodSpec, PodStatus,
    PreferredTerm, ResourceRequirements, SchedulingGroup, TopologySpreadConstraint, Volume,
    VolumeClaimSource,
};
pub use pod_group::{GangPolicy, PodGroup, PodGroupSpec, PodGroupStatus, SCHEDULING_GROUP, SchedulingPolicy};
pub use slice::{
    Attribute, CapacityRange, CapacityRequestPolicy, Costs, Counter, CounterConsumption, CounterSet, Device,
    DeviceCapacity, Pool, ResourceSlice, Slice, own_name,
};
pub use taint::{Taint, Toleration};
pub use taint_rule::{DeviceSelector, DeviceTaintRule, TaintRule};
pub use template::{ResourceClaimTemplate, TemplateSpec};
pub use tolerated::Tolerated;
pub use volume::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, StorageClass,
    TopologySelectorRequirement, TopologySelectorTerm, VolumeNodeAffinity, VolumeRequirements, VolumeStatus,
    has_storage,
};

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_quantity::QuantityText;
use serde::{Deserialize, Deserializer};

/// A name, a uid, or another string that many objects share.
pub type Name = Arc<str>;

/// Quantities by resource, not parsed yet: `requests`, `limits`, `allocatable`.
pub type ResourceList = BTreeMap<Name, QuantityText>;

macro_rules! objects {
    ($($kind:ident),+) => {
        $(impl Object for $kind {
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        })+
    };
}
objects!(
    DeviceClass,
    DeviceTaintRule,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodGroup,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    StorageClass
);

/// Deserializes a field that may be missing or `null`; both give the default.
///
/// # Errors
/// The field is present and is neither `null` nor a `T`.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns whether a field is present; its content is skipped.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}
