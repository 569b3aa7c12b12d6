//! The devices that a node can use, found by examining all slices (docs/allocator.md 1.2).

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{BadSelector, Device, DeviceId, Name, Slice};

use crate::gates::Gates;
use crate::input::{Cluster, Node};

/// A driver and a pool.
pub(super) type PoolId = (Name, Name);

/// A device of a usable pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usable<'a> {
    pub(super) slice: &'a Slice,
    pub(super) device: &'a Device,
}

impl Usable<'_> {
    pub(super) fn id(&self) -> DeviceId {
        DeviceId::new(&self.slice.driver, &self.slice.pool.name, &self.device.name)
    }

    pub(super) fn pool(&self) -> PoolId {
        (self.slice.driver.clone(), self.slice.pool.name.clone())
    }
}

/// A pool as the node sees it.
#[derive(Debug)]
pub(super) struct NodePool<'a> {
    /// The reason why the pool is unusable.
    pub(super) trouble: Option<String>,
    /// The slices that the node has access to, by name.
    here: Vec<&'a Slice>,
    /// All known slices of the generation: those that the node has access to, then the others.
    pub(super) known: Vec<&'a Slice>,
}

pub(super) type NodePools<'a> = BTreeMap<PoolId, NodePool<'a>>;

/// Returns the pools of a node.
///
/// # Errors
/// A node selector is invalid.
pub(super) fn pools<'a>(
    cluster: &'a Cluster,
    node: &Node,
    gates: Gates,
) -> Result<NodePools<'a>, BadSelector> {
    let mut by_pool: BTreeMap<PoolId, Vec<&Slice>> = BTreeMap::new();
    let readable = cluster.slices.iter().filter(|slice| gates.compatibility_groups || !has_groups(slice));
    for slice in readable {
        by_pool.entry((slice.driver.clone(), slice.pool.name.clone())).or_default().push(slice);
    }
    let mut pools = NodePools::new();
    for (id, mut slices) in by_pool {
        slices.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pool) = pool(&slices, node, gates)? {
            pools.insert(id, pool);
        }
    }
    Ok(pools)
}

fn pool<'a>(slices: &[&'a Slice], node: &Node, gates: Gates) -> Result<Option<NodePool<'a>>, BadSelector> {
    let mut here = Vec::new();
    for slice in slices {
        let partitions = slice.per_device_node_selection || !slice.shared_counters.is_empty();
        if (gates.partitionable_devices || !partitions) && concerns(slice, node)? {
            here.push(*slice);
        }
    }
    let Some(generation) = here.iter().map(|slice| slice.pool.generation).max() else { return Ok(None) };
    here.retain(|slice| slice.pool.generation == generation);
    let wanted = here.first().map_or(0, |slice| slice.pool.resource_slice_count);
    let is_all = |slices: &[&Slice]| i64::try_from(slices.len()) == Ok(wanted);
    let mut known = here.clone();
    let mut trouble = None;
    if !is_all(&here) {
        if slices.iter().any(|slice| slice.pool.generation > generation) {
            return Ok(None);
        }
        let current = slices.iter().filter(|slice| slice.pool.generation == generation);
        let elsewhere = current.filter(|slice| !here.iter().any(|known| known.name == slice.name));
        known.extend(elsewhere);
        if !is_all(&known) {
            trouble = Some(format!("{} of {wanted} slices are there", known.len()));
        }
    }
    let trouble = trouble.or_else(|| contradiction(&here, &known, gates));
    Ok(Some(NodePool { trouble, here, known }))
}

/// Returns the devices of all usable pools, in the order of the search.
pub(super) fn usable<'a>(pools: &NodePools<'a>) -> Vec<Usable<'a>> {
    let waits = |pool: &NodePool<'_>| {
        pool.here.iter().flat_map(|slice| &slice.devices).any(|device| !device.binding_conditions.is_empty())
    };
    let (last, first): (Vec<_>, Vec<_>) = pools.values().partition(|pool| waits(pool));
    let fine = first.into_iter().chain(last).filter(|pool| pool.trouble.is_none());
    let slices = fine.flat_map(|pool| pool.here.iter().copied());
    slices.flat_map(|slice| slice.devices.iter().map(move |device| Usable { slice, device })).collect()
}

fn has_groups(slice: &Slice) -> bool {
    let mut consumptions = slice.devices.iter().flat_map(|device| &device.consumes_counters);
    consumptions.any(|consumption| !consumption.compatibility_groups.is_empty())
}

fn concerns(slice: &Slice, node: &Node) -> Result<bool, BadSelector> {
    if let Some(name) = slice.node_name.as_ref().filter(|name| !name.is_empty()) {
        return Ok(*name == node.name);
    }
    if slice.all_nodes {
        return Ok(true);
    }
    if let Some(selector) = &slice.node_selector {
        return selector.matches(&node.name, &node.labels);
    }
    let mut any = false;
    for device in slice.devices.iter().filter(|_| slice.per_device_node_selection) {
        any = any || reaches(slice, device, node)?;
    }
    Ok(any)
}

/// Whether the node has access to the device.
///
/// # Errors
/// The node selector of the device is invalid.
pub(super) fn reaches(slice: &Slice, device: &Device, node: &Node) -> Result<bool, BadSelector> {
    if !slice.per_device_node_selection {
        return Ok(true);
    }
    match (&device.node_name, &device.node_selector) {
        (Some(name), _) if !name.is_empty() => Ok(*name == node.name),
        _ if device.all_nodes => Ok(true),
        (_, Some(selector)) => selector.matches(&node.name, &node.labels),
        (_, None) => Ok(false),
    }
}

fn contradiction(here: &[&Slice], known: &[&Slice], gates: Gates) -> Option<String> {
    let mut names = BTreeSet::new();
    let twice = here.iter().flat_map(|slice| &slice.devices).find(|device| !names.insert(&device.name));
    if let Some(device) = twice {
        return Some(format!("device {} comes twice", device.name));
    }
    if !gates.partitionable_devices {
        return None;
    }
    let mut sets = BTreeSet::new();
    let mut unreadable = BTreeSet::new();
    let mut declared = BTreeSet::new();
    for set in known.iter().flat_map(|slice| &slice.shared_counters) {
        if !sets.insert(&set.name) {
            return Some(format!("counter set {} comes twice", set.name));
        }
        unreadable.extend(set.unreadable.as_ref().map(|_| &set.name));
        declared.extend(set.counters.keys().map(|counter| (&set.name, counter)));
    }
    let devices = known.iter().flat_map(|slice| &slice.devices).filter(|device| !device.draws_unknown);
    let consumptions = devices.flat_map(|device| &device.consumes_counters);
    for consumption in consumptions {
        let set = &consumption.counter_set;
        let undeclared = consumption.counters.keys().any(|counter| !declared.contains(&(set, counter)));
        if (undeclared && !unreadable.contains(set)) || !sets.contains(set) {
            return Some(format!("a device draws from counter set {set} what is not declared"));
        }
    }
    None
}
