//! A child process with its log in a file; it never outlives the test.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::{Child, Command};

/// A running program.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
    Ok(listener.local_addr().context("no free port")?.port())
}

impl Process {
    /// Starts `program`; its output goes to `name`.log in `directory`, appended.
    pub(crate) fn spawn(
        program: &Path,
        name: &str,
        arguments: &[String],
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).context("log")?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::from(file.try_clone().context("log")?))
            .stderr(Stdio::from(file))
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log })
    }

    /// Its pid, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it has printed.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<std::process::ExitStatus>> {
        self.child.try_wait().context("wait")
    }

    /// SIGTERM, then waits for the end; returns how it ended.
    pub(crate) async fn stop(mut self) -> anyhow::Result<std::process::ExitStatus> {
        if let Some(pid) = self.pid() {
            // tokio can only kill; the graceful way is the program's own business.
            let status = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
            status.context("kill")?;
        }
        let ended = tokio::time::timeout(Duration::from_secs(90), self.child.wait()).await;
        ended.context("it does not stop")?.context("wait")
    }

    /// SIGKILL, then waits for the end.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("kill")
    }
}
