//! The operator under test: the real binary as a process of its own.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::client::plain_http;
use crate::control_plane::{Process, free_port};
use crate::wait;

/// A running `dragoman run` or `dragoman allocator`.
pub(crate) struct Dragoman {
    process: Process,
    admin: u16,
    dump: u16,
}

/// The arguments of a start.
pub(crate) struct Start<'a> {
    /// The command: `run` or `allocator`.
    pub command: &'a str,
    /// The binary.
    pub binary: &'a Path,
    /// The directory of the log.
    pub directory: &'a Path,
    /// The kubeconfig with the credentials.
    pub kubeconfig: PathBuf,
    /// `--mode`; the allocator has none.
    pub mode: Option<&'a str>,
    /// `--log`.
    pub log: &'a str,
    /// Further flags.
    pub flags: &'a [&'a str],
}

impl Dragoman {
    /// Starts the operator without waiting for readiness.
    pub(crate) fn spawn(start: &Start<'_>) -> anyhow::Result<Self> {
        let (admin, dump) = (free_port()?, free_port()?);
        let mut arguments: Vec<String> = [
            start.command,
            "--kubeconfig",
            &start.kubeconfig.display().to_string(),
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
        arguments.extend(start.mode.into_iter().flat_map(|mode| ["--mode".to_owned(), mode.to_owned()]));
        if !start.flags.contains(&"--namespace") {
            arguments.extend(["--namespace", "kube-system"].map(str::to_owned));
        }
        arguments.extend(start.flags.iter().map(|flag| (*flag).to_owned()));
        let name = if start.command == "run" { "dragoman" } else { start.command };
        let process = Process::spawn(start.binary, name, &arguments, start.directory)?;
        Ok(Self { process, admin, dump })
    }

    /// Starts the operator and waits until it is ready.
    pub(crate) async fn start(start: &Start<'_>) -> anyhow::Result<Self> {
        let mut dragoman = Self::spawn(start)?;
        let admin = dragoman.admin;
        let ready = async || matches!(get(admin, "/readyz").await, Ok((200, _)));
        dragoman.process.until("dragoman is ready", ready).await?;
        Ok(dragoman)
    }

    /// Returns the code and the text of `/readyz`.
    pub(crate) async fn readiness(&self) -> anyhow::Result<(u16, String)> {
        get(self.admin, "/readyz").await
    }

    /// Returns the metrics as text.
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

    /// Returns the dump of the indexes.
    pub(crate) async fn dump(&self) -> anyhow::Result<String> {
        Ok(get(self.dump, "/dump").await?.1)
    }

    /// The port of its metrics.
    pub(crate) fn admin_port(&self) -> u16 {
        self.admin
    }

    /// The process id, while the process runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// The log so far, including that of earlier instances in the same directory.
    pub(crate) fn log(&self) -> String {
        self.process.output()
    }

    /// Waits until the process ends by itself.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let process = &mut self.process;
        wait::value("dragoman ends", async || process.ended()).await
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub(crate) async fn stop(self) -> anyhow::Result<ExitStatus> {
        self.process.stop().await
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub(crate) async fn kill(self) -> anyhow::Result<()> {
        self.process.kill().await
    }
}

async fn get(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    plain_http(port, http::Request::get(path).body(String::new())?).await
}
