//! Devices that several nodes list under one name. A node can publish slices for its own name alone, but of any pool: kubelet's token
//! is that of the node. What a node says of the devices of another one gives none of them away.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dragoman_allocator::Snapshot;
use dragoman_objects::{Name, Slice};

use super::index::Allocation;

/// A pool: its driver and its name.
type Pool = (Name, Name);

/// The slices that name a node, by pool.
#[derive(Debug, Default)]
pub(super) struct Contested {
    pools: HashMap<Pool, BTreeMap<Name, Listed>>,
    of: HashMap<Name, Pool>,
    /// The slices whose devices are not given, with those of the other node.
    withheld: BTreeMap<Name, Slice>,
    /// Those of which it was said: a driver may publish anew each second.
    said: BTreeSet<Name>,
    /// The pools to be judged anew.
    changed: BTreeSet<Pool>,
}

/// A slice of a pool.
#[derive(Debug)]
struct Listed {
    node: Name,
    /// `metadata.creationTimestamp`: the API server writes it.
    since: Name,
}

/// A slice whose devices are not given from now on: its name, and why.
pub(super) type Withheld = (Name, String);

impl Contested {
    /// Takes in a slice that is in the snapshot.
    pub(super) fn put(&mut self, slice: &Slice, since: &str) {
        self.forget(&slice.name);
        let Some(node) = slice.node_name.clone() else { return };
        let pool = (slice.driver.clone(), slice.pool.name.clone());
        self.of.insert(slice.name.clone(), pool.clone());
        self.pools
            .entry(pool.clone())
            .or_default()
            .insert(slice.name.clone(), Listed { node, since: since.into() });
        self.change(&pool);
    }

    /// A slice is gone.
    pub(super) fn remove(&mut self, slice: &str) {
        self.forget(slice);
        self.said.remove(slice);
    }

    fn forget(&mut self, slice: &str) {
        let Some(pool) = self.of.remove(slice) else { return };
        self.change(&pool);
        self.withheld.remove(slice);
        if let Some(listed) = self.pools.get_mut(&pool) {
            listed.remove(slice);
            if listed.is_empty() {
                self.pools.remove(&pool);
            }
        }
    }

    /// Nearly every pool is that of one node, has its name, and is never judged.
    fn change(&mut self, pool: &Pool) {
        let mut nodes = self.pools.get(pool).into_iter().flat_map(BTreeMap::values).map(|of| &of.node);
        let first = nodes.next();
        if first.is_some_and(|first| *first != pool.1) || nodes.any(|node| Some(node) != first) {
            self.changed.insert(pool.clone());
        }
    }

    /// The number of slices whose devices are not given.
    pub(super) fn len(&self) -> usize {
        self.withheld.len()
    }

    /// The slices of a pool, each with the other node that it is withheld for, if it is. A pool that has the name of a Node is that
    /// node's (`is_node`). Of other pools a slice counts if no other node has listed one of its devices earlier.
    fn judged(&self, pool: &Pool, is_node: bool, snapshot: &Snapshot) -> BTreeMap<Name, Option<Name>> {
        let listed = self.pools.get(pool).into_iter().flatten();
        let mut listed: Vec<(&Name, &Listed)> = listed.collect();
        listed.sort_by_cached_key(|(slice, of)| (of.node != pool.1, of.since.clone(), (*slice).clone()));
        let publishes = listed.first().is_some_and(|(_, of)| of.node == pool.1);
        let host = (is_node || publishes).then(|| pool.1.clone());
        let first = listed.first().map(|(_, of)| &of.node);
        let is_of_one = listed.iter().all(|(_, of)| Some(&of.node) == first);
        let (mut nodes, mut judged): (HashMap<Name, Name>, _) = (HashMap::new(), BTreeMap::new());
        for (slice, Listed { node, .. }) in listed {
            let devices: Vec<Name> = match self.withheld.get(slice) {
                _ if is_of_one => Vec::new(),
                Some(slice) => slice.devices.iter().map(|device| device.name.clone()).collect(),
                None => snapshot.devices_of(slice).collect(),
            };
            let other = |device: &Name| nodes.get(device).filter(|known| *known != node).cloned();
            let has = host.clone().filter(|host| host != node).or_else(|| devices.iter().find_map(other));
            if has.is_none() {
                nodes.extend(devices.into_iter().map(|device| (device, node.clone())));
            }
            judged.insert(slice.clone(), has);
        }
        judged
    }
}

impl Allocation {
    /// Judges the pools that have changed: takes the devices of another node out of the snapshot, and back into it. Returns what is
    /// withheld from now on.
    pub(super) fn settle_pools(&mut self) -> Vec<Withheld> {
        let mut told = Vec::new();
        for pool in std::mem::take(&mut self.contested.changed) {
            let is_node = self.nodes.get("", &pool.1).is_some();
            for (name, has) in self.contested.judged(&pool, is_node, &self.snapshot) {
                match has {
                    None => {
                        let Some(slice) = self.contested.withheld.remove(&name) else { continue };
                        self.contested.said.remove(&name);
                        self.changed_in(&slice);
                        self.snapshot = self.snapshot.with_slice(slice);
                    }
                    Some(other) => {
                        let Some(slice) = self.snapshot.slice(&name) else { continue };
                        self.changed_in(&slice);
                        self.snapshot = self.snapshot.without_slice(&name);
                        let why = format!(
                            "no device of the slice is given: node {} lists devices of pool {} of driver {}, which node {other} has",
                            slice.node_name.as_deref().unwrap_or_default(),
                            pool.1,
                            pool.0
                        );
                        self.contested.withheld.insert(name.clone(), slice);
                        if self.contested.said.insert(name.clone()) {
                            told.push((name, why));
                        }
                    }
                }
            }
        }
        told
    }

