//! `AllocationResult`: the devices of a claim.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_quantity::Quantity;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::unreadable::each;
use crate::{Name, NodeSelector, OpaqueConfiguration, Tolerated, Toleration, known, or_default};

/// `status.allocation` of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    /// `devices`.
    #[serde(deserialize_with = "or_default")]
    pub devices: DeviceAllocation,
    /// `nodeSelector`: the nodes that can use the devices; without it, all nodes. Allocations for one node may
    /// share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Arc<NodeSelector>>,
}

/// `devices` of an allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct DeviceAllocation {
    /// `results`.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<DeviceResult>,
    /// `config`; nothing where an entry does not decode: who holds the devices is known without it.
    #[serde(deserialize_with = "config", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<AllocationConfiguration>,
}

fn config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AllocationConfiguration>, D::Error> {
    let config = Tolerated::<Vec<AllocationConfiguration>>::deserialize(deserializer)?;
    Ok(if let Tolerated::Read(config) = config { config } else { Vec::new() })
}

/// A field that this version does not know may say what else is held, or where: nothing is certain of any result then.
pub(super) fn decided<'de, D>(deserializer: D) -> Result<Option<Tolerated<Allocation>>, D::Error>
where
    D: Deserializer<'de>,
{
    let Some(text) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    let mut read = Tolerated::<Allocation>::of(&text);
    let path = known::unknown(&known::ALLOCATION, &mut serde_json::Deserializer::from_str(text.get()));
    let (Some(path), Tolerated::Read(allocation)) = (path, &mut read) else { return Ok(Some(read)) };
    if allocation.devices.results.is_empty() {
        return Ok(Some(Tolerated::Unreadable(known::why(&path))));
    }
    let why = known::why(&format!("status.allocation.{path}"));
    for result in &mut allocation.devices.results {
        result.unreadable.get_or_insert_with(|| why.clone());
    }
    Ok(Some(read))
}

/// A device, or a share of one, for one request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResult {
    /// `request`: the name of the request, or `request/subrequest`.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// `tolerations`, of the request.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// `bindingConditions`, of the device.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub binding_conditions: Vec<Name>,
    /// `bindingFailureConditions`, of the device.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub binding_failure_conditions: Vec<Name>,
    /// `shareID`, where the device allows multiple allocations.
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<Name>,
    /// `consumedCapacity`, where the device allows multiple allocations.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_capacity: BTreeMap<Name, Quantity>,
    /// `skipNodeOperations`, of the slice.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub skip_node_operations: Vec<Name>,
    /// The reason why the rest cannot be read, if that is so.
    #[serde(skip)]
    pub unreadable: Option<Name>,
}

impl DeviceResult {
    /// Whether it is access to a device that other claims may hold.
    pub fn is_admin(&self) -> bool {
        self.admin_access == Some(true)
    }

    /// Whether it is a share of a device. A device without capacity has shares as well.
    pub fn is_share(&self) -> bool {
        self.share_id.is_some() || !self.consumed_capacity.is_empty()
    }
}

/// An entry of `config` of an allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct AllocationConfiguration {
    /// `source`.
    pub source: ConfigSource,
    /// `requests`; empty: all requests.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Name>,
    /// `opaque`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueConfiguration>,
}

/// The source of a configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum ConfigSource {
    /// The device class.
    #[default]
    FromClass,
    /// The claim.
    FromClaim,
}
