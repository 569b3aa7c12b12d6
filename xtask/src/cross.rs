//! The compiler for the other architecture. rustup's own targets are used where they are installed; elsewhere those of
//! Debian, unpacked into a directory: nothing is added to the system but the linker.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::shipped::Platform;
use crate::{output, root, run};

/// Debian's compiler and its parts for the machine that compiles.
const FOR_HOST: [&str; 4] = ["rustc-web", "libstd-rust-web-dev", "libstd-rust-web-1.96", "libllvm22"];
/// And for the one that is compiled for.
const FOR_TARGET: [&str; 2] = ["libstd-rust-web-dev", "libstd-rust-web-1.96"];

/// Compiler and libraries with which cargo compiles for another architecture.
pub(crate) struct Compiler {
    platform: Platform,
    /// Where Debian's compiler is unpacked, if it is that one.
    unpacked: Option<PathBuf>,
}

impl Compiler {
    /// Finds the compiler, or fetches it from the package registry.
    ///
    /// # Errors
    /// A package cannot be had.
    pub(crate) fn provide(platform: Platform) -> anyhow::Result<Self> {
        let libraries = output("rustc", &["--print", "target-libdir", "--target", platform.target()])?;
        if PathBuf::from(libraries.trim()).exists() {
            return Ok(Self { platform, unpacked: None });
        }
        let unpacked = root()?.join("target/cross").join(platform.architecture());
        if !unpacked.join("complete").exists() {
            fetch(platform, &unpacked)?;
            std::fs::write(unpacked.join("complete"), "").context("target/cross")?;
        }
        Ok(Self { platform, unpacked: Some(unpacked) })
    }

    /// Tells cargo.
    pub(crate) fn configure(&self, cargo: &mut Command) {
        let gnu = self.platform.target().replace("-unknown", "");
        let name = self.platform.target().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), format!("{gnu}-gcc"));
        cargo.env(format!("CC_{name}"), format!("{gnu}-gcc"));
        if let Some(unpacked) = &self.unpacked {
            cargo.env("RUSTC", unpacked.join("rustc"));
        }
    }
}

/// Installs the linker, and unpacks the compiler beside the system.
fn fetch(platform: Platform, to: &std::path::Path) -> anyhow::Result<()> {
    let gnu = platform.target().replace("-unknown", "").replace('_', "-");
    let (linker, libc) = (format!("gcc-{gnu}"), format!("libc6-dev-{}-cross", platform.architecture()));
    run("apt-get", &["install", "--yes", "--no-install-recommends", &linker, &libc])?;
    let text = |path: PathBuf| path.display().to_string();
    let (lists, cache, packages) = (to.join("lists"), to.join("cache"), to.join("packages"));
    for directory in [lists.join("partial"), cache.join("archives/partial"), packages.clone()] {
        std::fs::create_dir_all(directory).context("target/cross")?;
    }
    let architecture = platform.architecture();
    let foreign = [
        format!("APT::Architecture={architecture}"),
        format!("APT::Architectures={architecture}"),
        format!("Dir::State::lists={}", text(lists)),
        format!("Dir::Cache={}", text(cache)),
    ];
    let foreign: Vec<&str> = foreign.iter().flat_map(|option| ["-o", option]).collect();
    run("apt-get", &[&foreign[..], &["update"]].concat())?;
    let download = |options: &[&str], names: &[&str]| {
        let arguments = [options, &["download"], names].concat();
        let status = Command::new("apt-get").args(&arguments).current_dir(&packages).status();
        ensure!(status.context("apt-get")?.success(), "apt-get download {} failed", names.join(" "));
        Ok(())
    };
    download(&foreign, &FOR_TARGET)?;
    download(&[], &FOR_HOST)?;
    for package in std::fs::read_dir(&packages).context("packages")? {
        run("dpkg-deb", &["-x", &text(package?.path()), &text(to.to_owned())])?;
    }
    // The compiler finds its own libraries by this variable, and no other program has it.
    let host = format!("{}-linux-gnu", std::env::consts::ARCH);
    let script = format!(
        "#!/bin/sh\nhere=$(dirname \"$0\")\n\
         LD_LIBRARY_PATH=\"$here/usr/lib/{host}:$here/usr/lib/llvm-22/lib\" exec \"$here/usr/bin/rustc\" \"$@\"\n"
    );
    let rustc = to.join("rustc");
    std::fs::write(&rustc, script).context("rustc")?;
    run("chmod", &["+x", &text(rustc)])
}
