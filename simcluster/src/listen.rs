//! The API server on a port, for kubectl and other clients. It stores nothing on disk, and accepts only
//! tokens that it issued itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tower::Service as _;

use crate::api::{Answer, ApiServer, Status, User};
use crate::api_handle::{ApiHandle, Broken, ResponseBody, response};

/// The reason why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is reachable from other machines.
    #[error("{0} is not on loopback; this instrument is not made for a network (--allow-remote insists)")]
    Remote(SocketAddr),
    /// The address is in use or cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Taken(SocketAddr, std::io::Error),
    /// The certificate, its key or a token cannot be generated.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
}

/// An API server on a port.
pub struct Listening {
    address: SocketAddr,
    certificate: String,
    /// The tokens issued at the start, by user name.
    tokens: BTreeMap<String, String>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    server: ApiServer,
}

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);
/// The time limit of a TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);

impl Listening {
    /// Listens on `address` and issues a token for each of `users`.
    ///
    /// # Errors
    /// The address cannot be bound, or is not on loopback while `allow_remote` is off; or no certificate or
    /// token can be generated.
    pub async fn open(
        server: ApiServer,
        address: SocketAddr,
        allow_remote: bool,
        users: &[User],
    ) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() && !allow_remote {
            return Err(ListenError::Remote(address));
        }
        let listener = TcpListener::bind(address).await.map_err(|why| ListenError::Taken(address, why))?;
        let address = listener.local_addr().map_err(|why| ListenError::Taken(address, why))?;
        let wrong = |why: &dyn std::fmt::Display| ListenError::Certificate(why.to_string());
        let provider = ring::default_provider();
        let key = KeyPair::generate().map_err(|why| wrong(&why))?;
        let hosts =
            vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), address.ip().to_string()];
        let params = CertificateParams::new(hosts).map_err(|why| wrong(&why))?;
        let certificate = params.self_signed(&key).map_err(|why| wrong(&why))?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = ServerConfig::builder_with_provider(Arc::new(provider.clone()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private)
            })
            .map_err(|why| wrong(&why))?;
        let mut tokens = BTreeMap::new();
        for user in users {
            let token = server.token(user.clone()).ok_or_else(|| wrong(&"there are no random numbers"))?;
            tokens.insert(user.name.clone(), token);
        }
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        Ok(Self { address, certificate: certificate.pem(), tokens, listener, acceptor, server })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns a kubeconfig for a user, or `None` for a user without a token.
    pub fn kubeconfig(&self, user: &str) -> Option<Value> {
        let token = self.tokens.get(user)?;
        let certificate = STANDARD.encode(self.certificate.as_bytes());
        Some(json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{"name": "simcluster", "cluster": {
                "server": format!("https://{}", self.address), "certificate-authority-data": certificate,
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "simcluster", "context": {"cluster": "simcluster", "user": user}}],
            "current-context": "simcluster",
        }))
    }

    /// Accepts connections for as long as it is polled.
    pub async fn serve(self) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // The process may have too many open files for the moment.
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let (acceptor, server) = (self.acceptor.clone(), self.server.clone());
            tokio::spawn(async move {
                // A failed connection concerns its client alone.
                if let Err(why) = connection(stream, acceptor, server).await {
                    tracing::debug!(%why, "a connection ended");
                }
            });
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    server: ApiServer,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await??;
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let user = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
            .and_then(|token| server.bearer(token.trim()));
        let server = server.clone();
        async move {
            let Some(user) = user else { return refused() };
            ApiHandle::new(server, user).call(request).await
        }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

fn refused() -> Result<http::Response<ResponseBody>, Broken> {
    response(Answer::from(Status::unauthorized()))
}
