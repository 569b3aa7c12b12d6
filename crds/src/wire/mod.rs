//! Slim views of Kubernetes objects, as they come over the wire.
//!
//! A type here names only the fields that somebody in Dragoman reads; every
//! field is optional or has a default, unknown fields are skipped without being
//! allocated (`managedFields` above all), and `null` is the same as absent where a
//! field may be absent, as
//! it is for the API server. What is decoded here is therefore the same on every
//! supported version of Kubernetes.
//!
//! Objects that Dragoman copies on (claim templates) keep their payload as raw
//! JSON, so that fields this version has never heard of survive.

mod claim;
mod claim_allocation;
mod meta;
mod node;
mod pod;
mod pod_group;
mod pod_resources;
mod resource_slice;
mod template;

pub use claim::{ConsumerReference, ResourceClaim, ResourceClaimStatus};
pub use claim_allocation::ClaimAllocation;
pub use meta::{ControllerRef, Meta, Name, Object, annotation};
pub use node::Node;
pub use pod::{ClaimEntry, ClaimEntryStatus, Pod, PodSpec, PodStatus};
pub use pod_group::{PodGroup, PodGroupSpec, PodGroupStatus};
pub use pod_resources::PodResources;
pub use resource_slice::ResourceSlice;
pub use template::ResourceClaimTemplate;

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

/// Whether an object-valued field is there at all; its content is skipped.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}
