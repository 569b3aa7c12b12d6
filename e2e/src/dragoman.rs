//! The operator under test: the real binary as a process of its own.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::task::JoinHandle;

use crate::client::plain_http;
use crate::control_plane::{Process, free_port};
use crate::wait;

/// A running `dragoman run` or `dragoman allocator`.
pub struct Dragoman {
    process: Arc<Mutex<Process>>,
    /// Starts it again where kubelet would.
    kubelet: Option<JoinHandle<()>>,
    admin: u16,
    dump: u16,
}

impl Drop for Dragoman {
    fn drop(&mut self) {
        self.kubelet.iter().for_each(JoinHandle::abort);
    }
}

/// Interval between two looks for the end of a process.
const LOOKS: Duration = Duration::from_millis(500);

/// The ends of what a process says last that ends to be started anew.
const BEGINS_ANEW: [&str; 2] = [" is lost\n", " was restored from a backup\n"];

/// Starts a process again that has ended because it has lost its Lease, or because what it has seen is of another history.
async fn kubelet(process: Arc<Mutex<Process>>, spawn: impl Fn() -> anyhow::Result<Process>) {
    loop {
        tokio::time::sleep(LOOKS).await;
        let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(process.ended(), Ok(None)) {
            continue;
        }
        let said = process.output();
        match BEGINS_ANEW.iter().any(|end| said.ends_with(end)).then(&spawn) {
            Some(Ok(again)) => *process = again,
            // A scenario that has not expected it finds no process.
            Some(Err(_)) | None => return,
        }
    }
}

/// The arguments of a start.
pub struct Start<'a> {
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

impl Start<'_> {
    /// Starts the process with these ports.
    fn process(&self, admin: u16, dump: u16) -> impl Fn() -> anyhow::Result<Process> + Send + 'static {
        let mut arguments: Vec<String> = [
            self.command,
            "--kubeconfig",
            &self.kubeconfig.display().to_string(),
            "--admin-address",
            &format!("127.0.0.1:{admin}"),
            "--dump-address",
            &format!("127.0.0.1:{dump}"),
            "--log-format",
            "text",
            "--log",
            self.log,
        ]
        .map(str::to_owned)
        .into();
        arguments.extend(self.mode.into_iter().flat_map(|mode| ["--mode".to_owned(), mode.to_owned()]));
        if !self.flags.contains(&"--namespace") {
            arguments.extend(["--namespace", "kube-system"].map(str::to_owned));
        }
        arguments.extend(self.flags.iter().map(|flag| (*flag).to_owned()));
        let name = if self.command == "run" { "dragoman" } else { self.command }.to_owned();
        let (binary, directory) = (self.binary.to_owned(), self.directory.to_owned());
        move || Process::spawn(&binary, &name, &arguments, &directory)
    }
}

impl Dragoman {
    /// Starts the operator without waiting for readiness.
    pub fn spawn(start: &Start<'_>) -> anyhow::Result<Self> {
        let (admin, dump) = (free_port()?, free_port()?);
        let process = (start.process(admin, dump))()?;
        Ok(Self { process: Arc::new(Mutex::new(process)), kubelet: None, admin, dump })
    }

    /// Starts the process and waits until it is ready. It is started again when it has lost its Lease, which it does on a
    /// machine that is busy enough.
    pub async fn start(start: &Start<'_>) -> anyhow::Result<Self> {
        let started = Self::supervised(start)?;
        let is_ready = async || {
            ensure!(started.is_supervised(), "{} has ended{}", start.command, started.process().last_lines());
            Ok(matches!(get(started.admin, "/readyz").await, Ok((200, _))).then_some(()))
        };
        wait::value("dragoman is ready", is_ready).await?;
        Ok(started)
    }

    /// Starts the process, again when it has lost its Lease, and does not wait for readiness.
    pub fn supervised(start: &Start<'_>) -> anyhow::Result<Self> {
        let (admin, dump) = (free_port()?, free_port()?);
        let spawn = start.process(admin, dump);
        let process = Arc::new(Mutex::new(spawn()?));
        let kubelet = Some(tokio::spawn(kubelet(Arc::clone(&process), spawn)));
        Ok(Self { process, kubelet, admin, dump })
    }

    /// Whether the process runs, or is started again.
    fn is_supervised(&self) -> bool {
        self.kubelet.as_ref().is_some_and(|kubelet| !kubelet.is_finished())
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process, which nothing starts again from now on.
    async fn alone(mut self) -> anyhow::Result<Process> {
        if let Some(kubelet) = self.kubelet.take() {
            kubelet.abort();
            // It was cancelled, or has ended with the process.
            drop(kubelet.await);
        }
        let process = Arc::clone(&self.process);
        drop(self);
        let process = Arc::into_inner(process).context("the process is in use")?;
        Ok(process.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    async fn get(&self, port: u16, path: &str) -> anyhow::Result<(u16, String)> {
        if !self.is_supervised() {
            return get(port, path).await;
        }
        // It may be starting again.
        wait::value("dragoman answers", async || Ok(get(port, path).await.ok())).await
    }

    /// Returns the code and the text of `/readyz`.
    pub async fn readiness(&self) -> anyhow::Result<(u16, String)> {
        self.get(self.admin, "/readyz").await
    }

    /// Returns the code and the text of `/livez`.
    pub async fn liveness(&self) -> anyhow::Result<(u16, String)> {
        self.get(self.admin, "/livez").await
    }

    /// Returns the metrics as text.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self.get(self.admin, "/metrics").await?.1)
    }

    /// The sum over the series of `name` whose text contains all of `labels`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> anyhow::Result<f64> {
        let text = self.metrics().await?;
        let mine = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        };
        Ok(text.lines().filter(mine).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Returns the dump of the indexes.
    pub async fn dump(&self) -> anyhow::Result<String> {
        Ok(self.get(self.dump, "/dump").await?.1)
    }

    /// The port of its metrics.
    pub fn admin_port(&self) -> u16 {
        self.admin
    }

    /// The process id, while the process runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().pid()
    }

    /// The log so far, including that of earlier instances in the same directory.
    pub fn log(&self) -> String {
        self.process().output()
    }

    /// Waits until the process ends by itself.
    pub async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        self.kubelet.take().iter().for_each(JoinHandle::abort);
        wait::value("dragoman ends", async || self.process().ended()).await
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub async fn stop(self) -> anyhow::Result<ExitStatus> {
        self.alone().await?.stop().await
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub async fn kill(self) -> anyhow::Result<()> {
        self.alone().await?.kill().await
    }
}

async fn get(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    plain_http(port, http::Request::get(path).body(String::new())?).await
}
