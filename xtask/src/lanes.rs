//! The tests, in lanes: what finds defects quickly, and what takes longer.

use anyhow::ensure;

use crate::{fuzz, output, run, shipped, soak};

/// A part of the long tests that a CI run can afford beside the quick ones: at most a quarter of an
/// hour on two cold cores.
struct Slice {
    name: &'static str,
    run: fn() -> anyhow::Result<()>,
}

/// Every long lane is in exactly one slice.
const SLICES: &[Slice] = &[
    Slice { name: "conformance", run: || on_shipped(&["conformance"]) },
    Slice { name: "1.36", run: || on_shipped(&["scenarios", "1.36"]) },
    Slice { name: "node", run: || node("node-pods/") },
    Slice { name: "faults of a node", run: || node("node-faults/") },
    Slice { name: "emulated", run: || on_shipped(&["scenarios", "1.35", "1.34"]) },
    Slice { name: "histories", run: || on_shipped(&["scenarios", "differential", "apart"]) },
    Slice { name: "simcluster", run: || on_shipped(&["scenarios", "--on", "sim"]) },
    Slice { name: "oracles", run: || on_shipped(&["oracle"]) },
    Slice { name: "tenants", run: || on_shipped(&["tenants"]) },
    Slice { name: "faults", run: || soak(&["--runs", "20000", "--seed", "2001", "--twice", "0"]) },
    Slice {
        name: "faults of gates",
        run: || soak(&["--gated", "--runs", "1200", "--seed", "301", "--twice", "0"]),
    },
    Slice {
        name: "fuzz, versus and memory",
        run: || {
            fuzz::fuzz(200_000)?;
            // A small one without a verdict: it shows that the measurement still works.
            on_shipped(&["versus", "--pods", "100", "--gated", "200", "--completed", "100", "--idle", "5"])?;
            on_shipped(&["scale", "--full"])
        },
    },
    Slice { name: "races", run: || built(&["scenarios", "races/"]) },
    Slice { name: "packages", run: || on_shipped(&["scenarios", "packages/"]) },
    Slice { name: "seen", run: || built(&["scenarios", "seen/"]) },
];

/// What finds defects quickly: unit tests, the model of the gate protocol, two thousand runs with faults, and the scenarios of the
/// newest release on a real control plane.
///
/// # Errors
/// A lane fails.
pub(crate) fn quick() -> anyhow::Result<()> {
    run("cargo", &["test", "--workspace"])?;
    // Every state of the model of the gate protocol; prints how many there are.
    run("cargo", &["test", "--package", "dragoman-model", "--", "--ignored", "--nocapture"])?;
    build()?;
    // Two thousand runs, the first hundred of them twice, and some of gated Pods.
    built(&["soak"])?;
    built(&["soak", "--gated", "--runs", "300", "--twice", "30"])?;
    built(&["scenarios", "--on", "sim", "1.37"])?;
    built(&["scenarios", "1.37", "alone/", "crash", "rights", "manifests/", "seen/the_"])
}

/// The long lanes, one after the other.
///
/// # Errors
/// Names the lanes that failed; each has printed why, runs with faults their seed.
pub(crate) fn long() -> anyhow::Result<()> {
    build()?;
    let failed: Vec<&str> = SLICES.iter().filter(|slice| !passes(slice)).map(|slice| slice.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// One of the long lanes, chosen by the number of commits: consecutive landings run them in turn.
///
/// # Errors
/// The lane fails, or git cannot count.
pub(crate) fn turn() -> anyhow::Result<()> {
    let commits: usize = output("git", &["rev-list", "--count", "HEAD"])?.trim().parse()?;
    if let Some(slice) = SLICES.get(commits % SLICES.len()) {
        println!("long lane {:?}, by the number of commits ({commits})", slice.name);
        build()?;
        ensure!(passes(slice), "failed: {}", slice.name);
    }
    Ok(())
}

fn passes(slice: &Slice) -> bool {
    println!("lane {}", slice.name);
    let outcome = (slice.run)();
    if let Err(why) = &outcome {
        println!("FAILED  lane {}: {why:#}", slice.name);
    }
    outcome.is_ok()
}

/// Builds the programs with the features that unit tests have: with others all libraries would be
/// built once more.
pub(crate) fn build() -> anyhow::Result<()> {
    run("cargo", &["build", "--workspace", "--bins", "--tests"])
}

/// Runs the scenarios on a real node whose names contain `filter`.
pub(crate) fn node(filter: &str) -> anyhow::Result<()> {
    run("cargo", &["build", "--package", "dragoman-driver", "--examples"])?;
    built(&["node", filter])
}

/// Runs `dragoman-e2e` on the operator of the same build.
fn built(arguments: &[&str]) -> anyhow::Result<()> {
    on("target/debug/dragoman", arguments)
}

/// Runs `dragoman-e2e` on the operator as it is shipped.
fn on_shipped(arguments: &[&str]) -> anyhow::Result<()> {
    shipped::build()?;
    on(shipped::BINARY, arguments)
}

fn on(operator: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let bench = ["--binary", operator, "--output", "target/e2e"];
    run("target/debug/dragoman-e2e", &[&bench, arguments].concat())
}
