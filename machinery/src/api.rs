//! Requests to the API server, each bounded in time, number and repetition.
//!
//! kube's client brings TLS, credentials and the kubeconfig; what it does by
//! default (no request timeout, up to 15 repetitions of any verb, unbounded
//! concurrency) is replaced here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::Instrument as _;

use crate::kind::Kind;
use crate::metrics::ClientMetrics;
use crate::refusal::{Refusal, Status};
use crate::trace;

/// The content type of what is sent and read, unless said otherwise.
pub const JSON: &str = "application/json";
/// The content type of objects in protobuf, in which opaque parameters have the bytes of their author.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Identifies us to the API server.
pub const USER_AGENT: &str = concat!("dragoman/", env!("CARGO_PKG_VERSION"));

/// Limits of the client.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Timeout of one read, repetitions and pauses included. A write may take this and an attempt.
    pub total: Duration,
    /// Timeout of one attempt of a read.
    pub attempt: Duration,
    /// Timeout of one attempt of a write.
    pub write: Duration,
    /// Most attempts in flight at once: HTTP/1.1 needs a connection for each.
    pub concurrency: usize,
    /// Whether a request that is answered 429 waits and is repeated, and every other one waits too when
    /// nothing else has been answered for a while.
    pub pauses: bool,
}

impl Limits {
    /// For the Lease. A renewal is worth nothing when it is late: an attempt ends early enough for
    /// three more within the ten seconds in which a leader has to renew, and no 429 holds it back.
    pub fn lease() -> Self {
        let attempt = Duration::from_millis(2_500);
        Self { total: attempt, attempt, write: attempt, concurrency: 1, pauses: false }
    }
}

impl Default for Limits {
    fn default() -> Self {
        // Admission may take its time: an API server lets a write wait 15 s for its turn and then
        // gives it 34 s, within the minute of every request (`--request-timeout`). A write that is
        // cut short earlier is undone, and costs the same again. A read that takes 10 s is stuck.
        Self {
            total: Duration::from_secs(30),
            attempt: Duration::from_secs(10),
            write: Duration::from_secs(60),
            concurrency: 32,
            pauses: true,
        }
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// Body; empty for none.
    pub body: Vec<u8>,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// The form in which the answer is wanted.
    pub accept: &'static str,
    /// Kind of the objects that the call is about, to understand a refusal.
    pub kind: Kind,
    /// Name of the object; empty for collections.
    pub name: String,
    /// Whether the call is sent again after an attempt without success.
    pub repeat: Repeat,
}

/// Repetition of a [`Call`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Repeated after every outcome that may pass: the API server may do it twice without harm.
    Harmless,
    /// Repeated after a 429 alone, which is answered before the API server looks at the request.
    Untaken,
    /// Sent once and within a second, or not at all: later the facts that it was decided on may be out of date.
    Never,
}

/// The longest time until a call that is never repeated is sent. A new pause after a 429 is never shorter; a wait for a slot is
/// longer only where the API server is in trouble.
const PROMPT: Duration = Duration::from_secs(1);

/// The client for everything but watches. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    permits: Semaphore,
    throttling: Mutex<Throttling>,
    metrics: ClientMetrics,
}

/// Throttling of this client by the API server.
struct Throttling {
    /// The first 429 since the last answer that was none.
    since: Option<Instant>,
    /// Nothing is sent before this moment.
    paused_until: Instant,
}

/// Time of nothing but 429 answers after which the whole client pauses. Before that, and while the API
/// server takes other requests, each refused request waits by itself and keeps its slot: as many as are
/// refused are fewer in flight.
const NOTHING_ELSE: Duration = Duration::from_millis(500);

/// Result of a live GET of an object.
#[derive(Debug)]
pub enum Live<T> {
    /// The object exists.
    Found(Box<T>),
    /// The object does not exist; the API server said so for this kind and name.
    NotFound,
}

impl Api {
    /// Wraps a kube client.
    pub fn new(client: kube::Client, limits: Limits, metrics: ClientMetrics) -> Self {
        let shared = Shared {
            limits,
            permits: Semaphore::new(limits.concurrency.max(1)),
            throttling: Mutex::new(Throttling { since: None, paused_until: Instant::now() }),
            metrics,
        };
        Self { client, shared: Arc::new(shared) }
    }

