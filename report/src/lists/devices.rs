//! Devices: where they are, and what holds them.

use std::collections::BTreeMap;

use dragoman_objects::{ResourceClaim, Tolerated};

use super::{Cell, Column, Table, Type, column};
use crate::availability::{Claimed, is_known};
use crate::facts::Facts;
use crate::supply::newest;

/// Fields of a device.
pub(crate) const COLUMNS: &[Column] = &[
    column("DRIVER", "driver", Type::Text, "Driver that publishes the device."),
    column("POOL", "pool", Type::Text, "Pool of the device."),
    column("DEVICE", "device", Type::Text, "Name of the device."),
    column("NODE", "node", Type::Text, "Node of the device; `*` for a device of several nodes."),
    column(
        "STATE",
        "state",
        Type::Text,
        "Free, Shared, Full, Taken, Excluded, Tainted, Incomplete, Invalid, Unreadable, Gone, or `?` where claims or \
         DeviceTaintRules could not be read.",
    ),
    column(
        "CLAIM",
        "claims",
        Type::Texts,
        "NAMESPACE/NAME of the claims that hold the device or a share of it.",
    ),
    column("CONSUMERS", "consumers", Type::Consumers, "Consumers of these claims."),
    column(
        "LEFT",
        "left",
        Type::Text,
        "Amounts that are left of a shared device, or what excludes the device.",
    ),
    column("TAINTS", "taints", Type::Texts, "Taints of the device, those of DeviceTaintRules too."),
    column(
        "SLICE",
        "slice",
        Type::Text,
        "ResourceSlice that lists the device; several in a pool that is invalid.",
    ),
];

/// Claims by the device that they hold: driver, pool and name. Most devices have one.
pub(super) type Holders<'a> = BTreeMap<(&'a str, &'a str, &'a str), Vec<&'a ResourceClaim>>;

/// The claims that hold devices. Admin access holds none.
pub(super) fn holders(facts: &Facts) -> Holders<'_> {
    let mut holders: Holders<'_> = BTreeMap::new();
    for claim in facts.claims.values() {
        let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { continue };
        for of in allocation.devices.results.iter().filter(|of| !of.is_admin()) {
            holders.entry((&of.driver, &of.pool, &of.device)).or_default().push(claim);
        }
    }
    holders
}

/// Lists devices.
pub fn devices(facts: &Facts) -> Table {
    let (holders, newest) = (holders(facts), newest(&facts.cluster.slices));
    let mut listed: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let claimed = Claimed::of(facts);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for slice in &facts.cluster.slices {
        let key = (&*slice.driver, &*slice.pool.name);
        if newest.get(&key) != Some(&slice.pool.generation) {
            continue;
        }
        for device in &slice.devices {
            let id = (key.0, key.1, &*device.name);
            // Two slices of a pool that is invalid list one device.
            if let Some(at) = listed.get(&id) {
                let known: Option<&mut Vec<Cell>> = rows.get_mut(*at);
                if let Some(slices) = known.and_then(|row| row.last_mut()) {
                    *slices = Cell::text(format!("{}, {}", slices.shown, slice.name));
                }
                continue;
            }
            listed.insert(id, rows.len());
            let held = holders.get(&id).map(Vec::as_slice).unwrap_or_default();
            let node = slice.node_name.as_deref().or(device.node_name.as_deref()).unwrap_or("*");
            let taints = claimed.taints(&slice.driver, &slice.pool.name, device);
            let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
            let of = claimed.availability(&slice.driver, &slice.pool.name, device);
            let state = if of.can_be_had() && !is_known(facts) { "?" } else { of.word() };
            let mut row = row(id.into(), node, state, held);
            row.extend([Cell::text(of.details()), Cell::texts(taints), Cell::text(&*slice.name)]);
            rows.push(row);
        }
    }
    // A device that no slice lists any more is held all the same.
    for ((driver, pool, device), held) in holders.iter().filter(|(id, _)| !listed.contains_key(id)) {
        let state = if facts.lacks("resourceslices") { "Taken" } else { "Gone" };
        let mut row = row([driver, pool, device], "?", state, held);
        row.extend([Cell::text(""), Cell::texts(Vec::new()), Cell::text("")]);
        rows.push(row);
    }
    let name = |row: &Vec<Cell>| row.iter().take(3).map(|cell| cell.shown.clone()).collect::<Vec<_>>();
    rows.sort_by_cached_key(name);
    Table::of(COLUMNS, 3, rows, facts)
}

/// The first cells of a device.
fn row(device: [&str; 3], node: &str, state: &str, held: &[&ResourceClaim]) -> Vec<Cell> {
    let claims = held.iter().map(|claim| format!("{}/{}", claim.metadata.namespace, claim.metadata.name));
    let mut row: Vec<Cell> = device.map(Cell::text).into();
    row.extend([Cell::text(node), Cell::text(state), Cell::texts(claims.collect())]);
    row.push(Cell::consumers(held.iter().copied()));
    row
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_of_two_slices_is_listed_once_with_both() {
        let slice = |name: &str, devices: &[&str]| {
            let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
            json!({"kind": "ResourceSlice", "metadata": {"name": name}, "spec": {"driver": "d", "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}, "devices": devices}})
        };
        let result = |device: &str| json!({"request": "r", "driver": "d", "pool": "p", "device": device});
        let results = json!([result("b"), result("gone")]);
        let claim = json!({"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "ns"},
            "status": {"allocation": {"devices": {"results": results}}}});
        let list = json!({"kind": "List", "items": [slice("x", &["a", "b"]), slice("y", &["b"]), claim]});
        let mut facts = Facts::default();
        facts.take_file(Path::new("f"), &list.to_string()).expect("objects");
        let table = devices(&facts);
        let cells = ["device", "state", "claims", "slice"];
        let shown =
            |row: &Vec<Cell>| cells.map(|field| table.cell(row, field).expect("a cell").shown.clone());
        let rows: Vec<[String; 4]> = table.rows.iter().map(shown).collect();
        let expected =
            [["a", "Invalid", "", "x"], ["b", "Taken", "ns/c", "x, y"], ["gone", "Gone", "ns/c", ""]];
        assert_eq!(rows, expected.map(|row| row.map(str::to_owned)));
    }
}
