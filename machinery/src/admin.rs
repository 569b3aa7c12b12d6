//! The admin server: /livez, /readyz, /metrics, and on loopback a dump of every
//! index.
//!
//! It is answered by the thread that does all the work, and any Pod may be able to reach it. So
//! answers are computed once a second at most, and the number of connections is bounded.

mod access;
mod connections;
mod exposition;
mod tls;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

pub use self::access::Access;
use self::connections::Connections;
pub use self::exposition::Format;
pub use self::tls::Tls;

/// One thing that has to be true for us to be ready. `Err` says what is missing.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
/// Writes a part of the dump. A long part is written in portions, and other work goes on between them.
pub type Dump = Box<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;
/// Brings metrics up to date that are computed when they are asked for.
pub type Refresh = Box<dyn Fn() + Send + Sync>;

/// Contents of the admin listeners: readiness checks, dumps and metrics. Parts are added while the
/// process is put together.
#[derive(Default)]
pub struct Admin {
    checks: Mutex<Vec<(&'static str, Check)>>,
    dumps: Mutex<Vec<(&'static str, Dump)>>,
    refreshes: Mutex<Vec<Refresh>>,
    registry: Mutex<Registry>,
    rendered: Cached<Rendered>,
    unready: Cached<Vec<String>>,
}

/// Time for which an answer is given again: shorter than the period of every scraper and probe.
const AGE: Duration = Duration::from_secs(1);
/// Timeout for a TLS handshake, for the head of a request, and for the silence before the next request.
const HEAD: Duration = Duration::from_secs(30);
/// The longest head of a request.
const LONGEST_HEAD: usize = 64 * 1024;
/// Pause before a connection is served for which the oldest one was closed. At this pace a new
/// connection lives until 64 others have come, for about 64 ms, which is enough for a probe.
const CROWDED: Duration = Duration::from_millis(1);

/// An answer and when it was computed.
struct Cached<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Cached<T> {
    /// The answer, computed anew if it is too old.
    fn get(&self, compute: impl FnOnce() -> T) -> T {
        let mut cached = locked(&self.0);
        match &*cached {
            Some((at, answer)) if at.elapsed() < AGE => answer.clone(),
            _ => {
                let answer = compute();
                *cached = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    }
}

/// The metrics in each format. A copy costs nothing.
#[derive(Clone)]
struct Rendered {
    open_metrics: Bytes,
    text: Bytes,
}

/// Endpoints of a listener: the paths that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoints {
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

    /// Adds a short part to the dump.
    pub fn dump(&self, name: &'static str, dump: impl Fn() -> String + Send + Sync + 'static) {
        self.dump_in_portions(name, Box::new(move || Box::pin(std::future::ready(dump()))));
    }

    /// Adds a part to the dump that is written in portions.
    pub fn dump_in_portions(&self, name: &'static str, dump: Dump) {
        locked(&self.dumps).push((name, dump));
    }

    /// Adds something to do before metrics are read.
    pub fn refresh(&self, refresh: Refresh) {
        locked(&self.refreshes).push(refresh);
    }

    /// The metrics, at most a second old.
    pub fn metrics(&self, format: Format) -> Bytes {
        let rendered = self.rendered.get(|| {
            for refresh in locked(&self.refreshes).iter() {
                refresh();
            }
            let mut text = String::new();
            // Writing into a String cannot fail.
            prometheus_client::encoding::text::encode(&mut text, &locked(&self.registry)).unwrap_or_default();
            Rendered { text: exposition::prometheus_text(&text).into(), open_metrics: text.into() }
        });
        match format {
            Format::OpenMetrics => rendered.open_metrics,
            Format::Text => rendered.text,
        }
    }

    /// Returns the checks of readiness that fail, a line each; at most a second old.
    pub fn unready(&self) -> Vec<String> {
        self.unready.get(|| {
            let checks = locked(&self.checks);
            checks.iter().filter_map(|(name, check)| check().err().map(|e| format!("{name}: {e}"))).collect()
        })
    }

    async fn answer<B>(&self, endpoints: Endpoints, request: &Request<B>) -> Answer {
        let text = |status, text: String| Answer { status, kind: TEXT, body: text.into() };
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        }
        match request.uri().path() {
            // Answering at all is what liveness means here; it must not depend on
            // the API server.
            "/livez" | "/healthz" => text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => match self.unready() {
                unready if unready.is_empty() => text(StatusCode::OK, "ok\n".to_owned()),
                unready => text(StatusCode::SERVICE_UNAVAILABLE, unready.join("\n") + "\n"),
            },
            "/metrics" => {
                let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
                let format = Format::of(accept.unwrap_or_default());
                let body = self.metrics(format);
                Answer { status: StatusCode::OK, kind: format.content_type(), body }
            }
            "/dump" if endpoints == Endpoints::Loopback => {
                let begun: Vec<_> = locked(&self.dumps).iter().map(|(name, dump)| (*name, dump())).collect();
                let mut parts = Vec::new();
                for (name, part) in begun {
                    parts.push((name, part.await));
                    tokio::task::yield_now().await;
                }
                if request.uri().query() == Some("format=json") {
                    return Answer { status: StatusCode::OK, kind: JSON, body: as_json(&parts).into() };
                }
                let parts: Vec<_> = parts.iter().map(|(name, part)| format!("== {name}\n{part}")).collect();
                text(StatusCode::OK, parts.join("\n"))
            }
            _ => text(StatusCode::NOT_FOUND, "not found\n".to_owned()),
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The parts of the dump for programs: the lines of each by its name.
fn as_json(parts: &[(&'static str, String)]) -> String {
    let lines = |(name, part): &(&'static str, String)| {
        ((*name).to_owned(), part.lines().map(serde_json::Value::from).collect())
    };
    serde_json::Value::Object(parts.iter().map(lines).collect()).to_string()
}

struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
}

impl From<Answer> for Response<Full<Bytes>> {
    fn from(answer: Answer) -> Self {
        let response = Response::builder().status(answer.status).header(header::CONTENT_TYPE, answer.kind);
        response.body(Full::new(answer.body)).unwrap_or_default()
    }
}

/// Opens a listener.
///
/// # Errors
/// The address cannot be listened on, or is not loopback where it has to be.
pub async fn listen(address: SocketAddr, endpoints: Endpoints) -> Result<TcpListener, String> {
    if endpoints == Endpoints::Loopback && !address.ip().is_loopback() {
        return Err(format!("{address} is not a loopback address"));
    }
    TcpListener::bind(address).await.map_err(|e| format!("cannot listen on {address}: {e}"))
}

/// Serves `admin` for ever.
pub async fn serve(listener: TcpListener, endpoints: Endpoints, admin: Arc<Admin>) {
    accept(listener, Arc::new(Entrance { endpoints, admin, guard: None })).await;
}

/// Serves the public endpoints of `admin` for ever, in TLS; `/metrics` is for those whom `access` lets in.
/// Probes are not asked for a token: the kubelet has none.
pub async fn serve_guarded(listener: TcpListener, tls: Tls, access: Access, admin: Arc<Admin>) {
    accept(listener, Arc::new(Entrance { endpoints: Endpoints::Public, admin, guard: Some((tls, access)) }))
        .await;
}

async fn accept(listener: TcpListener, entrance: Arc<Entrance>) {
    let mut connections = Connections::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "admin server cannot accept");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if connections.make_room() {
            sleep(CROWDED).await;
        }
        connections.add(tokio::spawn(Arc::clone(&entrance).connect(stream)).abort_handle());
    }
}

/// State that the connections of a listener share.
struct Entrance {
    endpoints: Endpoints,
    admin: Arc<Admin>,
    guard: Option<(Tls, Access)>,
}

impl Entrance {
    async fn connect(self: Arc<Self>, stream: TcpStream) {
        let Some((tls, _)) = &self.guard else { return self.talk(stream).await };
        match timeout(HEAD, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => self.talk(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "admin connection"),
            Err(_) => tracing::debug!("admin connection: no TLS handshake in time"),
        }
    }

    async fn talk(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request: Request<Incoming>| {
            let entrance = Arc::clone(&self);
            async move { Ok::<_, Infallible>(Response::from(entrance.respond(&request).await)) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "admin connection");
        }
    }

    async fn respond(&self, request: &Request<Incoming>) -> Answer {
        if let Some((_, access)) = &self.guard
            && request.uri().path() == "/metrics"
            && let Err(status) = access.check(request.headers()).await
        {
            let body = status.canonical_reason().unwrap_or_default().to_ascii_lowercase() + "\n";
            return Answer { status, kind: TEXT, body: body.into() };
        }
        self.admin.answer(self.endpoints, request).await
    }
}

#[cfg(test)]
mod tests;
