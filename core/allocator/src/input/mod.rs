//! The inputs of the allocator: plain structs, with the names and the spelling of the API
//! (`resource.k8s.io/v1`). An optional field may be `null`.

mod allocation;
mod claim;
mod class;
mod cluster;
mod known;
mod node;
mod object;
mod slice;
mod taint;
mod unreadable;

pub use allocation::{Allocation, AllocationConfiguration, ConfigSource, DeviceAllocation, DeviceResult};
pub use claim::{
    AllocationMode, CapacityRequirements, CelSelector, Claim, ClaimConfiguration, ClaimDevices, Constraint,
    DerivedAttribute, ExactRequest, Request, Selector, SubRequest,
};
pub use class::{Class, Configuration, OpaqueConfiguration, Parameters};
pub use cluster::Cluster;
pub use known::unknown_fields;
pub use node::{BadSelector, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
pub use object::{ClaimObject, ClassObject, NodeObject, SliceObject, TaintRuleObject};
pub use slice::{
    Attribute, CapacityRange, CapacityRequestPolicy, Counter, CounterConsumption, CounterSet, Device,
    DeviceCapacity, Pool, Slice, own_name,
};
pub use taint::{DeviceSelector, Taint, TaintRule, Toleration};

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

/// A name, or another string that many objects share.
pub type Name = Arc<str>;

/// A field that may be missing or `null` and then has its default value.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
