//! The pools that a node has access to (docs/allocator.md 1.2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_quantity::Decimal;

use super::slice::{PoolKey, PreparedSlice};
use crate::error::{Object, PodError};
use crate::gates::Gates;
use crate::input::{Device, Name, Node, NodeSelector, Taint, TaintRule};
use crate::selectors::Content;

/// The pools of one node, in the order in which their devices are tried.
#[derive(Debug)]
pub(crate) struct NodeView {
    shared_revision: u64,
    gates: Gates,
    pub(crate) pools: Vec<PoolView>,
    /// The slices of all usable pools, in order.
    pub(crate) slices: Vec<Arc<PreparedSlice>>,
    /// The devices of all usable pools, in order.
    pub(crate) devices: Vec<ViewDevice>,
    /// The error of a node selector in a slice. Every attempt on this node fails with it.
    pub(crate) error: Option<PodError>,
}

/// A pool of a node.
#[derive(Debug)]
pub(crate) struct PoolView {
    pub(crate) key: PoolKey,
    pub(crate) status: PoolStatus,
    /// The slices that the node has access to, by name.
    pub(crate) slices: Vec<Arc<PreparedSlice>>,
    /// The other slices of the same generation. They are known only if the completeness check had
    /// to look for them.
    pub(crate) others: Vec<Arc<PreparedSlice>>,
    /// The counters of all counter sets.
    pub(crate) counters: Counters,
}

/// The counters of a pool, by counter set and name.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    numbers: BTreeMap<(Name, Name), usize>,
    /// The declared value of each counter.
    pub(crate) declared: Vec<Decimal>,
}

impl Counters {
    fn new<'a>(slices: impl Iterator<Item = &'a Arc<PreparedSlice>>) -> Self {
        let mut counters = Self::default();
        for set in slices.flat_map(|slice| &slice.slice.shared_counters) {
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

/// The usability of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PoolStatus {
    Usable,
    /// Slices are missing, or there are too many.
    Incomplete,
    /// The slices contradict each other.
    Invalid(Arc<str>),
}

/// A device of a usable pool.
#[derive(Debug)]
pub(crate) struct ViewDevice {
    /// An index into [`NodeView::pools`].
    pub(crate) pool: usize,
    /// An index into [`NodeView::slices`].
    pub(crate) slice: usize,
    /// The index in the slice.
    pub(crate) place: usize,
    pub(crate) device: Arc<Device>,
    pub(crate) content: Arc<Content>,
    /// The amounts that the device draws from the counters of its pool.
    pub(crate) draws: Box<[(usize, Decimal)]>,
    /// Whether the node has access to this device.
    pub(crate) reach: Result<bool, PodError>,
    /// The taints of the device that repel, followed by those of taint rules.
    pub(crate) taints: Vec<Taint>,
}

impl NodeView {
    /// Whether the view is still valid for a snapshot with this shared revision and these gates.
    pub(super) fn serves(&self, shared_revision: u64, gates: &Gates) -> bool {
        self.shared_revision == shared_revision && self.gates == *gates
    }

    /// Returns the first invalid pool, and the contradiction.
    pub(crate) fn invalid(&self) -> Option<(&PoolKey, &Arc<str>)> {
        self.pools.iter().find_map(|pool| match &pool.status {
            PoolStatus::Invalid(why) => Some((&pool.key, why)),
            _ => None,
        })
    }
}

/// The inputs of a view.
pub(super) struct Gathering<'a, C, A> {
    pub(super) node: &'a Node,
    pub(super) gates: &'a Gates,
    /// The slices with the `nodeName` of this node, and those without a `nodeName`.
    pub(super) candidates: C,
    /// Returns all slices of a pool.
    pub(super) all: A,
    pub(super) rules: Vec<&'a Arc<TaintRule>>,
}

