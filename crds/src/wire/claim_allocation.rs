//! The allocation of a ResourceClaim (`v1` and `v1beta1`).

use std::collections::BTreeMap;

use dragoman_accounting::amounts::Text;
use dragoman_accounting::claim::allocation::{Class, DeviceResult};
use dragoman_accounting::cluster::Claim;
use serde::Deserialize;

use super::{Meta, or_default};

/// A ResourceClaim with its allocation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClaimAllocation {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    #[serde(deserialize_with = "or_default")]
    devices: Devices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Devices {
    #[serde(deserialize_with = "or_default")]
    results: Vec<AllocationResult>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AllocationResult {
    driver: Box<str>,
    pool: Box<str>,
    device: Box<str>,
    #[serde(deserialize_with = "or_default")]
    admin_access: bool,
    consumed_capacity: Option<BTreeMap<Box<str>, Text>>,
}

impl ClaimAllocation {
    /// Returns the claim as accounting reads it.
    pub fn claim(&self) -> Claim {
        let result = |result: &AllocationResult| DeviceResult {
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            consumed: result.consumed_capacity.clone(),
            admin_access: result.admin_access,
            class: Class::default(),
        };
        let allocation = self.status.allocation.as_ref();
        Claim {
            namespace: self.metadata.namespace.as_ref().into(),
            name: self.metadata.name.as_ref().into(),
            uid: self.metadata.uid.as_ref().into(),
            results: allocation.map(|allocation| allocation.devices.results.iter().map(result).collect()),
        }
    }
}
