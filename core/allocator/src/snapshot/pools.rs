//! The pools that a node has access to (docs/allocator.md 1.2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use dragoman_objects::{Device, Name, NodeSelector, Taint, TaintRule};
use dragoman_quantity::Decimal;

use super::pool::{Counters, Whole};
use super::slice::{PoolKey, PreparedSlice};
use crate::error::{Object, PodError};
use crate::gates::Gates;
use crate::input::Node;
use crate::search::Sizes;
use crate::selectors::Content;

/// The pools of one node, in the order in which their devices are tried.
#[derive(Debug)]
pub(crate) struct NodeView {
    shared_revision: u64,
    /// The revisions of the pools of the node's own slices.
    revisions: Vec<(PoolKey, u64)>,
    gates: Gates,
    pub(crate) pools: Vec<PoolView>,
    /// The slices of all usable pools, in order.
    pub(crate) slices: Vec<Arc<PreparedSlice>>,
    /// The devices of all usable pools, in order.
    pub(crate) devices: Vec<Arc<ViewDevice>>,
    /// The error of a node selector in a slice. Every attempt on this node fails with it.
    pub(crate) error: Option<PodError>,
    /// The sizes of the devices, once best fit has asked for them.
    sizes: OnceLock<Option<Sizes>>,
}

/// A pool of a node.
#[derive(Debug, Clone)]
pub(crate) struct PoolView {
    pub(crate) key: PoolKey,
    pub(crate) status: PoolStatus,
    /// The slices that the node has access to, by name.
    pub(crate) slices: Vec<Arc<PreparedSlice>>,
    /// All slices of the same generation. They are those that the node has access to, unless the
    /// completeness check had to look for others.
    whole: Arc<Whole>,
    /// The counters of all counter sets.
    pub(crate) counters: Arc<Counters>,
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
    pub(crate) draws: Arc<[(usize, Decimal)]>,
    /// Whether the node has access to this device.
    pub(crate) reach: Result<bool, PodError>,
    /// The taints of the device that repel, followed by those of taint rules.
    pub(crate) taints: Vec<Repels>,
}

impl NodeView {
    /// Whether the view is still valid for a snapshot with this shared revision, these gates and these
    /// revisions of pools.
    pub(super) fn serves(
        &self,
        shared_revision: u64,
        gates: &Gates,
        revision: impl Fn(&PoolKey) -> Option<u64>,
    ) -> bool {
        self.shared_revision == shared_revision
            && self.gates == *gates
            && self.revisions.iter().all(|(key, known)| revision(key) == Some(*known))
    }

    /// The sizes of the devices. `None` if they are alike, or too many to be compared.
    pub(crate) fn sizes(&self) -> Option<&Sizes> {
        self.sizes.get_or_init(|| Sizes::of(self)).as_ref()
    }

    /// Returns the same view with its devices in another order.
    pub(crate) fn in_order(&self, order: &[usize]) -> Self {
        Self {
            revisions: Vec::new(),
            pools: self.pools.clone(),
            slices: self.slices.clone(),
            devices: order.iter().filter_map(|number| self.devices.get(*number)).cloned().collect(),
            error: self.error.clone(),
            sizes: OnceLock::new(),
            ..*self
        }
    }

    /// Returns the first invalid pool, and the contradiction.
    pub(crate) fn invalid(&self) -> Option<(&PoolKey, &Arc<str>)> {
        self.pools.iter().find_map(|pool| match &pool.status {
            PoolStatus::Invalid(why) => Some((&pool.key, why)),
            _ => None,
        })
    }
}

/// A taint that repels.
#[derive(Debug)]
pub(crate) struct Repels {
    pub(crate) taint: Taint,
    /// The rule with the taint. `None` if the device itself has it.
    pub(crate) rule: Option<Name>,
}

/// The inputs of a view.
pub(super) struct Gathering<'a, C, W> {
    pub(super) node: &'a Node,
    pub(super) gates: &'a Gates,
    /// The slices with the `nodeName` of this node, and those without a `nodeName`.
    pub(super) candidates: C,
    /// Returns the newest generation of a pool.
    pub(super) whole: W,
    pub(super) rules: Vec<&'a Arc<TaintRule>>,
}

