//! The binary and the image as they are shipped.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{root, run};

/// The path of the static binary.
pub(crate) const BINARY: &str = "target/static/dragoman";

/// No cluster is simulated in the binary that has rights in a real one.
const FEATURES: [&str; 1] = ["--no-default-features"];

/// Builds the static binary.
///
/// # Errors
/// The host is not Linux, or the binary does not build or cannot be copied.
pub(crate) fn build() -> anyhow::Result<()> {
    // Since 2.34 the GNU libc contains its resolver. A static binary can therefore resolve names, and the
    // ordinary toolchain builds it.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    ensure!(cfg!(target_os = "linux"), "the shipped binary is one for Linux");
    // The target directory is named, because the binary is copied from there.
    let place = ["--target-dir", "target", "--target", &target];
    let arguments = [
        &["build", "--profile", "shipped", "--locked", "--package", "dragoman-operator"][..],
        &FEATURES,
        &place,
    ]
    .concat();
    eprintln!("$ RUSTFLAGS='-C target-feature=+crt-static' cargo {}", arguments.join(" "));
    let status = Command::new("cargo")
        .args(&arguments)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(root()?)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the static binary does not build: {status}");
    let built = root()?.join("target").join(target).join("shipped/dragoman");
    std::fs::create_dir_all(root()?.join("target/static")).context("target/static")?;
    std::fs::copy(&built, root()?.join(BINARY)).with_context(|| built.display().to_string())?;
    Ok(())
}

/// Builds the container image.
///
/// # Errors
/// The binary does not build, no builder is installed, or the builder fails.
pub(crate) fn image(tag: &str) -> anyhow::Result<()> {
    build()?;
    let works =
        |builder: &&str| Command::new(builder).arg("--version").output().is_ok_and(|o| o.status.success());
    let builder = ["buildah", "podman", "docker"].into_iter().find(|builder| works(builder));
    let builder = builder.context("none of buildah, podman and docker is installed")?;
    run(builder, &["build", "--tag", tag, "--file", "Containerfile", "."])
}
