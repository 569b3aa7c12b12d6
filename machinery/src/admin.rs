//! The HTTP side door: /livez, /readyz, /metrics, and on loopback a dump of every
//! index.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// One thing that has to be true for us to be ready. `Err` says what is missing.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
/// Writes a part of the dump.
pub type Dump = Box<dyn Fn() -> String + Send + Sync>;
/// Brings metrics up to date that are computed when they are asked for.
pub type Refresh = Box<dyn Fn() + Send + Sync>;

/// What the side door shows. Parts are added while the process is put together.
#[derive(Default)]
pub struct Admin {
    checks: Mutex<Vec<(&'static str, Check)>>,
    dumps: Mutex<Vec<(&'static str, Dump)>>,
    refreshes: Mutex<Vec<Refresh>>,
    registry: Mutex<Registry>,
}

/// What a listener shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// /livez, /readyz, /metrics.
    Public,
    /// Also /dump, which names objects.
    Loopback,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Admin {
    /// Shows the metrics of `registry`.
    pub fn new(registry: Registry) -> Self {
        Self { registry: Mutex::new(registry), ..Self::default() }
    }

    /// Registers metrics.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut locked(&self.registry));
    }

    /// Shows the metrics of `registry` from now on.
    pub fn show(&self, registry: Registry) {
        *locked(&self.registry) = registry;
    }

    /// Adds a readiness check.
    pub fn check(&self, name: &'static str, check: Check) {
        locked(&self.checks).push((name, check));
    }

    /// Adds a part to the dump.
    pub fn dump(&self, name: &'static str, dump: Dump) {
        locked(&self.dumps).push((name, dump));
    }

    /// Adds something to do before metrics are read.
    pub fn refresh(&self, refresh: Refresh) {
        locked(&self.refreshes).push(refresh);
    }

    /// The metrics as text.
    pub fn metrics(&self) -> String {
        for refresh in locked(&self.refreshes).iter() {
            refresh();
        }
        let mut text = String::new();
        // Writing into a String cannot fail.
        prometheus_client::encoding::text::encode(&mut text, &locked(&self.registry)).unwrap_or_default();
        text
    }

    /// What is missing for readiness, a line each.
    pub fn unready(&self) -> Vec<String> {
        let checks = locked(&self.checks);
        checks.iter().filter_map(|(name, check)| check().err().map(|e| format!("{name}: {e}"))).collect()
    }

    fn answer(&self, door: Door, method: &Method, path: &str) -> (StatusCode, &'static str, String) {
        const TEXT: &str = "text/plain; charset=utf-8";
        if method != Method::GET && method != Method::HEAD {
            return (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
        }
        match path {
            // Answering at all is what liveness means here; it must not depend on
            // the API server.
            "/livez" | "/healthz" => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" => match self.unready() {
                unready if unready.is_empty() => (StatusCode::OK, TEXT, "ok\n".to_owned()),
                unready => (StatusCode::SERVICE_UNAVAILABLE, TEXT, unready.join("\n") + "\n"),
            },
            "/metrics" => {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                (StatusCode::OK, kind, self.metrics())
            }
            "/dump" if door == Door::Loopback => {
                let dumps = locked(&self.dumps);
                let parts: Vec<_> =
                    dumps.iter().map(|(name, dump)| format!("== {name}\n{}", dump())).collect();
                (StatusCode::OK, TEXT, parts.join("\n"))
            }
            _ => (StatusCode::NOT_FOUND, TEXT, "not found\n".to_owned()),
        }
    }
}

/// Opens a listener.
///
/// # Errors
/// The address cannot be listened on, or is not loopback where it has to be.
pub async fn listen(address: SocketAddr, door: Door) -> Result<TcpListener, String> {
    if door == Door::Loopback && !address.ip().is_loopback() {
        return Err(format!("{address} is not a loopback address"));
    }
    TcpListener::bind(address).await.map_err(|e| format!("cannot listen on {address}: {e}"))
}

/// Serves `admin` for ever.
pub async fn serve(listener: TcpListener, door: Door, admin: Arc<Admin>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "admin server cannot accept");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let admin = Arc::clone(&admin);
        let service = service_fn(move |request: Request<Incoming>| {
            let (status, kind, text) = admin.answer(door, request.method(), request.uri().path());
            let response = Response::builder()
                .status(status)
                .header(header::CONTENT_TYPE, kind)
                .body(Full::new(Bytes::from(text)))
                .unwrap_or_default();
            async move { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(async move {
            // Headers within a minute, or the connection is closed: a slow client
            // must not hold one for ever.
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "admin connection");
            }
        });
    }
}
