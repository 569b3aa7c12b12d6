//! Shared counters of a pool (docs/allocator.md 1.9), and the compatibility groups of the devices
//! that draw from them (docs/allocator.md 1.10).

use std::collections::BTreeMap;

use dragoman_objects::{CounterConsumption, Device, Name};
use dragoman_quantity::Decimal;

use crate::snapshot::{PoolView, Snapshot, ViewDevice};

/// The amounts that an attempt has drawn from the counters of one pool.
#[derive(Debug, Clone)]
pub(crate) struct Drawn {
    /// The amounts that held devices leave. They are negative if a counter was reduced.
    available: Vec<Decimal>,
    used: Vec<Decimal>,
    /// A counter set that cannot be read, or a held device of which it is not known what it draws: no device that draws on counters is
    /// given.
    unknown: Option<Name>,
}

impl Drawn {
    /// The state before the attempt. A held device is charged once, however many claims hold it,
    /// and only while a slice has it.
    pub(crate) fn new(pool: &PoolView, snapshot: &Snapshot) -> Self {
        let mut available = pool.counters.declared.clone();
        let mut unknown = pool.counters.unknown.clone();
        // Where nothing is declared nothing is drawn, however many slices there are.
        let slices = pool.all_slices().filter(|_| !pool.counters.declared.is_empty());
        for slice in slices {
            let held = snapshot.held(slice);
            let devices = slice.devices.iter().zip(held.iter()).filter(|(_, held)| held.at_all());
            for (device, _) in devices {
                draw(&mut available, &pool.counters.drawn(&device.device), true);
                unknown = unknown.or_else(|| held_unknown(&device.device));
            }
        }
        Self { used: vec![Decimal::ZERO; available.len()], available, unknown }
    }

    /// The amount of each counter that held devices leave.
    pub(crate) fn available(&self) -> impl Iterator<Item = Decimal> {
        self.available.iter().copied()
    }

    /// Charges a device. Returns false and charges nothing if any counter of the pool is exceeded,
    /// including counters that the device does not draw from, or if nothing is known of them.
    pub(crate) fn charge(&mut self, device: &ViewDevice) -> bool {
        if self.unknown.is_some() {
            return false;
        }
        draw(&mut self.used, &device.draws, false);
        let holds = self.used.iter().zip(&self.available).all(|(used, available)| used <= available);
        if !holds {
            self.give_back(device);
        }
        holds
    }

    /// Returns what is not known of the counters, if it keeps devices from being charged.
    pub(crate) fn unknown(&self) -> Option<&Name> {
        self.unknown.as_ref()
    }

    /// Returns the counter that keeps a device from being charged.
    pub(crate) fn short(&self, device: &ViewDevice) -> Option<usize> {
        let mut used = self.used.clone();
        draw(&mut used, &device.draws, false);
        used.iter().zip(&self.available).position(|(used, available)| used > available)
    }

    pub(crate) fn give_back(&mut self, device: &ViewDevice) {
        draw(&mut self.used, &device.draws, true);
    }
}

/// Returns why it is not known what a held device draws, if it is not.
fn held_unknown(device: &Device) -> Option<Name> {
    let why = device.unreadable.as_ref().filter(|_| device.draws_unknown)?;
    Some(format!("device {}, which is held: {why}", device.name).into())
}

fn draw(counters: &mut [Decimal], draws: &[(usize, Decimal)], less: bool) {
    for (number, amount) in draws {
        if let Some(counter) = counters.get_mut(*number) {
            let change = if less { counter.checked_sub(*amount) } else { counter.checked_add(*amount) };
            // A sum beyond 38 digits exceeds every counter. It is left unchanged.
            *counter = change.unwrap_or(*counter);
        }
    }
}

/// Compatibility groups in use: the state of each counter set of a pool after each device that draws from it
/// (docs/allocator.md 1.10).
#[derive(Debug, Clone, Default)]
pub struct Groups(BTreeMap<Name, Vec<Company>>);

/// The compatibility groups of the devices that draw from a counter set. The first device decides
/// the variant.
#[derive(Debug, Clone)]
enum Company {
    /// The first device names no groups, so no device may.
    Ungrouped,
    /// The first device names groups; these are the groups that all devices have in common. Held
    /// devices without groups change nothing.
    Grouped(Vec<Name>),
}

impl Company {
    fn joined(before: Option<&Self>, groups: &[Name]) -> Self {
        match before {
            None if groups.is_empty() => Self::Ungrouped,
            None => Self::Grouped(groups.to_vec()),
            Some(Self::Grouped(common)) if !groups.is_empty() => {
                Self::Grouped(common.iter().filter(|group| groups.contains(group)).cloned().collect())
            }
            Some(before) => before.clone(),
        }
    }

    fn admits(&self, groups: &[Name]) -> bool {
        match self {
            Self::Ungrouped => groups.is_empty(),
            Self::Grouped(common) => groups.iter().any(|group| common.contains(group)),
        }
    }
}

impl Groups {
    /// The state before the attempt.
    pub(crate) fn new(pool: &PoolView, snapshot: &Snapshot) -> Self {
        let mut groups = Self::default();
        for slice in pool.all_slices() {
            let held = snapshot.held(slice);
            let devices = slice.devices.iter().zip(held.iter()).filter(|(_, held)| held.at_all());
            devices.for_each(|(device, _)| groups.push(&device.device));
        }
        groups
    }

    /// Adds a device that is held already. Held devices are added in the order of the slices that list them: the first one decides.
    pub fn push(&mut self, device: &Device) {
        for consumption in &device.consumes_counters {
            let known = self.0.entry(consumption.counter_set.clone()).or_default();
            known.push(Company::joined(known.last(), &consumption.compatibility_groups));
        }
    }

    /// Adds a device. Returns false if a counter set does not admit it: the first device of the set
    /// decides whether all devices must name groups or none may, and named groups must have one in
    /// common.
    pub(crate) fn add(&mut self, device: &Device) -> bool {
        let admitted = self.refusing(device).is_none();
        if admitted {
            self.push(device);
        }
        admitted
    }

    /// Returns the counter set that does not admit a device.
    pub fn refusing<'a>(&self, device: &'a Device) -> Option<&'a Name> {
        let refuses = |consumption: &&CounterConsumption| {
            let company = self.0.get(&consumption.counter_set).and_then(|known| known.last());
            company.is_some_and(|company| !company.admits(&consumption.compatibility_groups))
        };
        device.consumes_counters.iter().find(refuses).map(|consumption| &consumption.counter_set)
    }

    pub(crate) fn remove(&mut self, device: &Device) {
        for consumption in &device.consumes_counters {
            if let Some(known) = self.0.get_mut(&consumption.counter_set) {
                known.pop();
            }
        }
    }
}
