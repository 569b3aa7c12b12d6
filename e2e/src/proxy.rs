//! A proxy between Dragoman and the API server that injects faults.
//!
//! The proxy serves plain HTTP on loopback and forwards requests with the operator's own credentials, so
//! that the rights do not change.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::{Notify, watch};

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// The moment of a write at which the process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the API server receives the write.
    Before,
    /// After the API server has committed the write; the reply is lost.
    Committed,
    /// After the reply has been read.
    Replied,
}

/// A fault for requests whose method and path match.
#[derive(Debug, Clone)]
pub enum Harm {
    /// The n-th write (from 1) in a namespace stops at this moment, and later writes are refused. Writes of
    /// Events do not count. The test then kills the process.
    Kill {
        /// The namespace.
        namespace: String,
        /// The number of the write.
        write: usize,
        /// The moment at which the process is killed.
        moment: Moment,
    },
    /// Every n-th POST to a path that contains this takes effect, but its reply is lost.
    LoseReplies {
        /// A part of the path.
        path: String,
        /// Requests from one lost reply to the next.
        every: usize,
    },
    /// Requests whose path contains one of these are refused; one that ends in `$` is the end of the path.
    Refuse {
        /// Parts of paths.
        paths: Vec<&'static str>,
    },
    /// Every request waits so long before it reaches the API server. Those about Leases do not: priority and fairness
    /// gives leader election a level of its own.
    Delay {
        /// The time.
        by: Duration,
    },
    /// Every n-th request is answered with this code, and Retry-After a second where that is a 429.
    RefuseEvery {
        /// Requests from one refusal to the next.
        every: usize,
        /// The code of the answer.
        code: StatusCode,
    },
    /// From the next POST on requests get a 429, whose Retry-After ends so many seconds after that POST.
    /// Requests that arrive in that time are counted, except in its first seconds, when requests in flight
    /// may still arrive.
    Throttle {
        /// Seconds from that POST on.
        seconds: u32,
    },
}

#[derive(Default)]
struct State {
    harm: Option<Harm>,
    writes: usize,
    posts: usize,
    requests: usize,
    throttled: Option<Instant>,
    impatient: usize,
}

/// A running proxy.
pub struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
    hit: Arc<Notify>,
    /// The resource whose watches are held back.
    held: watch::Sender<Option<String>>,
    cut: watch::Sender<u64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Starts a proxy in front of `target`.
    pub async fn start(target: kube::Client) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.context("proxy")?;
        let port = listener.local_addr().context("proxy")?.port();
        let (state, hit) = (Arc::<Mutex<State>>::default(), Arc::<Notify>::default());
        let (held, cut) = (watch::Sender::new(None), watch::Sender::new(0));
        let shared = Shared {
            target,
            state: state.clone(),
            hit: hit.clone(),
            held: held.subscribe(),
            cut: cut.subscribe(),
        };
        let task = tokio::spawn(accept(listener, shared));
        Ok(Self { port, state, hit, held, cut, task })
    }

    /// Writes the kubeconfig of a client behind the proxy.
    pub fn kubeconfig(&self, directory: &std::path::Path) -> anyhow::Result<std::path::PathBuf> {
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://127.0.0.1:{}", self.port)}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        let path = directory.join(format!("proxy-{}.kubeconfig", self.port));
        std::fs::write(&path, text.to_string()).context("kubeconfig")?;
        Ok(path)
    }

    /// Sets the fault, or clears it.
    pub fn harm(&self, harm: Option<Harm>) {
        *locked(&self.state) = State { harm, ..State::default() };
    }

    /// The number of requests since the fault was set.
    pub fn requests(&self) -> usize {
        locked(&self.state).requests
    }

    /// The number of requests that did not wait out a [`Harm::Throttle`]; `None` before it struck.
    pub fn impatient(&self) -> Option<usize> {
        let state = locked(&self.state);
        state.throttled.map(|_| state.impatient)
    }

    /// Returns the time since a [`Harm::Throttle`] struck.
    pub fn throttled_for(&self) -> Option<Duration> {
        locked(&self.state).throttled.map(|since| since.elapsed())
    }

    /// Waits until a [`Harm::Kill`] has struck.
    pub async fn struck(&self) {
        self.hit.notified().await;
    }

    /// Holds back the events of watches of `resource`; with `None` all events are delivered.
    pub fn hold_watches(&self, resource: Option<&str>) {
        self.held.send_replace(resource.map(str::to_owned));
    }

    /// Cuts every open watch.
    pub fn cut_watches(&self) {
        self.cut.send_modify(|n| *n += 1);
    }
}

#[derive(Clone)]
struct Shared {
    target: kube::Client,
    state: Arc<Mutex<State>>,
    hit: Arc<Notify>,
    held: watch::Receiver<Option<String>>,
    cut: watch::Receiver<u64>,
}

async fn accept(listener: tokio::net::TcpListener, shared: Shared) {
    loop {
        // One connection that fails must not end the proxy.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(shared.pass(request).await) }
            });
            // Broken connections are intended.
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

fn refusal(code: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer
}

fn throttled(seconds: u32) -> Answer {
    let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS, "harm");
    answer.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    answer
}

fn is_about(path: &str, part: &str) -> bool {
    part.strip_suffix('$').map_or_else(|| path.contains(part), |end| path.ends_with(end))
}

