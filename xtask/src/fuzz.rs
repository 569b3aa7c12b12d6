//! Fuzzing: arbitrary bytes for the parsers of quantities, objects and device scenarios.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{root, run};

/// The fuzz targets are outside the workspace, because they are compiled with instrumentation.
pub(crate) const MANIFEST: &str = "lab/fuzz/Cargo.toml";

/// The targets, each with the divisor of its number of runs: a scenario takes longer than a number.
const TARGETS: [(&str, u64); 3] = [("quantities", 1), ("objects", 1), ("scenarios", 10)];

/// Runs every target from the same seed, so that two invocations do the same. A target does `runs` runs,
/// divided by its number in `TARGETS`.
///
/// # Errors
/// The targets do not build, or a target fails; libFuzzer leaves the input in `target/fuzz`.
pub(crate) fn fuzz(runs: u64) -> anyhow::Result<()> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let place = root()?.join("target/fuzz");
    // Coverage instrumentation with flags of the stable compiler.
    let flags = [
        "--cfg=fuzzing",
        "-Cpasses=sancov-module",
        "-Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table",
        "-Cllvm-args=-sanitizer-coverage-trace-compares",
        "-Ccodegen-units=1",
    ];
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--manifest-path", MANIFEST])
        .args(["--target", &triple, "--target-dir"])
        .arg(&place)
        .env("RUSTFLAGS", flags.join(" "))
        .current_dir(root()?)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the fuzz targets do not build: {status}");
    for (target, one_of) in TARGETS {
        let corpus = place.join("corpus").join(target);
        // Each invocation starts without a corpus: an old one would change the run.
        if corpus.exists() {
            std::fs::remove_dir_all(&corpus).context("old corpus")?;
        }
        std::fs::create_dir_all(&corpus).context("corpus")?;
        let program = place.join(&triple).join("release").join(target).display().to_string();
        let (runs, artifacts) =
            (format!("-runs={}", runs / one_of), format!("-artifact_prefix={}/{target}-", place.display()));
        let seeds = format!("lab/fuzz/seeds/{target}");
        let corpus = corpus.display().to_string();
        let limits = [
            "-seed=1",
            "-max_len=4096",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-verbosity=0",
            "-print_final_stats=1",
        ];
        run(&program, &[&limits[..], &[&runs, &artifacts, &corpus, &seeds]].concat())?;
    }
    Ok(())
}
