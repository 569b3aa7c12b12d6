//! Claims, devices and pools as rows: a table for people, the same fields for programs.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{Pod, ResourceClaim, Tolerated};
use dragoman_reconcilers::protocol::{ALLOCATOR, CLAIMS_READY};
use dragoman_report::availability::{Claimed, is_known};
use dragoman_report::explain::age;
use dragoman_report::explain::claim::{consumer, departed};
use dragoman_report::explain::pod::is_for;
use dragoman_report::facts::Facts;
use dragoman_report::supply::newest;
use jiff::Timestamp;
use serde::Serialize;

/// A row: text by the name of its column.
pub(crate) type Row = BTreeMap<&'static str, String>;

/// Rows with the names of their columns; the last `wide` columns are shown only when asked for.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Table {
    #[serde(skip)]
    pub(crate) columns: &'static [&'static str],
    #[serde(skip)]
    pub(crate) wide: usize,
    pub(crate) items: Vec<Row>,
    /// Resources that could not be read, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lacks: Vec<String>,
}

impl Table {
    fn of(
        columns: &'static [&'static str],
        wide: usize,
        rows: impl Iterator<Item = Vec<String>>,
        facts: &Facts,
    ) -> Self {
        let items = rows.map(|row| columns.iter().copied().zip(row).collect()).collect();
        Self { columns, wide, items, lacks: facts.partial() }
    }
}

/// The state of a claim in a word.
fn state(claim: &ResourceClaim) -> &'static str {
    match (&claim.status.allocation, claim.status.reserved_for.is_empty()) {
        _ if claim.metadata.deleting => "Deleting",
        (None, true) => "Pending",
        (None, false) => "Reserved",
        (Some(Tolerated::Unreadable(_)), _) => "Unreadable",
        (Some(_), true) => "Idle",
        (Some(_), false) => "InUse",
    }
}

fn consumers(claim: &ResourceClaim) -> String {
    let all = &claim.status.reserved_for;
    let first: Vec<String> = all.iter().take(3).map(consumer).collect();
    match all.len().saturating_sub(3) {
        0 => first.join(","),
        1 => format!("{} and 1 other", first.join(",")),
        others => format!("{} and {others} others", first.join(",")),
    }
}

/// The claims: their state, devices and consumers.
pub(crate) fn claims(facts: &Facts, now: Timestamp) -> Table {
    const COLUMNS: &[&str] =
        &["NAMESPACE", "NAME", "STATE", "DEVICES", "CONSUMERS", "AGE", "CLASSES", "ALLOCATOR"];
    let rows = facts.claims.iter().map(|((namespace, name), claim)| {
        let devices = match &claim.status.allocation {
            Some(Tolerated::Read(allocation)) => {
                let devices =
                    allocation.devices.results.iter().map(|of| format!("{}/{}", of.pool, of.device));
                devices.collect::<Vec<_>>().join(",")
            }
            _ => String::new(),
        };
        let classes: BTreeSet<&str> = claim
            .spec
            .devices
            .requests
            .iter()
            .flat_map(|request| {
                let subs = request.first_available.iter().map(|sub| &*sub.device_class_name);
                request.class().map(AsRef::as_ref).into_iter().chain(subs)
            })
            .filter(|class| !class.is_empty())
            .collect();
        let allocator = claim.metadata.labels.get(ALLOCATOR);
        vec![
            namespace.clone(),
            name.clone(),
            state(claim).to_owned(),
            devices,
            consumers(claim),
            age(claim.metadata.creation_timestamp.as_deref(), now),
            classes.into_iter().collect::<Vec<_>>().join(","),
            allocator.map(ToString::to_string).unwrap_or_default(),
        ]
    });
    Table::of(COLUMNS, 2, rows, facts)
}

/// Which claims hold a device: most have one.
type Holders<'a> = BTreeMap<(&'a str, &'a str, &'a str), Vec<&'a ResourceClaim>>;

fn holders(facts: &Facts) -> Holders<'_> {
    let mut holders: Holders<'_> = BTreeMap::new();
    for claim in facts.claims.values() {
        let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { continue };
        for of in allocation.devices.results.iter().filter(|of| !of.is_admin()) {
            holders.entry((&of.driver, &of.pool, &of.device)).or_default().push(claim);
        }
    }
    holders
}