    fn changed_in(&mut self, slice: &Slice) {
        slice.node_name.iter().for_each(|node| self.changes.node(node));
    }
}

#[cfg(test)]
mod tests {
    use dragoman_objects::ResourceSlice;
    use serde_json::{Value, json};

    use super::super::in_flight::InFlightAllocations;
    use super::super::tests::{applied, cluster, comes, decided, name};
    use super::*;

    fn slice(name: &str, node: &str, pool: &str, since: &str, devices: &[&str]) -> Value {
        let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": since},
            "spec": {"driver": "gpu.example.com", "nodeName": node, "devices": devices,
                "pool": {"name": pool, "generation": 999, "resourceSliceCount": 1}}})
    }

    fn given(index: &Allocation, slice: &str) -> bool {
        index.snapshot.slice(slice).is_some()
    }

    /// The pools of the cluster have the names of their nodes.
    #[test]
    fn a_node_gives_no_device_of_the_pool_of_another() {
        let mut index = cluster(2, 0);
        let (first, second) = (name(0), name(1));
        // It is younger than the lie.
        applied::<ResourceSlice>(
            &mut index,
            &slice(&second, &second, &second, "2026-01-01T00:00:00Z", &["gpu-0"]),
        );
        let lie = |since| slice("lie", &first, &second, since, &["gpu-0", "gpu-99"]);
        applied::<ResourceSlice>(&mut index, &lie("2020-01-01T00:00:00Z"));
        let said = index.settle_pools();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].1.ends_with(&format!("which node {second} has")) && !given(&index, "lie"),
            "{said:?}"
        );
        assert_eq!(index.contested.len(), 1);
        // It publishes anew each second.
        applied::<ResourceSlice>(&mut index, &lie("2020-01-01T00:00:00Z"));
        assert!(index.settle_pools().is_empty() && !given(&index, "lie"), "it was said");
        comes(&mut index, 0, "1");
        let decision = decided(&mut index, &InFlightAllocations::default(), 0).expect("a device");
        let result = &decision.allocations[0].1.devices.results[0];
        assert_eq!(&*result.pool, &*decision.node, "{result:?}");
        // The node publishes nothing for a moment, as when its driver is replaced.
        let gone = slice(&second, &second, "another", "2026-01-01T00:00:00Z", &["gpu-0"]);
        applied::<ResourceSlice>(&mut index, &gone);
        assert!(index.settle_pools().is_empty() && !given(&index, "lie"));
        applied::<ResourceSlice>(
            &mut index,
            &slice("lie", &first, "mine", "2026-01-01T00:00:00Z", &["gpu-99"]),
        );
        assert!(index.settle_pools().is_empty() && given(&index, "lie"), "it is another pool");
    }

    #[test]
    fn a_pool_of_one_node_under_its_name_is_never_judged() {
        let mut index = cluster(3, 0);
        assert!(index.contested.changed.is_empty(), "{:?}", index.contested.changed);
        applied::<ResourceSlice>(
            &mut index,
            &slice("mine", &name(0), "mine", "2026-01-01T00:00:00Z", &["x"]),
        );
        assert_eq!(index.contested.changed.len(), 1, "its name may be that of a node");
        assert!(index.settle_pools().is_empty() && given(&index, "mine"));
    }

    /// A slice that comes back after its deletion is another one.
    #[test]
    fn a_slice_that_comes_back_is_told_about_again() {
        let mut index = cluster(2, 0);
        let lies = ["one", "two"].map(|lie| slice(lie, &name(0), &name(1), "2020-01-01T00:00:00Z", &[lie]));
        let tells = |index: &mut Allocation| {
            lies.iter().for_each(|lie| drop(applied::<ResourceSlice>(index, lie)));
            index.settle_pools().len()
        };
        assert_eq!((tells(&mut index), index.contested.len()), (2, 2));
        assert_eq!(tells(&mut index), 0, "it was said");
        index.contested.remove("one");
        assert_eq!((tells(&mut index), index.contested.len()), (1, 2));
    }

    /// A device is that of the node that has listed it first; others of the pool are given.
    #[test]
    fn nodes_may_share_a_pool_and_no_device() {
        let mut index = cluster(2, 0);
        let (first, second) = (name(0), name(1));
        let pool = "default";
        applied::<ResourceSlice>(&mut index, &slice("b", &second, pool, "2026-01-02T00:00:00Z", &["x", "y"]));
        applied::<ResourceSlice>(&mut index, &slice("a", &first, pool, "2026-01-01T00:00:00Z", &["x"]));
        index.settle_pools();
        assert!(given(&index, "a") && !given(&index, "b"));
        applied::<ResourceSlice>(&mut index, &slice("b", &second, pool, "2026-01-02T00:00:00Z", &["y"]));
        index.settle_pools();
        assert!(given(&index, "a") && given(&index, "b"));
    }
}
