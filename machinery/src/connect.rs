//! From a kubeconfig or the Pod's service account to the clients.

use std::path::Path;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;

use crate::api::{Api, Limits};
use crate::metrics::ClientMetrics;

/// The clients of a process. Each has connections of its own.
#[derive(Clone)]
pub struct Clients {
    /// For everything that is answered and over.
    pub api: Api,
    /// For the Lease alone: see [`Limits::lease`].
    pub lease: Api,
    /// For watches: without a read timeout, the watch driver has its own.
    pub watch: kube::Client,
    /// Namespace of the kubeconfig context or of our own Pod.
    pub namespace: String,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig named on the command line is of no use.
    #[error("kubeconfig {path}: {cause}")]
    Kubeconfig {
        /// Its path.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Neither KUBECONFIG, nor ~/.kube/config, nor a service account.
    #[error("no cluster: {0}")]
    NoCluster(String),
    /// The configuration makes no client.
    #[error("cannot build a client: {0}")]
    Client(String),
}

/// Builds the clients from one configuration: the kubeconfig at `path` if given,
/// else `KUBECONFIG`, `~/.kube/config` or the service account of the Pod.
///
/// # Errors
/// [`ConnectError`]; nothing is sent yet.
pub async fn connect(
    path: Option<&Path>,
    limits: Limits,
    registry: &mut Registry,
) -> Result<Clients, ConnectError> {
    let mut config = match path {
        Some(path) => from_file(path).await?,
        None => Config::infer().await.map_err(|e| ConnectError::NoCluster(e.to_string()))?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(10));
    config.read_timeout = None;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let build =
        |config: Config| kube::Client::try_from(config).map_err(|e| ConnectError::Client(e.to_string()));
    let watch = build(config.clone())?;
    config.read_timeout = Some(limits.write);
    config.reset_reader_on_write = true;
    let api = build(config.clone())?;
    let lease = build(config)?;
    let namespace = api.default_namespace().to_owned();
    let metrics = ClientMetrics::register(registry, &host);
    let lease = Api::new(lease, Limits::lease(), metrics.clone());
    Ok(Clients { api: Api::new(api, limits, metrics), lease, watch, namespace })
}

/// The clients on a service in this process.
pub fn within<S, B>(service: &S, limits: Limits, registry: &mut Registry) -> Clients
where
    S: tower::Service<http::Request<kube::client::Body>, Response = http::Response<B>>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    S::Error: Into<tower::BoxError>,
    B: http_body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    let client = || kube::Client::new(service.clone(), "kube-system");
    let metrics = ClientMetrics::register(registry, "in-process");
    let lease = Api::new(client(), Limits::lease(), metrics.clone());
    Clients { api: Api::new(client(), limits, metrics), lease, watch: client(), namespace: "kube-system".to_owned() }
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let wrong = |cause: String| ConnectError::Kubeconfig { path: path.display().to_string(), cause };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| wrong(e.to_string()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| wrong(e.to_string()))
}
