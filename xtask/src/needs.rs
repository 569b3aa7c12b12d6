//! Requirements of the commands on the machine. Each command looks before it begins, and names what is
//! missing in one sentence: an hour into a test is late to learn that there is no Go.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::root;

/// A program or a property of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A C compiler: rustc links with it, and two libraries have parts in C or assembler.
    CCompiler,
    /// Go builds the real control plane.
    Go,
    /// The example of a foreign allocator is in Python, so that its reader sees that any language will do.
    Python,
    /// The commands that look at the files under version control.
    Git,
    /// The runbooks ask a process with curl what it lacks.
    Curl,
    /// A real node needs namespaces and cgroups.
    Root,
    /// So many gigabytes in the directory of the build, with what is built there already.
    Room(u64),
}

impl Need {
    /// Returns a sentence that says what is missing and what to do about it, or nothing.
    fn lacks(self) -> anyhow::Result<Option<String>> {
        let unless = |is_there: bool, sentence: &str| (!is_there).then(|| sentence.to_owned());
        Ok(match self {
            Self::CCompiler => {
                unless(answers("cc", "--version"), "there is no C compiler: install one that is called cc")
            }
            Self::Go => unless(answers("go", "version"), "there is no Go: install Go 1.26 or newer"),
            Self::Python => unless(answers("python3", "--version"), "there is no python3: install Python 3"),
            Self::Git => unless(answers("git", "--version"), "there is no git: install git"),
            Self::Curl => unless(answers("curl", "--version"), "there is no curl: install curl"),
            Self::Root => {
                unless(is_root()?, "this needs root: a real node has namespaces and cgroups of its own")
            }
            Self::Room(gigabytes) => {
                let (free, built) = (free(&root()?)?, built(&root()?));
                let sentence = format!(
                    "the disk is too full: this needs {gigabytes} GB in {}, of which {built} GB are built, and {free} GB are free",
                    root()?.display()
                );
                unless(free + built >= gigabytes, &sentence)
            }
        })
    }
}

/// Looks for everything that a command needs.
///
/// # Errors
/// Something is missing: one sentence for each.
pub(crate) fn look(needs: &[Need]) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for need in needs {
        missing.extend(need.lacks()?);
    }
    ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(())
}

/// Downloads the crates, so that a build does not find out half-way that there is no network.
///
/// # Errors
/// Crates are missing, and there is no way to them.
pub(crate) fn crates() -> anyhow::Result<()> {
    let fetched = Command::new("cargo").args(["fetch", "--locked", "--quiet"]).current_dir(root()?).output();
    let fetched = fetched.context("cannot run cargo")?;
    if fetched.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&fetched.stderr);
    let reason = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    bail!("the crates that Cargo.lock names cannot be downloaded; is there a network? ({})", reason.trim())
}

fn answers(program: &str, flag: &str) -> bool {
    let answer = Command::new(program).arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status();
    answer.is_ok_and(|status| status.success())
}

fn is_root() -> anyhow::Result<bool> {
    let id = Command::new("id").arg("-u").output().context("cannot run id")?;
    Ok(id.stdout.trim_ascii() == b"0")
}

/// The free gigabytes of the disk that holds `path`.
fn free(path: &Path) -> anyhow::Result<u64> {
    let out = Command::new("df").arg("-Pk").arg(path).output().context("cannot run df")?;
    available(&String::from_utf8_lossy(&out.stdout)).context("df says nothing")
}

/// The gigabytes of the builds that are there; none where that cannot be told.
fn built(root: &Path) -> u64 {
    let out = Command::new("du").arg("-sk").arg(root.join("target")).output();
    let said = out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let kilobytes = said.split_whitespace().next().and_then(|of| of.parse::<u64>().ok());
    kilobytes.unwrap_or_default() / 1_000_000
}

/// The gigabytes in the fourth column of the last line of `df -Pk`.
fn available(said: &str) -> Option<u64> {
    let kilobytes: u64 = said.lines().last()?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kilobytes / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn df_says_how_much_is_free() {
        let said = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 263174212 12345678 83886080 13% /\n";
        assert_eq!(available(said), Some(83));
        assert_eq!(available("df: nowhere: No such file or directory"), None);
    }

    #[test]
    fn what_is_missing_is_said_in_a_sentence_each() {
        let error = look(&[Need::Room(u64::MAX), Need::CCompiler, Need::Room(u64::MAX - 1)])
            .expect_err("no disk is so large");
        assert_eq!(error.to_string().lines().count(), 2, "{error}");
        assert!(error.to_string().contains("the disk is too full"), "{error}");
    }
}
