//! A cluster with every kind of object, in which single JSON values are replaced by others. The allocator
//! stays within its budget, and its outcome passes the independent checker.
#![no_main]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use dragoman_allocator::checker::{Checker, Expressions, Tried};
use dragoman_allocator::input::Cluster;
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
use dragoman_objects::{AllocationMode, SubRequest};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static CLUSTER: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../cluster.json")).unwrap());

/// The values that may replace another value.
static THINGS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let nested = "[1, 2, 3, 4, 5, 6, 7, 8].all(a, ".repeat(8) + "true" + &")".repeat(8);
    let texts = [
        "",
        "x",
        "a",
        "node-1",
        "node-0",
        "All",
        "ExactCount",
        "NoSchedule",
        "Exists",
        "In",
        "Gt",
        "gpu/numa",
        "numa",
        "gpu-0",
        "1.0.0",
        "true",
        "device.driver == 'gpu'",
        "device.attributes['gpu'].numa / 0 > 1",
        "device.attributes['nobody'].?a.orValue(1) == 1",
        "device.capacity['nic'].bandwidth.add(quantity('1e99')).isGreaterThan(quantity('1'))",
        "device.driver.matches('(a+)+$')",
        "device.driver.split('').join('x').replace('x', 'yy').size() > 3",
    ];
    let numbers = [
        "1",
        "-1",
        "0",
        "3",
        "1500m",
        "1n",
        "1e38",
        "99999999999999999999999999999999999999",
        "1e-38",
        "9223372036854775808",
        "8Ei",
        "0.3",
        "10Gi",
    ];
    let mut things: Vec<Value> = texts.iter().chain(&numbers).map(|text| json!(text)).collect();
    things.extend([json!(nested), json!("(".repeat(5_000)), json!("1 + ".repeat(2_000) + "1")]);
    things.extend([0, 1, 2, -1, 8, 31, 32, 33, i64::MAX, i64::MIN].map(|number| json!(number)));
    things.extend([json!(1e300), json!(true), json!(false), json!(null), json!([]), json!({})]);
    things
});

/// The devices that the search looks at before it is paused, and those that the checker tries.
const BUDGET: u64 = 2_000;
const TRIED: u64 = 500;

thread_local! {
    static LIKE: Snapshot = Snapshot::default();
    static EXPRESSIONS: RefCell<Expressions> = RefCell::default();
}

/// Returns the value with this number, counted from the root in depth-first order.
fn place<'a>(value: &'a mut Value, number: &mut usize) -> Option<&'a mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(values) => values.iter_mut().find_map(|value| place(value, number)),
        Value::Object(fields) => fields.values_mut().find_map(|value| place(value, number)),
        _ => None,
    }
}

fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(places).sum(),
        Value::Object(fields) => fields.values().map(places).sum(),
        _ => 0,
    }
}

fn change(cluster: &mut Value, place_number: u16, action: u8, what: u8) {
    let all = places(cluster);
    let other = {
        let mut number = usize::from(what) * 257 % all;
        place(cluster, &mut number).cloned().unwrap_or_default()
    };
    let mut number = usize::from(place_number) % all;
    let Some(here) = place(cluster, &mut number) else { return };
    match (action % 4, here) {
        (0, here) => *here = THINGS[usize::from(what) % THINGS.len()].clone(),
        (1, here) => *here = Value::Null,
        (2, Value::Array(values)) if !values.is_empty() && values.len() < 40 => {
            let one = values[usize::from(what) % values.len()].clone();
            values.push(one);
        }
        (2, here) | (_, here) => *here = other,
    }
}

/// Whether the checker applies. The API server refuses two objects of a kind with one name and two requests
/// of a claim with one name, and results refer to both by name. A request for zero devices is left out too: a
/// result cannot show it.
fn can_be_checked(cluster: &Cluster) -> bool {
    fn unique<'a, T: Ord + 'a>(names: impl Iterator<Item = T>) -> bool {
        let mut known = BTreeSet::new();
        names.into_iter().all(|name| known.insert(name))
    }
    unique(cluster.slices.iter().map(|slice| &slice.name))
        && unique(cluster.classes.iter().map(|class| &class.name))
        && unique(cluster.nodes.iter().map(|node| &node.name))
        && unique(cluster.taint_rules.iter().map(|rule| &rule.name))
        && unique(cluster.claims.iter().map(|claim| &claim.uid))
        && unique(cluster.claims.iter().map(|claim| (&claim.namespace, &claim.name)))
        && cluster.claims.iter().all(|claim| {
            let requests = &claim.devices.requests;
            let wants_some =
                |asked: &SubRequest| asked.allocation_mode == AllocationMode::All || asked.count > 0;
            unique(requests.iter().map(|request| &request.name))
                && requests.iter().all(|request| {
                    unique(request.first_available.iter().map(|sub| &sub.name))
                        && request.first_available.iter().all(wants_some)
                        && request.exactly.iter().all(|exactly| wants_some(&exactly.asked))
                })
        })
}

fuzz_target!(|bytes: &[u8]| {
    let mut cluster = CLUSTER.clone();
    for edit in bytes.chunks_exact(4).take(24) {
        change(&mut cluster, u16::from_le_bytes([edit[0], edit[1]]), edit[2], edit[3]);
    }
    if places(&cluster) > 10_000 {
        return;
    }
    // `DUMP=1 scenarios crash-…` prints the cluster of a crash.
    if std::env::var_os("DUMP").is_some() {
        eprintln!("{cluster}");
    }
    let Ok(scenario) = serde_json::from_value::<Scenario>(cluster) else { return };
    if !can_be_checked(&scenario.cluster()) {
        return;
    }
    let Ok(snapshot) = LIKE.with(|like| scenario.snapshot(like)) else { return };
    let (Ok(claims), Ok(gates)) = (scenario.claims(&snapshot), scenario.gates()) else { return };
    let (cluster, wanted) = (scenario.cluster(), scenario.wanted());
    EXPRESSIONS.with_borrow_mut(Expressions::forget_many);
    EXPRESSIONS.with_borrow(|expressions| {
        for node in &scenario.candidates {
            let options = Options { budget: Some(BUDGET), ..Options::default() };
            let outcome = match allocate(&snapshot, &Overlay::default(), node, &claims, options) {
                Outcome::BudgetSpent(paused) => paused.resume(options),
                outcome => outcome,
            };
            let Ok(checker) = Checker::new(&cluster, node, &wanted, gates, expressions) else { continue };
            match outcome {
                Outcome::Solution(solution) => {
                    let mut share = 0;
                    let mut ids = || {
                        share += 1;
                        format!("new-{share}").into()
                    };
                    let allocations = solution.allocations(&mut ids).unwrap();
                    let broken = checker.check(&allocations, TRIED);
                    assert!(broken.is_empty(), "{broken:?}");
                    solution.devices();
                }
                Outcome::Unsatisfiable(unsolved) => {
                    let explanation = unsolved.explain();
                    for pool in explanation.requests.iter().flat_map(|request| &request.pools) {
                        assert_eq!(pool.causes.values().sum::<usize>(), pool.devices);
                    }
                    let tried = checker.first(TRIED, &|_| true);
                    assert!(!matches!(tried, Tried::First(_)), "{tried:?}");
                    let counted = checker.first_by_counting(TRIED);
                    assert!(tried == Tried::TooMuch || counted == tried, "{counted:?}");
                }
                Outcome::NodeError(error) => assert!(!error.to_string().is_empty()),
                Outcome::PodError(error) => assert!(!error.to_string().is_empty()),
                Outcome::BudgetSpent(_) | Outcome::Cancelled => {}
            }
        }
    });
});
