//! Fault injection between a client and the API server. A schedule fixes the number of the request from which
//! a fault may strike, so that the same schedule repeats the same run.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use http::{Method, Response, StatusCode};
use tokio::time::Instant;

use crate::api::{Answer, ApiServer, Body, Request, Watch};
use crate::api_handle::{ApiHandle, Broken, ResponseBody, read, response, watched};

/// A fault that strikes one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request arrives after this delay.
    Late(Duration),
    /// The request arrives at once, and its answer after this delay.
    LateReply(Duration),
    /// The request is refused with 500.
    Error,
    /// The request is refused with 409.
    Conflict,
    /// The request is refused with 429 and this `Retry-After`, in seconds.
    Throttled(u32),
    /// The request takes effect, and its answer is lost: with the connection, or, every second time, behind a proxy that answers 504.
    LostReply,
    /// The request never arrives and is never answered.
    Silence,
    /// A watch ends after this number of events.
    CutWatch(usize),
    /// A watch delivers every event twice.
    DoubleEvents,
    /// A watch delivers its first event after this delay, and all later events after the first.
    LaggingWatch(Duration),
    /// The history is compacted before the request arrives.
    Compaction,
    /// The API group of claims is not served for this time.
    Vanished(Duration),
    /// The API group of PodGroups is not served for this time.
    Ungrouped(Duration),
    /// The rival changes the object just before the request arrives.
    Overtaken,
    /// Every write is refused with 500 for this time.
    ReadOnly(Duration),
    /// Every second request never arrives and is never answered for this time: one of two API servers
    /// is dead, and the load balancer does not know.
    HalfDead(Duration),
}

/// A competing client, called with the path of an object.
pub type Rival = Arc<dyn Fn(&str) + Send + Sync>;

/// The number of requests that are answered, and how many more for each minute. Only a loop sends more: an idle process opens its
/// watches anew, and renews its Lease.
const MOST_REQUESTS: u64 = 5_000;
const MORE_EACH_MINUTE: u64 = 100;

/// The API groups that outages concern.
const CLAIMS: &str = "resource.k8s.io";
const GROUPS: &str = "scheduling.k8s.io";

impl Fault {
    /// Whether the fault has an effect on such a request.
    fn harms(self, is_watch: bool, method: &Method) -> bool {
        match self {
            Self::Overtaken => matches!(*method, Method::PATCH | Method::DELETE),
            Self::CutWatch(_) | Self::DoubleEvents | Self::LaggingWatch(_) => is_watch,
            Self::Conflict | Self::LostReply => *method != Method::GET,
            _ => true,
        }
    }

    /// Draws a fault that lasts for up to a minute.
    pub fn any_outage(rng: &mut Rng) -> Self {
        let wait = Duration::from_millis(rng.u64(1..=60_000));
        if rng.bool() { Self::ReadOnly(wait) } else { Self::HalfDead(wait) }
    }

    /// Draws a fault for one request.
    pub fn any(rng: &mut Rng) -> Self {
        let mut millis = |most: u64| Duration::from_millis(rng.u64(1..=most));
        let (short, long) = (millis(2_000), millis(20_000));
        match rng.u32(..14) {
            0 => Self::Late(short),
            1 => Self::LateReply(short),
            2 => Self::Error,
            3 => Self::Conflict,
            4 => Self::Throttled(rng.u32(1..=5)),
            5 => Self::LostReply,
            6 => Self::Silence,
            7 => Self::CutWatch(rng.usize(..4)),
            8 => Self::DoubleEvents,
            9 => Self::LaggingWatch(long),
            10 => Self::Compaction,
            11 => Self::Vanished(long),
            12 => Self::Ungrouped(long),
            _ => Self::Overtaken,
        }
    }
}

/// Faults by request number. Each waits, from that request on, for the first request that it can affect.
pub type Schedule = BTreeMap<u64, Fault>;

/// Method, path and body of a request: what a client sends again.
type Identity = (Method, String, Vec<u8>);

/// An [`ApiHandle`] with faults. Clones are cheap and share the count of requests.
#[derive(Clone)]
pub struct FaultInjector {
    handle: ApiHandle,
    rival: Rival,
    state: Arc<Mutex<State>>,
    /// The requests that were told to wait, each with the interval.
    pauses: Arc<Mutex<HashMap<Identity, (Instant, Instant)>>>,
    began: Instant,
}

#[derive(Default)]
struct State {
    /// The faults that have not struck yet.
    schedule: Schedule,
    requests: u64,
    /// The request with which a client was found in a loop.
    endless: Option<u64>,
    changes: usize,
    /// The number of outages that have not ended yet.
    away: usize,
    /// Those of single verbs and of one API server.
    read_only: usize,
    half_dead: usize,
    struck: Vec<(u64, Fault)>,
    history: Vec<String>,
    /// The first request that came again while it was told to wait.
    hasty: Option<String>,
}

