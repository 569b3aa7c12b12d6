//! A driver from its start to its end.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tonic::transport::Server as Grpc;

use crate::metrics::Metrics;
use crate::prepare::{Places, Preparer};
use crate::publish::{self, Server};
use crate::registration::{Registration, accept, bind};
use crate::service::{HEALTH, HEALTH_ALPHA, PLUGIN, Service};
use crate::{Driver, admin, events};

/// Where a driver runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the driver, a DNS name.
    pub driver: String,
    /// The name of the Node.
    pub node: String,
    /// kubelet's folder.
    pub kubelet: PathBuf,
    /// Where container runtimes read CDI files.
    pub cdi: PathBuf,
    /// Where `/metrics`, `/healthz` and `/readyz` are served, if anywhere.
    pub admin_address: Option<SocketAddr>,
    /// Whether the ResourceSlices are withdrawn at the end: for drivers that are uninstalled. One that comes back leaves them.
    pub withdraw: bool,
}

impl Options {
    /// The usual places of a driver on a node.
    pub fn new(driver: &str, node: &str) -> Self {
        Self {
            driver: driver.to_owned(),
            node: node.to_owned(),
            kubelet: "/var/lib/kubelet".into(),
            cdi: "/var/run/cdi".into(),
            admin_address: None,
            withdraw: false,
        }
    }

    fn checked(&self) -> anyhow::Result<()> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
        let name = &self.driver;
        ensure!(
            !name.is_empty() && name.len() <= 63 && name.chars().all(is_plain),
            "{name:?} is no name of a driver: it is a DNS name of 63 characters at most"
        );
        ensure!(!self.node.is_empty(), "the name of the node is empty");
        Ok(())
    }
}

/// Runs a driver until SIGTERM or SIGINT: registers it, prepares and unprepares claims, and publishes its devices.
///
/// # Errors
/// A folder or socket cannot be used. That the API server does not answer is none: kubelet is told about claims that could
/// not be read, and devices are published later.
pub async fn run<D: Driver>(driver: D, options: Options, client: kube::Client) -> anyhow::Result<()> {
    options.checked()?;
    let state = options.kubelet.join("plugins").join(&options.driver);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let server = Server(client);
    let pools = driver.devices();
    let places = Places { state: state.clone(), cdi: options.cdi.clone() };
    // It answers while another process of the driver is still at work, so that probes can tell waiting from dead.
    let mut admin = JoinSet::new();
    if let Some(address) = options.admin_address {
        let listener = TcpListener::bind(address).await.with_context(|| address.to_string())?;
        admin.spawn(admin::serve(listener, registry, metrics.registered.clone()));
    }
    let _alone = alone(&state).await?;
    let preparer = Preparer::open(driver, &options.driver, server.clone(), places, metrics.clone())?;
    let endpoint = state.join("dra.sock");
    let registration = Registration {
        socket: options.kubelet.join("plugins_registry").join(format!("{}-reg.sock", options.driver)),
        endpoint: endpoint.clone(),
        driver: options.driver.clone(),
        metrics: metrics.clone(),
    };
    let published =
        publish::publish(server.clone(), options.driver.clone(), options.node.clone(), pools, metrics);
    let preparer = Arc::new(preparer);
    let told =
        events::tell(&preparer, &server, events::Reporter { driver: &options.driver, node: &options.node });
    let stopped = async {
        let mut terminate = signal(SignalKind::terminate()).context("signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = serve(Arc::clone(&preparer), &endpoint) => outcome?,
        outcome = registration.serve() => outcome?,
        () = published => {}
        () = told => {}
        outcome = stopped => outcome?,
    }
    if options.withdraw {
        publish::withdraw(&server, &options.driver, &options.node).await?;
    }
    Ok(())
}

/// Waits until no other process of the driver is at work on this node: two would not see what the other prepared.
///
/// # Errors
/// The lock cannot be made.
async fn alone(state: &Path) -> anyhow::Result<File> {
    let path = state.join("lock");
    std::fs::create_dir_all(state).with_context(|| state.display().to_string())?;
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                tracing::info!("another process of this driver runs: waiting for its end");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
}

/// Serves the calls of kubelet.
async fn serve<D: Driver>(preparer: Arc<Preparer<D, Server>>, endpoint: &Path) -> anyhow::Result<()> {
    let listener = bind(endpoint)?;
    let path = endpoint.to_owned();
    let connections = futures::stream::unfold((listener, path), |(mut listener, path)| async move {
        let stream = accept(&mut listener, &path).await;
        Some((stream, (listener, path)))
    });
    Grpc::builder()
        .add_service(Service::<_, _, PLUGIN>(Arc::clone(&preparer)))
        .add_service(Service::<_, _, HEALTH>(Arc::clone(&preparer)))
        .add_service(Service::<_, _, HEALTH_ALPHA>(preparer))
        .serve_with_incoming(connections)
        .await
        .context("the socket of the driver")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_process_of_a_driver_works_at_a_time() {
        let state = std::env::temp_dir().join(format!("dragoman-driver-alone-{}", std::process::id()));
        let first = alone(&state).await.expect("a lock");
        let mut second = Box::pin(alone(&state));
        assert!(second.as_mut().now_or_never().is_none(), "the first one runs");
        drop(first);
        second.await.expect("the first one has ended");
        std::fs::remove_dir_all(&state).expect("removed");
    }
}