    /// Sends `call` and returns the body of a 2xx answer.
    ///
    /// # Errors
    /// Every other outcome, classified.
    pub async fn send(&self, call: &Call) -> Result<Vec<u8>, Refusal> {
        let span = trace::request(call);
        let outcome = self.attempts(call).instrument(span.clone()).await;
        trace::answered(&span, &outcome);
        outcome
    }

    /// Sends `call`, and again where that helps.
    async fn attempts(&self, call: &Call) -> Result<Vec<u8>, Refusal> {
        // Three attempts within about two seconds, then the caller's own backoff.
        const ATTEMPTS: u32 = 3;
        let limits = &self.shared.limits;
        // An attempt may begin until then.
        let total = if call.repeat == Repeat::Never { limits.total.min(PROMPT) } else { limits.total };
        let deadline = Instant::now() + total;
        let longest = if call.method == Method::GET { limits.attempt } else { limits.write };
        let mut attempt = 0;
        loop {
            let slot = self.slot(deadline).await?;
            let outcome = loop {
                match self.attempt(call, deadline, longest).await {
                    // A 429 is answered before the request is looked at: repeating any verb is safe.
                    Err(Failed { refusal, wait: Some(wait) }) => {
                        let until = Instant::now() + wait;
                        if call.repeat == Repeat::Never && limits.pauses {
                            // The API server gets its pause; then the caller decides anew.
                            sleep_until(until).await;
                            return Err(refusal);
                        }
                        if !limits.pauses || until >= deadline {
                            return Err(refusal);
                        }
                        self.shared.metrics.repeated(&call.method);
                        sleep_until(until).await;
                    }
                    Err(Failed { refusal, wait: None }) => break Err(refusal),
                    Ok(body) => break Ok(body),
                }
            };
            drop(slot);
            attempt += 1;
            let is_repeated =
                matches!(outcome, Err(Refusal::Transient(_))) && call.repeat == Repeat::Harmless;
            let backoff = Duration::from_millis(fastrand::u64(50..=150) << (2 * (attempt - 1)));
            if !is_repeated || attempt >= ATTEMPTS || Instant::now() + backoff >= deadline {
                return outcome;
            }
            self.shared.metrics.repeated(&call.method);
            sleep(backoff).await;
        }
    }

    /// Waits for a free slot until `deadline`.
    async fn slot(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Refusal> {
        let wanted = Instant::now();
        let slot = timeout_at(deadline, self.shared.permits.acquire()).await;
        self.shared.metrics.waited(wanted.elapsed());
        let slot = slot.map_err(|_| Refusal::Transient("no free request slot in time".to_owned()))?;
        slot.map_err(|_| Refusal::Transient("client closed".to_owned()))
    }

    /// Reads the live object.
    ///
    /// # Errors
    /// Anything but "found" and a NotFound that names the object; an object that
    /// does not decode is an error, never absent.
    pub async fn get<T: DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Live<T>, Refusal> {
        match self.read(kind, namespace, name).await? {
            Live::Found(body) => decode(&body).map(|object| Live::Found(Box::new(object))),
            Live::NotFound => Ok(Live::NotFound),
        }
    }

    /// Reads the live object as JSON text.
    ///
    /// # Errors
    /// Anything but "found" and a NotFound that names the object.
    pub async fn read(&self, kind: Kind, namespace: &str, name: &str) -> Result<Live<Vec<u8>>, Refusal> {
        self.read_as(JSON, kind, namespace, name).await
    }

    /// Reads the live object in this form.
    ///
    /// # Errors
    /// Anything but "found" and a NotFound that names the object.
    pub async fn read_as(
        &self,
        accept: &'static str,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Live<Vec<u8>>, Refusal> {
        let call = Call { accept, ..Call::get(kind, kind.object_path(namespace, name, None), name) };
        match self.send(&call).await {
            Ok(body) => Ok(Live::Found(Box::new(body))),
            Err(Refusal::NotFound) => Ok(Live::NotFound),
            Err(other) => Err(other),
        }
    }

    /// Reads the live object as JSON text by a list of that one object: the right to list is enough.
    ///
    /// # Errors
    /// Anything but a list.
    pub async fn read_listed(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Live<Vec<u8>>, Refusal> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<serde_json::Value>,
        }
        let path = format!("{}?fieldSelector=metadata.name%3D{name}", kind.collection_path(namespace));
        let list: List = decode(&self.send(&Call::get(kind, path, "")).await?)?;
        let found = list.items.into_iter().next();
        Ok(found.map_or(Live::NotFound, |item| Live::Found(Box::new(item.to_string().into_bytes()))))
    }

