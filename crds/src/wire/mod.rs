//! Slim views of Kubernetes objects, as they come over the wire.
//!
//! A type here has only the fields that Dragoman reads. Every field is optional or has a default.
//! Unknown fields are skipped; `managedFields` is never allocated. `null` equals absent for each
//! field that may be absent, as in the API server. Decoding is therefore the same on every
//! supported version of Kubernetes.
//!
//! Objects that Dragoman copies (claim templates) keep their payload as raw JSON, so that fields
//! that this version does not know survive.

mod claim;
mod meta;
mod node;
mod pod;
mod pod_group;
mod pod_resources;
mod resource_slice;
mod template;
mod tolerated;

pub use claim::{
    AllocationResult, ConsumerReference, DELETE_PROTECTION, DeviceRequestAllocationResult, MAX_CONSUMERS,
    ResourceClaim, ResourceClaimStatus,
};
pub use meta::{Condition, ControllerRef, Meta, Name, Object, annotation};
pub use node::{Node, NodeSpec, OUT_OF_SERVICE, Taint};
pub use pod::{
    Affinity, ClaimEntry, ClaimEntryStatus, Container, ContainerStatus, Named, NodeAffinity, Pod, PodSpec,
    PodStatus, RequiredNodes, ResourceRequirements, Term, Toleration,
};
pub use pod_group::{GangPolicy, PodGroup, PodGroupSpec, PodGroupStatus, SCHEDULING_GROUP, SchedulingPolicy};
pub use resource_slice::ResourceSlice;
pub use template::ResourceClaimTemplate;
pub use tolerated::Tolerated;

use dragoman_accounting::wire::or_default;
use serde::{Deserialize, Deserializer};

macro_rules! objects {
    ($($kind:ident),+) => {
        $(impl Object for $kind {
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        })+
    };
}
objects!(Node, Pod, PodGroup, ResourceClaim, ResourceClaimTemplate, ResourceSlice);

/// Returns whether a field is present; its content is skipped.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}