/// The devices: where they are, and what holds them.
pub(crate) fn devices(facts: &Facts) -> Table {
    const COLUMNS: &[&str] =
        &["DRIVER", "POOL", "DEVICE", "NODE", "STATE", "CLAIM", "CONSUMERS", "LEFT", "TAINTS", "SLICE"];
    let (mut holders, newest) = (holders(facts), newest(&facts.cluster.slices));
    let claimed = Claimed::of(facts);
    let mut rows = Vec::new();
    for slice in &facts.cluster.slices {
        let key = (&*slice.driver, &*slice.pool.name);
        if newest.get(&key) != Some(&slice.pool.generation) {
            continue;
        }
        for device in &slice.devices {
            let held = holders.remove(&(key.0, key.1, &device.name)).unwrap_or_default();
            let node = slice.node_name.as_deref().or(device.node_name.as_deref()).unwrap_or("*");
            let taints = claimed.taints(&slice.driver, &slice.pool.name, device);
            let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
            let of = claimed.availability(&slice.driver, &slice.pool.name, device);
            let state = if of.can_be_had() && !is_known(facts) { "?" } else { of.word() };
            let wide = [&of.details(), &taints.join(","), &*slice.name];
            rows.push(row([key.0, key.1, &device.name], node, state, &held, wide));
        }
    }
    // What no slice lists any more is held all the same.
    for ((driver, pool, device), held) in holders {
        let state = if facts.lacks("resourceslices") { "Taken" } else { "Gone" };
        rows.push(row([driver, pool, device], "?", state, &held, ["", "", ""]));
    }
    rows.sort();
    Table::of(COLUMNS, 3, rows.into_iter(), facts)
}

fn row(device: [&str; 3], node: &str, state: &str, held: &[&ResourceClaim], wide: [&str; 3]) -> Vec<String> {
    let claims: Vec<String> =
        held.iter().map(|claim| format!("{}/{}", claim.metadata.namespace, claim.metadata.name)).collect();
    let consumers: Vec<String> = held.iter().map(|claim| consumers(claim)).collect();
    let mut row: Vec<String> = device.map(str::to_owned).into();
    row.extend([node.to_owned(), state.to_owned(), claims.join(","), consumers.join(",")]);
    row.extend(wide.map(str::to_owned));
    row
}

