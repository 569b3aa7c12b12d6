//! `cargo xtask check`: everything that can be said without running the system.

use crate::{defects, edges, files, fuzz, output, run};

/// The version CI checks with.
const CARGO_DENY: &str = "0.20.2";

/// Runs all checks.
///
/// # Errors
/// The first that fails.
pub(crate) fn check() -> anyhow::Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    // The workspace of the fuzz targets has a lock of its own, which only its build would miss.
    output("cargo", &["metadata", "--locked", "--format-version=1", "--manifest-path", fuzz::MANIFEST])?;
    edges::check()?;
    files::check()?;
    defects::check()?;
    if run("cargo", &["deny", "--version"]).is_err() {
        run("cargo", &["install", "--locked", "--version", CARGO_DENY, "cargo-deny"])?;
    }
    // Advisories need a database from the network and run elsewhere, daily.
    run("cargo", &["deny", "--all-features", "check", "bans", "licenses", "sources"])
}
