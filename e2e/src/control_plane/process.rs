//! A child process with its log in a file; it never outlives the test.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

/// A running program.
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// Returns a port without a listener. It is below the range from which the kernel takes the ports of outgoing connections,
/// so that none of those is in the way when it is bound, and never the same twice.
pub fn free_port() -> anyhow::Result<u16> {
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let width = PORTS.end - PORTS.start;
    // Processes that run side by side start at different places.
    let start = std::process::id().wrapping_mul(997) % width;
    for _ in 0..width {
        let offset = (start + NEXT.fetch_add(1, Ordering::Relaxed)) % width;
        let port = u16::try_from(PORTS.start + offset).context("port")?;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port")
}

impl Process {
    /// Starts `program`; its output goes to `name`.log in `directory`, appended.
    pub fn spawn(program: &Path, name: &str, arguments: &[String], directory: &Path) -> anyhow::Result<Self> {
        Self::spawn_with(program, name, arguments, directory, None)
    }

    /// The same, with a variable of its environment.
    pub fn spawn_with(
        program: &Path,
        name: &str,
        arguments: &[String],
        directory: &Path,
        variable: Option<(&str, &str)>,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).context("log")?;
        let child = Command::new(program)
            .args(arguments)
            .envs(variable)
            .stdin(Stdio::null())
            .stdout(Stdio::from(file.try_clone().context("log")?))
            .stderr(Stdio::from(file))
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log })
    }

    /// The pid of the process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The output of the process so far, of both streams.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> anyhow::Result<Option<std::process::ExitStatus>> {
        self.child.try_wait().context("wait")
    }

    /// Waits until `condition` holds, which it never does once the program has ended.
    ///
    /// # Errors
    /// The program has ended: the error has the end of its log.
    pub async fn until<F: AsyncFnMut() -> bool>(
        &mut self,
        what: &str,
        mut condition: F,
    ) -> anyhow::Result<()> {
        crate::wait::value(what, async || {
            if condition().await {
                return Ok(Some(()));
            }
            if let Some(status) = self.ended()? {
                bail!("the program ended with {status}{}", self.last_lines());
            }
            Ok(None)
        })
        .await
    }

    /// The path of its log and the last lines, for an error.
    pub fn last_lines(&self) -> String {
        const LINES: usize = 5;
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
        let last: String = last.iter().map(|line| format!("\n          {line}")).collect();
        format!("\n        log {}: {last}", self.log.display())
    }

    /// SIGTERM, then waits for the end; returns how it ended.
    pub async fn stop(mut self) -> anyhow::Result<std::process::ExitStatus> {
        if let Some(pid) = self.pid() {
            // tokio can only kill; the graceful way is the program's own business.
            let status = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
            status.context("kill")?;
        }
        let what = format!("the program ends whose log is {}", self.log.display());
        crate::wait::ended(&what, self.child.wait()).await?.context("wait")
    }

    /// SIGKILL, then waits for the end.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("kill")
    }
}
