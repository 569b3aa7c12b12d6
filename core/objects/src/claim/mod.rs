//! `resource.k8s.io` ResourceClaim: `v1`, whose allocation `v1beta1` writes the same way.

mod allocation;
mod request;

pub use allocation::{Allocation, AllocationConfiguration, ConfigSource, DeviceAllocation, DeviceResult};
pub use request::{
    AllocationMode, CapacityRequirements, CelSelector, ClaimConfiguration, ClaimDevices, Constraint,
    DerivedAttribute, ExactRequest, Request, Selector, SubRequest,
};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Meta, Name, SCHEDULING_GROUP, Tolerated, known, or_default, well_known};

/// The finalizer that keeps an allocated claim. It is set with the allocation.
pub const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// A ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: ClaimSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: ResourceClaimStatus,
}

impl ResourceClaim {
    /// Whether any request asks for admin access. Only `exactly` can carry it:
    /// sub-requests of `firstAvailable` have no such field.
    pub fn admin_access(&self) -> bool {
        self.spec.devices.requests.iter().any(Request::is_admin)
    }

    /// Returns the DeviceClass that a request names; `request` is spelled as in a result.
    pub fn class_of(&self, request: &str) -> Option<&Name> {
        let (name, sub) = request.split_once('/').map_or((request, None), |(name, sub)| (name, Some(sub)));
        let request = self.spec.devices.requests.iter().find(|request| *request.name == *name)?;
        match sub {
            None => request.class(),
            Some(sub) => {
                let sub = request.first_available.iter().find(|of| *of.name == *sub)?;
                Some(&sub.device_class_name)
            }
        }
    }

    /// The allocation, if there is one that decodes. A result of it may be unreadable all the same.
    pub fn allocation(&self) -> Option<&Allocation> {
        self.decoded_allocation().ok().flatten()
    }

    /// The allocation, if there is one. A result of it may be unreadable all the same.
    ///
    /// # Errors
    /// The reason why it does not decode.
    pub fn decoded_allocation(&self) -> Result<Option<&Allocation>, Name> {
        match &self.status.allocation {
            None => Ok(None),
            Some(Tolerated::Read(allocation)) => Ok(Some(allocation)),
            Some(Tolerated::Unreadable(why)) => Err(format!("status.allocation: {why}").into()),
        }
    }
}

/// `spec` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimSpec {
    /// `devices`.
    pub devices: ClaimDevices,
    /// Length of `devices` as JSON text, in bytes.
    pub size: usize,
}

impl<'de> Deserialize<'de> for ClaimSpec {
    /// Where the devices do not decode, or a field is not known, the claim is readable and says so.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Text {
            devices: Option<Box<RawValue>>,
        }
        let spec = Box::<RawValue>::deserialize(deserializer)?;
        let Text { devices } = serde_json::from_str(spec.get()).map_err(D::Error::custom)?;
        let size = devices.as_ref().map_or(0, |text| text.get().len());
        let mut devices = devices.map(|text| ClaimDevices::of(text.get())).unwrap_or_default();
        if devices.unreadable.is_none() {
            devices.unreadable = known::unknown_in(&known::CLAIM, &spec);
        }
        Ok(Self { devices, size })
    }
}

/// `status` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// `allocation`.
    #[serde(deserialize_with = "allocation::decided")]
    pub allocation: Option<Tolerated<Allocation>>,
    /// `reservedFor`, in order: the position of an entry is what a JSON patch names.
    #[serde(deserialize_with = "or_default")]
    pub reserved_for: Vec<ConsumerReference>,
}

/// The API takes no more entries in `status.reservedFor` (since 1.33).
pub const MAX_CONSUMERS: usize = 256;

/// An entry of `status.reservedFor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerReference {
    /// `apiGroup`; empty for Pods.
    #[serde(deserialize_with = "well_known::text", skip_serializing_if = "str::is_empty")]
    pub api_group: Name,
    /// `resource`, plural and lower case.
    #[serde(deserialize_with = "well_known::text")]
    pub resource: Name,
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `uid`.
    #[serde(deserialize_with = "or_default")]
    pub uid: Name,
}

impl ConsumerReference {
    /// A Pod as a consumer.
    pub fn pod(name: Name, uid: Name) -> Self {
        Self { api_group: Name::default(), resource: "pods".into(), name, uid }
    }

    /// A PodGroup as a consumer (KEP-5729).
    pub fn pod_group(name: Name, uid: Name) -> Self {
        Self { api_group: SCHEDULING_GROUP.into(), resource: "podgroups".into(), name, uid }
    }

    /// Whether the consumer is a Pod.
    pub fn is_pod(&self) -> bool {
        (&*self.api_group, &*self.resource) == ("", "pods")
    }

    /// Whether the consumer is the Pod of this uid, or the PodGroup of this name that the Pod is in.
    pub fn stands_for(&self, uid: &str, group: Option<&str>) -> bool {
        *self.uid == *uid || (self.is_pod_group() && group == Some(&*self.name))
    }

    /// Whether the consumer is a PodGroup.
    pub fn is_pod_group(&self) -> bool {
        (&*self.api_group, &*self.resource) == (SCHEDULING_GROUP, "podgroups")
    }
}
