//! A control plane for scenarios: a real one on loopback, or simcluster in this process. Scenarios
//! cannot tell which.

mod audit;
mod pki;
mod process;
mod programs;
mod real;
mod scheduler;
mod sim;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

pub use audit::{Audit, Entry};
pub use process::{Process, free_port};
pub use programs::{Programs, Release};

use self::real::Real;
use self::sim::Sim;
use crate::client::Client;

/// Which control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// etcd, kube-apiserver, kube-scheduler, kube-controller-manager.
    Real,
    /// simcluster and its stand-ins.
    Sim,
}

/// The scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// kube-scheduler, or on simcluster its stand-in.
    #[default]
    Usual,
    /// kube-scheduler also on simcluster, for tests that are about it.
    Kube,
    /// None: the test plays it.
    Absent,
}

/// Origin of Pods, and the party that runs them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Workloads {
    /// Scenarios make them, and a stand-in for kubelets runs them.
    #[default]
    OfScenarios,
    /// Deployments and Jobs make them, too.
    OfControllers,
    /// The same, and a real node runs them.
    OnRealNode,
}

/// Properties of a control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// The release that its programs are of; on simcluster the one that is simulated.
    pub release: Release,
    /// `--emulated-version`, for example `1.35`.
    pub emulated: Option<&'static str>,
    /// PodGroups and claims for them (alpha in 1.36).
    pub pod_groups: bool,
    /// Whether the built-in claim controller runs.
    pub built_in: bool,
    /// Client limits of the built-in controllers; its defaults where absent.
    pub built_in_qps: Option<u32>,
    /// Feature gates that are switched on besides.
    pub on: &'static [&'static str],
    /// Feature gates that are switched off.
    pub off: &'static [&'static str],
    /// The scheduler.
    pub scheduler: Scheduling,
    /// Leader election of kube-scheduler.
    pub election: Election,
    /// Origin of Pods, and the party that runs them.
    pub workloads: Workloads,
    /// Whether Pods get the tokens of their `ServiceAccounts`, and `DaemonSets` their Pods.
    pub accounts: bool,
    /// Controllers of kube-controller-manager that run besides.
    pub controllers: &'static [&'static str],
    /// Garbage collection of its programs.
    pub garbage: Garbage,
}

/// Garbage collection of the programs of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Garbage {
    /// Seldom: an API server of a scenario lives for seconds.
    #[default]
    Seldom,
    /// As everywhere: what the programs take is measured.
    AsShipped,
}

/// Leader election of kube-scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Election {
    /// kube-scheduler is the only one, and leads from its start.
    #[default]
    None,
    /// By its Lease.
    Lease,
}

impl Shape {
    /// Feature gates as programs take them.
    fn gates(&self) -> Vec<String> {
        // Since 1.37 gang scheduling is a part of GenericWorkload.
        let groups: &[&str] = match (self.pod_groups, self.release) {
            (false, _) => &[],
            (true, Release::V1_37) => &["GenericWorkload", "DRAWorkloadResourceClaims"],
            (true, Release::V1_36) => &["GenericWorkload", "GangScheduling", "DRAWorkloadResourceClaims"],
        };
        let on = groups.iter().chain(self.on).map(|gate| format!("--feature-gates={gate}=true"));
        on.chain(self.off.iter().map(|gate| format!("--feature-gates={gate}=false"))).collect()
    }

    /// Returns the arguments of kube-controller-manager on either control plane, to run these controllers.
    fn controllers(&self, kubeconfig: &str, names: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut arguments = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", free_port()?),
            format!("--controllers={}", names.join(",")),
        ];
        if let Some(qps) = self.built_in_qps {
            arguments.extend([format!("--kube-api-qps={qps}"), format!("--kube-api-burst={qps}")]);
        }
        arguments.extend(self.gates());
        arguments.extend(self.emulation());
        Ok(arguments)
    }

    fn emulation(&self) -> Vec<String> {
        self.emulated.map(|version| format!("--emulated-version={version}")).into_iter().collect()
    }
}

/// The user that Dragoman is, with exactly the shipped rights.
pub const OPERATOR: &str = "system:serviceaccount:kube-system:dragoman";

/// The user that the reference allocator is, with exactly the shipped rights.
pub const ALLOCATOR: &str = "system:serviceaccount:kube-system:dragoman-allocator";

/// A running control plane.
pub struct ControlPlane {
    repository: PathBuf,
    release: Release,
    directory: PathBuf,
    inner: Inner,
}

enum Inner {
    Real(Box<Real>),
    Sim(Box<Sim>),
}

