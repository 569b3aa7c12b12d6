//! DriverOwner: the service accounts that allocate the devices of a driver (docs/protocol.md, section 5).

use dragoman_objects::{Meta, Object};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::claim_gate::ServiceAccount;

/// A DriverOwner.
#[derive(Debug, Clone, Deserialize)]
pub struct DriverOwner {
    /// `metadata`. The name is that of a driver.
    pub metadata: Meta,
    /// `spec`.
    pub spec: DriverOwnerSpec,
}

impl Object for DriverOwner {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// `spec` of a DriverOwner, which is cluster-scoped. Its name is that of the driver: the DriverOwner `gpu.example.com` is about
/// allocations with `driver: gpu.example.com` in their results. A driver has one DriverOwner, so that no two of them disagree.
///
/// The admission policy `dragoman-driver-owners` reads it, and so does the reference allocator: it allocates anew for a released Pod
/// that has lost all its devices, if kube-scheduler may not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriverOwnerSpec {
    /// The service accounts that may write an allocation with devices of the driver into a ResourceClaim, or take one away.
    /// kube-scheduler may do neither. The claim controllers may take one away.
    #[schemars(length(min = 1, max = 16))]
    pub owners: Vec<ServiceAccount>,
}
