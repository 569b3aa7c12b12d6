//! The operator under test: the real binary as a process of its own.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::client::plain_http;
use crate::control_plane::{Process, free_port};
use crate::wait;

/// A running `dragoman run`.
pub(crate) struct Dragoman {
    process: Process,
    admin: u16,
    dump: u16,
}

/// How to start it.
pub(crate) struct Start<'a> {
    /// The binary.
    pub binary: &'a Path,
    /// Where its log goes.
    pub directory: &'a Path,
    /// Its credentials.
    pub kubeconfig: PathBuf,
    /// `--mode`.
    pub mode: &'a str,
    /// `--log`.
    pub log: &'a str,
    /// Further flags.
    pub flags: &'a [&'a str],
}

impl Dragoman {
    /// Starts it and returns at once.
    pub(crate) fn spawn(start: &Start<'_>) -> anyhow::Result<Self> {
        let (admin, dump) = (free_port()?, free_port()?);
        let mut arguments: Vec<String> = [
            "run",
            "--kubeconfig",
            &start.kubeconfig.display().to_string(),
            "--mode",
            start.mode,
            "--namespace",
            "kube-system",
            "--admin-address",
            &format!("127.0.0.1:{admin}"),
            "--dump-address",
            &format!("127.0.0.1:{dump}"),
            "--log-format",
            "text",
            "--log",
            start.log,
        ]
        .map(str::to_owned)
        .into();
        arguments.extend(start.flags.iter().map(|flag| (*flag).to_owned()));
        let process = Process::spawn(start.binary, "dragoman", &arguments, start.directory)?;
        Ok(Self { process, admin, dump })
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn start(start: &Start<'_>) -> anyhow::Result<Self> {
        let mut dragoman = Self::spawn(start)?;
        let patience = Duration::from_mins(1);
        let admin = dragoman.admin;
        let ready = async || matches!(get(admin, "/readyz").await, Ok((200, _)));
        let outcome = wait::until("dragoman is ready", patience, ready).await;
        if outcome.is_err() {
            let end = dragoman.process.ended()?;
            ensure!(end.is_none(), "dragoman ended with {end:?}:\n{}", dragoman.process.output());
        }
        outcome.with_context(|| dragoman.process.output())?;
        Ok(dragoman)
    }

    /// What /readyz says.
    pub(crate) async fn readiness(&self) -> anyhow::Result<(u16, String)> {
        get(self.admin, "/readyz").await
    }

    /// Its metrics.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        Ok(get(self.admin, "/metrics").await?.1)
    }

    /// The sum over the series of `name` whose text contains all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> anyhow::Result<f64> {
        let text = self.metrics().await?;
        let mine = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        };
        Ok(text.lines().filter(mine).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// The dump of its indexes.
    pub(crate) async fn dump(&self) -> anyhow::Result<String> {
        Ok(get(self.dump, "/dump").await?.1)
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Its log so far, that of earlier instances in the same directory included.
    pub(crate) fn log(&self) -> String {
        self.process.output()
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let process = &mut self.process;
        wait::value("dragoman ends", patience, async || process.ended()).await
    }

    /// SIGTERM and the end.
    pub(crate) async fn stop(self) -> anyhow::Result<ExitStatus> {
        self.process.stop().await
    }

    /// SIGKILL.
    pub(crate) async fn kill(self) -> anyhow::Result<()> {
        self.process.kill().await
    }
}

async fn get(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    plain_http(port, http::Request::get(path).body(String::new())?).await
}
