//! What decisions cost in a large cluster in which Pods come and go. `NODES` sets its size.

use std::time::{Duration, Instant};

use dragoman_crds::wire::Meta;
use dragoman_machinery::controller::Fed;
use serde_json::Value;

use super::decided::Decided;
use super::index::Allocation;
use super::tests::{ROOM, claim, cluster, comes, decided, pod, shown};
use super::whole::{WholeClaim, WholePod};

/// Lets a Pod and its claim go.
fn goes(index: &mut Allocation, number: usize) {
    let meta = |object: &Value| serde_json::from_value::<Meta>(object["metadata"].clone()).expect("metadata");
    Fed::<WholePod>::deleted(index, &meta(&pod(number, "250m")));
    Fed::<WholeClaim>::deleted(index, &meta(&claim(number, &Value::Null)));
}

/// The resident memory of this process, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or_default()
        / 1024
}

/// In a cluster that is half, nearly and wholly full, one Pod ends and the next one comes, again and again. While it is
/// full a hundred others wait in vain, and each free device goes to one of those that wait.
#[test]
fn pods_come_and_go_in_a_cluster_that_stays_as_full_as_it_is() {
    let nodes: usize = std::env::var("NODES").ok().and_then(|nodes| nodes.parse().ok()).unwrap_or(40);
    let all = nodes * ROOM;
    let before = resident();
    let mut index = cluster(nodes, 3);
    let none = Decided::default();
    let (mut last, mut first) = (0, 0);
    let come = |index: &mut Allocation, number: usize, deciding: &mut Duration| {
        comes(index, number, "250m");
        let began = Instant::now();
        let decision = decided(index, &none, number);
        *deciding += began.elapsed();
        if let Ok(decision) = &decision {
            shown(index, number, decision, "250m");
        }
        decision.is_ok()
    };
    for percent in [50, 90, 100] {
        let mut filling = Duration::ZERO;
        while last - first < all * percent / 100 {
            assert!(come(&mut index, last, &mut filling), "there is room for Pod {last}");
            last += 1;
        }
        if percent == 100 {
            let (mut vain, began) = (Duration::ZERO, last);
            for number in began..began + 100 {
                assert!(!come(&mut index, number, &mut vain), "there is no room for Pod {number}");
            }
            println!("{nodes} nodes, full: 100 Pods in vain in {vain:?}");
            for number in began..began + 100 {
                goes(&mut index, number);
            }
        }
        let (turns, mut deciding) = (all / 10, Duration::ZERO);
        for _ in 0..turns {
            goes(&mut index, first);
            first += 1;
            assert!(come(&mut index, last, &mut deciding), "the room of the Pod that went is free");
            last += 1;
        }
        let rate = turns as u128 * 1_000_000 / deciding.as_micros().max(1);
        println!("{nodes} nodes, {percent} % full: {turns} Pods in {deciding:?}, {rate} decisions a second");
    }
    println!("{} MiB resident, {before} before the cluster", resident());
}
