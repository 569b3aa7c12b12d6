//! Explains a node: its devices, and the claims that hold them.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{ResourceClaim, Tolerated};
use jiff::Timestamp;

use super::{Answer, Verdict, claim, count, link, unknown};
use crate::availability::{Claimed, is_known};
use crate::facts::Facts;
use crate::supply::newest;

/// Explains a node.
pub fn explain(facts: &Facts, name: &str, _now: Timestamp) -> Answer {
    let object = format!("Node {name}");
    let uncertain = ["resourceslices", "resourceclaims"].into_iter().find(|plural| facts.lacks(plural));
    let Some(node) = facts.nodes.get(name).filter(|_| uncertain.is_none()) else {
        let verdict = match uncertain {
            Some(plural) => unknown(&format!("what node {name} has and what holds it ({plural})")),
            None if facts.lacks("nodes") => unknown(&format!("node {name}")),
            None => {
                let sentence = format!("node {name} {}", facts.absence());
                Verdict::blocked("NodeMissing", sentence, "`kubectl get nodes` lists them")
            }
        };
        let is_missing = verdict.reason == "NodeMissing";
        return Answer { object, verdict, chain: Vec::new(), is_missing, lacks: facts.partial() };
    };
    let here = here(facts, name);
    let mut pools: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (driver, pool, _) in &here {
        *pools.entry((driver, pool)).or_default() += 1;
    }
    let held = held(facts, name);
    let devices: BTreeSet<&String> = held.iter().map(|(device, _)| device).collect();
    let (all, taken) = (here.len(), devices.len());
    let of_pool =
        pools.iter().map(|((driver, pool), devices)| format!("; pool {pool} of {driver}: {devices}"));
    let of_pool = of_pool.collect::<Vec<_>>().concat();
    let free = free(facts, &here);
    let sentence = format!(
        "node {name} publishes {}, claims hold {taken} of them, {free} can be had{of_pool}",
        count(all, "device", "devices")
    );
    let verdict = if !node.is_ready() {
        Verdict::blocked("NodeNotReady", format!("{sentence}; it is not ready"), "look at its kubelet")
    } else if node.spec.unschedulable {
        Verdict::blocked(
            "Cordoned",
            format!("{sentence}; it is cordoned, so that no Pod comes to it"),
            format!("kubectl uncordon {name}"),
        )
    } else if all == 0 {
        Verdict::blocked(
            "NoDevices",
            format!("node {name} publishes no device"),
            "does the DRA driver run on it?",
        )
    } else if !is_known(facts) {
        unknown(&format!("which devices of node {name} can be had"))
    } else if free == 0 {
        Verdict::fine("Full", sentence)
    } else {
        Verdict::fine("HasFree", sentence)
    };
    let chain = held.into_iter().map(|(device, claim)| {
        let by = claim::consumers_of(facts, claim);
        link(0, device, format!("claim {}/{} for {by}", claim.metadata.namespace, claim.metadata.name))
    });
    Answer { object, verdict, chain: chain.collect(), is_missing: false, lacks: facts.partial() }
}

/// Counts the devices of which a claim can have all or a share, each device by itself.
fn free(facts: &Facts, devices: &BTreeSet<(&str, &str, &str)>) -> usize {
    let (claimed, newest) = (Claimed::of(facts), newest(&facts.cluster.slices));
    let slices = facts.cluster.slices.iter();
    let slices = slices.filter(|of| newest.get(&(&*of.driver, &*of.pool.name)) == Some(&of.pool.generation));
    let free = slices.flat_map(|slice| {
        let (driver, pool) = (&slice.driver, &slice.pool.name);
        let here =
            slice.devices.iter().filter(|device| devices.contains(&(&**driver, &**pool, &*device.name)));
        here.filter(|device| claimed.availability(driver, pool, device).can_be_had())
    });
    free.count()
}

/// The devices of a node, by driver, pool and name: those of the newest slices of each pool.
pub fn here<'a>(facts: &'a Facts, node: &str) -> BTreeSet<(&'a str, &'a str, &'a str)> {
    let newest = newest(&facts.cluster.slices);
    let mut here = BTreeSet::new();
    for slice in &facts.cluster.slices {
        let pool = (&*slice.driver, &*slice.pool.name);
        if newest.get(&pool) == Some(&slice.pool.generation) {
            let is_here = |of: Option<&str>| slice.node_name.as_deref().or(of) == Some(node);
            let devices = slice.devices.iter().filter(|device| is_here(device.node_name.as_deref()));
            here.extend(devices.map(|device| (pool.0, pool.1, &*device.name)));
        }
    }
    here
}

/// The devices of a node that claims hold, each with its claim.
pub fn held<'a>(facts: &'a Facts, node: &str) -> Vec<(String, &'a ResourceClaim)> {
    let here = here(facts, node);
    let mut held = Vec::new();
    for claim in facts.claims.values() {
        let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { continue };
        let results = allocation.devices.results.iter().filter(|of| !of.is_admin());
        for of in results.filter(|of| here.contains(&(&*of.driver, &*of.pool, &*of.device))) {
            held.push((format!("device {}/{}/{}", of.driver, of.pool, of.device), claim));
        }
    }
    held.sort_by(|a, b| a.0.cmp(&b.0));
    held
}
