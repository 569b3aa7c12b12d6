//! `cargo xtask check`: the checks that do not run Dragoman.

use crate::{
    advisories, awaits, citations, cited, defects, edges, english, files, functions, fuzz, licences, output,
    run, waits,
};

/// Runs all checks.
///
/// # Errors
/// A check fails; the checks after it do not run.
pub(crate) fn check() -> anyhow::Result<()> {
    citations::check()?;
    cited::check()?;
    english::check()?;
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    // The fuzz targets have a lock file of their own, and only their build would notice that it is stale.
    output("cargo", &["metadata", "--locked", "--format-version=1", "--manifest-path", fuzz::MANIFEST])?;
    edges::check()?;
    files::check()?;
    functions::check()?;
    awaits::check()?;
    waits::check()?;
    citations::check()?;
    defects::check()?;
    advisories::check()?;
    licences::check()
}
