//! The tests, in lanes: what finds defects quickly, and what takes longer.

use anyhow::ensure;

use crate::needs::{self, Need};
use crate::{fuzz, output, run, shipped, soak, upgrade};

/// A part of the long tests that a CI run can afford beside the quick ones: at most a quarter of an
/// hour on two cold cores.
struct Slice {
    name: &'static str,
    run: fn() -> anyhow::Result<()>,
}

/// Every long lane is in exactly one slice.
const SLICES: &[Slice] = &[
    Slice { name: "conformance", run: || measured(&["conformance"]) },
    Slice { name: "1.36", run: || built(&["scenarios", "1.36"]) },
    Slice { name: "node", run: || node("node-pods/") },
    Slice { name: "faults of a node", run: || node("node-faults/") },
    Slice { name: "emulated", run: || built(&["scenarios", "1.35", "1.34"]) },
    Slice { name: "histories", run: || on_shipped(&["scenarios", "differential", "apart"]) },
    Slice { name: "simcluster", run: || built(&["scenarios", "--on", "sim"]) },
    Slice { name: "oracles", run: || measured(&["oracle"]) },
    Slice { name: "tenants", run: || shipped_measured(&["tenants"]) },
    Slice { name: "faults", run: || soak(&["--runs", "20000", "--seed", "2001", "--twice", "0"]) },
    Slice {
        name: "faults of gates",
        run: || soak(&["--gated", "--runs", "1200", "--seed", "301", "--twice", "0"]),
    },
    Slice { name: "optimised", run: optimised },
    Slice {
        name: "fuzz, versus and memory",
        run: || {
            fuzz::fuzz(200_000)?;
            // A small one without a verdict: it shows that the measurement still works.
            shipped_measured(&[
                "versus",
                "--pods",
                "100",
                "--gated",
                "200",
                "--completed",
                "100",
                "--idle",
                "5",
            ])?;
            shipped_measured(&["scale", "--full"])
        },
    },
    Slice { name: "races", run: || built(&["scenarios", "races/"]) },
    Slice { name: "rights", run: || built(&["scenarios", "rights"]) },
    Slice { name: "packages", run: || on_shipped(&["scenarios", "packages/", "manifests/"]) },
    Slice { name: "seen", run: || built(&["scenarios", "seen/"]) },
    Slice {
        name: "company",
        run: || {
            on_shipped(&["company", "--pods", "500", "--kills"])?;
            on_shipped(&["company", "--races", "300"])
        },
    },
    Slice { name: "upgrade", run: || upgrade::company(upgrade::EARLIER, 200) },
];

/// The patience of runs in which a wait that ends in vain is what is hoped for.
pub(crate) const IMPATIENT: &str = "60";

/// Runs the lanes that find defects quickly and need Rust alone: unit tests, the model of the gate protocol
/// in its quick form, runs with faults, and the scenarios of the newest release on simcluster.
///
/// # Errors
/// Something is missing on this machine, or a lane fails.
pub(crate) fn quick() -> anyhow::Result<()> {
    needs::look(&[Need::CCompiler, Need::Room(5)])?;
    needs::crates()?;
    // One build for everything: with the features of one package all libraries would be built once more.
    build()?;
    run("cargo", &["test", "--workspace"])?;
    // Each seed is a different cluster; the first ones run twice, and must give the same history.
    measured(&["soak", "--runs", "120", "--twice", "10"])?;
    measured(&["soak", "--gated", "--runs", "30", "--twice", "3"])?;
    built(&["scenarios", "--on", "sim", "1.37/"])
}

/// The second level: the scenarios of the newest release on a real control plane, and those on simcluster that kubectl
/// plays.
///
/// # Errors
/// Something is missing on this machine, or a lane fails.
pub(crate) fn real() -> anyhow::Result<()> {
    needs::look(&[Need::CCompiler, Need::Go, Need::Python, Need::Room(10)])?;
    needs::crates()?;
    build()?;
    built(&["scenarios", "--on", "sim", "kubectl/"])?;
    // Every state of the model of the gate protocol; prints how many there are.
    run("cargo", &["test", "--package", "dragoman-model", "--", "--ignored", "--nocapture"])?;
    built(&["scenarios", "1.37", "kubectl/", "alone/", "crash"])
}

/// The programs that the long lanes need.
const EVERYTHING: &[Need] = &[Need::CCompiler, Need::Go, Need::Python, Need::Git, Need::Curl, Need::Root];

/// Measured: 3 GB for the build of all tests, 5 for that of a control plane, and up to 3 for a build of one lane.
const ROOM_FOR_ONE: Need = Need::Room(12);

/// All lanes leave five builds, and the incremental parts of two.
const ROOM_FOR_ALL: Need = Need::Room(30);

/// The long lanes, one after the other.
///
/// # Errors
/// Names the lanes that failed; each has printed why, runs with faults their seed.
pub(crate) fn long() -> anyhow::Result<()> {
    needs::look(&[EVERYTHING, &[ROOM_FOR_ALL]].concat())?;
    needs::crates()?;
    build()?;
    let failed: Vec<&str> = SLICES.iter().filter(|slice| !passes(slice)).map(|slice| slice.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// The number of long lanes.
pub(crate) const fn count() -> usize {
    SLICES.len()
}

/// One of the long lanes, chosen by the number of commits: consecutive landings run them in turn.
///
/// # Errors
/// The lane fails, or git cannot count.
pub(crate) fn turn() -> anyhow::Result<()> {
    needs::look(&[EVERYTHING, &[ROOM_FOR_ONE]].concat())?;
    needs::crates()?;
    let commits: usize = output("git", &["rev-list", "--count", "HEAD"])?.trim().parse()?;
    if let Some(slice) = SLICES.get(commits % SLICES.len()) {
        println!("long lane {:?}, by the number of commits ({commits})", slice.name);
        build()?;
        ensure!(passes(slice), "failed: {}", slice.name);
    }
    Ok(())
}

/// The tests that try a part of their cases where nothing is optimised, and whose stacks are larger there.
fn optimised() -> anyhow::Result<()> {
    run(
        "cargo",
        &["test", "--release", "--package", "dragoman-accounting", "--package", "dragoman-allocator"],
    )
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

/// Builds the operator and `dragoman-e2e`, and runs scenarios.
pub(crate) fn scenarios(arguments: &[&str]) -> anyhow::Result<()> {
    build()?;
    built(arguments)
}

/// Scenarios.
const E2E: &str = "target/debug/dragoman-e2e";
/// Instruments.
const LAB: &str = "target/debug/dragoman-lab";

/// Runs `dragoman-e2e` on the operator of the same build.
fn built(arguments: &[&str]) -> anyhow::Result<()> {
    on("target/debug/dragoman", E2E, arguments)
}

/// Runs `dragoman-lab` on the operator of the same build.
fn measured(arguments: &[&str]) -> anyhow::Result<()> {
    on("target/debug/dragoman", LAB, arguments)
}

/// Runs `dragoman-e2e` on the operator as it is shipped.
fn on_shipped(arguments: &[&str]) -> anyhow::Result<()> {
    shipped::build()?;
    on(shipped::BINARY, E2E, arguments)
}

/// Runs `dragoman-lab` on the operator as it is shipped.
fn shipped_measured(arguments: &[&str]) -> anyhow::Result<()> {
    shipped::build()?;
    on(shipped::BINARY, LAB, arguments)
}

fn on(operator: &str, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let bench = ["--with-parent", "--binary", operator, "--output", "target/e2e"];
    run(program, &[&bench, arguments].concat())
}
