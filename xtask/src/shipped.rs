//! The binary as it is shipped: static, without paths of the machine that built it, and with the list of its
//! dependencies where it goes into an image.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::{cross, edges, output, root};

/// The path of the static binary.
pub(crate) const BINARY: &str = "target/static/dragoman";

/// No cluster is simulated in the binary that has rights in a real one.
pub(crate) const FEATURES: [&str; 3] = ["--no-default-features", "--features", "traces,mimalloc"];

/// The version of cargo-auditable that is installed if there is none.
const CARGO_AUDITABLE: &str = "0.7.7";

/// Platform that a binary is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Platform {
    /// linux/amd64.
    Amd64,
    /// linux/arm64.
    Arm64,
}

impl Platform {
    pub(crate) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// Returns the name of the platform in an image.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Returns the name of the platform for Rust.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    pub(crate) fn of_the_host() -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "the shipped binary is one for Linux");
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("no binary is shipped for {other}"),
        }
    }
}

/// Sources of the binary, beside the crates that it depends on. Tests and tools of the workspace are left
/// out: for cargo, the features that they switch on in common dependencies would be the binary's, too.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "config", "operator"];
/// Where they are copied.
pub(crate) const SOURCE: &str = "target/source";

/// Copies the sources of the binary, as they stand in the working tree, into a workspace of their own.
///
/// # Errors
/// A file cannot be copied.
pub(crate) fn export() -> anyhow::Result<()> {
    let to = root()?.join(SOURCE);
    if to.exists() {
        std::fs::remove_dir_all(&to).context(SOURCE)?;
    }
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "--"];
    let rooms = edges::of("operator");
    let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
    for file in output("git", &[&list[..], &SOURCES, &rooms].concat())?.lines() {
        let copy = to.join(file);
        std::fs::create_dir_all(copy.parent().context("directory")?).context(SOURCE)?;
        std::fs::copy(root()?.join(file), copy).with_context(|| file.to_owned())?;
    }
    let manifest = to.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).context("Cargo.toml")?;
    let is_about_others = |line: &&str| line.starts_with("members") || line.starts_with("default-members");
    let kept: Vec<&str> = text.lines().filter(|line| !is_about_others(line)).collect();
    let text = kept.join("\n").replace("[workspace]\n", "[workspace]\nmembers = [\"operator\"]\n");
    std::fs::write(manifest, text + "\n").context("Cargo.toml")?;
    // cargo leaves out of the lock file what nothing needs any more, and changes nothing else.
    let whose = ["metadata", "--format-version=1", "--manifest-path"];
    output("cargo", &[&whose[..], &[&to.join("Cargo.toml").display().to_string()]].concat())?;
    let [ours, theirs] = [root()?, to].map(|place| locked(&place));
    let (ours, theirs) = (ours?, theirs?);
    let changed: Vec<&String> = theirs.difference(&ours).collect();
    ensure!(changed.is_empty(), "{SOURCE}/Cargo.lock has other dependencies: {changed:?}");
    Ok(())
}

/// Name and version of every package in a lock file.
fn locked(place: &Path) -> anyhow::Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(place.join("Cargo.lock")).context("Cargo.lock")?;
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines
        .windows(2)
        .filter(|two| two.iter().all(|line| line.contains(" = ")))
        .map(|two| two.join(" "))
        .collect())
}

/// Builds the static binary for this machine.
///
/// # Errors
/// The host is not Linux, or the binary does not build or cannot be copied.
pub(crate) fn build() -> anyhow::Result<()> {
    let built = compile(Platform::of_the_host()?, &["build"], OPERATOR, (".", "target"))?;
    std::fs::create_dir_all(root()?.join("target/static")).context("target/static")?;
    std::fs::copy(&built, root()?.join(BINARY)).with_context(|| built.display().to_string())?;
    Ok(())
}

/// Builds a static binary that carries the list of its dependencies, from the exported sources; returns its path.
///
/// # Errors
/// A tool or the binary does not build.
pub(crate) fn auditable(platform: Platform) -> anyhow::Result<PathBuf> {
    if crate::run("cargo", &["auditable", "--version"]).is_err() {
        crate::run("cargo", &["install", "--locked", "--version", CARGO_AUDITABLE, "cargo-auditable"])?;
    }
    compile(platform, &["auditable", "build"], OPERATOR, (SOURCE, "target/auditable"))
}

/// Builds the static plugin of kubectl; returns its path.
///
/// # Errors
/// It does not build.
pub(crate) fn plugin(platform: Platform) -> anyhow::Result<PathBuf> {
    compile(platform, &["build"], ("dragoman-cli", "kubectl-dra", &[]), (".", "target"))
}

/// A package, its binary, and the features with which it is shipped.
type Binary = (&'static str, &'static str, &'static [&'static str]);

const OPERATOR: Binary = ("dragoman-operator", "dragoman", &FEATURES);

fn compile(
    platform: Platform,
    command: &[&str],
    (package, binary, features): Binary,
    (from, to): (&str, &str),
) -> anyhow::Result<PathBuf> {
    let target = platform.target();
    // The target directory is named, because the binary is copied from there.
    let directory = root()?.join(to);
    let place = ["--target-dir", &directory.display().to_string(), "--target", target];
    let flags = ["--profile", "shipped", "--locked", "--package", package];
    let arguments = [command, &flags, features, &place].concat();
    eprintln!("$ cargo {}", arguments.join(" "));
    let mut cargo = Command::new("cargo");
    cargo.args(&arguments).env("RUSTFLAGS", flags_of_rustc(from)?).current_dir(root()?.join(from));
    // The C code of mimalloc carries the date and time of its compilation. A constant, because cargo does not compile that
    // code again when the variable changes.
    cargo.env("SOURCE_DATE_EPOCH", "0");
    if platform != Platform::of_the_host()? {
        cross::Compiler::provide(platform)?.configure(&mut cargo);
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "the static binary does not build: {status}");
    Ok(directory.join(target).join("shipped").join(binary))
}

/// Since 2.34 the GNU libc contains its resolver. A static binary can therefore resolve names, and the ordinary
/// toolchain builds it. No path of a machine is in it: two machines build the same bytes.
fn flags_of_rustc(from: &str) -> anyhow::Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let remap = |from: PathBuf, to: &str| format!(" --remap-path-prefix={}={to}", from.display());
    Ok("-C target-feature=+crt-static".to_owned()
        + &remap(home, "/cargo")
        + &remap(root()?.join(from), "/dragoman"))
}