impl FaultInjector {
    /// Creates a handle that applies `schedule` to the requests to `handle`. `rival` is called for
    /// [`Fault::Overtaken`].
    pub fn new(handle: ApiHandle, schedule: Schedule, rival: Rival) -> Self {
        let state = State { schedule, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        Self { handle, rival, state, pauses: Arc::default(), began: Instant::now() }
    }

    /// Returns the same handle for another client, which has not been told to wait.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self { pauses: Arc::default(), ..self.clone() }
    }

    /// Returns the first request that came again while it was told to wait. Lists and watches are exempt.
    pub fn hasty(&self) -> Option<String> {
        self.state().hasty.clone()
    }

    /// Returns the faults that have struck, with the numbers of their requests.
    pub fn struck(&self) -> Vec<(u64, Fault)> {
        self.state().struck.clone()
    }

    /// Returns the requests and their answers so far, one line each.
    pub fn history(&self) -> Vec<String> {
        self.state().history.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request. Returns its number and the fault that strikes it.
    fn next(&self, request: &Request) -> (u64, Option<Fault>) {
        let (is_watch, method) = (request.query.is_on("watch"), &request.method);
        let mut state = self.state();
        state.requests += 1;
        // A write during an outage is a retry and counts as part of that fault.
        let counts = *method != Method::GET && !request.path.contains("/events") && state.away == 0;
        state.changes += usize::from(counts);
        let number = state.requests;
        let mut due = state.schedule.range(..=number);
        let due = due.find(|(_, fault)| fault.harms(is_watch, method)).map(|(due, _)| *due);
        let fault = due.and_then(|due| state.schedule.remove(&due));
        state.struck.extend(fault.map(|fault| (number, fault)));
        (number, fault)
    }

    fn tell(&self, number: u64, request: &Request, fault: Option<Fault>, code: u16) {
        let now = self.server().now();
        let body = String::from_utf8_lossy(&request.body);
        let fault = fault.map(|fault| format!(" {fault:?}")).unwrap_or_default();
        let line = format!("{now} {number} {} {} {body} -> {code}{fault}", request.method, request.path);
        self.state().history.push(line);
    }

    fn server(&self) -> &ApiServer {
        self.handle.server()
    }

    /// Returns the number of requests that only a loop sends, if one did.
    pub fn endless(&self) -> Option<u64> {
        self.state().endless
    }

    /// Whether a client is in a loop, now that it sends the request of this number. Once in a loop, always in a loop.
    fn is_endless(&self, number: u64) -> bool {
        let most = MOST_REQUESTS + MORE_EACH_MINUTE * (self.began.elapsed().as_secs() / 60);
        let mut state = self.state();
        if number > most {
            state.endless.get_or_insert(number);
        }
        state.endless.is_some()
    }

    /// Returns the number of write requests, without those for events and those during an outage.
    pub fn changes(&self) -> usize {
        self.state().changes
    }

    /// Records a request that comes again before its own `Retry-After` is over, and the pause that this
    /// request gets.
    fn heed(&self, request: &Request, fault: Option<Fault>) {
        if request.method == Method::GET && is_collection(&request.path) {
            return;
        }
        let now = Instant::now();
        let of = (request.method.clone(), request.path.clone(), request.body.clone());
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.retain(|_, (_, until)| now < *until);
        if pauses.get(&of).is_some_and(|(from, _)| *from < now) {
            let what = || format!("{} {}", request.method, request.path);
            self.state().hasty.get_or_insert_with(what);
        }
        if let Some(Fault::Throttled(seconds)) = fault {
            pauses.insert(of, (now, now + Duration::from_secs(seconds.into())));
        }
    }

    /// Has a part of the API server fail for some time.
    fn fail(&self, wait: Duration, part: fn(&mut State) -> &mut usize) {
        {
            let mut state = self.state();
            *part(&mut state) += 1;
            state.away += 1;
        }
        let handle = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let mut state = handle.state();
            *part(&mut state) -= 1;
            state.away -= 1;
        });
    }

    fn vanish(&self, group: &'static str, wait: Duration) {
        let handle = self.clone();
        handle.server().vanish(group, true);
        handle.state().away += 1;
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            handle.server().vanish(group, false);
            handle.state().away -= 1;
        });
    }

    async fn exchange(self, request: Request) -> Result<Response<ResponseBody>, Broken> {
        let (number, fault) = self.next(&request);
        self.heed(&request, fault);
        if self.is_endless(number) {
            // A client in a loop would keep virtual time from advancing.
            std::future::pending::<()>().await;
        }
        let refused = |code: u16| {
            self.tell(number, &request, fault, code);
            refusal(code)
        };
        match fault {
            Some(Fault::Error) => return refused(500),
            Some(Fault::Conflict) => return refused(409),
            Some(Fault::Throttled(seconds)) => {
                let mut response = refused(429)?;
                let value = http::HeaderValue::from(seconds);
                response.headers_mut().insert(http::header::RETRY_AFTER, value);
                return Ok(response);
            }
            Some(Fault::Silence) => {
                self.tell(number, &request, fault, 0);
                std::future::pending::<()>().await;
            }
            Some(Fault::Late(wait)) => tokio::time::sleep(wait).await,
            Some(Fault::Compaction) => self.server().compact(),
            Some(Fault::Vanished(wait)) => self.vanish(CLAIMS, wait),
            Some(Fault::Ungrouped(wait)) => self.vanish(GROUPS, wait),
            Some(Fault::Overtaken) => (self.rival)(object_of(&request.path)),
            Some(Fault::ReadOnly(wait)) => self.fail(wait, |state| &mut state.read_only),
            Some(Fault::HalfDead(wait)) => self.fail(wait, |state| &mut state.half_dead),
            _ => {}
        }
        let (read_only, half_dead) = {
            let state = self.state();
            (state.read_only > 0, state.half_dead > 0)
        };
        if half_dead && number.is_multiple_of(2) {
            self.tell(number, &request, fault, 0);
            std::future::pending::<()>().await;
        }
        if read_only && request.method != Method::GET {
            return refused(500);
        }
        let answer = self.handle.ask(request.clone());
        self.tell(number, &request, fault, answer.code);
        match (fault, answer) {
            (Some(Fault::LostReply), _) if number.is_multiple_of(2) => refusal(504),
            (Some(Fault::LostReply), _) => Err(Broken::lost()),
            (Some(Fault::LateReply(wait)), answer) => {
                tokio::time::sleep(wait).await;
                response(answer)
            }
            (Some(fault), Answer { code, body: Body::Watch(watch) }) => harmed(code, *watch, fault),
            (_, answer) => response(answer),
        }
    }
}

