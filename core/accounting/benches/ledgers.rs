//! Measures how fast Pods are counted and charged. `cargo xtask bench accounting` runs it beside
//! `k8s.io/component-helpers` on the same Pods and compares the figures with
//! `core/accounting/budget.json`.
//!
//! The output is one line of JSON: medians of five runs, on one core.

#![expect(clippy::print_stdout, reason = "a program that prints")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use dragoman_accounting::Uid;
use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::contribution::{Contribution, Line, Source};
use dragoman_accounting::ledger::charge::{PodCharge, charge};
use dragoman_accounting::ledger::{Charging, NodeLedger, Stage};
use dragoman_accounting::pod::requests::{Claims, Options, Variant, requests};
use dragoman_accounting::pod::{Container, PodSpecView, Resources};
use dragoman_accounting::resource::Resource;
use dragoman_objects::Pod;
use dragoman_quantity::Decimal;
use serde_json::json;

/// The allocator of the operator binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 5_000;
const PODS: usize = 100;
const RUNS: usize = 5;

fn amounts(milli: i64, mebibytes: i64) -> Amounts {
    let cpu = Decimal::new(milli.into(), -3).unwrap_or_default();
    let memory = Decimal::from(mebibytes << 20);
    [(Resource::Cpu, cpu), (Resource::Memory, memory)].into_iter().collect()
}

/// A Pod with two containers, a sidecar, and a claim that maps cpus and has an overhead of memory.
fn pod(node: usize, number: usize) -> PodSpecView {
    let step = i64::try_from(number).unwrap_or_default();
    let container = |name: &str, sidecar| Container {
        name: name.into(),
        resources: Resources { requests: amounts(100 + step, 64 + step), limits: amounts(200 + step, 128) },
        sidecar,
        ..Container::default()
    };
    let line = |resource, mapping, per_pod| Line {
        driver: "device.example.com".into(),
        mapping,
        per_pod,
        ..Line::empty(resource)
    };
    // A random prefix, as in the uids of the API server.
    let uid = |kind: usize| -> Uid {
        let random = (node * 1_000_003 + number * 7_919 + kind).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{:08x}-0000-4000-{node:04}-{number:012}", random >> 32).into()
    };
    let claim = Source { uid: Some(uid(1)), ..Source::claim("claim") };
    PodSpecView {
        namespace: "namespace".into(),
        name: format!("pod-{number}").into(),
        uid: uid(0),
        containers: vec![container("one", false), container("two", false)],
        init_containers: vec![container("sidecar", true)],
        contributions: vec![Contribution {
            source: claim,
            containers: ["one".into(), "two".into()].into(),
            lines: vec![
                line(Resource::Cpu, Some(Decimal::from(2 + step % 3)), None),
                line(Resource::Memory, None, Some(Decimal::from(1 << 28))),
            ],
            ..Contribution::default()
        }],
        ..PodSpecView::default()
    }
}

/// Returns the median time of one of `count` operations, in nanoseconds.
fn each(count: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64() * 1e9 / f64::from(u32::try_from(count).unwrap_or(u32::MAX))
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(RUNS / 2).copied().unwrap_or_default()
}

fn charged(pods: &[PodSpecView]) -> Vec<PodCharge> {
    pods.iter().map(|pod| charge(pod, Stage::Bound, Variant::WholeLife, Vec::new())).collect()
}

fn main() {
    let mut figures: BTreeMap<&str, f64> = BTreeMap::new();
    // The file has one Pod a line, as the API sends it.
    if let Some(path) = std::env::args().skip_while(|argument| argument != "--pods").nth(1) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let read =
            |line: &str| serde_json::from_str::<Pod>(line).map(|pod| PodSpecView::of(&pod, &mut Vec::new()));
        let views: Vec<PodSpecView> = text.lines().flat_map(read).collect();
        let options = Options::scheduler(Claims::WholeLife);
        let time = each(views.len() * 20, || {
            for _ in 0..20 {
                views.iter().for_each(|view| drop(black_box(requests(black_box(view), options))));
            }
        });
        figures.insert("requests_ns", time);
    }
    let specs: Vec<PodSpecView> = (0..PODS).map(|number| pod(0, number)).collect();
    let (before, mut after) = (charged(&specs), specs.clone());
    for pod in &mut after {
        for line in pod.contributions.iter_mut().flat_map(|claim| &mut claim.lines) {
            line.mapping = line.mapping.map(|_| Decimal::from(7));
        }
    }
    let mut ledger = NodeLedger::new(Charging::PerClaim);
    let rounds = 1_000;
    let update = each(2 * PODS * rounds, || {
        for _ in 0..rounds {
            for pods in [&specs, &after] {
                for pod in pods {
                    let charge = charge(black_box(pod), Stage::Bound, Variant::WholeLife, Vec::new());
                    ledger.put_pod(charge);
                }
            }
        }
    });
    let after = charged(&after);
    figures.insert("update_ns", update);
    let ledger_update = each(2 * PODS * rounds, || {
        for _ in 0..rounds {
            for charges in [&before, &after] {
                charges.iter().for_each(|charge| ledger.put_pod(black_box(charge).clone()));
            }
        }
    });
    figures.insert("ledger_update_ns", ledger_update);
    let cluster: Vec<Vec<PodSpecView>> =
        (0..NODES).map(|node| (0..PODS).map(|number| pod(node, number)).collect()).collect();
    let rebuild = each(1, || {
        let ledgers = cluster.iter().map(|pods| {
            let mut ledger = NodeLedger::new(Charging::PerClaim);
            charged(pods).into_iter().for_each(|charge| ledger.put_pod(charge));
            ledger
        });
        black_box(ledgers.collect::<Vec<_>>());
    });
    figures.insert("rebuild_ms", rebuild / 1e6);
    println!("{}", json!(figures));
}