impl ControlPlane {
    /// Starts one; `directory` must not exist and receives logs and state. The programs of Kubernetes that it takes are
    /// built first where they are not in the cache.
    pub async fn start(
        backend: Backend,
        repository: &Path,
        directory: &Path,
        shape: Shape,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory).context("directory")?;
        let release = shape.release;
        let inner = match backend {
            Backend::Real => Inner::Real(Box::new(Real::start(repository, directory, shape).await?)),
            Backend::Sim => Inner::Sim(Box::new(Sim::start(repository, directory, shape).await?)),
        };
        Ok(Self { repository: repository.to_owned(), release, directory: directory.to_owned(), inner })
    }

    /// The kubeconfig of `admin`, `operator`, `allocator` or `kubelet`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.join(format!("{user}.kubeconfig"))
    }

    /// Host and port of the API server.
    pub fn address(&self) -> (String, u16) {
        match &self.inner {
            Inner::Real(real) => real.address(),
            Inner::Sim(sim) => sim.address(),
        }
    }

    /// The certificate of the authority that signed the API server's.
    pub fn authority(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// A client as `user`.
    pub async fn client(&self, user: &str) -> anyhow::Result<Client> {
        Client::from_kubeconfig(&self.kubeconfig(user)).await
    }

    /// The log of writes.
    pub fn audit(&self) -> Audit {
        match &self.inner {
            Inner::Real(real) => real.audit(),
            Inner::Sim(sim) => sim.audit(),
        }
    }

    /// Pids of the programs, by name.
    pub fn pids(&self) -> Vec<(&'static str, u32)> {
        match &self.inner {
            Inner::Real(real) => real.pids(),
            Inner::Sim(_) => Vec::new(),
        }
    }

    /// Whether it is simcluster, which needs no program of Kubernetes.
    pub fn is_simulated(&self) -> bool {
        matches!(self.inner, Inner::Sim(_))
    }

    /// Runs kubectl as `admin` with `input`; what it prints, or its complaint.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<Result<String, String>> {
        let kubectl = Programs::provide(&self.repository, self.release).await?.path("kubectl");
        let mut child = tokio::process::Command::new(kubectl)
            .kill_on_drop(true)
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            // Not the user's own, and not that of another API server at the same port.
            .arg("--cache-dir")
            .arg(self.directory.join("kubectl"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl")?;
        stdin.write_all(input.as_bytes()).await.context("kubectl")?;
        drop(stdin);
        let out = child.wait_with_output().await.context("kubectl")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let printed = || json!(text(&[&*out.stdout, &*out.stderr].concat()));
        crate::wait::note(|| format!("kubectl {}", arguments.join(" ")), printed);
        Ok(if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) })
    }

    /// Starts the controllers anew, with or without the built-in claim controller.
    pub async fn restart_controllers(&mut self, built_in: bool) -> anyhow::Result<()> {
        match &mut self.inner {
            Inner::Real(real) => real.restart_controllers(built_in).await,
            Inner::Sim(sim) => sim.restart_controllers(built_in).await,
        }
    }

    /// Kills kube-scheduler, and starts it again.
    pub async fn restart_scheduler(&mut self) -> anyhow::Result<()> {
        match &mut self.inner {
            Inner::Real(real) => real.restart_scheduler().await,
            Inner::Sim(_) => anyhow::bail!("its stand-in is no process"),
        }
    }

    /// Starts the built-in claim controller by itself, as the user of a kubeconfig.
    pub fn claim_controller(&self, kubeconfig: &Path) -> anyhow::Result<Process> {
        match &self.inner {
            Inner::Real(real) => real.claim_controller(kubeconfig),
            Inner::Sim(_) => anyhow::bail!("simcluster has no claim controller"),
        }
    }

    /// Starts the API server anew, changed.
    pub async fn restart_apiserver(&mut self, change: impl FnOnce(&mut Shape)) -> anyhow::Result<()> {
        match &mut self.inner {
            Inner::Real(real) => real.restart_apiserver(change).await,
            Inner::Sim(sim) => sim.restart_apiserver(change),
        }
    }

    /// Forgets what was before now: old versions, lists begun and not ended, past events.
    pub async fn forget_history(&mut self) -> anyhow::Result<()> {
        match &mut self.inner {
            Inner::Real(real) => real.forget_history().await,
            Inner::Sim(sim) => {
                sim.forget_history();
                Ok(())
            }
        }
    }

    /// The control plane as processes.
    fn processes(&mut self) -> anyhow::Result<&mut Real> {
        match &mut self.inner {
            Inner::Real(real) => Ok(real),
            Inner::Sim(_) => anyhow::bail!("the store of simcluster is no process"),
        }
    }

    /// Copies the store.
    pub async fn back_up(&mut self) -> anyhow::Result<()> {
        self.processes()?.back_up().await
    }

    /// Stops the API server, and puts the copy in the place of the store.
    pub async fn lose_the_store(&mut self) -> anyhow::Result<()> {
        self.processes()?.lose_the_store().await
    }

    /// Starts the API server again, with the store as it was when it was copied.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        self.processes()?.restore().await
    }

    /// Stops everything.
    pub async fn stop(self) -> anyhow::Result<()> {
        match self.inner {
            Inner::Real(real) => real.stop().await,
            Inner::Sim(sim) => sim.stop().await,
        }
    }
}
