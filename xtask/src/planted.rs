//! A copy of the repository with a planted change, and the runs of its tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::{output, root};

/// A copy of the working tree under `target/defects`.
pub(crate) struct Planted {
    /// The root directory of the copy.
    pub(crate) tree: PathBuf,
}

impl Planted {
    /// Returns an unchanged copy. Files that are already equal are not written, so that cargo rebuilds
    /// only what differs.
    ///
    /// # Errors
    /// Git cannot list the files, or a file of the copy cannot be removed or written.
    pub(crate) fn fresh() -> anyhow::Result<Self> {
        let tree = root()?.join("target/defects/tree");
        let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
        let kept: BTreeSet<PathBuf> = listed.lines().map(|file| tree.join(file)).collect();
        for stale in files(&tree).into_iter().filter(|file| !kept.contains(file)) {
            std::fs::remove_file(&stale).with_context(|| stale.display().to_string())?;
        }
        for file in listed.lines() {
            let (from, to) = (root()?.join(file), tree.join(file));
            let Ok(content) = std::fs::read(&from) else { continue };
            if std::fs::read(&to).is_ok_and(|there| there == content) {
                continue;
            }
            std::fs::create_dir_all(to.parent().context("path")?)?;
            std::fs::write(&to, content).with_context(|| file.to_owned())?;
        }
        Ok(Self { tree })
    }

    /// The root of the copy.
    pub(crate) fn path(&self) -> &Path {
        &self.tree
    }

    /// Applies a patch. `strip` is the `-p0` or `-p1` that the paths in the patch need.
    ///
    /// # Errors
    /// The program `patch` cannot be run, or the patch does not apply.
    pub(crate) fn patch(&self, patch: &Path, strip: &str) -> anyhow::Result<()> {
        let status = Command::new("patch")
            .args(["--quiet", "--fuzz=0", strip, "-i"])
            .arg(patch)
            .current_dir(&self.tree)
            .status();
        ensure!(status.context("patch")?.success(), "{} does not apply", patch.display());
        Ok(())
    }

    /// Runs a program in the copy. Returns whether it succeeded, and its output.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn said(&self, program: &Path, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.tree).env("RUST_BACKTRACE", "0");
        // The copy is a workspace of its own, with its own target directory.
        command
            .env_remove("CARGO_MANIFEST_DIR")
            .env("CARGO_TARGET_DIR", root()?.join("target/defects/build"));
        let out = command.output().with_context(|| program.display().to_string())?;
        let text =
            [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        Ok((out.status.success(), text))
    }

    /// Builds `dragoman-lab` of the copy under a profile and runs it. Returns whether it succeeded, and its
    /// output.
    ///
    /// # Errors
    /// The copy does not compile, or its `dragoman-lab` cannot be started.
    pub(crate) fn lab_says(&self, profile: &str, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
        let options = ["build", "--profile", profile, "--package", "dragoman-lab"];
        let (built, log) = self.said(Path::new("cargo"), &options)?;
        if !built {
            bail!("it does not compile:\n{log}");
        }
        let target = root()?.join("target/defects");
        let directory = if profile == "dev" { "debug" } else { profile };
        let program = target.join("build").join(directory).join("dragoman-lab");
        // These commands start no operator, so that any program will do for `--binary`.
        let (itself, out) = (program.display().to_string(), target.join("e2e").display().to_string());
        self.said(&program, &[&["--binary", &itself, "--output", &out], arguments].concat())
    }

    /// Runs seeds until an invariant is broken, as many as CI does; `which` are further flags. Returns the
    /// failure, if there is one.
    ///
    /// # Errors
    /// The copy does not compile, or its `dragoman-lab` cannot be started.
    pub(crate) fn soak_fails(&self, which: &[&str]) -> anyhow::Result<Option<String>> {
        let (green, log) = self.lab_says("soak", &[&["soak", "--twice", "0"], which].concat())?;
        let failed = log.lines().find_map(|line| line.strip_prefix(REASON)).map(str::to_owned);
        Ok(failed.filter(|_| !green))
    }
}

/// The words before the reason for which `dragoman-lab` fails.
pub(crate) const REASON: &str = "dragoman-lab: ";

/// Returns every file below `directory`.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
