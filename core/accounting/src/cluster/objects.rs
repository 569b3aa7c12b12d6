//! The objects that say something of nodes, as far as accounting reads them.

use std::sync::Arc;

use dragoman_objects::Name;
use dragoman_quantity::Decimal;

use super::Selector;
use crate::amounts::Amounts;
use crate::claim::allocation::{Device, DeviceResult};
use crate::claim::footprint::DeviceCost;
use crate::few::Few;
use crate::pod::PodSpecView;
use crate::unaccounted::Unaccounted;

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Name of the Node.
    pub name: Name,
    /// `status.allocatable`.
    pub allocatable: Amounts,
    /// Entries of `status.allocatable` that could not be read.
    pub unaccounted: Vec<Unaccounted>,
}

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Requests of the Pod, and the amounts that its status records of its claims.
    pub view: PodSpecView,
    /// `spec.nodeName`.
    pub node: Option<Name>,
    /// Whether it has succeeded or failed: it takes nothing any more.
    pub done: bool,
    /// Whether it is a holder Pod: it takes nothing itself.
    pub holder: bool,
    /// Claims of the Pod.
    pub claims: Vec<PodClaim>,
    /// Number of the entries of `spec.resourceClaims` that were not read: their claims count where they are reserved for the Pod.
    pub left_out: usize,
    /// Fields of the Pod that could not be read.
    pub unaccounted: Vec<Unaccounted>,
}

impl Pod {
    /// The Pod as an index keeps it: without what no charge depends on, and with many containers as their sum.
    #[must_use]
    pub fn condensed(mut self) -> Self {
        // No charge depends on limits; the budget of a Pod with claims does.
        if self.view.pod_level.is_none() || self.claims.is_empty() {
            self.view.forget_limits();
        }
        self.view.merge_containers();
        self
    }

    /// Whether it may use claims that it does not name: entries were not read, or its status does not name their claims.
    pub(super) fn is_incomplete(&self) -> bool {
        self.left_out > 0 || self.claims.iter().any(|entry| entry.claim == ClaimName::NotYet)
    }
}

impl PodClaim {
    /// A claim that is reserved for a Pod which does not name it: any container that names a claim may use it.
    pub fn unnamed(name: Name, pod: &PodSpecView) -> Self {
        let naming = pod.containers.iter().filter(|container| container.names_claims).count();
        // No container has such a name: the overhead of each counts, and none draws on what the claim has.
        let containers = (0..naming).map(|number| Name::from(format!("/{number}"))).collect();
        Self { claim: ClaimName::Named(name), containers, extended: false }
    }
}

/// A claim of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodClaim {
    /// The claim object.
    pub claim: ClaimName,
    /// The containers that name it.
    pub containers: Few<Name>,
    /// Whether kube-scheduler made it for extended resources: no entry of the spec names it (KEP-5004).
    pub extended: bool,
}

/// The claim of an entry of `spec.resourceClaims`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClaimName {
    /// There will be one, but it is not created yet, or the status does not name it.
    #[default]
    NotYet,
    /// The entry needs none.
    None,
    /// Name of the claim.
    Named(Name),
}

impl ClaimName {
    /// The name, if there is one.
    pub fn name(&self) -> Option<&str> {
        if let Self::Named(name) = self { Some(name) } else { None }
    }
}

/// A ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// Namespace of the claim.
    pub namespace: Name,
    /// Name of the claim.
    pub name: Name,
    /// Uid of the claim.
    pub uid: Name,
    /// The node that the allocation names, if it names one.
    pub node: Option<Name>,
    /// The uids of `status.reservedFor`. They count for a Pod that does not name all its claims.
    pub reserved_for: Few<Name>,
    /// `status.allocation.devices.results`; `None`: not allocated, or the allocation does not decode.
    pub results: Option<Vec<DeviceResult>>,
    /// Why the claim, its allocation or one of the results does not decode, if that is so.
    pub unread: Option<Name>,
}

/// A ResourceSlice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// Name of the slice.
    pub name: Name,
    /// `spec.driver`.
    pub driver: Name,
    /// `spec.pool.name`.
    pub pool: Name,
    /// `spec.pool.generation`: older ones do not count.
    pub generation: i64,
    /// `spec.nodeName`; `None`: its devices are of several nodes, or each says so itself.
    pub node: Option<Name>,
    /// Devices of the slice.
    pub devices: Vec<SliceDevice>,
    /// `sharedCounters`: what the devices of its pool draw on. One that cannot be read is left out.
    pub counters: Vec<Counter>,
}

/// An amount of a counter: what a set has, or what a device draws from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Counter {
    /// The name of the set.
    pub set: Name,
    /// Name of the counter in the set.
    pub name: Name,
    /// The amount.
    pub amount: Decimal,
}

/// A device of a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SliceDevice {
    /// Name of the device.
    pub name: Name,
    /// `nodeName` of the device.
    pub node: Option<Name>,
    /// Costs and capacities of the device.
    pub device: Device,
    /// `attributes`, as JSON, for selectors; empty where there are none.
    pub attributes: Name,
    /// `allowMultipleAllocations`, for selectors.
    pub allow_multiple_allocations: bool,
    /// Notices for its author; for a definition that was refused, the reason.
    pub notices: Vec<Name>,
    /// Whether its definition was refused: its costs are not known.
    pub refused: bool,
    /// `consumesCounters`. One that cannot be read is left out.
    pub counters: Arc<[Counter]>,
}

/// A DeviceFootprint: for devices whose slices do not say what they cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceFootprint {
    /// Name of the DeviceFootprint.
    pub name: Name,
    /// The driver.
    pub driver: Name,
    /// The devices that it is about; absent: all of the driver.
    pub selector: Option<Selector>,
    /// The costs of each device.
    pub cost: DeviceCost,
}

/// `NAMESPACE/NAME` of a claim.
pub(super) type ClaimKey = Arc<str>;

/// The key of a claim.
pub(super) fn claim_key(namespace: &str, name: &str) -> ClaimKey {
    [namespace, "/", name].concat().into()
}
