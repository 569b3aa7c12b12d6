//! Devices of a pool that claims hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dragoman_objects::{DeviceResult, Name, own_name};
use dragoman_quantity::Decimal;
use rustc_hash::FxHashMap;

use super::Map;
use super::slice::PreparedSlice;
use crate::gates::Gates;

/// The allocations of one device. Admin access is not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    /// The number of allocations of the whole device.
    whole: u32,
    /// The number of allocated shares.
    shares: u32,
    /// The sum of the capacity that the shares consume, by name without the domain of the driver.
    consumed: Option<Arc<BTreeMap<Name, Decimal>>>,
}

impl Held {
    /// Whether a claim holds the device exclusively.
    pub(crate) fn exclusively(&self, gates: &Gates) -> bool {
        self.whole > 0 || (self.shares > 0 && !gates.consumable_capacity)
    }

    /// Whether a claim holds a share.
    pub(crate) fn shared(&self, gates: &Gates) -> bool {
        self.shares > 0 && gates.consumable_capacity
    }

    pub(crate) fn at_all(&self) -> bool {
        self.whole > 0 || self.shares > 0
    }

    /// Returns the amount of a capacity that the shares consume, whichever way its name is spelled. `driver`: that of the device.
    pub(crate) fn consumed(&self, driver: &str, capacity: &str) -> Decimal {
        let sum = |consumed: &Arc<BTreeMap<Name, Decimal>>| consumed.get(own_name(driver, capacity)).copied();
        self.consumed.as_ref().and_then(sum).unwrap_or_default()
    }

    fn change(&mut self, result: &DeviceResult, more: bool) {
        let count = if result.share_id.is_some() { &mut self.shares } else { &mut self.whole };
        *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
        if result.share_id.is_none() || result.consumed_capacity.is_empty() {
            return;
        }
        let consumed = Arc::make_mut(self.consumed.get_or_insert_default());
        for (name, amount) in &result.consumed_capacity {
            let own = own_name(&result.driver, name);
            let sum =
                consumed.entry(if own.len() == name.len() { name.clone() } else { own.into() }).or_default();
            let amount = if more { amount.amount } else { amount.amount.negated() };
            // A sum beyond 38 digits exceeds the capacity of any device. It is left unchanged.
            *sum = sum.checked_add(amount).unwrap_or(*sum);
        }
        consumed.retain(|_, sum| !sum.is_zero());
        if consumed.is_empty() {
            self.consumed = None;
        }
    }
}

#[derive(Debug, Clone)]
struct SliceHeld {
    slice: Arc<PreparedSlice>,
    devices: Arc<[Held]>,
    /// Whether every device is held as a whole.
    all: bool,
}

/// The held devices of a pool, by name, and per slice by index.
#[derive(Debug, Default)]
pub(crate) struct PoolHeld {
    by_device: Map<Name, Held>,
    by_slice: Mutex<FxHashMap<u64, SliceHeld>>,
}

impl PoolHeld {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_device.is_empty()
    }

    /// Returns the state after a claim took the device of a result, or released it.
    pub(crate) fn changed(&self, result: &DeviceResult, more: bool) -> Self {
        let mut held = self.by_device.get(&result.device).cloned().unwrap_or_default();
        held.change(result, more);
        let by_device = if held.at_all() {
            self.by_device.insert(result.device.clone(), held)
        } else {
            self.by_device.remove(&result.device)
        };
        // The entry of a slice that does not have the device stays valid.
        let mut by_slice = self.by_slice.lock().unwrap_or_else(PoisonError::into_inner).clone();
        by_slice.retain(|_, known| known.slice.place(&result.device).is_none());
        Self { by_device, by_slice: Mutex::new(by_slice) }
    }

    /// Returns the held state of a slice's devices, in their order. Empty if none is held.
    pub(crate) fn of_slice(&self, slice: &Arc<PreparedSlice>) -> Arc<[Held]> {
        self.with_slice(slice, |known| known.devices.clone())
    }

    /// Whether every device of a slice is held as a whole.
    pub(crate) fn is_all_of(&self, slice: &Arc<PreparedSlice>) -> bool {
        self.with_slice(slice, |known| known.all)
    }

    fn with_slice<T>(&self, slice: &Arc<PreparedSlice>, say: impl FnOnce(&SliceHeld) -> T) -> T {
        let mut by_slice = self.by_slice.lock().unwrap_or_else(PoisonError::into_inner);
        say(by_slice.entry(slice.id).or_insert_with(|| {
            let of = |name: &Name| self.by_device.get(name).cloned().unwrap_or_default();
            let held: Vec<Held> = slice.devices.iter().map(|prepared| of(&prepared.device.name)).collect();
            let all = held.iter().all(|held| held.whole > 0);
            let devices = if held.iter().any(Held::at_all) { held.into() } else { Arc::default() };
            SliceHeld { slice: slice.clone(), devices, all }
        }))
    }
}