/// Returns the segments of a path from the resource on, each with the offset of its end.
fn from_resource(path: &str) -> impl Iterator<Item = (usize, &str)> {
    let prefix = if path.starts_with("/apis/") { 3 } else { 2 };
    let mut end = 0;
    let segments = path.trim_start_matches('/').split('/').map(move |segment| {
        end += 1 + segment.len();
        (end, segment)
    });
    let segments: Vec<_> = segments.skip(prefix).collect();
    let namespaced =
        segments.first().is_some_and(|(_, segment)| *segment == "namespaces") && segments.len() > 2;
    segments.into_iter().skip(if namespaced { 2 } else { 0 })
}

fn is_collection(path: &str) -> bool {
    from_resource(path).count() < 2
}

/// Returns the path of the object of a request, without the subresource.
fn object_of(path: &str) -> &str {
    from_resource(path).nth(1).and_then(|(end, _)| path.get(..end)).unwrap_or(path)
}

/// Returns a watch that is cut, delayed or doubled.
fn harmed(code: u16, watch: Watch, fault: Fault) -> Result<Response<ResponseBody>, Broken> {
    let lines = futures::stream::unfold((watch, 0_usize, None), move |(mut watch, said, again)| async move {
        if let Some(event) = again {
            return Some((event, (watch, said, None)));
        }
        if matches!(fault, Fault::CutWatch(most) if said >= most) {
            return None;
        }
        let event = watch.next().await?;
        if let Fault::LaggingWatch(wait) = fault
            && said == 0
        {
            tokio::time::sleep(wait).await;
        }
        let again = (fault == Fault::DoubleEvents).then(|| event.clone());
        Some((event, (watch, said + 1, again)))
    });
    watched(code, lines)
}

fn refusal(code: u16) -> Result<Response<ResponseBody>, Broken> {
    let (reason, message) = match code {
        409 => ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        _ => ("InternalError", "Internal error occurred: injected"),
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let mut response = response(Answer { code, body: Body::Json(body) })?;
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(response)
}

impl<B> tower::Service<http::Request<B>> for FaultInjector
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let handle = self.clone();
        Box::pin(async move { handle.exchange(read(request).await?).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_is_about() {
        let claims = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
        assert_eq!(object_of(&format!("{claims}/one/status")), format!("{claims}/one"));
        assert_eq!(object_of("/api/v1/namespaces/ns/pods/one"), "/api/v1/namespaces/ns/pods/one");
        assert_eq!(object_of("/api/v1/nodes/one/status"), "/api/v1/nodes/one");
        assert!(is_collection(claims) && is_collection("/api/v1/pods") && is_collection("/apis"));
        assert!(!is_collection("/api/v1/namespaces/ns/pods/one") && !is_collection("/api/v1/nodes/one"));
    }
}