    fn throttling(&self) -> MutexGuard<'_, Throttling> {
        self.shared.throttling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One attempt, which begins before `deadline` and takes no longer than `longest`.
    async fn attempt(&self, call: &Call, deadline: Instant, longest: Duration) -> Result<Vec<u8>, Failed> {
        let wanted = Instant::now();
        // Asked for again: a pause may have been made longer while its end was waited for.
        loop {
            let until = self.throttling().paused_until;
            if until >= deadline {
                if call.repeat == Repeat::Never {
                    sleep_until(until).await;
                }
                return Err(Refusal::Throttled.into());
            }
            if until <= Instant::now() {
                break;
            }
            sleep_until(until).await;
        }
        let started = Instant::now();
        self.shared.metrics.waited(started - wanted);
        // A read is over with its call; a write that has begun is let finish.
        let until = started + longest;
        let until = if call.method == Method::GET { until.min(deadline) } else { until };
        let answer = match timeout_at(until, self.exchange(call)).await {
            Ok(answer) => answer,
            Err(_) => Err(Refusal::Transient("no answer in time".to_owned())),
        };
        let code = answer.as_ref().ok().map(|a| a.code);
        self.shared.metrics.attempt(&call.method, code, started.elapsed());
        let answer = answer?;
        let is_throttled = answer.code == StatusCode::TOO_MANY_REQUESTS.as_u16();
        if !is_throttled {
            self.throttling().since = None;
        }
        if (200..300).contains(&answer.code) {
            return Ok(answer.body);
        }
        let status = match call.accept {
            PROTOBUF => Status::of_protobuf(&answer.body),
            _ => None,
        };
        // A proxy answers in JSON, whatever is asked for.
        let status = status.or_else(|| serde_json::from_slice(&answer.body).ok()).unwrap_or_default();
        let wait = is_throttled.then(|| {
            let said = status.details.as_ref().map(|d| Duration::from_secs(d.retry_after_seconds));
            self.throttled(answer.retry_after.or(said))
        });
        Err(Failed { refusal: Refusal::classify(answer.code, &status, call.kind, &call.name), wait })
    }

    /// Takes in a 429. Returns how long its request has to wait.
    fn throttled(&self, retry_after: Option<Duration>) -> Duration {
        // A server that says nothing, or zero, still wants patience.
        let wait = retry_after.filter(|wait| !wait.is_zero()).unwrap_or(Duration::from_secs(1));
        let wait = wait.min(Duration::from_mins(1));
        let now = Instant::now();
        let mut throttling = self.throttling();
        let since = *throttling.since.get_or_insert(now);
        if self.shared.limits.pauses && now.duration_since(since) >= NOTHING_ELSE {
            throttling.paused_until = throttling.paused_until.max(now + wait);
            self.shared.metrics.paused();
        }
        wait
    }

    async fn exchange(&self, call: &Call) -> Result<Answer, Refusal> {
        let transient = |error: kube::Error| Refusal::Transient(error.to_string());
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.uri)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, call.accept);
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, call.content_type);
        }
        let request = request
            .body(Body::from(call.body.clone()))
            .map_err(|error| Refusal::Invalid(format!("cannot build the request: {error}")))?;
        let response = self.client.send(request).await.map_err(transient)?;
        let code = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|v| v.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let body = response.into_body().collect().await.map_err(transient)?;
        Ok(Answer { code, retry_after, body: body.to_bytes().into() })
    }
}

/// An attempt that was not taken.
struct Failed {
    refusal: Refusal,
    /// After a 429: how long the request has to wait.
    wait: Option<Duration>,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, wait: None }
    }
}

struct Answer {
    code: u16,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl Call {
    /// A read.
    pub fn get(kind: Kind, uri: String, name: &str) -> Self {
        Self {
            method: Method::GET,
            uri,
            body: Vec::new(),
            content_type: "",
            accept: JSON,
            kind,
            name: name.to_owned(),
            repeat: Repeat::Harmless,
        }
    }
}

/// Decodes the body of an answer.
///
/// # Errors
/// [`Refusal::Undecodable`].
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::Undecodable(error.to_string()))
}

#[cfg(test)]
mod tests;
