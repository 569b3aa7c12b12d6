//! The slices of one pool, whichever nodes have access to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use dragoman_objects::{CounterSet, Device, Name, Slice};
use dragoman_quantity::Decimal;

use super::Map;
use super::slice::PreparedSlice;
use crate::gates::Gates;

/// All slices of a pool. Cheap to clone, and to derive from another by one slice.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolSlices {
    /// The revision of the snapshot that changed it last.
    revision: u64,
    slices: Map<Name, Arc<PreparedSlice>>,
    /// The number of slices without a `nodeName`.
    shared: usize,
    /// The newest generation, once a node has asked for it: without and with compatibility groups.
    whole: Arc<[OnceLock<Arc<Whole>>; 2]>,
}

/// The newest generation of a pool.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) generation: i64,
    /// Slices of the generation, by name.
    pub(crate) slices: Vec<Arc<PreparedSlice>>,
    /// Counters of the pool, once a node has asked for them; the error is a contradiction.
    counters: OnceLock<Result<Arc<Counters>, Arc<str>>>,
}

/// The counters of a pool, by counter set and name.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    numbers: BTreeMap<(Name, Name), usize>,
    /// The declared value of each counter.
    pub(crate) declared: Vec<Decimal>,
    /// A counter set that cannot be read: what devices draw from the pool cannot be counted.
    pub(crate) unknown: Option<Name>,
}

impl PoolSlices {
    /// The same with this slice, at a revision of the snapshot.
    pub(super) fn with(&self, slice: &Arc<PreparedSlice>, revision: u64) -> Self {
        let slices = self.slices.insert(slice.slice.name.clone(), slice.clone());
        let shared = self.shared + usize::from(slice.node_name().is_none());
        Self { revision, slices, shared, whole: Arc::default() }
    }

