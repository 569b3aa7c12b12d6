//! Cost of decisions in a large cluster in which Pods come and go. The environment variable `NODES` sets the
//! number of nodes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dragoman_machinery::controller::Fed;
use dragoman_objects::{Meta, Name, Pod, ResourceClaim};
use serde_json::Value;

use super::in_flight::InFlightAllocations;
use super::index::Allocation;
use super::tests::{ROOM, claim, cluster, comes, decided, pod, shown};

const CPU: &str = "250m";

struct Cluster {
    index: Allocation,
    /// The Pod that holds a device, by pool and device.
    held: HashMap<(Name, Name), usize>,
}

impl Cluster {
    /// Lets a Pod with a claim come and decides about it; says whether there is room for it, and how long that took.
    fn comes(&mut self, number: usize) -> (bool, Duration) {
        comes(&mut self.index, number, CPU);
        let began = Instant::now();
        let decision = decided(&mut self.index, &InFlightAllocations::default(), number);
        let took = began.elapsed();
        if let Ok(decision) = &decision {
            for device in decision.allocations.iter().flat_map(|(_, given)| &*given.devices.results) {
                let other = self.held.insert((device.pool.clone(), device.device.clone()), number);
                assert_eq!(other, None, "{}/{} is given to Pod {number}, too", device.pool, device.device);
            }
            shown(&mut self.index, number, decision, CPU);
        }
        (decision.is_ok(), took)
    }

    /// Lets a Pod and its claim go.
    fn goes(&mut self, number: usize) {
        let meta =
            |object: &Value| serde_json::from_value::<Meta>(object["metadata"].clone()).expect("metadata");
        Fed::<Pod>::deleted(&mut self.index, &meta(&pod(number, CPU)));
        Fed::<ResourceClaim>::deleted(&mut self.index, &meta(&claim(number, &Value::Null)));
        self.held.retain(|_, holder| *holder != number);
    }
}

/// In a cluster that is half, nearly and wholly full, one Pod ends and the next one comes, again and again: it finds
/// the room of the one that went, and no device is given away twice. A hundred more find no room in the full cluster.
#[test]
fn pods_come_and_go_in_a_cluster_that_stays_as_full_as_it_is() {
    let nodes: usize = std::env::var("NODES").ok().and_then(|nodes| nodes.parse().ok()).unwrap_or(40);
    let all = nodes * ROOM;
    let mut cluster = Cluster { index: cluster(nodes, 3), held: HashMap::new() };
    let mut pods = 0..0;
    for percent in [50, 90, 100] {
        while pods.len() < all * percent / 100 {
            assert!(cluster.comes(pods.end).0, "there is room for Pod {}", pods.end);
            pods.end += 1;
        }
        if percent == 100 {
            let vain = pods.end..pods.end + 100;
            let tried: Vec<_> = vain.clone().map(|number| cluster.comes(number)).collect();
            assert!(tried.iter().all(|(has_room, _)| !has_room), "the cluster is full");
            let took: Duration = tried.iter().map(|(_, took)| took).sum();
            println!("{nodes} nodes, full: 100 Pods in vain in {took:?}");
            vain.for_each(|number| cluster.goes(number));
        }
        let (turns, mut deciding) = (all / 10, Duration::ZERO);
        for _ in 0..turns {
            cluster.goes(pods.start);
            let (has_room, took) = cluster.comes(pods.end);
            assert!(has_room, "the room of Pod {} is free", pods.start);
            deciding += took;
            pods = pods.start + 1..pods.end + 1;
        }
        let rate = turns as u128 * 1_000_000 / deciding.as_micros().max(1);
        println!("{nodes} nodes, {percent} % full: {turns} Pods in {deciding:?}, {rate} decisions a second");
    }
}