impl<'a, C, A, I> Gathering<'a, C, A>
where
    C: Iterator<Item = &'a Arc<PreparedSlice>>,
    A: Fn(&PoolKey) -> I,
    I: Iterator<Item = &'a Arc<PreparedSlice>>,
{
    pub(super) fn view(mut self, shared_revision: u64) -> NodeView {
        let mut view = NodeView {
            shared_revision,
            gates: *self.gates,
            pools: vec![],
            slices: vec![],
            devices: vec![],
            error: None,
        };
        let relevant = match self.relevant() {
            Ok(relevant) => relevant,
            Err(error) => return NodeView { error: Some(error), ..view },
        };
        let pools = relevant.into_iter().filter_map(|(key, slices)| self.pool(key, slices));
        let mut pools: Vec<PoolView> = pools.collect();
        // The map gave them by driver and name; those that wait for conditions come last.
        pools.sort_by_key(PoolView::binds);
        for (number, pool) in pools.iter().enumerate().filter(|(_, pool)| pool.status == PoolStatus::Usable) {
            for slice in &pool.slices {
                let slice_number = view.slices.len();
                view.slices.push(slice.clone());
                let devices = slice.devices.iter().enumerate().map(|(place, prepared)| ViewDevice {
                    pool: number,
                    slice: slice_number,
                    place,
                    device: prepared.device.clone(),
                    content: prepared.content.clone(),
                    draws: pool.counters.drawn(&prepared.device),
                    reach: self.reaches(slice, &prepared.device),
                    taints: self.taints(&pool.key, &prepared.device),
                });
                view.devices.extend(devices);
            }
        }
        NodeView { pools, ..view }
    }

    /// Returns the slices that the node has access to. Of every pool only the newest generation
    /// among them is kept.
    fn relevant(&mut self) -> Result<BTreeMap<PoolKey, Vec<Arc<PreparedSlice>>>, PodError> {
        let mut pools: BTreeMap<PoolKey, Vec<Arc<PreparedSlice>>> = BTreeMap::new();
        for slice in self.candidates.by_ref() {
            let partitions = slice.slice.per_device_node_selection || !slice.slice.shared_counters.is_empty();
            if (partitions && !self.gates.partitionable_devices) || ignored(slice, self.gates) {
                continue;
            }
            if !concerns(slice, self.node)? {
                continue;
            }
            let known = pools.entry(slice.key.clone()).or_default();
            let newest = known.first().map_or(i64::MIN, |known| known.slice.pool.generation);
            match slice.slice.pool.generation.cmp(&newest) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Greater => known.clear(),
                std::cmp::Ordering::Equal => {}
            }
            known.push(slice.clone());
        }
        Ok(pools)
    }

    /// Builds a pool. `None` if slices of a newer generation exist that the node has no access to.
    fn pool(&self, key: PoolKey, mut slices: Vec<Arc<PreparedSlice>>) -> Option<PoolView> {
        slices.sort_by(|a, b| a.slice.name.cmp(&b.slice.name));
        let first = slices.first()?.slice.pool.clone();
        let mut others = Vec::new();
        let wanted = usize::try_from(first.resource_slice_count).unwrap_or(usize::MAX);
        let mut status = PoolStatus::Usable;
        if slices.len() != wanted {
            let all = (self.all)(&key).filter(|slice| !ignored(slice, self.gates));
            let mut all: Vec<&Arc<PreparedSlice>> = all.collect();
            if all.iter().any(|slice| slice.slice.pool.generation > first.generation) {
                return None;
            }
            all.retain(|slice| slice.slice.pool.generation == first.generation);
            if all.len() == wanted {
                let ours = |slice: &&&Arc<PreparedSlice>| slices.iter().any(|known| known.id == slice.id);
                others = all.iter().filter(|slice| !ours(slice)).map(|slice| Arc::clone(slice)).collect();
                others.sort_by(|a, b| a.slice.name.cmp(&b.slice.name));
            } else {
                status = PoolStatus::Incomplete;
            }
        }
        let mut pool = PoolView { key, status, slices, others, counters: Counters::default() };
        if pool.status == PoolStatus::Usable {
            match pool.contradiction(self.gates) {
                Some(why) => pool.status = PoolStatus::Invalid(why.into()),
                None => pool.counters = Counters::new(pool.all_slices()),
            }
        }
        Some(pool)
    }

    fn reaches(&self, slice: &PreparedSlice, device: &Device) -> Result<bool, PodError> {
        if slice.slice.per_device_node_selection { reached(slice, device, self.node) } else { Ok(true) }
    }

    fn taints(&self, key: &PoolKey, device: &Device) -> Vec<Taint> {
        let selected = |rule: &&&Arc<TaintRule>| rule.selects(&key.driver, &key.pool, &device.name);
        let rules = self.rules.iter().filter(|_| self.gates.device_taint_rules).filter(selected);
        let taints = device.taints.iter().chain(rules.map(|rule| &rule.taint));
        taints.filter(|taint| taint.repels()).cloned().collect()
    }
}

