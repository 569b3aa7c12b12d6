//! The devices that claims hold.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{DeviceId, Name, own_name};
use dragoman_quantity::Decimal;

use crate::gates::Gates;
use crate::input::Cluster;

/// The devices that claims hold. Admin access is not counted.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Devices that are held exclusively.
    pub(super) whole: BTreeSet<DeviceId>,
    /// Devices with an allocated share.
    pub(super) shared: BTreeSet<DeviceId>,
    consumed: BTreeMap<DeviceId, BTreeMap<Name, Decimal>>,
}

impl Held {
    pub(super) fn new(cluster: &Cluster, gates: Gates) -> Self {
        let mut held = Self::default();
        let allocations = cluster.claims.iter().filter_map(|claim| claim.allocation.as_ref());
        let results = allocations.flat_map(|allocation| &allocation.devices.results);
        for result in results.filter(|result| result.admin_access != Some(true)) {
            let id = result.id();
            if result.share_id.is_none() || !gates.consumable_capacity {
                held.whole.insert(id);
                continue;
            }
            let consumed = held.consumed.entry(id.clone()).or_default();
            for (name, amount) in &result.consumed_capacity {
                let sum = consumed.entry(own_name(&result.driver, name).into()).or_default();
                *sum = sum.checked_add(amount.amount).unwrap_or(*sum);
            }
            held.shared.insert(id);
        }
        held
    }

    /// Whether a claim holds the device or a share of it.
    pub(super) fn at_all(&self, device: &DeviceId) -> bool {
        self.whole.contains(device) || self.shared.contains(device)
    }

    /// Returns the amount of a capacity that the shares consume, whichever way its name is spelled.
    pub(super) fn consumed(&self, device: &DeviceId, capacity: &Name) -> Decimal {
        let capacity = own_name(&device.driver, capacity);
        self.consumed.get(device).and_then(|of| of.get(capacity)).copied().unwrap_or_default()
    }
}