/// The pools: how many devices they have, and of how many a claim can have something still.
pub(crate) fn pools(facts: &Facts) -> Table {
    const COLUMNS: &[&str] =
        &["DRIVER", "POOL", "NODE", "TOTAL", "ALLOCATED", "FREE", "STATE", "GENERATION", "SLICES"];
    let (holders, newest) = (holders(facts), newest(&facts.cluster.slices));
    let claimed = Claimed::of(facts);
    let mut pools: BTreeMap<(&str, &str), Pool<'_>> = BTreeMap::new();
    for slice in &facts.cluster.slices {
        let key = (&*slice.driver, &*slice.pool.name);
        if newest.get(&key) == Some(&slice.pool.generation) {
            let pool = pools.entry(key).or_default();
            pool.total += slice.devices.len();
            let availability = |device| claimed.availability(&slice.driver, &slice.pool.name, device);
            pool.free += slice.devices.iter().filter(|device| availability(device).can_be_had()).count();
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
    let rows = pools.iter().map(|((driver, pool), of)| {
        let allocated = allocated.get(&(*driver, *pool)).copied().unwrap_or_default();
        let is_whole = i64::try_from(of.slices) == Ok(of.of_slices);
        vec![
            (*driver).to_owned(),
            (*pool).to_owned(),
            of.nodes.iter().copied().collect::<Vec<_>>().join(","),
            of.total.to_string(),
            allocated.to_string(),
            if is_known(facts) { of.free.to_string() } else { "?".to_owned() },
            // Nothing is allocated from a pool in the other states.
            match is_whole {
                false => "Incomplete",
                true if claimed.is_invalid(driver, pool) => "Invalid",
                true => "Ready",
            }
            .to_owned(),
            of.generation.to_string(),
            format!("{}/{}", of.slices, of.of_slices),
        ]
    });
    Table::of(COLUMNS, 2, rows.collect::<Vec<_>>().into_iter(), facts)
}

#[derive(Default)]
struct Pool<'a> {
    total: usize,
    free: usize,
    slices: usize,
    of_slices: i64,
    generation: i64,
    nodes: BTreeSet<&'a str>,
}

/// Allocated devices by the DeviceClass that was asked for.
pub(crate) fn classes(facts: &Facts) -> Table {
    const COLUMNS: &[&str] = &["CLASS", "ALLOCATED", "CLAIMS"];
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
    let rows = counts
        .iter()
        .map(|(class, (devices, claims))| vec![(*class).to_owned(), devices.to_string(), claims.to_string()]);
    Table::of(COLUMNS, 0, rows.collect::<Vec<_>>().into_iter(), facts)
}

/// Claims that hold devices for nothing, each with the evidence.
pub(crate) fn zombies(facts: &Facts, now: Timestamp, idle_for: i64) -> Table {
    const COLUMNS: &[&str] = &["NAMESPACE", "NAME", "KIND", "DEVICES", "EVIDENCE"];
    let rows = facts.claims.iter().filter_map(|((namespace, name), claim)| {
        let (kind, evidence) = zombie(facts, claim, now, idle_for)?;
        let devices = match &claim.status.allocation {
            Some(Tolerated::Read(allocation)) => allocation.devices.results.len(),
            _ => 0,
        };
        Some(vec![namespace.clone(), name.clone(), kind.to_owned(), devices.to_string(), evidence])
    });
    Table::of(COLUMNS, 0, rows.collect::<Vec<_>>().into_iter(), facts)
}

/// Whether a claim holds devices for nothing. Pods of all namespaces of the claims have been read before.
fn zombie(
    facts: &Facts,
    claim: &ResourceClaim,
    now: Timestamp,
    idle_for: i64,
) -> Option<(&'static str, String)> {
    if !matches!(claim.status.allocation, Some(Tolerated::Read(_))) {
        return None;
    }
    let meta = &claim.metadata;
    let created = meta.creation_timestamp.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    let old = created.is_some_and(|created| now.as_second() - created.as_second() >= idle_for);
    let since = age(meta.creation_timestamp.as_deref(), now);
    if claim.status.reserved_for.is_empty() {
        let is_protected =
            meta.finalizers.iter().any(|of| **of == *"resource.kubernetes.io/delete-protection");
        let kind = if is_protected { "Idle" } else { "Unprotected" };
        let by = if is_protected {
            ""
        } else {
            ", allocated without the finalizer: the built-in controller never releases it"
        };
        return old.then(|| (kind, format!("allocated, reserved for no consumer, {since} old{by}")));
    }
    let gone = departed(facts, claim)?;
    Some(("ConsumersGone", format!("reserved for consumers that are not there: {}", gone.join(", "))))
}

/// Lists what a drain of a node would end: Pods with claims, and the fate of their claims.
pub(crate) fn drained(facts: &Facts, node: &str) -> Table {
    const COLUMNS: &[&str] = &["NAMESPACE", "POD", "CLAIM", "DEVICES", "AFTERWARDS"];
    let mut rows = Vec::new();
    for ((namespace, name), pod) in facts.pods.iter().filter(|(_, pod)| *pod.spec.node_name == *node) {
        let mine = |claim: &ResourceClaim| claim.status.reserved_for.iter().any(|of| is_for(of, pod));
        // Wherever its devices are: those of several nodes go with the Pod as well.
        let claims = facts.claims.iter().filter(|((of, _), _)| of == namespace);
        for ((_, claim_name), claim) in claims.filter(|(_, claim)| mine(claim)) {
            let devices = claim.allocation().map_or(0, |allocation| allocation.devices.results.len());
            let others = claim.status.reserved_for.len().saturating_sub(1);
            let selector =
                claim.allocation().and_then(|allocation| allocation.node_selector.as_ref()?.node());
            let is_here = selector.is_some_and(|of| **of == *node);
            let this_node = if is_here { ", and with them this node" } else { "" };
            let is_generated =
                claim.metadata.controller.as_ref().is_some_and(|owner| owner.uid == pod.metadata.uid);
            let afterwards = match (is_generated, others) {
                (true, _) => "the claim goes with the Pod; the next Pod gets another one".to_owned(),
                (false, 0) => "the claim stays and gives its devices back".to_owned(),
                (false, 1) => format!("the claim keeps its devices for another consumer{this_node}"),
                (false, others) => {
                    format!("the claim keeps its devices for {others} other consumers{this_node}")
                }
            };
            rows.push(vec![
                namespace.clone(),
                name.clone(),
                claim_name.clone(),
                devices.to_string(),
                afterwards,
            ]);
        }
    }
    Table::of(COLUMNS, 0, rows.into_iter(), facts)
}

/// The Pods that wait with claims, the oldest first, each with the reason that its conditions carry.
pub(crate) fn waiting(facts: &Facts, now: Timestamp) -> Table {
    const COLUMNS: &[&str] = &["NAMESPACE", "POD", "AGE", "WAITS"];
    let waits = |pod: &&Pod| &*pod.status.phase == "Pending" && !pod.spec.resource_claims.is_empty();
    let mut pods: Vec<&Pod> = facts.pods.values().filter(waits).collect();
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_deref());
    let rows = pods.into_iter().map(|pod| {
        let is_false = |of: &str| {
            let mut conditions = pod.status.conditions.iter();
            conditions.find(|condition| &*condition.r#type == of && &*condition.status == "False")
        };
        let waits = match is_false(CLAIMS_READY).or_else(|| is_false("PodScheduled")) {
            Some(condition) => condition.reason.to_string(),
            None if pod.spec.node_name.is_empty() => String::new(),
            None => format!("starting on {}", pod.spec.node_name),
        };
        let age = age(pod.metadata.creation_timestamp.as_deref(), now);
        vec![pod.metadata.namespace.to_string(), pod.metadata.name.to_string(), age, waits]
    });
    Table::of(COLUMNS, 0, rows.collect::<Vec<_>>().into_iter(), facts)
}

/// Events about claims, and those about Pods that speak of claims, the newest last.
pub(crate) fn events(facts: &Facts, now: Timestamp) -> Table {
    const COLUMNS: &[&str] = &["AGE", "NAMESPACE", "OBJECT", "REASON", "MESSAGE", "REPORTER"];
    const WORDS: [&str; 3] = ["claim", "Claim", "DynamicResources"];
    let is_about = |event: &&dragoman_report::facts::Event| {
        event.involved_object.kind == "ResourceClaim"
            || WORDS.iter().any(|word| event.reason.contains(word) || event.message.contains(word))
    };
    let mut events: Vec<&dragoman_report::facts::Event> = facts.events.iter().filter(is_about).collect();
    events.sort_by_key(|event| event.time());
    let rows = events.into_iter().map(|event| {
        let of = &event.involved_object;
        vec![
            age(event.at(), now),
            of.namespace.clone(),
            format!("{}/{}", of.kind, of.name),
            event.reason.clone(),
            event.message.lines().collect::<Vec<_>>().join(" "),
            event.reporter().to_owned(),
        ]
    });
    Table::of(COLUMNS, 1, rows.collect::<Vec<_>>().into_iter(), facts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    /// One device that every node can use, and one that is in no slice: the Pod holds them all the same.
    #[test]
    fn a_drain_ends_every_pod_of_the_node_that_claims_are_reserved_for() {
        let claim = |name: &str, device: &str, pod: &str| {
            json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": name, "uid": name}, "status": {
                "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "fabric", "device": device}]}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}]}})
        };
        let pod = |name: &str, node: &str| json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"nodeName": node}});
        let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "allNodes": true,
            "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "one"}]}});
        let items = [
            slice,
            pod("here", "n1"),
            pod("there", "n2"),
            claim("a", "one", "here"),
            claim("b", "in-no-slice", "here"),
            claim("c", "one", "there"),
        ];
        let mut facts = Facts::default();
        facts
            .take_file(Path::new("f"), &json!({"kind": "List", "items": items}).to_string())
            .expect("a list");
        let claims: Vec<String> =
            drained(&facts, "n1").items.iter().map(|row| row["CLAIM"].clone()).collect();
        assert_eq!(claims, ["a", "b"]);
    }
}
