//! The plugin of kubectl as it is released: an archive for each platform, and the manifest by which krew installs it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

use crate::shipped::{self, Platform};
use crate::{output, root, run};

/// Where archives and manifest are written.
const PLACE: &str = "target/plugin";
/// The name of the plugin in the index of krew: names there are specific, and `dra` would be generic. kubectl knows the plugin
/// by its file, `kubectl-dra`.
const NAME: &str = "dragoman";

/// Writes the archives and the manifest, whose links begin with `from`.
///
/// # Errors
/// The plugin does not build, or an archive is not what the manifest says.
pub(crate) fn write(platforms: &[Platform], from: &str) -> anyhow::Result<()> {
    let place = root()?.join(PLACE);
    if place.exists() {
        std::fs::remove_dir_all(&place).context(PLACE)?;
    }
    std::fs::create_dir_all(&place).context(PLACE)?;
    let mut parts = Vec::new();
    for platform in platforms {
        let archive = archive(*platform, &place)?;
        parts.push(part(*platform, &archive, from)?);
    }
    let manifest = place.join(format!("{NAME}.yaml"));
    std::fs::write(&manifest, manifest_of(&parts)).context("manifest")?;
    println!("{}", manifest.display());
    tried(&place)
}

/// An archive with the plugin and the licence: the same bytes for the same sources.
fn archive(platform: Platform, place: &Path) -> anyhow::Result<PathBuf> {
    let directory = place.join(platform.architecture());
    std::fs::create_dir_all(&directory).context(PLACE)?;
    std::fs::copy(shipped::plugin(platform)?, directory.join("kubectl-dra")).context("kubectl-dra")?;
    std::fs::copy(root()?.join("LICENSE"), directory.join("LICENSE")).context("LICENSE")?;
    let archive = place.join(format!("kubectl-dra-linux-{}.tar.gz", platform.architecture()));
    let same = [
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--use-compress-program=gzip -n",
    ];
    let (to, from) = (archive.display().to_string(), directory.display().to_string());
    let what = ["--create", "--file", &to, "--directory", &from, "kubectl-dra", "LICENSE"];
    run("tar", &[&same[..], &what].concat())?;
    Ok(archive)
}

fn sha256(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")))
}

fn part(platform: Platform, archive: &Path, from: &str) -> anyhow::Result<String> {
    let file = archive.file_name().context("archive")?.to_string_lossy();
    Ok(format!(
        "    - selector:\n        matchLabels:\n          os: linux\n          arch: {}\n      uri: {}/{file}\n      \
         sha256: {}\n      bin: kubectl-dra\n",
        platform.architecture(),
        from.trim_end_matches('/'),
        sha256(archive)?
    ))
}

fn manifest_of(parts: &[String]) -> String {
    format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: {NAME}
spec:
  version: v{}
  homepage: https://dragoman.dev
  shortDescription: Say why Pods wait for claims and what holds devices
  description: |
    Explains Dynamic Resource Allocation: why a Pod waits for its claim or its node, which claim
    holds a device, which devices of a pool are free, and which claims hold devices for nothing.
    It reads with the rights of the user, and works in every cluster with resource.k8s.io/v1.
  caveats: |
    The plugin runs as `kubectl dragoman`. Link it as kubectl-dra to run it as `kubectl dra`.
  platforms:
{}",
        env!("CARGO_PKG_VERSION"),
        parts.concat()
    )
}

/// Unpacks the archive for this machine as krew does, and runs what is in it.
fn tried(place: &Path) -> anyhow::Result<()> {
    let host = Platform::of_the_host()?.architecture();
    let archive = place.join(format!("kubectl-dra-linux-{host}.tar.gz"));
    if !archive.exists() {
        return Ok(());
    }
    let manifest = std::fs::read_to_string(place.join(format!("{NAME}.yaml"))).context("manifest")?;
    ensure!(manifest.contains(&sha256(&archive)?), "the manifest has another sum than the archive");
    let unpacked = place.join("unpacked");
    std::fs::create_dir_all(&unpacked).context(PLACE)?;
    let (from, to) = (archive.display().to_string(), unpacked.display().to_string());
    run("tar", &["--extract", "--file", &from, "--directory", &to])?;
    ensure!(unpacked.join("LICENSE").exists(), "the archive has no licence");
    let said = output(&unpacked.join("kubectl-dra").display().to_string(), &["--version"])?;
    ensure!(said.contains(env!("CARGO_PKG_VERSION")), "{said}");
    Ok(())
}
