//! The canonical model of the costs of a device, for every generation of the API
//! (docs/accounting.md 1).

use std::collections::BTreeMap;

use dragoman_objects::Name;
use dragoman_quantity::Decimal;
use serde::{Deserialize, Serialize};

use crate::resource::Resource;

/// The costs of a device, by resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DeviceCost {
    /// By resource. What is absent is not said, which is not zero.
    pub resources: BTreeMap<Resource, ResourceFootprint>,
}

/// The costs of a device for one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ResourceFootprint {
    /// The device is this much of the resource.
    pub mapping: Option<Mapping>,
    /// The cost of use besides.
    pub overhead: Option<Overhead>,
    /// The amount that the driver holds while the device is in use, once for all users (KEP-6352).
    pub reservation: Option<Decimal>,
    /// The rule by which several claims and containers add up; `None`: as Kubernetes does.
    pub policy: Option<AccountingPolicy>,
    /// Whether a DeviceFootprint defines this, and not the ResourceSlice. Kubernetes then knows
    /// nothing of it.
    pub local: bool,
}

/// The conversion of an allocation into an amount.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// The unit that is counted.
    pub basis: Basis,
    /// Units of the resource for each counted unit.
    pub multiplier: Decimal,
}

/// The unit that a mapping counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Basis {
    /// Allocated devices.
    PerDevice,
    /// The consumption of the capacity of this name, spelled as in the slice.
    Capacity(Name),
}

/// The cost of use besides the mapping. At least one field is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Overhead {
    /// Once for each Pod.
    pub per_pod: Option<Decimal>,
    /// Once for each container that names the claim.
    pub per_container: Option<Decimal>,
}

/// The rule by which the amounts of several claims and containers add up.
// docs/accounting.md 3. A line of the documentation is a line of the CustomResourceDefinitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum AccountingPolicy {
    /// The amount counts once for each claim.
    AddPerClaim,
    /// The amount counts once for each container that names the claim.
    AddPerReference,
    /// A container takes the larger of its own request and its claims' amounts.
    Max,
    /// The claim is a pool from which the requests of its containers are drawn.
    ConsumeFrom,
}

impl AccountingPolicy {
    /// Returns the policy for a resource of a device: that of the device, else that of its class.
    /// In the draft a device without either cannot be allocated to a claim that needs a policy.
    /// Kubernetes has no policies and counts once for each claim.
    pub fn resolved(device: Option<Self>, class: Option<Self>) -> Option<Self> {
        device.or(class)
    }
}
