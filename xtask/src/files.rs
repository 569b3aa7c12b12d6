//! Generated files, and the size of the written ones.

use anyhow::{Context as _, ensure};

use crate::{output, root};

/// A file of more lines of code than this is hard to keep in the head.
const MOST_LINES: usize = 500;

/// What is generated: the file, and the command that prints it.
const GENERATED: &[(&str, &[&str])] = &[
    ("config/base/roles.yaml", &["run", "--quiet", "--package", "dragoman-operator", "--", "rbac"]),
    ("config/crds/crds.yaml", &["run", "--quiet", "--package", "dragoman-operator", "--", "crdgen"]),
];

/// Writes every generated file.
///
/// # Errors
/// A generator fails.
pub(crate) fn generate() -> anyhow::Result<()> {
    for (file, command) in GENERATED {
        std::fs::write(root()?.join(file), output("cargo", command)?).context(*file)?;
    }
    Ok(())
}

/// Checks that generated files are up to date and written ones not too long.
///
/// # Errors
/// Names the file.
pub(crate) fn check() -> anyhow::Result<()> {
    for (file, command) in GENERATED {
        let stands = std::fs::read_to_string(root()?.join(file)).context(*file)?;
        ensure!(stands == output("cargo", command)?, "{file} is out of date: run `cargo xtask gen`");
    }
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.go"])?;
    for file in listed.lines() {
        let Ok(text) = std::fs::read_to_string(root()?.join(file)) else { continue };
        let code = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")).count();
        ensure!(code <= MOST_LINES, "{file} has {code} lines of code, more than {MOST_LINES}");
    }
    Ok(())
}
