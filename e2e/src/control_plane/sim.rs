//! simcluster in this process, on a port, with its stand-ins.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, ensure};
use dragoman_simcluster::{ApiServer, Clock, Listening, Profile, Scheduler, User};
use tokio::task::JoinHandle;

use super::audit::Audit;
use super::{OPERATOR, Shape};

/// A running simcluster.
pub(super) struct Sim {
    server: ApiServer,
    address: SocketAddr,
    shape: Shape,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Users, by the names of their kubeconfigs.
const USERS: [(&str, &str, &str); 3] = [
    ("admin", "admin", "system:masters"),
    ("operator", OPERATOR, "system:serviceaccounts"),
    ("kubelet", "kubelet", "system:masters"),
];

impl Sim {
    /// Starts it; kubeconfigs are left in `directory`.
    pub(super) async fn start(directory: &Path, shape: Shape) -> anyhow::Result<Self> {
        ensure!(!shape.built_in, "simcluster has no built-in claim controller");
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
        if !shape.no_scheduler {
            tasks.push(tokio::spawn(Scheduler::new(server.clone()).run()));
        }
        Ok(Self { server, address, shape, tasks })
    }

    pub(super) fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    pub(super) fn audit(&self) -> Audit {
        Audit::Sim(self.server.clone())
    }

    pub(super) fn restart_controllers(built_in: bool) -> anyhow::Result<()> {
        ensure!(!built_in, "simcluster has no built-in claim controller");
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
    let mut profile: Profile = shape.emulated.unwrap_or("1.36").parse()?;
    let owned = |gates: &[&str]| gates.iter().map(|gate| (*gate).to_owned()).collect::<Vec<_>>();
    profile.on = owned(shape.on);
    if shape.pod_groups {
        profile.on.extend(owned(&["GenericWorkload", "DRAWorkloadResourceClaims"]));
    }
    profile.off = owned(shape.off);
    Ok(profile)
}
