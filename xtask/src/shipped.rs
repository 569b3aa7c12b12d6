//! The binary as it is shipped: static, without paths of the machine that built it, and with the list of its
//! dependencies where it goes into an image.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::{cross, root};

/// The path of the static binary.
pub(crate) const BINARY: &str = "target/static/dragoman";

/// No cluster is simulated in the binary that has rights in a real one.
const FEATURES: [&str; 1] = ["--no-default-features"];

/// The version of cargo-auditable that is installed if there is none.
const CARGO_AUDITABLE: &str = "0.7.7";

/// What a binary is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Platform {
    /// linux/amd64.
    Amd64,
    /// linux/arm64.
    Arm64,
}

impl Platform {
    pub(crate) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// Its name in an image.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Its name for Rust.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    fn of_the_host() -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "the shipped binary is one for Linux");
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("no binary is shipped for {other}"),
        }
    }
}

/// Builds the static binary for this machine.
///
/// # Errors
/// The host is not Linux, or the binary does not build or cannot be copied.
pub(crate) fn build() -> anyhow::Result<()> {
    let built = compile(Platform::of_the_host()?, &["build"], "target")?;
    std::fs::create_dir_all(root()?.join("target/static")).context("target/static")?;
    std::fs::copy(&built, root()?.join(BINARY)).with_context(|| built.display().to_string())?;
    Ok(())
}

/// Builds a static binary that carries the list of its dependencies, in a directory of the repository; returns its path.
///
/// # Errors
/// A tool or the binary does not build.
pub(crate) fn auditable(platform: Platform, directory: &str) -> anyhow::Result<PathBuf> {
    if crate::run("cargo", &["auditable", "--version"]).is_err() {
        crate::run("cargo", &["install", "--locked", "--version", CARGO_AUDITABLE, "cargo-auditable"])?;
    }
    compile(platform, &["auditable", "build"], directory)
}

fn compile(platform: Platform, command: &[&str], directory: &str) -> anyhow::Result<PathBuf> {
    let target = platform.target();
    // The target directory is named, because the binary is copied from there.
    let place = ["--target-dir", directory, "--target", target];
    let flags = ["--profile", "shipped", "--locked", "--package", "dragoman-operator"];
    let arguments = [command, &flags, &FEATURES, &place].concat();
    eprintln!("$ cargo {}", arguments.join(" "));
    let mut cargo = Command::new("cargo");
    cargo.args(&arguments).env("RUSTFLAGS", flags_of_rustc()?).current_dir(root()?);
    if platform != Platform::of_the_host()? {
        cross::Compiler::provide(platform)?.furnish(&mut cargo);
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "the static binary does not build: {status}");
    Ok(root()?.join(directory).join(target).join("shipped/dragoman"))
}

/// Since 2.34 the GNU libc contains its resolver. A static binary can therefore resolve names, and the ordinary
/// toolchain builds it. Paths are those of nobody's machine: two machines build the same bytes.
fn flags_of_rustc() -> anyhow::Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let remap = |from: PathBuf, to: &str| format!(" --remap-path-prefix={}={to}", from.display());
    Ok("-C target-feature=+crt-static".to_owned() + &remap(home, "/cargo") + &remap(root()?, "/dragoman"))
}
