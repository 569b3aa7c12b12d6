//! Builds programs from the Go modules of this repository, once for each content of their sources, into a
//! cache outside the checkout.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

/// The directory of the cache.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("DRAGOMAN_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|c| c.join("dragoman")))
        .or_else(|| variable("HOME").map(|h| h.join(".cache/dragoman")))
        .context("none of DRAGOMAN_CACHE, XDG_CACHE_HOME and HOME is set")
}

/// Returns a digest of the content of `files` in `directory`.
pub(crate) fn digest(directory: &Path, files: &[impl AsRef<str>]) -> anyhow::Result<String> {
    let mut hasher = Sha256::new();
    for file in files {
        let file = file.as_ref();
        hasher.update(std::fs::read(directory.join(file)).with_context(|| file.to_owned())?);
    }
    Ok(hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Runs `go build` in `module` with these linker flags and arguments.
pub(crate) async fn build(module: &Path, ldflags: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", ldflags])
        .args(arguments)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .status()
        .await;
    match status {
        Ok(status) => ensure!(status.success(), "go build in {} failed: {status}", module.display()),
        Err(error) => bail!("cannot run go (these tests need a Go toolchain): {error}"),
    }
    Ok(())
}
