//! Builds programs from the Go modules of this repository, once for each content of their sources, into a
//! cache outside the checkout.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use crate::only;

/// The directory of the cache.
pub fn cache() -> anyhow::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("DRAGOMAN_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|c| c.join("dragoman")))
        .or_else(|| variable("HOME").map(|h| h.join(".cache/dragoman")))
        .context("none of DRAGOMAN_CACHE, XDG_CACHE_HOME and HOME is set")
}

/// Returns a digest of the content of `files` in `directory`.
pub fn digest(directory: &Path, files: &[impl AsRef<str>]) -> anyhow::Result<String> {
    let mut hasher = Sha256::new();
    for file in files {
        let file = file.as_ref();
        hasher.update(std::fs::read(directory.join(file)).with_context(|| file.to_owned())?);
    }
    Ok(hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Runs `go build` in `module` with these linker flags and arguments.
pub async fn build(module: &Path, ldflags: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("go");
    command.args(["build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", ldflags]).args(arguments);
    // A compiler lives for a second. Without a garbage collector, and without what debuggers read, the packages of a client took
    // 59 s instead of 84, and 1.0 GB at most instead of 0.5.
    command.env("GOGC", "off").env("GOMEMLIMIT", "3GiB");
    command.current_dir(module).env("CGO_ENABLED", "0").stdin(Stdio::null()).kill_on_drop(true);
    let Ok(out) = command.output().await else {
        bail!("there is no go: install Go (the version in e2e/control-plane/kubernetes/go.mod, or newer)");
    };
    // What is missing, be it the network, room on the disk, or memory, stands in the last line.
    let said = String::from_utf8_lossy(&out.stderr);
    let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
    ensure!(out.status.success(), "go build in {} failed: {last}", module.display());
    Ok(())
}

/// Build tags for the parts that tools leave out: C libraries, file systems that are rare, and the clients of
/// every cloud.
const WITHOUT: &str = "containers_image_openpgp,exclude_graphdriver_btrfs,remove_all_sd,no_btrfs,no_zfs";

/// The directory of the programs that the module `e2e/tools/NAME` names as tools. They are built once.
pub async fn tools(repository: &Path, name: &str) -> anyhow::Result<PathBuf> {
    // Two lives that start at once want the same programs.
    static BUILDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = BUILDING.lock().await;
    let module = repository.join("e2e/tools").join(name);
    let mut sources = vec!["go.mod".to_owned(), "go.sum".to_owned()];
    for entry in std::fs::read_dir(&module).with_context(|| module.display().to_string())? {
        let source = format!("{}/main.go", entry?.file_name().to_string_lossy());
        sources.extend(module.join(&source).exists().then_some(source));
    }
    sources.sort();
    let digest = digest(&module, &sources)?;
    let directory = cache()?.join("tools").join(format!("{name}-{digest}"));
    let complete = directory.join("complete");
    if complete.exists() {
        return Ok(directory);
    }
    std::fs::create_dir_all(&directory).context("cache")?;
    let _turn = only::lock_in_turn(&directory).await?;
    if !complete.exists() {
        println!("building the tools of e2e/tools/{name} into {}", directory.display());
        let to = format!("{}/", directory.display());
        build(&module, "-s -w", &["-tags", WITHOUT, "-o", &to, "tool"]).await?;
        std::fs::write(&complete, "").context("cache")?;
    }
    Ok(directory)
}

/// The directory of a dependency of `module`, with the manifests that belong to it.
pub async fn directory(module: &Path, dependency: &str) -> anyhow::Result<PathBuf> {
    let arguments = ["list", "-m", "-f", "{{.Dir}}", dependency];
    let out = Command::new("go").args(arguments).current_dir(module).output().await.context("go")?;
    ensure!(out.status.success(), "go list: {}", String::from_utf8_lossy(&out.stderr));
    Ok(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()))
}
