//! From a kubeconfig or the Pod's service account to the clients.

mod tls;

use std::path::Path;
use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;
use tower::{BoxError, ServiceBuilder};

use crate::api::{Api, Limits};
use crate::metrics::ClientMetrics;
use crate::watch::WatchClient;

/// The clients of a process. Each has connections of its own.
#[derive(Clone)]
pub struct Clients {
    /// For everything that is answered and over.
    pub api: Api,
    /// For the Lease alone: see [`Limits::lease`].
    pub lease: Api,
    /// For watches: without a read timeout, the watch driver has its own.
    pub watch: WatchClient,
    /// Namespace of the kubeconfig context or of our own Pod.
    pub namespace: String,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig named on the command line is of no use.
    #[error("kubeconfig {path}: {cause}")]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: String,
        /// Error in the kubeconfig.
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
    built(&config(path).await?, limits, registry)
}

/// As [`connect`], as another user: the one of the configuration needs the right to impersonate that user.
///
/// # Errors
/// [`ConnectError`]; nothing is sent yet.
pub async fn connect_as(
    path: Option<&Path>,
    user: &str,
    limits: Limits,
    registry: &mut Registry,
) -> Result<Clients, ConnectError> {
    let mut config = config(path).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    built(&config, limits, registry)
}

async fn config(path: Option<&Path>) -> Result<Config, ConnectError> {
    match path {
        Some(path) => from_file(path).await,
        None => Config::infer().await.map_err(|e| ConnectError::NoCluster(e.to_string())),
    }
}

fn built(config: &Config, limits: Limits, registry: &mut Registry) -> Result<Clients, ConnectError> {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let [api, lease, watch] = [client(config)?, client(config)?, client(config)?];
    let namespace = api.default_namespace().to_owned();
    let metrics = ClientMetrics::register(registry, &host);
    let lease = Api::new(lease, Limits::lease(), metrics.clone());
    let watch = WatchClient::new(watch, metrics.clone());
    Ok(Clients { api: Api::new(api, limits, metrics), lease, watch, namespace })
}

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Silence on a connection after which the other end is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The time between two such questions.
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// The number of questions without an answer after which a connection is dead: after half a minute.
const ASKED: u32 = 3;
/// Time that sent data may stay unacknowledged (`TCP_USER_TIMEOUT`).
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// A client with connections of its own. It repeats nothing and has no timeouts for answers: the senders
/// of requests have them.
fn client(config: &Config) -> Result<kube::Client, ConnectError> {
    let wrong = |e: kube::Error| ConnectError::Client(e.to_string());
    if config.proxy_url.is_some() {
        // kube knows what it was built with; a connection through a proxy cannot be kept alive here.
        let mut config = config.clone();
        (config.default_retry, config.read_timeout) = (false, None);
        return kube::Client::try_from(config).map_err(wrong);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(ASKED_EVERY));
    tcp.set_keepalive_retries(Some(ASKED));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let tls = tls::config(config).map_err(ConnectError::Client)?;
    let https = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let https = match &config.tls_server_name {
        Some(name) => {
            let name = name.clone().try_into().map_err(|_| {
                ConnectError::Client(format!("tls-server-name: {name:?} is not the name of a server"))
            })?;
            https.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
        }
        None => https,
    };
    let https = https.enable_http1().wrap_connector(tcp);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(wrong)?)
        .layer(config.extra_headers_layer().map_err(wrong)?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build::<_, Body>(https));
    Ok(kube::Client::new(service, config.default_namespace.clone()))
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
    Clients {
        watch: WatchClient::new(client(), metrics.clone()),
        api: Api::new(client(), limits, metrics),
        lease,
        namespace: "kube-system".to_owned(),
    }
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let wrong = |cause: String| ConnectError::Kubeconfig { path: path.display().to_string(), cause };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| wrong(e.to_string()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| wrong(e.to_string()))
}
