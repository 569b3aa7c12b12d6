//! `resource.k8s.io` ResourceClaim: `v1`, whose allocation `v1beta1` writes the same way.

use std::collections::BTreeMap;

use dragoman_accounting::claim::allocation::{Class, DeviceResult};
use dragoman_accounting::cluster;
use dragoman_quantity::QuantityText;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Meta, Name, SCHEDULING_GROUP, Tolerated, is_present, or_default};

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
        self.spec.devices.requests.iter().any(|r| r.exactly.admin_access)
    }

    /// Returns the DeviceClass that a request names; `request` is spelled as in a result.
    pub fn class_of(&self, request: &str) -> Option<&Name> {
        let (name, sub) = request.split_once('/').map_or((request, None), |(name, sub)| (name, Some(sub)));
        let request = self.spec.devices.requests.iter().find(|request| *request.name == *name)?;
        match sub {
            None => Some(&request.exactly.device_class_name),
            Some(sub) => {
                let sub = request.first_available.iter().find(|of| *of.name == *sub)?;
                Some(&sub.device_class_name)
            }
        }
    }

    /// Returns the claim as accounting reads it.
    ///
    /// # Errors
    /// The reason why the allocation does not decode.
    pub fn accounted(&self) -> Result<cluster::Claim, Box<str>> {
        let result = |result: &DeviceRequestAllocationResult| DeviceResult {
            request: result.request.clone(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            consumed: result.consumed_capacity.clone(),
            shared: result.is_share,
            admin_access: result.admin_access,
            class: Class::default(),
        };
        let results = match &self.status.allocation {
            None => None,
            Some(Tolerated::Read(allocation)) => {
                Some(allocation.devices.results.iter().map(result).collect())
            }
            Some(Tolerated::Unreadable(why)) => return Err(format!("status.allocation: {why}").into()),
        };
        Ok(cluster::Claim {
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            results,
            unread: None,
        })
    }
}

/// `spec` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimSpec {
    /// `devices`.
    pub devices: DeviceClaim,
    /// `devices` as JSON, for those who judge an allocation by all of it; empty where there is none.
    pub text: Name,
}

impl<'de> Deserialize<'de> for ClaimSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Text {
            devices: Option<Box<RawValue>>,
        }
        let Some(text) = Text::deserialize(deserializer)?.devices else { return Ok(Self::default()) };
        let devices = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self { devices, text: text.into() })
    }
}

/// `spec.devices`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// `requests`.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<DeviceRequest>,
}

/// `spec.devices.requests[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `exactly`.
    #[serde(deserialize_with = "or_default")]
    pub exactly: ExactDeviceRequest,
    /// `firstAvailable`.
    #[serde(deserialize_with = "or_default")]
    pub first_available: Vec<DeviceSubRequest>,
}

/// `spec.devices.requests[].firstAvailable[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `deviceClassName`.
    #[serde(deserialize_with = "or_default")]
    pub device_class_name: Name,
}

/// `spec.devices.requests[].exactly`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// `deviceClassName`.
    #[serde(deserialize_with = "or_default")]
    pub device_class_name: Name,
    /// `adminAccess`.
    #[serde(deserialize_with = "or_default")]
    pub admin_access: bool,
}

/// `status` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// `allocation`.
    pub allocation: Option<Tolerated<AllocationResult>>,
    /// `reservedFor`, in order: the position of an entry is what a JSON patch names.
    #[serde(deserialize_with = "or_default")]
    pub reserved_for: Vec<ConsumerReference>,
}

/// `status.allocation` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// `devices`.
    #[serde(deserialize_with = "or_default")]
    pub devices: DeviceAllocationResult,
    /// `nodeSelector`, as it came: the nodes that can use the devices; absent for all.
    pub node_selector: Option<serde_json::Value>,
}

/// `status.allocation.devices`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceAllocationResult {
    /// `results`.
    #[serde(deserialize_with = "or_default")]
    pub results: Vec<DeviceRequestAllocationResult>,
    /// `config` as JSON, for those who judge an allocation by all of it; empty where there is none.
    #[serde(deserialize_with = "text")]
    pub config: Name,
}

/// A value as JSON; empty where there is none.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    Ok(Option::<Box<RawValue>>::deserialize(deserializer)?.map(Into::into).unwrap_or_default())
}

/// `status.allocation.devices.results[]`: an allocated device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequestAllocationResult {
    /// `request`: the name of a request, or `request/subrequest` for one of `firstAvailable`.
    #[serde(deserialize_with = "or_default")]
    pub request: Name,
    /// `driver`.
    #[serde(deserialize_with = "or_default")]
    pub driver: Name,
    /// `pool`.
    #[serde(deserialize_with = "or_default")]
    pub pool: Name,
    /// `device`.
    #[serde(deserialize_with = "or_default")]
    pub device: Name,
    /// `adminAccess`.
    #[serde(deserialize_with = "or_default")]
    pub admin_access: bool,
    /// `consumedCapacity`, of a device that several claims share.
    pub consumed_capacity: Option<BTreeMap<Name, QuantityText>>,
    /// Whether there is a `shareID`: it is a share of a device.
    #[serde(rename = "shareID", deserialize_with = "is_present")]
    pub is_share: bool,
}

/// The API takes no more entries in `status.reservedFor` (since 1.33).
pub const MAX_CONSUMERS: usize = 256;

/// An entry of `status.reservedFor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerReference {
    /// `apiGroup`; empty for Pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub api_group: Name,
    /// `resource`, plural and lower case.
    #[serde(deserialize_with = "or_default")]
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
