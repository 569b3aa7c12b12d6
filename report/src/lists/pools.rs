//! Pools of devices, and how many of their devices claims can have; allocated devices by DeviceClass.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::Tolerated;

use super::devices::holders;
use super::{Cell, Column, Table, Type, column};
use crate::availability::{Claimed, is_known};
use crate::facts::Facts;
use crate::supply::newest;

/// Fields of a pool.
pub(crate) const COLUMNS: &[Column] = &[
    column("DRIVER", "driver", Type::Text, "Driver that publishes the pool."),
    column("POOL", "pool", Type::Text, "Name of the pool."),
    column("NODE", "nodes", Type::Texts, "Nodes of the pool; `*` stands for devices of several nodes."),
    column("TOTAL", "total", Type::Number, "Devices in the newest generation of the pool."),
    column("ALLOCATED", "allocated", Type::Number, "Devices of which claims have all or a share."),
    column(
        "FREE",
        "free",
        Type::Number,
        "Devices of which a claim can have all or a share now, each by itself; null where claims or DeviceTaintRules could not be read.",
    ),
    column(
        "STATE",
        "state",
        Type::Text,
        "Ready, Incomplete (slices are missing) or Invalid (they contradict each other).",
    ),
    column("GENERATION", "generation", Type::Number, "Newest generation of the pool."),
    column("SLICES", "slices", Type::Number, "ResourceSlices of the newest generation that are there."),
    column("", "resourceSliceCount", Type::Number, "ResourceSlices of which the pool consists."),
];

/// Fields of a DeviceClass.
pub(crate) const BY_CLASS: &[Column] = &[
    column("CLASS", "class", Type::Text, "Name of the DeviceClass; empty where it is not known."),
    column("ALLOCATED", "allocated", Type::Number, "Allocated devices that were asked for by this class."),
    column("CLAIMS", "claims", Type::Number, "Claims that have them."),
];

#[derive(Default)]
struct Pool<'a> {
    /// Devices of the pool, and whether a claim can have each. Two slices may list one under the same name.
    devices: BTreeMap<&'a str, bool>,
    slices: usize,
    of_slices: i64,
    generation: i64,
    nodes: BTreeSet<&'a str>,
}

/// Lists pools.
pub fn pools(facts: &Facts) -> Table {
    let (holders, newest) = (holders(facts), newest(&facts.cluster.slices));
    let claimed = Claimed::of(facts);
    let mut pools: BTreeMap<(&str, &str), Pool<'_>> = BTreeMap::new();
    for slice in &facts.cluster.slices {
        let key = (&*slice.driver, &*slice.pool.name);
        if newest.get(&key) == Some(&slice.pool.generation) {
            let pool = pools.entry(key).or_default();
            pool.devices.extend(slice.devices.iter().map(|device| {
                let availability = claimed.availability(&slice.driver, &slice.pool.name, device);
                (&*device.name, availability.can_be_had())
            }));
            pool.slices += 1;
            pool.of_slices = slice.pool.resource_slice_count;
            pool.generation = slice.pool.generation;
            pool.nodes.insert(slice.node_name.as_deref().unwrap_or("*"));
        }
    }
    let mut allocated: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (driver, pool, _) in holders.keys() {
        *allocated.entry((driver, pool)).or_default() += 1;
    }
    let is_known = is_known(facts);
    let rows = pools.iter().map(|((driver, pool), of)| {
        let is_whole = i64::try_from(of.slices) == Ok(of.of_slices);
        // Nothing is allocated from a pool that is not ready.
        let state = match is_whole {
            false => "Incomplete",
            true if claimed.is_invalid(driver, pool) => "Invalid",
            true => "Ready",
        };
        let free = of.devices.values().filter(|can_be_had| **can_be_had).count();
        let free = i64::try_from(free).ok().filter(|_| is_known);
        vec![
            Cell::text(*driver),
            Cell::text(*pool),
            Cell::texts(of.nodes.iter().map(|node| (*node).to_owned()).collect()),
            Cell::count(of.devices.len()),
            Cell::count(allocated.get(&(*driver, *pool)).copied().unwrap_or_default()),
            Cell::number(free),
            Cell::text(state),
            Cell::number(Some(of.generation)),
            Cell::count(of.slices).shown_as(format!("{}/{}", of.slices, of.of_slices)),
            Cell::number(Some(of.of_slices)),
        ]
    });
    Table::of(COLUMNS, 3, rows.collect(), facts)
}

/// Lists classes with the devices that were allocated by them.
pub fn classes(facts: &Facts) -> Table {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for class in &facts.cluster.classes {
        counts.entry(&class.name).or_default();
    }
    for claim in facts.claims.values() {
        let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { continue };
        let mut of_claim = BTreeSet::new();
        for of in allocation.devices.results.iter().filter(|of| !of.is_admin()) {
            let class = claim.class_of(&of.request).map_or("", AsRef::as_ref);
            counts.entry(class).or_default().0 += 1;
            of_claim.insert(class);
        }
        for class in of_claim {
            counts.entry(class).or_default().1 += 1;
        }
    }
    let rows = counts.iter().map(|(class, (devices, claims))| {
        vec![Cell::text(*class), Cell::count(*devices), Cell::count(*claims)]
    });
    Table::of(BY_CLASS, 0, rows.collect(), facts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_of_two_slices_is_one_device() {
        let slice = |name: &str, devices: &[&str]| {
            let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
            json!({"kind": "ResourceSlice", "metadata": {"name": name}, "spec": {"driver": "d", "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}, "devices": devices}})
        };
        let list = json!({"kind": "List", "items": [slice("x", &["a", "b"]), slice("y", &["b", "c"])]});
        let mut facts = Facts::default();
        facts.take_file(Path::new("f"), &list.to_string()).expect("slices");
        let table = pools(&facts);
        let cell = |field: &str| table.cell(&table.rows[0], field).expect("a cell").shown.clone();
        // Nothing is given from a pool that says two things of one device.
        assert_eq!(["total", "free", "state"].map(cell), ["3", "0", "Invalid"]);
        // Nor from one that has more slices than it says.
        let more =
            json!({"kind": "List", "items": [slice("x", &["a"]), slice("y", &["b"]), slice("z", &["c"])]});
        let mut facts = Facts::default();
        facts.take_file(Path::new("f"), &more.to_string()).expect("slices");
        let table = pools(&facts);
        let cell = |field: &str| table.cell(&table.rows[0], field).expect("a cell").shown.clone();
        assert_eq!(["free", "state"].map(cell), ["0", "Incomplete"]);
    }
}
