//! Input of the allocator, made of the objects that were read. A large cluster is kept once: its objects are
//! moved here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_allocator::Snapshot;
use dragoman_allocator::input::{Claim, Cluster};
use dragoman_objects::{DeviceResult, Name, Slice, Taint, Tolerated};

use crate::facts::Facts;

/// Driver, pool and name of a device.
type Device = (String, String, String);

/// The slice of a device, and its node.
type Places = BTreeMap<Device, (String, Option<String>)>;

/// The cluster as the allocator sees it.
#[derive(Debug, Default)]
pub struct Supply {
    /// All of it.
    pub snapshot: Snapshot,
    /// The nodes, in the order of the API server.
    pub nodes: Vec<Name>,
    /// The names of the `DeviceClasses`.
    pub classes: BTreeSet<Name>,
    /// The claims that are asked about.
    pub claims: Vec<Arc<Claim>>,
    /// Whether any driver publishes devices.
    pub has_slices: bool,
    /// Pools that are being published anew: a part of their slices is missing.
    incomplete: BTreeSet<(Name, Name)>,
    /// The slice and the node of the devices that these claims hold.
    places: Places,
    /// The taints of the devices that these claims hold, each with the DeviceTaintRule that gives it, if one does.
    taints: BTreeMap<Device, Vec<(Taint, Option<Name>)>>,
}

impl Supply {
    /// Moves the cluster out of the facts.
    pub fn of(facts: &mut Facts) -> Self {
        let cluster = std::mem::take(&mut facts.cluster);
        let results = facts.claims.values().filter_map(|claim| match &claim.status.allocation {
            Some(Tolerated::Read(allocation)) => Some(allocation.devices.results.iter()),
            _ => None,
        });
        let held = results.flatten().map(|of| (&*of.driver, &*of.pool, &*of.device)).collect();
        let (places, taints) = (places(&cluster.slices, &held), taints(&cluster, &held));
        let is_asked = |claim: &&Claim| {
            facts.claims.contains_key(&(claim.namespace.to_string(), claim.name.to_string()))
        };
        Self {
            nodes: cluster.nodes.iter().map(|node| node.name.clone()).collect(),
            classes: cluster.classes.iter().map(|class| class.name.clone()).collect(),
            claims: cluster.claims.iter().filter(is_asked).map(|claim| Arc::new(claim.clone())).collect(),
            has_slices: !cluster.slices.is_empty(),
            incomplete: incomplete(&cluster.slices),
            places,
            taints,
            snapshot: Snapshot::default().with(cluster),
        }
    }

    /// Whether all slices of a pool are there.
    pub fn is_whole(&self, driver: &str, pool: &str) -> bool {
        !self.incomplete.iter().any(|(d, p)| **d == *driver && **p == *pool)
    }

    /// The slice and the node of a device that a claim holds, if a slice lists it.
    pub fn place(&self, driver: &str, pool: &str, device: &str) -> Option<(&str, Option<&str>)> {
        let key = (driver.to_owned(), pool.to_owned(), device.to_owned());
        self.places.get(&key).map(|(slice, node)| (slice.as_str(), node.as_deref()))
    }

    /// The taint for which the Pods that use a device of a claim are evicted, if there is one, in words.
    pub fn evicts(&self, result: &DeviceResult) -> Option<String> {
        let key = (result.driver.to_string(), result.pool.to_string(), result.device.to_string());
        let is_meant = |taint: &Taint| {
            &*taint.effect == "NoExecute" && !result.tolerations.iter().any(|of| of.tolerates(taint))
        };
        let (taint, rule) = self.taints.get(&key)?.iter().find(|(taint, _)| is_meant(taint))?;
        let by =
            rule.as_ref().map_or_else(|| "its slice".to_owned(), |rule| format!("DeviceTaintRule {rule}"));
        Some(format!("{taint} by {by}"))
    }
}

/// The taints of these devices, by their slices and by rules.
fn taints(
    cluster: &Cluster,
    wanted: &BTreeSet<(&str, &str, &str)>,
) -> BTreeMap<Device, Vec<(Taint, Option<Name>)>> {
    let newest = newest(&cluster.slices);
    let mut taints = BTreeMap::<Device, Vec<(Taint, Option<Name>)>>::new();
    let mut taint = |(driver, pool, device): (&str, &str, &str), taint: &Taint, rule: Option<&Name>| {
        let key = (driver.to_owned(), pool.to_owned(), device.to_owned());
        taints.entry(key).or_default().push((taint.clone(), rule.cloned()));
    };
    for slice in &cluster.slices {
        let (driver, pool) = (&*slice.driver, &*slice.pool.name);
        if newest.get(&(driver, pool)) != Some(&slice.pool.generation) {
            continue;
        }
        for device in slice.devices.iter().filter(|device| wanted.contains(&(driver, pool, &*device.name))) {
            device.taints.iter().for_each(|of| taint((driver, pool, &device.name), of, None));
        }
    }
    for rule in &cluster.taint_rules {
        let selected = wanted.iter().filter(|(driver, pool, device)| rule.selects(driver, pool, device));
        selected.for_each(|device| taint(*device, &rule.taint, Some(&rule.name)));
    }
    taints
}

/// The pools whose newest generation has not as many slices as it says.
pub(crate) fn incomplete(slices: &[Slice]) -> BTreeSet<(Name, Name)> {
    let newest = newest(slices);
    let mut counts: BTreeMap<(&Name, &Name), (i64, i64)> = BTreeMap::new();
    for slice in slices {
        if newest.get(&(&*slice.driver, &*slice.pool.name)) == Some(&slice.pool.generation) {
            let count = counts.entry((&slice.driver, &slice.pool.name)).or_default();
            *count = (count.0 + 1, slice.pool.resource_slice_count);
        }
    }
    // One with more slices than it says is not whole either: which of them count is not known.
    let lacks = counts.into_iter().filter(|(_, (there, all))| there != all);
    lacks.map(|((driver, pool), _)| (driver.clone(), pool.clone())).collect()
}

/// The newest generation of every pool, by driver and pool.
pub fn newest(slices: &[Slice]) -> BTreeMap<(&str, &str), i64> {
    let mut newest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for slice in slices {
        let generation = newest.entry((&slice.driver, &slice.pool.name)).or_insert(slice.pool.generation);
        *generation = (*generation).max(slice.pool.generation);
    }
    newest
}

/// The slice and the node of each of these devices that a slice lists.
pub fn places(slices: &[Slice], wanted: &BTreeSet<(&str, &str, &str)>) -> Places {
    let newest = newest(slices);
    let mut places = Places::new();
    for slice in slices {
        let (driver, pool) = (&*slice.driver, &*slice.pool.name);
        if newest.get(&(driver, pool)) != Some(&slice.pool.generation) {
            continue;
        }
        for device in slice.devices.iter().filter(|device| wanted.contains(&(driver, pool, &*device.name))) {
            let node = slice.node_name.as_deref().or(device.node_name.as_deref());
            let key = (driver.to_owned(), pool.to_owned(), device.name.to_string());
            places.insert(key, (slice.name.to_string(), node.map(str::to_owned)));
        }
    }
    places
}
