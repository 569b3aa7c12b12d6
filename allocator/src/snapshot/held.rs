//! What claims hold of the devices of a pool.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dragoman_quantity::Decimal;
use rustc_hash::FxHashMap;

use super::Map;
use super::slice::PreparedSlice;
use crate::gates::Gates;
use crate::input::{DeviceResult, Name};

/// What claims hold of one device. Admin access holds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    /// Allocations of the whole device.
    whole: u32,
    /// Allocations of a share.
    shares: u32,
    /// The sum of what the shares consume.
    consumed: Option<Arc<BTreeMap<Name, Decimal>>>,
}

impl Held {
    /// Whether somebody has the device for himself.
    pub(crate) fn exclusively(&self, gates: &Gates) -> bool {
        self.whole > 0 || (self.shares > 0 && !gates.consumable_capacity)
    }

    /// Whether somebody has a share.
    pub(crate) fn shared(&self, gates: &Gates) -> bool {
        self.shares > 0 && gates.consumable_capacity
    }

    pub(crate) fn at_all(&self) -> bool {
        self.whole > 0 || self.shares > 0
    }

    /// What shares consume of a capacity.
    pub(crate) fn consumed(&self, capacity: &str) -> Decimal {
        self.consumed.as_ref().and_then(|consumed| consumed.get(capacity).copied()).unwrap_or_default()
    }

    fn change(&mut self, result: &DeviceResult, more: bool) {
        let count = if result.share_id.is_some() { &mut self.shares } else { &mut self.whole };
        *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
        if result.share_id.is_none() || result.consumed_capacity.is_empty() {
            return;
        }
        let consumed = Arc::make_mut(self.consumed.get_or_insert_default());
        for (name, amount) in &result.consumed_capacity {
            let sum = consumed.entry(name.clone()).or_default();
            let amount = if more { amount.amount } else { amount.amount.negated() };
            // Sums beyond 38 digits are more than any device has: they stay what they were.
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

/// What claims hold of a pool, and the same for each slice by place.
#[derive(Debug, Default)]
pub(crate) struct PoolHeld {
    by_device: Map<Name, Held>,
    by_slice: Mutex<FxHashMap<u64, SliceHeld>>,
}

impl PoolHeld {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_device.is_empty()
    }

    /// After a claim got the device of a result, or gave it back.
    pub(crate) fn changed(&self, result: &DeviceResult, more: bool) -> Self {
        let mut held = self.by_device.get(&result.device).cloned().unwrap_or_default();
        held.change(result, more);
        let by_device = if held.at_all() {
            self.by_device.insert(result.device.clone(), held)
        } else {
            self.by_device.remove(&result.device)
        };
        // A slice without the device still has what it had.
        let mut by_slice = self.by_slice.lock().unwrap_or_else(PoisonError::into_inner).clone();
        by_slice.retain(|_, known| known.slice.place(&result.device).is_none());
        Self { by_device, by_slice: Mutex::new(by_slice) }
    }

    /// What is held of the devices of a slice, in their order; empty: nothing.
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
