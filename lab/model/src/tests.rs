//! Every state of small workloads is looked at: with all guards nothing is broken, without any single one
//! something is.

use stateright::{Checker as _, HasDiscoveries, Model as _};

use super::{Guards, Protocol, Workload};

/// Two Pods share a claim, and one of them needs another one, too.
fn shared() -> Workload {
    Workload {
        pods: vec![vec![0], vec![0, 1]],
        gated: 2,
        late_scheduler: false,
        owner: vec![0, 0],
        pools: vec![vec![0, 1]],
        cpus: 2,
        changes: 3,
        faults: 1,
    }
}

/// Two devices, and cpu for one.
fn race() -> Workload {
    Workload {
        pods: vec![vec![0], vec![1]],
        gated: 2,
        late_scheduler: false,
        owner: vec![0, 0],
        pools: vec![vec![0, 1]],
        cpus: 1,
        changes: 4,
        faults: 1,
    }
}

/// Two allocators with a device each, which two Pods need in opposite order.
fn crossed() -> Workload {
    Workload {
        pods: vec![vec![0, 1], vec![2, 3]],
        gated: 2,
        late_scheduler: false,
        owner: vec![0, 1, 1, 0],
        pools: vec![vec![0], vec![1]],
        cpus: 2,
        changes: 2,
        faults: 0,
    }
}

/// Two allocators that promise the same device: the configuration is wrong.
fn twice() -> Workload {
    Workload {
        pods: vec![vec![0], vec![1]],
        gated: 2,
        late_scheduler: false,
        owner: vec![0, 1],
        pools: vec![vec![0], vec![0]],
        cpus: 2,
        changes: 2,
        faults: 0,
    }
}

/// A gated Pod and a neighbour, and cpu for one. kube-scheduler is late.
fn neighbour() -> Workload {
    Workload {
        pods: vec![vec![0], vec![]],
        gated: 1,
        late_scheduler: true,
        owner: vec![0],
        pools: vec![vec![0]],
        cpus: 1,
        changes: 4,
        faults: 1,
    }
}

/// A gated and an ungated Pod, and a device for each. kube-scheduler is late.
fn ungated() -> Workload {
    Workload {
        pods: vec![vec![0], vec![1]],
        gated: 1,
        late_scheduler: true,
        owner: vec![0, 0],
        pools: vec![vec![0, 1]],
        cpus: 2,
        changes: 3,
        faults: 1,
    }
}

/// The promises that are broken somewhere, and the number of states.
fn broken(workload: Workload, guards: Guards, until: HasDiscoveries) -> (Vec<&'static str>, usize) {
    let checker = Protocol { workload, guards }.checker().threads(2).finish_when(until).spawn_bfs().join();
    let mut broken: Vec<&'static str> = checker.discoveries().into_keys().collect();
    broken.sort_unstable();
    (broken, checker.unique_state_count())
}

#[test]
#[ignore = "a minute: `cargo xtask test` runs it"]
fn every_promise_is_kept_in_every_state() {
    for (name, workload) in [
        ("shared", shared()),
        ("race", race()),
        ("crossed", crossed()),
        ("neighbour", neighbour()),
        ("ungated", ungated()),
    ] {
        let (broken, states) = broken(workload, Guards::ALL, HasDiscoveries::All);
        println!("{name}: {states} states");
        assert!(broken.is_empty(), "{name}: {broken:?}");
    }
    // The wrong configuration breaks the promise of a device, and releases none twice.
    let (broken, states) = broken(twice(), Guards::ALL, HasDiscoveries::All);
    println!("twice: {states} states");
    assert_eq!(broken, ["P1"]);
}

#[test]
fn without_any_guard_a_promise_is_broken() {
    let all = Guards::ALL;
    for (name, workload, guards, promise) in [
        ("versions", shared(), Guards { versions: false, ..all }, "P3"),
        ("decisions stand", race(), Guards { decisions_stand: false, ..all }, "P1"),
        ("assumed", race(), Guards { assumed: false, ..all }, "P2"),
        ("promised twice", twice(), Guards { promised_twice: false, ..all }, "P1 released"),
        ("gate tested", crossed(), Guards { gate_tested: false, ..all }, "P4"),
        ("gives back", crossed(), Guards { gives_back: false, ..all }, "P5, P7"),
        ("leader waits", race(), Guards { leader_waits: false, ..all }, "P1"),
        ("holds", neighbour(), Guards { holds: false, ..all }, "P2"),
        ("nominates", neighbour(), Guards { nominates: false, ..all }, "P2"),
        ("settles", neighbour(), Guards { settles: false, ..all }, "P2"),
        ("owned", ungated(), Guards { owned: false, ..all }, "P1"),
        ("takes up", crossed(), Guards { takes_up: false, ..all }, "P5, P7"),
    ] {
        let (broken, states) = broken(workload, guards, HasDiscoveries::AnyOf([promise].into()));
        println!("without {name:?}: {states} states, broken: {broken:?}");
        assert!(broken.contains(&promise), "without {name:?} {promise} holds; broken: {broken:?}");
    }
}
