//! Pools of many slices: what an event costs does not grow with the pool it belongs to.

use std::error::Error;
use std::time::{Duration, Instant};

use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
use serde_json::{Value, json};

/// A scenario of one pool of `slices` slices over `nodes` nodes, and a claim for one of its devices.
fn pool(slices: usize, nodes: usize) -> serde_json::Result<Scenario> {
    let node = |number: usize| json!({"metadata": {"name": format!("n{number}")}});
    let slice = |number: usize| {
        json!({"metadata": {"name": format!("s{number}")}, "spec": {
            "driver": "gpu.example.com", "nodeName": format!("n{}", number % nodes),
            "pool": {"name": "all", "generation": 1, "resourceSliceCount": slices},
            "devices": [{"name": format!("gpu-{number}")}]}})
    };
    let claim = json!({"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": {"devices":
        {"requests": [{"name": "r", "exactly":
            {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}});
    let whole = json!({
        "nodes": (0..nodes).map(node).collect::<Vec<Value>>(),
        "resourceSlices": (0..slices).map(slice).collect::<Vec<Value>>(),
        "deviceClasses": [{"metadata": {"name": "gpu"}}], "resourceClaims": [claim],
        "allocate": ["ns/c"], "candidates": ["n0"]
    });
    serde_json::from_value(whole)
}

/// The time to load the pool and to try every node.
fn time(slices: usize, nodes: usize) -> Result<Duration, Box<dyn Error>> {
    let scenario = pool(slices, nodes)?;
    let began = Instant::now();
    let snapshot = scenario.snapshot(&Snapshot::default())?;
    let claims = scenario.claims(&snapshot)?;
    for node in 0..nodes {
        let overlay = Overlay::default();
        let outcome = allocate(&snapshot, &overlay, &format!("n{node}"), &claims, Options::default());
        assert!(matches!(outcome, Outcome::Solution(_)), "node {node}: {outcome:?}");
    }
    Ok(began.elapsed())
}

/// Prints the times of pools that grow (docs/performance.md). The largest would take minutes, and the
/// test with it, if an event cost as much as its pool is large.
#[test]
fn a_pool_of_many_slices_is_loaded_and_tried_on_every_node() -> Result<(), Box<dyn Error>> {
    for (slices, nodes) in [(500, 1), (1_000, 1), (2_000, 1), (1_000, 1_000), (2_000, 2_000), (4_000, 4_000)]
    {
        println!("{slices} slices, {nodes} nodes: {:?}", time(slices, nodes)?);
    }
    Ok(())
}