/// Whether a slice is treated as absent.
fn ignored(slice: &PreparedSlice, gates: &Gates) -> bool {
    slice.has_groups && !gates.compatibility_groups
}

/// Whether a node has access to a slice, or to one of its devices.
fn concerns(slice: &PreparedSlice, node: &Node) -> Result<bool, PodError> {
    let spec = &slice.slice;
    if let Some(name) = slice.node_name() {
        return Ok(*name == node.name);
    }
    if spec.all_nodes {
        return Ok(true);
    }
    if let Some(selector) = &spec.node_selector {
        return selected(selector, node, slice, "spec.nodeSelector");
    }
    if spec.per_device_node_selection {
        for prepared in &slice.devices {
            if reached(slice, &prepared.device, node)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a node has access to a device of a slice with `perDeviceNodeSelection`.
fn reached(slice: &PreparedSlice, device: &Device, node: &Node) -> Result<bool, PodError> {
    if let Some(name) = device.node_name.as_ref().filter(|name| !name.is_empty()) {
        return Ok(*name == node.name);
    }
    if device.all_nodes {
        return Ok(true);
    }
    let Some(selector) = &device.node_selector else { return Ok(false) };
    selected(selector, node, slice, &format!("spec.devices[{}].nodeSelector", device.name))
}

fn selected(
    selector: &NodeSelector,
    node: &Node,
    slice: &PreparedSlice,
    field: &str,
) -> Result<bool, PodError> {
    selector
        .matches(node)
        .map_err(|why| PodError::new(Object::Slice(slice.slice.name.clone()), field, why.to_string()))
}

impl PoolView {
    /// Whether a device of the pool has binding conditions.
    fn binds(&self) -> bool {
        let mut devices = self.slices.iter().flat_map(|slice| &slice.devices);
        devices.any(|prepared| !prepared.device.binding_conditions.is_empty())
    }

    /// All known slices: those that the node has access to, then the others.
    pub(crate) fn all_slices(&self) -> impl Iterator<Item = &Arc<PreparedSlice>> {
        self.slices.iter().chain(&self.others)
    }

    /// Returns the contradiction of an invalid pool.
    fn contradiction(&self, gates: &Gates) -> Option<String> {
        let mut names = BTreeSet::new();
        let mut devices = self.slices.iter().flat_map(|slice| &slice.devices);
        if let Some(twice) = devices.find(|prepared| !names.insert(&prepared.device.name)) {
            return Some(format!("duplicate device name {}", twice.device.name));
        }
        if !gates.partitionable_devices {
            return None;
        }
        let mut sets: BTreeMap<&Name, BTreeSet<&Name>> = BTreeMap::new();
        for set in self.all_slices().flat_map(|slice| &slice.slice.shared_counters) {
            if sets.insert(&set.name, set.counters.keys().collect()).is_some() {
                return Some(format!("duplicate counter set name {}", set.name));
            }
        }
        let devices = self.all_slices().flat_map(|slice| &slice.devices).map(|prepared| &prepared.device);
        for device in devices {
            for consumption in &device.consumes_counters {
                let Some(counters) = sets.get(&consumption.counter_set) else {
                    let set = &consumption.counter_set;
                    return Some(format!("device {} consumes the unknown counter set {set}", device.name));
                };
                let unknown = consumption.counters.keys().find(|counter| !counters.contains(counter));
                if let Some(counter) = unknown {
                    let set = &consumption.counter_set;
                    let name = &device.name;
                    return Some(format!(
                        "device {name} consumes the unknown counter {counter} of set {set}"
                    ));
                }
            }
        }
        None
    }
}
