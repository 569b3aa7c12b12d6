//! The tests, in lanes: what finds defects quickly, and what takes longer.

use anyhow::ensure;

use crate::{e2e, fuzz, output, run, soak};

/// A part of the long tests that a CI run can afford beside the quick ones: at most a quarter of an
/// hour on two cold cores.
struct Slice {
    name: &'static str,
    run: fn() -> anyhow::Result<()>,
}

/// Every long lane is in exactly one slice.
const SLICES: &[Slice] = &[
    Slice { name: "conformance", run: || e2e(&["conformance"]) },
    Slice { name: "1.36", run: || e2e(&["scenarios", "1.36"]) },
    Slice { name: "emulated", run: || e2e(&["scenarios", "1.35", "1.34"]) },
    Slice { name: "histories", run: || e2e(&["scenarios", "differential", "apart"]) },
    Slice { name: "simcluster", run: || e2e(&["scenarios", "--on", "sim"]) },
    Slice { name: "oracles", run: || e2e(&["oracle"]) },
    Slice { name: "faults", run: || soak(&["--runs", "20000", "--seed", "2001", "--twice", "0"]) },
    Slice {
        name: "fuzz and versus",
        run: || {
            fuzz::fuzz(200_000)?;
            // A small one without a verdict: it shows that the measurement still works.
            e2e(&["versus", "--pods", "100", "--gated", "200", "--completed", "100", "--idle", "5"])
        },
    },
];

/// What finds defects quickly: unit tests, two thousand runs with faults, and the scenarios of the
/// newest release on a real control plane.
///
/// # Errors
/// A lane fails.
pub(crate) fn quick() -> anyhow::Result<()> {
    // Everything is built once, as unit tests need it; the operator under test is that build.
    run("cargo", &["test", "--workspace"])?;
    run("cargo", &["build", "--package", "dragoman-operator", "--package", "dragoman-e2e"])?;
    // Two thousand runs, the first hundred of them twice.
    built(&["soak"])?;
    built(&["scenarios", "--on", "sim", "1.37", "crash", "rights"])?;
    built(&["scenarios", "1.37", "alone/", "crash", "rights"])
}

/// The long lanes, one after the other.
///
/// # Errors
/// Names the lanes that failed; each has printed why, runs with faults their seed.
pub(crate) fn long() -> anyhow::Result<()> {
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

/// Runs `dragoman-e2e` of the ordinary build on the operator of the ordinary build.
fn built(arguments: &[&str]) -> anyhow::Result<()> {
    let bench = ["--binary", "target/debug/dragoman", "--output", "target/e2e"];
    run("target/debug/dragoman-e2e", &[&bench, arguments].concat())
}