impl<'a, C, W> Gathering<'a, C, W>
where
    C: Iterator<Item = &'a Arc<PreparedSlice>>,
    W: Fn(&PoolKey) -> Option<Arc<Whole>>,
{
    pub(super) fn view(mut self, shared_revision: u64, revisions: Vec<(PoolKey, u64)>) -> NodeView {
        let mut view = NodeView {
            shared_revision,
            revisions,
            gates: *self.gates,
            pools: vec![],
            slices: vec![],
            devices: vec![],
            error: None,
            sizes: OnceLock::new(),
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
                    draws: pool.counters.drawn(&prepared.device).into(),
                    reach: self.reaches(slice, &prepared.device),
                    taints: self.taints(&pool.key, &prepared.device),
                });
                view.devices.extend(devices.map(Arc::new));
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
            if (partitions && !self.gates.partitionable_devices) || slice.is_ignored(self.gates) {
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
    fn pool(&self, key: PoolKey, slices: Vec<Arc<PreparedSlice>>) -> Option<PoolView> {
        let first = slices.first()?.slice.pool.generation;
        let ours = Whole::of(first, slices);
        let slices = ours.slices.clone();
        let wanted = slices.first().map(|slice| slice.slice.pool.resource_slice_count)?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let mut whole = Arc::new(ours);
        let mut status = PoolStatus::Usable;
        if slices.len() != wanted {
            let all = (self.whole)(&key)?;
            if all.generation > first {
                return None;
            }
            if all.slices.len() == wanted {
                whole = all;
            } else {
                status = PoolStatus::Incomplete;
            }
        }
        let mut pool = PoolView { key, status, slices, whole, counters: Arc::default() };
        if pool.status == PoolStatus::Usable {
            match pool.duplicate().map_or_else(|| pool.whole.counters(self.gates), Err) {
                Ok(counters) => pool.counters = counters,
                Err(why) => pool.status = PoolStatus::Invalid(why),
            }
        }
        Some(pool)
    }

    fn reaches(&self, slice: &PreparedSlice, device: &Device) -> Result<bool, PodError> {
        if slice.slice.per_device_node_selection { reached(slice, device, self.node) } else { Ok(true) }
    }

    fn taints(&self, key: &PoolKey, device: &Device) -> Vec<Repels> {
        let selected = |rule: &&&Arc<TaintRule>| rule.selects(&key.driver, &key.pool, &device.name);
        let rules = self.rules.iter().filter(|_| self.gates.device_taint_rules).filter(selected);
        let own = device.taints.iter().map(|taint| Repels { taint: taint.clone(), rule: None });
        let by_rules = rules.map(|rule| Repels { taint: rule.taint.clone(), rule: Some(rule.name.clone()) });
        own.chain(by_rules).filter(|repels| repels.taint.repels()).collect()
    }
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
        .matches(&node.name, &node.labels)
        .map_err(|why| PodError::new(Object::Slice(slice.slice.name.clone()), field, why.to_string()))
}

impl PoolView {
    /// Whether a device of the pool has binding conditions.
    pub(crate) fn binds(&self) -> bool {
        let mut devices = self.slices.iter().flat_map(|slice| &slice.devices);
        devices.any(|prepared| !prepared.device.binding_conditions.is_empty())
    }

    /// All known slices of the generation, by name.
    pub(crate) fn all_slices(&self) -> impl Iterator<Item = &Arc<PreparedSlice>> {
        self.whole.slices.iter()
    }

    /// Returns what is wrong with a pool that has a device twice on this node.
    fn duplicate(&self) -> Option<Arc<str>> {
        let mut names = BTreeSet::new();
        let mut devices = self.slices.iter().flat_map(|slice| &slice.devices);
        let twice = devices.find(|prepared| !names.insert(&prepared.device.name))?;
        Some(format!("duplicate device name {}", twice.device.name).into())
    }
}
