//! The terminal of a person: kubectl and other programs on the path, a kubeconfig, and a home of its own.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};

use crate::control_plane::{Programs, Release};
use crate::world::World;

/// A terminal.
pub(crate) struct Terminal {
    programs: PathBuf,
    kubeconfig: PathBuf,
    repository: PathBuf,
}

/// Output and exit code of a program.
pub(crate) struct Said {
    /// The exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub error: String,
}

impl Terminal {
    /// Opens one for the user of a kubeconfig. The programs are kubectl and these, by the names that commands call them.
    pub(crate) async fn open(
        world: &World,
        kubeconfig: PathBuf,
        more: &[(&str, PathBuf)],
    ) -> anyhow::Result<Self> {
        let repository = world.bench.repository.clone();
        let programs = world.directory.join("programs");
        std::fs::create_dir_all(&programs).context("programs")?;
        let kubectl = Programs::provide(&repository, Release::default()).await?.path("kubectl");
        symlink(kubectl, programs.join("kubectl")).context("kubectl")?;
        for (name, program) in more {
            symlink(program, programs.join(name)).with_context(|| (*name).to_owned())?;
        }
        Ok(Self { programs, kubeconfig, repository })
    }

    /// The same programs for another user.
    pub(crate) fn of_another(&self, kubeconfig: PathBuf) -> Self {
        Self { programs: self.programs.clone(), kubeconfig, repository: self.repository.clone() }
    }

    /// The directory of the programs, which is also the home of the person.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// Runs a program in the repository, with these variables.
    pub(crate) async fn run(
        &self,
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Said> {
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap_or_default());
        let out = tokio::process::Command::new(program)
            .args(arguments)
            .current_dir(&self.repository)
            .env("PATH", path)
            .env("KUBECONFIG", &self.kubeconfig)
            // What kubectl and Helm remember is not that of the person at this machine.
            .env("HOME", &self.programs)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| program.to_owned())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said { code: out.status.code().unwrap_or(-1), out: text(&out.stdout), error: text(&out.stderr) })
    }

    /// Runs commands, each of which must succeed; returns what they printed, and each command behind a `+`.
    pub(crate) async fn shell(&self, commands: &str, variables: &[(&str, &str)]) -> anyhow::Result<String> {
        let Said { code, out, error } =
            self.run("bash", &["-euxo", "pipefail", "-c", commands], variables).await?;
        let said = out + &error;
        ensure!(code == 0, "{said}");
        Ok(said)
    }
}