    /// The same without this slice, which is one of them.
    pub(super) fn without(&self, slice: &Arc<PreparedSlice>, revision: u64) -> Self {
        let slices = self.slices.remove(&slice.slice.name);
        let shared = self.shared - usize::from(slice.node_name().is_none());
        Self { revision, slices, shared, whole: Arc::default() }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Whether a slice belongs to no single node.
    pub(super) fn is_shared(&self) -> bool {
        self.shared > 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<PreparedSlice>> {
        self.slices.values()
    }

    /// The newest generation. It is computed once for all nodes.
    pub(super) fn whole(&self, gates: &Gates) -> Arc<Whole> {
        let [without, with] = &*self.whole;
        let whole = if gates.compatibility_groups { with } else { without };
        whole.get_or_init(|| Arc::new(self.newest(gates))).clone()
    }

    fn newest(&self, gates: &Gates) -> Whole {
        let known = || self.slices.values().filter(|slice| !slice.is_ignored(gates));
        let generation = known().map(|slice| slice.slice.pool.generation).max().unwrap_or(i64::MIN);
        let slices = known().filter(|slice| slice.slice.pool.generation == generation);
        Whole::of(generation, slices.cloned().collect())
    }
}

impl Whole {
    /// A generation of these slices.
    pub(super) fn of(generation: i64, mut slices: Vec<Arc<PreparedSlice>>) -> Self {
        slices.sort_by(|a, b| a.slice.name.cmp(&b.slice.name));
        Self { generation, slices, counters: OnceLock::new() }
    }

    /// The counters of all counter sets.
    ///
    /// # Errors
    /// Returns why the pool is invalid: its slices contradict each other.
    pub(super) fn counters(&self, gates: &Gates) -> Result<Arc<Counters>, Arc<str>> {
        if !gates.partitionable_devices {
            return Ok(Arc::default());
        }
        let sets = self.slices.iter().flat_map(|slice| &slice.slice.shared_counters);
        let devices = self.slices.iter().flat_map(|slice| &slice.devices);
        let devices = devices.map(|prepared| &*prepared.device);
        let counters = || match contradiction_of(sets, devices) {
            Some(why) => Err(why.into()),
            None => Ok(Arc::new(Counters::new(self.slices.iter()))),
        };
        self.counters.get_or_init(counters).clone()
    }
}

/// Returns why nothing is allocated from the pool that these slices of one generation make up: they contradict each other.
pub fn contradiction(slices: &[&Slice]) -> Option<String> {
    // A node that sees a device twice takes nothing from the pool; another one may see it once.
    let meet = |one: &Slice, other: &Slice| {
        one.name == other.name
            || one.all_nodes
            || other.all_nodes
            || (one.node_name.is_some() && one.node_name == other.node_name)
    };
    let mut places = BTreeMap::<&Name, Vec<&Slice>>::new();
    for slice in slices {
        for device in &slice.devices {
            let known = places.entry(&device.name).or_default();
            if known.iter().any(|other| meet(slice, other)) {
                return Some(format!("duplicate device name {}", device.name));
            }
            known.push(slice);
        }
    }
    let sets = slices.iter().flat_map(|slice| &slice.shared_counters);
    contradiction_of(sets, slices.iter().flat_map(|slice| &slice.devices))
}

/// Returns what contradicts itself in the counter sets.
fn contradiction_of<'a>(
    sets: impl Iterator<Item = &'a CounterSet>,
    devices: impl Iterator<Item = &'a Device>,
) -> Option<String> {
    let mut known: BTreeMap<&Name, Option<BTreeSet<&Name>>> = BTreeMap::new();
    for set in sets {
        let counters = set.unreadable.is_none().then(|| set.counters.keys().collect());
        if known.insert(&set.name, counters).is_some() {
            return Some(format!("duplicate counter set name {}", set.name));
        }
    }
    // Of a device whose draws cannot be read it is not known what it draws from.
    for device in devices.filter(|device| !device.draws_unknown) {
        for consumption in &device.consumes_counters {
            let Some(counters) = known.get(&consumption.counter_set) else {
                let set = &consumption.counter_set;
                return Some(device.unreadable.as_ref().map_or_else(
                    || format!("device {} consumes the unknown counter set {set}", device.name),
                    |why| format!("device {}: {why}", device.name),
                ));
            };
            // Of a set that cannot be read it is not known which counters it has.
            let Some(counters) = counters else { continue };
            let unknown = consumption.counters.keys().find(|counter| !counters.contains(counter));
            if let Some(counter) = unknown {
                let set = &consumption.counter_set;
                let name = &device.name;
                return Some(format!("device {name} consumes the unknown counter {counter} of set {set}"));
            }
        }
    }
    None
}

impl Counters {
    fn new<'a>(slices: impl Iterator<Item = &'a Arc<PreparedSlice>>) -> Self {
        let mut counters = Self::default();
        for set in slices.flat_map(|slice| &slice.slice.shared_counters) {
            let unknown =
                set.unreadable.as_ref().map(|why| format!("counter set {}: {why}", set.name).into());
            counters.unknown = counters.unknown.or(unknown);
            for (name, counter) in &set.counters {
                let number = counters.declared.len();
                counters.numbers.insert((set.name.clone(), name.clone()), number);
                counters.declared.push(counter.value.amount);
            }
        }
        counters
    }

    /// Returns the counter set and the name of a counter.
    pub(crate) fn name(&self, number: usize) -> Option<(&Name, &Name)> {
        let mut numbers = self.numbers.iter();
        numbers.find(|(_, known)| **known == number).map(|((set, name), _)| (set, name))
    }

    /// Returns the amounts that a device draws. Unknown counters are skipped: they make the pool
    /// invalid, so none of its devices is used.
    pub(crate) fn drawn(&self, device: &Device) -> Box<[(usize, Decimal)]> {
        let consumed = device.consumes_counters.iter().flat_map(|consumption| {
            let set = &consumption.counter_set;
            consumption.counters.iter().map(move |(name, counter)| ((set.clone(), name.clone()), counter))
        });
        let drawn =
            consumed.filter_map(|(key, counter)| Some((*self.numbers.get(&key)?, counter.value.amount)));
        drawn.collect()
    }
}
