//! What a device costs its node: the canonical model, whatever generation of the API
//! said it (docs/accounting.md 1).

use std::collections::BTreeMap;

use dragoman_quantity::Decimal;
use serde::{Deserialize, Serialize};

use crate::resource::Resource;

/// What a device costs, by resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceCost {
    /// By resource. What is absent is not said, which is not zero.
    pub resources: BTreeMap<Resource, ResourceFootprint>,
}

/// What a device costs of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceFootprint {
    /// The device is this much of the resource.
    pub mapping: Option<Mapping>,
    /// What using it costs besides.
    pub overhead: Option<Overhead>,
    /// What its driver holds while it is in use, whoever uses it (KEP-6352).
    pub reservation: Option<Decimal>,
    /// How several claims and containers add up; `None`: as Kubernetes does.
    pub policy: Option<AccountingPolicy>,
    /// A DeviceFootprint says so, and not the slice: Kubernetes knows nothing of it.
    pub local: bool,
}

/// How an allocation becomes an amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// What is counted.
    pub basis: Basis,
    /// Units of the resource for each of them.
    pub multiplier: Decimal,
}

/// What a mapping counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// Allocated devices.
    PerDevice,
    /// The consumption of the capacity of this name, spelled as in the slice.
    Capacity(Box<str>),
}

/// What using a device costs besides. At least one of the two is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overhead {
    /// Once for each Pod.
    pub per_pod: Option<Decimal>,
    /// Once for each container that names the claim.
    pub per_container: Option<Decimal>,
}

/// How the amounts of several claims and containers add up (docs/accounting.md 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AccountingPolicy {
    /// Once for each claim, however many containers name it.
    AddPerClaim,
    /// Once for each container that names the claim.
    AddPerReference,
    /// A container takes the larger of its own request and its claims' amounts.
    Max,
    /// The claim is a pool from which the requests of its containers are drawn.
    ConsumeFrom,
}

impl AccountingPolicy {
    /// The policy of a resource of a device: what the device says, else what its class
    /// says. `None`: neither does, and the device cannot be allocated for a claim that needs
    /// one (a rule of the draft; where Kubernetes itself counts, it adds once per claim).
    pub fn resolved(device: Option<Self>, class: Option<Self>) -> Option<Self> {
        device.or(class)
    }
}
