//! The flags of a program that needs a control plane, and the end of such a program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::control_plane::Backend;
use crate::world::Bench;
use crate::{only, wait};

/// The flags of every command.
#[derive(Args, Debug, Clone)]
pub struct Setting {
    /// The `dragoman` binary.
    #[arg(long)]
    pub binary: PathBuf,
    /// The directory for logs.
    #[arg(long)]
    pub output: PathBuf,
    /// The tree with the manifests and budgets, instead of the one that this program was built from.
    #[arg(long)]
    repository: Option<PathBuf>,
    /// The seconds after which a wait is in vain.
    #[arg(long, value_name = "SECONDS", default_value_t = wait::DEFAULT_PATIENCE)]
    patience: u64,
    /// End as soon as the process that started this one has ended.
    #[arg(long)]
    with_parent: bool,
}

impl Setting {
    /// The tree with the manifests and budgets.
    ///
    /// # Errors
    /// This program was built in a place without a parent.
    pub fn repository(&self) -> anyhow::Result<PathBuf> {
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("repository")?;
        Ok(self.repository.clone().unwrap_or_else(|| built_from.to_owned()))
    }

    /// Does work with control planes of this kind. A signal drops the work, and with it every process that the work started.
    ///
    /// # Errors
    /// Those of the work; it was ended; another run uses the directory for logs; the binary or that directory is not there.
    pub async fn work(
        &self,
        backend: Backend,
        work: impl AsyncFnOnce(&Bench) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let parent = std::os::unix::process::parent_id();
        wait::set_patience(self.patience);
        std::fs::create_dir_all(&self.output).context("output")?;
        // The paths go into kubeconfigs and must be absolute.
        let output = self.output.canonicalize().context("output")?;
        let binary = self.binary.canonicalize().context("binary")?;
        let _alone = only::lock(&output)?;
        let bench = Bench { repository: self.repository()?, binary, output, backend };
        let mut terminate = signal(SignalKind::terminate()).context("signals")?;
        tokio::select! {
            outcome = work(&bench) => outcome,
            _ = terminate.recv() => anyhow::bail!("terminated"),
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            () = orphaned(parent), if self.with_parent => anyhow::bail!("the process that started this one has ended"),
        }
    }
}

/// The exit code of a program of this name. An error is printed with its reasons alone: a backtrace would show the way through the
/// harness.
pub fn ended(name: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Ends when this process has another parent than at its start.
async fn orphaned(parent: u32) {
    while std::os::unix::process::parent_id() == parent {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
