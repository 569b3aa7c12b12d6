//! The costs of a device in a ResourceSlice, from the draft of KEP-5517 to Kubernetes 1.38:
//! conversions to the canonical model and back.
//!
//! The fields are definitions. An invalid definition is refused as a whole, with the field, because
//! a partial definition would count only a part of the costs.

mod print;
mod read;

use dragoman_objects::{
    Definitions, Device, NativeResourceMappings, NodeAllocatableResourceMappings, NodeAllocatableResources,
    Tolerated,
};
use serde::{Deserialize, Serialize};

pub use print::{Loss, to_1_36, to_1_37, to_draft};
pub use read::{Refused, Warning, from_1_36, from_1_37, from_draft, read};

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

impl DeviceFields {
    /// The fields of a device of a slice.
    ///
    /// # Errors
    /// The first one that does not decode.
    pub fn of(device: &Device) -> Result<Self, Refused> {
        Ok(Self {
            native_resource_mappings: known(
                "nativeResourceMappings",
                device.native_resource_mappings.as_deref(),
            )?,
            node_allocatable_resource_mappings: known(
                "nodeAllocatableResourceMappings",
                device.node_allocatable_resource_mappings.as_deref(),
            )?,
            node_allocatable_resources: known(
                "nodeAllocatableResources",
                device.node_allocatable_resources.as_deref(),
            )?,
        })
    }
}

fn known<T: Clone>(
    field: &str,
    costs: Option<&Tolerated<Definitions<T>>>,
) -> Result<Option<Definitions<T>>, Refused> {
    match costs {
        None => Ok(None),
        Some(Tolerated::Read(definitions)) => Ok(Some(definitions.clone())),
        Some(Tolerated::Unreadable(why)) => Err(Refused { field: field.to_owned(), why: why.to_string() }),
    }
}
