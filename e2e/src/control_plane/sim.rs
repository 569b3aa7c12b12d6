//! simcluster in this process, on a port, with its stand-ins. Where a scenario is about the
//! built-in claim controller or about kube-scheduler, that is the real one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use dragoman_simcluster::{ApiServer, Clock, Listening, Profile, Scheduler, User};
use tokio::task::JoinHandle;

use super::audit::Audit;
use super::process::Process;
use super::{ALLOCATOR, OPERATOR, Programs, Scheduling, Shape};

/// A running simcluster.
pub(super) struct Sim {
    server: ApiServer,
    address: SocketAddr,
    shape: Shape,
    tasks: Vec<JoinHandle<()>>,
    repository: PathBuf,
    directory: PathBuf,
    /// kube-scheduler, if it is the real one.
    scheduler: Option<Process>,
    /// kube-controller-manager with the claim controller only.
    controllers: Option<Process>,
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// simcluster reads nothing else.
const JSON: &str = "application/json";

/// Users, by the names of their kubeconfigs.
const USERS: [(&str, &str, &str); 6] = [
    ("admin", "admin", "system:masters"),
    ("operator", OPERATOR, "system:serviceaccounts"),
    ("allocator", ALLOCATOR, "system:serviceaccounts"),
    ("kubelet", "kubelet", "system:masters"),
    ("scheduler", "system:kube-scheduler", "system:masters"),
    ("controllers", "system:serviceaccount:kube-system:resource-claim-controller", "system:masters"),
];

impl Sim {
    /// Starts it; kubeconfigs are left in `directory`.
    pub(super) async fn start(repository: &Path, directory: &Path, shape: Shape) -> anyhow::Result<Self> {
        let server = ApiServer::new(profile(&shape)?, Clock::Real, fastrand::u64(..));
        let users =
            USERS.map(|(_, name, group)| User { name: name.to_owned(), groups: vec![group.to_owned()] });
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listening = Listening::open(server.clone(), loopback, false, &users).await?;
        std::fs::write(directory.join("ca.crt"), listening.certificate()).context("ca.crt")?;
        for (file, name, _) in USERS {
            let kubeconfig = listening.kubeconfig(name).context("kubeconfig")?;
            std::fs::write(directory.join(format!("{file}.kubeconfig")), kubeconfig.to_string())?;
        }
        let address = listening.address();
        let mut tasks = vec![tokio::spawn(listening.serve()), tokio::spawn(server.clone().collect())];
        let mut scheduler = None;
        if shape.scheduler == Scheduling::Kube {
            let programs = Programs::provide(repository, shape.release).await?;
            scheduler = Some(shape.start_scheduler(&programs, directory, JSON)?);
        } else if shape.scheduler == Scheduling::Usual {
            tasks.push(tokio::spawn(Scheduler::new(server.clone()).run()));
        }
        let (repository, directory) = (repository.to_owned(), directory.to_owned());
        let mut sim =
            Self { server, address, shape, tasks, repository, directory, scheduler, controllers: None };
        sim.start_controllers().await?;
        Ok(sim)
    }

    pub(super) fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    pub(super) fn audit(&self) -> Audit {
        Audit::Sim(self.server.clone())
    }

    async fn start_controllers(&mut self) -> anyhow::Result<()> {
        if !self.shape.built_in {
            return Ok(());
        }
        let kubeconfig = self.directory.join("controllers.kubeconfig").display().to_string();
        let mut arguments = self.shape.controllers(&kubeconfig, &["resourceclaim-controller"])?;
        arguments.push("--authentication-skip-lookup".to_owned());
        arguments.push(format!("--kube-api-content-type={JSON}"));
        let programs = Programs::provide(&self.repository, self.shape.release).await?;
        let program = programs.path("kube-controller-manager");
        let process = Process::spawn(&program, "kube-controller-manager", &arguments, &self.directory)?;
        self.controllers = Some(process);
        Ok(())
    }

    /// Starts the built-in claim controller anew, or stops it.
    pub(super) async fn restart_controllers(&mut self, built_in: bool) -> anyhow::Result<()> {
        if let Some(process) = self.controllers.take() {
            process.stop().await?;
        }
        self.shape.built_in = built_in;
        self.start_controllers().await
    }

    /// Forgets what was before now.
    pub(super) fn forget_history(&self) {
        self.server.compact();
    }

    /// Stops what is a process of its own.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for process in [self.scheduler.take(), self.controllers.take()].into_iter().flatten() {
            process.kill().await?;
        }
        Ok(())
    }

    /// The same objects under another profile.
    pub(super) fn restart_apiserver(&mut self, change: impl FnOnce(&mut Shape)) -> anyhow::Result<()> {
        change(&mut self.shape);
        self.server.restart(profile(&self.shape)?);
        Ok(())
    }
}

fn profile(shape: &Shape) -> anyhow::Result<Profile> {
    let mut profile: Profile = shape.emulated.unwrap_or_else(|| shape.release.minor()).parse()?;
    let owned = |gates: &[&str]| gates.iter().map(|gate| (*gate).to_owned()).collect::<Vec<_>>();
    profile.on = owned(shape.on);
    if shape.pod_groups {
        profile.on.extend(owned(&["GenericWorkload", "DRAWorkloadResourceClaims"]));
    }
    profile.off = owned(shape.off);
    Ok(profile)
}
