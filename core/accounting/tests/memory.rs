//! The memory budget of ledgers: bytes of live heap per node and per Pod.
//!
//! The test is a process of its own, because it counts every allocation.

mod words;

use dragoman_accounting::Uid;
use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::ledger::charge::charge;
use dragoman_accounting::ledger::{Charging, NodeLedger, Stage};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::pod::requests::Variant;
use peak_alloc::PeakAlloc;
use serde_json::Value;
use words::{amounts, claim, container, line, pod};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const NODES: usize = 500;
const PODS: usize = 100;

fn uid(kind: &str, node: usize, number: usize) -> Uid {
    format!("{kind:0>8}-0000-4000-{node:04}-{number:012}").into()
}

/// A Pod with a claim that maps cpus and has an overhead of memory.
fn charged(node: usize, number: usize) -> PodSpecView {
    let device = claim("claim", &["c"], vec![line("cpu", "4", "", ""), line("memory", "", "1Gi", "64Mi")]);
    let uids = |mut claim: Contribution| {
        claim.source.uid = Some(uid("claim", node, number));
        claim
    };
    let spec = container("c", &[("cpu", "500m"), ("memory", "1Gi")]);
    PodSpecView { uid: uid("pod", node, number), ..pod(vec![spec], vec![uids(device)]) }
}

fn ledger() -> NodeLedger {
    let mut ledger = NodeLedger::new(Charging::PerClaim);
    ledger.set_allocatable(&amounts(&[("cpu", "64"), ("memory", "256Gi"), ("ephemeral-storage", "1Ti")]));
    ledger
}

#[test]
fn bytes_per_node_and_per_pod() {
    let budget: Value = serde_json::from_str(include_str!("../budget.json")).unwrap();
    let most = |name: &str| usize::try_from(budget[name].as_u64().unwrap()).unwrap();
    let before = ALLOCATOR.current_usage();
    let mut ledgers: Vec<NodeLedger> = (0..NODES).map(|_| ledger()).collect();
    let nodes = ALLOCATOR.current_usage();
    for (node, ledger) in ledgers.iter_mut().enumerate() {
        for number in 0..PODS {
            ledger.put_pod(charge(&charged(node, number), Stage::Bound, Variant::WholeLife, Vec::new()));
        }
    }
    let pods = ALLOCATOR.current_usage();
    let per_node = (nodes - before) / NODES;
    let per_pod = (pods - nodes) / (NODES * PODS);
    println!("{per_node} bytes per node, {per_pod} per Pod with a claim");
    assert!(per_node <= most("bytesPerNode") && per_pod <= most("bytesPerPod"), "{per_node}, {per_pod}");
    // A ledger from which all Pods were removed is within the budget of an empty one.
    for (node, ledger) in ledgers.iter_mut().enumerate() {
        (0..PODS).for_each(|number| ledger.remove_pod(&uid("pod", node, number)));
    }
    let after = (ALLOCATOR.current_usage() - before) / NODES;
    assert!(after <= most("bytesPerNode"), "{after} bytes per node are left, of {per_node}");
}
