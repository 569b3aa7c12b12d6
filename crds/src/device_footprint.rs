//! DeviceFootprint: the costs of a driver's devices for their node, in clusters whose
//! ResourceSlices do not state them (KEP-5517 switched off, or a driver that does not publish
//! them).

use std::collections::BTreeMap;

use dragoman_accounting::claim::footprint::{AccountingPolicy, DeviceCost};
use dragoman_accounting::cluster::{self, Selector};
use dragoman_accounting::wire::device::{Refused, from_1_37};
use dragoman_objects::{
    Definitions, Meta, NodeAllocatableResource, Object, ResourceMapping, ResourceOverhead,
    ResourceReservation,
};
use dragoman_quantity::QuantityText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A DeviceFootprint.
#[derive(Debug, Clone, Deserialize)]
pub struct DeviceFootprint {
    /// `metadata`.
    #[serde(default)]
    pub metadata: Meta,
    /// `spec`.
    pub spec: DeviceFootprintSpec,
}

impl Object for DeviceFootprint {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl DeviceFootprint {
    /// Returns the DeviceFootprint as accounting reads it. Its selector is not evaluated yet.
    ///
    /// # Errors
    /// What the API server would have refused: names the field.
    pub fn accounted(&self) -> Result<cluster::DeviceFootprint, String> {
        let cost = self.spec.cost().map_err(|why| format!("spec.resources{why}"))?;
        Ok(cluster::DeviceFootprint {
            name: (*self.metadata.name).into(),
            driver: self.spec.driver.as_str().into(),
            selector: self.spec.selector.as_deref().map(Selector::unevaluated),
            cost,
        })
    }
}

/// `spec` of a DeviceFootprint, which is cluster-scoped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceFootprintSpec {
    /// The driver whose devices this is about, as `spec.driver` of its ResourceSlices.
    #[schemars(length(min = 1, max = 63))]
    pub driver: String,
    /// CEL over `device`, as in a DeviceClass: only the devices for which it is true.
    /// All devices of the driver where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10240))]
    pub selector: Option<String>,
    /// Costs of a device, by resource: cpu, memory, ephemeral-storage or hugepages-SIZE.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16, "x-kubernetes-validations" = [{
        "rule": "self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-'))",
        "message": "only cpu, memory, ephemeral-storage and hugepages-SIZE are node-allocatable"
    }]))]
    pub resources: BTreeMap<String, ResourceFootprint>,
}

impl DeviceFootprintSpec {
    /// Returns what each device costs, in the canonical model.
    ///
    /// # Errors
    /// What the API server would have refused: names the field.
    pub fn cost(&self) -> Result<DeviceCost, Refused> {
        let shape = |costs: &ResourceFootprint| NodeAllocatableResource {
            mapping: costs.mapping.as_ref().map(|mapping| ResourceMapping {
                capacity_key: mapping.capacity_key.as_deref().map(Into::into),
                capacity_multiplier: mapping.capacity_multiplier.clone(),
                device_multiplier: mapping.device_multiplier.clone(),
            }),
            overhead: costs.overhead.as_ref().map(|overhead| ResourceOverhead {
                per_pod: overhead.per_pod.clone(),
                per_container: overhead.per_container.clone(),
            }),
            reservation: costs
                .reservation
                .as_ref()
                .map(|reservation| ResourceReservation { per_device: Some(reservation.per_device.clone()) }),
        };
        let shapes = self.resources.iter().map(|(name, costs)| (name.as_str().into(), shape(costs)));
        let mut footprint = from_1_37(&Definitions(shapes.collect()))?;
        for (resource, costs) in &mut footprint.resources {
            let policy = self.resources.get(&resource.to_string()).and_then(|costs| costs.accounting_policy);
            costs.policy = policy;
        }
        Ok(footprint)
    }
}

/// Costs of a device in one resource. An absent field states no cost; it does not state zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.mapping) || has(self.overhead) || has(self.reservation)",
    "message": "one of mapping, overhead and reservation is required"
}]))]
pub struct ResourceFootprint {
    /// The device *is* this much of the resource: its claim takes it from the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Mapping>,
    /// Additional cost of using the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Amount that the driver itself holds while the device is in use (KEP-6352).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Reservation>,
    /// Rule by which several claims and containers add up. Where it is absent, the rule is that of
    /// Kubernetes: once for each claim, and the claim is for one Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting_policy: Option<AccountingPolicy>,
}

/// Conversion of an allocation into an amount (KEP-5517): per device, or per consumed capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.deviceMultiplier) != has(self.capacityKey)",
     "message": "exactly one of deviceMultiplier and capacityKey is required"},
    {"rule": "has(self.capacityKey) == has(self.capacityMultiplier)",
     "message": "capacityKey and capacityMultiplier require each other"},
    {"rule": "!has(self.deviceMultiplier) || quantity(string(self.deviceMultiplier)).isGreaterThan(quantity('0'))",
     "message": "must be greater than zero", "fieldPath": ".deviceMultiplier"},
    {"rule": "!has(self.capacityMultiplier) || quantity(string(self.capacityMultiplier)).isGreaterThan(quantity('0'))",
     "message": "must be greater than zero", "fieldPath": ".capacityMultiplier"}
]))]
pub struct Mapping {
    /// This much for each allocated device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_multiplier: Option<QuantityText>,
    /// The capacity of the device whose consumption is counted, as the slice spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 96))]
    pub capacity_key: Option<String>,
    /// Units of the resource for each unit of that capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_multiplier: Option<QuantityText>,
}

/// Additional cost of using a device (KEP-5517).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.perPod) || has(self.perContainer)",
    "message": "one of perPod and perContainer is required"
}]))]
pub struct Overhead {
    /// Once for each Pod that uses the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<QuantityText>,
    /// Once for each container that names the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_container: Option<QuantityText>,
}

/// Amount that the driver itself holds (KEP-6352).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reservation {
    /// Once for each device that any claim uses, however many use it.
    pub per_device: QuantityText,
}
