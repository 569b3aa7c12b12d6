//! Draws of the devices in use on the counters of their pool.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::DeviceId;
use dragoman_quantity::Decimal;

use super::devices::{Devices, Listing, Pool, Scope, identified};
use super::objects::{ClaimKey, Counter, SliceDevice};
use crate::few::Few;

/// Tells the node where the claims that have a device use it, if it is one.
pub(super) type Place<'a> = &'a dyn Fn(&Few<ClaimKey>) -> Option<&'a str>;

/// A device of a pool with what it draws on counters.
pub(super) struct PoolDevice<'a> {
    pub(super) id: DeviceId,
    scope: &'a Scope,
    pub(super) counters: &'a [Counter],
    /// The claims that have it.
    pub(super) users: &'a Few<ClaimKey>,
}

/// Devices of a pool, and what its counters have.
pub(super) struct Drawn<'a> {
    has: BTreeMap<(&'a Scope, &'a str, &'a str), Decimal>,
    pub(super) devices: Vec<PoolDevice<'a>>,
}

impl Pool {
    /// The devices in use that draw on counters. `driver` and `name` are those of the pool.
    fn drawing(&self, driver: &str, name: &str, place: Place<'_>) -> impl Iterator<Item = PoolDevice<'_>> {
        let used = self.devices.iter().filter(|(_, entry)| !entry.users.is_empty());
        used.filter_map(move |(device, entry)| {
            let Listing { scope, device: SliceDevice { counters, .. }, .. } =
                self.only(device, place(&entry.users))?;
            let id = || identified(driver, name, device);
            (!counters.is_empty()).then(|| PoolDevice { id: id(), scope, counters, users: &entry.users })
        })
    }
}

impl<'a> Drawn<'a> {
    fn of(pool: &'a Pool, driver: &str, name: &str, place: Place<'_>) -> Self {
        Self { has: pool.counters(), devices: pool.drawing(driver, name, place).collect() }
    }

    /// Returns the amount that a counter has for devices of a scope. A counter of the scope comes before one
    /// of no node.
    fn has(&self, scope: &'a Scope, set: &'a str, name: &'a str) -> Option<Decimal> {
        let own = self.has.get(&(scope, set, name));
        own.or_else(|| self.has.get(&(&None, set, name))).copied()
    }

    /// The first counter of each set that the devices draw on beyond what it has: a device, the counter, what is taken and what there
    /// is. With `only` those of this device. The devices of a node are counted with those that belong to none, and these by
    /// themselves: what a node says of a pool counts against no device but its own.
    pub(super) fn overdrawn(
        &self,
        only: Option<&DeviceId>,
    ) -> Vec<(&PoolDevice<'a>, &'a Counter, Decimal, Decimal)> {
        let mut taken: BTreeMap<(&Scope, &str, &str), Decimal> = BTreeMap::new();
        for device in &self.devices {
            for counter in device.counters {
                let sum = taken.entry((device.scope, &counter.set, &counter.name)).or_default();
                *sum = sum.checked_add(counter.amount).unwrap_or(*sum);
            }
        }
        let (mut overdrawn, mut sets) = (Vec::new(), BTreeSet::new());
        for device in self.devices.iter().filter(|device| only.is_none_or(|only| device.id == *only)) {
            for counter in device.counters {
                let (scope, set, name) = (device.scope, &*counter.set, &*counter.name);
                let own = taken.get(&(scope, set, name)).copied().unwrap_or_default();
                let of_all = taken.get(&(&None, set, name)).filter(|_| scope.is_some());
                let sum = of_all.and_then(|of_all| own.checked_add(*of_all).ok()).unwrap_or(own);
                let has = self.has(scope, set, name).filter(|has| sum > *has);
                if let Some(has) = has.filter(|_| sets.insert((scope, set))) {
                    overdrawn.push((device, counter, sum, has));
                }
            }
        }
        overdrawn
    }

    /// Only the devices for which this is true.
    pub(super) fn only(mut self, is_used: impl Fn(&PoolDevice<'a>) -> bool) -> Self {
        self.devices.retain(is_used);
        self
    }
}

impl PoolDevice<'_> {
    /// Whether what it draws counts against a device of this scope.
    fn counts_for(&self, scope: &Scope) -> bool {
        self.scope.is_none() || self.scope == scope
    }
}

impl Devices {
    /// The devices in use that draw on counters, of each pool that has counters.
    pub(super) fn drawn<'a>(&'a self, place: Place<'a>) -> impl Iterator<Item = Drawn<'a>> {
        let pools = self.all_pools().filter(|(_, _, pool)| !pool.counters.is_empty());
        pools.map(move |(driver, name, pool)| Drawn::of(pool, driver, name, place))
    }

    /// Returns the devices in use whose draws on counters count against a device, itself included.
    pub(super) fn drawn_beside(&self, id: &DeviceId, place: Place<'_>) -> Option<Drawn<'_>> {
        let pool = self.pool(&id.driver, &id.pool).filter(|pool| !pool.counters.is_empty())?;
        let node = pool.devices.get(&*id.device).and_then(|entry| place(&entry.users));
        let own = pool.only(&id.device, node).filter(|own| !own.device.counters.is_empty())?;
        let sets: BTreeSet<&str> = own.device.counters.iter().map(|counter| &*counter.set).collect();
        let of_sets = |device: &PoolDevice<'_>| device.counters.iter().any(|of| sets.contains(&*of.set));
        let all = Drawn::of(pool, &id.driver, &id.pool, place);
        Some(all.only(|device| of_sets(device) && device.counts_for(&own.scope)))
    }
}