/// The treatment of a request.
#[derive(PartialEq, Eq)]
enum Act {
    Pass,
    Refuse,
    LoseReply,
    Strike(Moment),
    Throttle(u32),
    Delay(Duration),
    Answer(StatusCode),
}

impl Shared {
    fn decide(&self, method: &Method, path: &str, query: &str) -> Act {
        let mut state = locked(&self.state);
        let write = method != Method::GET;
        state.requests += 1;
        match state.harm.clone() {
            Some(Harm::Delay { by }) if !path.contains("/leases/") => Act::Delay(by),
            Some(Harm::RefuseEvery { every, code }) if state.requests.is_multiple_of(every) => {
                Act::Answer(code)
            }
            Some(Harm::Kill { namespace, write: nth, moment })
                if write && path.contains(&format!("/{namespace}/")) =>
            {
                if path.contains("/events") {
                    return Act::Pass;
                }
                state.writes += 1;
                // After the strike no write of the dying process gets through.
                match state.writes.cmp(&nth) {
                    std::cmp::Ordering::Less => Act::Pass,
                    std::cmp::Ordering::Equal => Act::Strike(moment),
                    std::cmp::Ordering::Greater => Act::Refuse,
                }
            }
            Some(Harm::LoseReplies { path: part, every })
                if method == Method::POST && path.contains(&part) =>
            {
                state.posts += 1;
                if state.posts.is_multiple_of(every) { Act::LoseReply } else { Act::Pass }
            }
            Some(Harm::Throttle { seconds }) => match state.throttled {
                None if method == Method::POST => {
                    state.throttled = Some(Instant::now());
                    Act::Throttle(seconds)
                }
                Some(since) => {
                    // Lists, watches and the Lease belong to other clients. Requests in flight at the time of
                    // the 429 arrive within the first seconds.
                    let others =
                        query.contains("watch=1") || query.contains("limit=") || path.contains("/leases/");
                    let (after, whole) = (since.elapsed(), Duration::from_secs(seconds.into()));
                    if others || after >= whole {
                        return Act::Pass;
                    }
                    state.impatient += usize::from(after >= Duration::from_secs(3));
                    let left = whole.saturating_sub(after).as_secs_f64().ceil();
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds")]
                    Act::Throttle(left as u32)
                }
                None => Act::Pass,
            },
            Some(Harm::Refuse { paths }) if paths.iter().any(|part| is_about(path, part)) => Act::Refuse,
            _ => Act::Pass,
        }
    }

    async fn pass(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        let watches = request.uri().query().is_some_and(|q| q.contains("watch=1"));
        let act = self.decide(request.method(), &path, request.uri().query().unwrap_or_default());
        if act == Act::Refuse {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "harm");
        }
        match act {
            Act::Throttle(seconds) => return throttled(seconds),
            Act::Answer(StatusCode::TOO_MANY_REQUESTS) => return throttled(1),
            Act::Answer(code) => return refusal(code, "harm"),
            Act::Delay(by) => tokio::time::sleep(by).await,
            _ => {}
        }
        if act == Act::Strike(Moment::Before) {
            self.hit.notify_one();
            return std::future::pending().await;
        }
        let answer = match self.forward(request).await {
            Ok(answer) => answer,
            Err(error) => return refusal(StatusCode::BAD_GATEWAY, &format!("{error:#}")),
        };
        match act {
            Act::Strike(Moment::Committed) => {
                self.hit.notify_one();
                std::future::pending().await
            }
            Act::Strike(_) => {
                let hit = self.hit.clone();
                tokio::spawn(async move {
                    // Long enough for the client to read the reply: a few kB on loopback.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    hit.notify_one();
                });
                answer
            }
            Act::LoseReply => refusal(StatusCode::GATEWAY_TIMEOUT, "the reply is lost"),
            _ if watches => self.stream(answer, &path),
            _ => answer,
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> anyhow::Result<Answer> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        // These headers are about the connection to the proxy, not to the API server.
        parts.headers.remove(http::header::HOST);
        parts.headers.remove(http::header::CONTENT_LENGTH);
        let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        let answer = self.target.send(request).await?;
        let (mut parts, body) = answer.into_parts();
        parts.headers.remove(http::header::CONTENT_LENGTH);
        parts.headers.remove(http::header::TRANSFER_ENCODING);
        Ok(Response::from_parts(parts, body.boxed_unsync()))
    }

    /// Wraps a watch, so that it can be held back and cut.
    fn stream(&self, answer: Answer, path: &str) -> Answer {
        let (parts, body) = answer.into_parts();
        let (held, mut cut) = (self.held.clone(), self.cut.clone());
        let resource = path.rsplit('/').next().unwrap_or_default().to_owned();
        cut.mark_unchanged();
        let start = (body, held, cut, resource);
        let frames = futures::stream::unfold(start, |(mut body, mut held, mut cut, resource)| async move {
            let free = |held: &Option<String>| held.as_deref() != Some(&*resource);
            let frame = tokio::select! {
                _ = cut.changed() => return None,
                frame = body.frame() => frame?,
            };
            if held.wait_for(free).await.is_err() {
                return None;
            }
            Some((frame, (body, held, cut, resource)))
        });
        let body = http_body_util::StreamBody::new(frames);
        Response::from_parts(parts, http_body_util::BodyExt::boxed_unsync(body))
    }
}
