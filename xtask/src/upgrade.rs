//! The lane in which a cluster is upgraded and rolled back: operator and allocator of this revision and of an earlier one take
//! turns beside Pods at every stage.

use std::path::Path;

use crate::{lanes, output, run};

/// The earlier revision, where none is named: about a day of work ago.
pub(crate) const EARLIER: &str = "HEAD~20";

const SOURCE: &str = "target/previous/source";
const BUILD: &str = "target/previous/build";

/// Builds the operator of a revision, and runs `dragoman-e2e company` with both binaries.
///
/// # Errors
/// The revision is not there or does not build, or a promise was broken.
pub(crate) fn company(revision: &str, pods: usize) -> anyhow::Result<()> {
    let commit = output("git", &["rev-parse", "--verify", &format!("{revision}^{{commit}}")])?;
    if Path::new(SOURCE).exists() {
        run("git", &["-C", SOURCE, "fetch", "--quiet", "origin"])?;
    } else {
        run("git", &["clone", "--quiet", "--no-checkout", ".", SOURCE])?;
    }
    run("git", &["-C", SOURCE, "checkout", "--quiet", "--detach", commit.trim()])?;
    let manifest = format!("{SOURCE}/Cargo.toml");
    let build =
        ["build", "--manifest-path", &manifest, "--target-dir", BUILD, "--package", "dragoman-operator"];
    run("cargo", &build)?;
    let previous = format!("{BUILD}/debug/dragoman");
    lanes::scenarios(&["company", "--pods", &pods.to_string(), "--kills", "--previous", &previous])
}
