//! Bytes that nobody would write, thrown at what reads quantities, objects and clusters.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{root, run};

/// Apart from the workspace: it is compiled with instrumentation.
pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";

/// Targets, and of how many runs each does one: a cluster takes longer than a number.
const TARGETS: [(&str, u64); 3] = [("quantities", 1), ("objects", 1), ("scenarios", 10)];

/// Runs every target `runs` times from the same seed, so that two runs do the same.
///
/// # Errors
/// A target panics; libFuzzer leaves the input in `target/fuzz`.
pub(crate) fn fuzz(runs: u64) -> anyhow::Result<()> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let place = root()?.join("target/fuzz");
    // What the compiler calls coverage; these flags are those of a stable one.
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
        // Found anew every time: an old corpus would make another run.
        if corpus.exists() {
            std::fs::remove_dir_all(&corpus).context("old corpus")?;
        }
        std::fs::create_dir_all(&corpus).context("corpus")?;
        let program = place.join(&triple).join("release").join(target).display().to_string();
        let (runs, artifacts) =
            (format!("-runs={}", runs / one_of), format!("-artifact_prefix={}/{target}-", place.display()));
        let seeds = format!("fuzz/seeds/{target}");
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
