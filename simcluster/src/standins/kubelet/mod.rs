//! The kubelets of all nodes: Pods start, finish and are removed. One stand-in serves simcluster in this
//! process and any API server over HTTP.
//!
//! Like a kubelet it starts a Pod only when all claims of the Pod are ready, writes a terminal phase before it
//! removes a Pod that has none, and performs one act on a Pod at a time.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::time::Instant;

use self::rules::Act;
pub(super) use self::rules::claim_name;
pub use self::rules::{HOLD, REAP};
use super::client::{BoxError, Client, Reply};
use super::follow::{Event, Follow};
use crate::api::ApiServer;
use crate::api::meta::{self, Name};

/// The name of the user agent.
const AGENT: &str = "kubelet/simcluster";

/// The minimum durations. The actual duration is drawn between this and twice this.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// From the assignment of a node until the Pod runs, if its claims are ready.
    pub start: Duration,
    /// From the start until the Pod succeeds.
    pub run: Duration,
    /// From deletion until the Pod has stopped.
    pub stop: Duration,
    /// Between two attempts, while claims are not ready or the API server does not answer.
    pub look: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let millis = Duration::from_millis;
        Self { start: millis(100), run: millis(1000), stop: millis(100), look: millis(500) }
    }
}

impl Pace {
    /// No pause but the one between two attempts: Pods take as long as their requests.
    pub fn at_once() -> Self {
        let none = Duration::ZERO;
        Self { start: none, run: none, stop: none, look: Duration::from_millis(200) }
    }
}

/// The Pods that a kubelet refused to start because a claim was not ready, until they are removed. Clones share
/// one set.
#[derive(Debug, Clone, Default)]
pub struct Refusals(Arc<Mutex<BTreeSet<Name>>>);

impl Refusals {
    /// Whether the Pod was refused at least once.
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        let name = (namespace.to_owned(), name.to_owned());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&name)
    }

    fn add(&self, name: Name) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    fn remove(&self, name: &Name) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// A stand-in for all kubelets.
pub struct Kubelet {
    client: Client,
    pace: Pace,
    rng: Rng,
    /// The planned acts by time; the number orders acts of the same moment.
    due: BTreeMap<(Instant, u64), (Name, Act)>,
    next: u64,
    /// The last planned act of each Pod, by uid, so that no act is planned twice.
    planned: BTreeMap<String, Act>,
    /// The acts whose requests are under way.
    acts: FuturesUnordered<BoxFuture<'static, Attempt>>,
    /// The uids of the Pods of these acts.
    busy: BTreeSet<String>,
    refusals: Refusals,
    /// Whether another kubelet runs a Pod.
    spared: fn(&Value) -> bool,
}

/// An act on a Pod that was attempted.
struct Attempt {
    pod: Value,
    act: Act,
    outcome: Outcome,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The act is done, or its Pod is gone.
    Done,
    /// A claim is not ready.
    Refused,
    /// The API server did not do what was asked.
    Failed,
}

impl Kubelet {
    /// Creates a kubelet for simcluster in this process. `seed` determines the durations.
    pub fn new(server: ApiServer, pace: Pace, seed: u64) -> Self {
        Self::with(Client::new(server, "kubelet", AGENT), pace, seed)
    }

    /// Creates a kubelet for an API server behind `service`, which adds the address and the credentials of a
    /// user that may do what kubelets do. `seed` determines the durations.
    pub fn over_http<S, B>(service: S, pace: Pace, seed: u64) -> Self
    where
        S: tower::Service<http::Request<Vec<u8>>, Response = http::Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::with(Client::over_http(service, AGENT), pace, seed)
    }

    fn with(client: Client, pace: Pace, seed: u64) -> Self {
        Self {
            client,
            pace,
            rng: Rng::with_seed(seed),
            due: BTreeMap::new(),
            next: 0,
            planned: BTreeMap::new(),
            acts: FuturesUnordered::new(),
            busy: BTreeSet::new(),
            refusals: Refusals::default(),
            spared: |_| false,
        }
    }

    /// Leaves the Pods that satisfy `spared` to another kubelet.
    #[must_use]
    pub fn sparing(mut self, spared: fn(&Value) -> bool) -> Self {
        self.spared = spared;
        self
    }

    /// Returns the Pods that this kubelet refused.
    pub fn refusals(&self) -> Refusals {
        self.refusals.clone()
    }

    /// Runs Pods for as long as it is polled.
    pub async fn run(mut self) {
        let mut pods = Follow::new(self.client.clone(), "/api/v1/pods");
        loop {
            let first = self.due.first_key_value().map(|((at, _), _)| *at);
            tokio::select! {
                biased;
                Some(attempt) = self.acts.next(), if !self.acts.is_empty() => self.attempted(attempt, &pods),
                () = at(first) => self.act(&pods),
                event = pods.next() => match event {
                    Event::Applied(pod) => self.plan(&pod),
                    Event::Deleted(pod) => {
                        self.planned.remove(meta::text(&pod, "uid"));
                        self.refusals.remove(&meta::name_of(&pod));
                    }
                },
            }
        }
    }

    /// Plans the next act on a Pod, unless it is planned already or another one is under way.
    fn plan(&mut self, pod: &Value) {
        let Some(act) = rules::next_act(pod).filter(|_| !(self.spared)(pod)) else { return };
        let uid = meta::text(pod, "uid");
        if self.planned.get(uid) == Some(&act) || self.busy.contains(uid) {
            return;
        }
        self.planned.insert(uid.to_owned(), act);
        let wait = match act {
            Act::Start => self.pace.start,
            Act::Finish => self.pace.run,
            Act::Remove => self.pace.stop.max(rules::unwilling(pod)),
        };
        self.after(wait, pod, act);
    }

    fn after(&mut self, wait: Duration, pod: &Value, act: Act) {
        let wait = wait.mul_f64(1.0 + self.rng.f64());
        self.next += 1;
        self.due.insert((Instant::now() + wait, self.next), (meta::name_of(pod), act));
    }

    /// Begins the act that is due first.
    fn act(&mut self, pods: &Follow) {
        let Some((_, (name, act))) = self.due.pop_first() else { return };
        let Some(pod) = pods.get(&name.0, &name.1) else { return };
        let uid = meta::text(pod, "uid");
        // The name may belong to another Pod by now, and the Pod may need another act.
        if self.planned.get(uid) != Some(&act) || rules::next_act(pod) != Some(act) {
            return;
        }
        self.busy.insert(uid.to_owned());
        let (client, pod) = (self.client.clone(), pod.clone());
        self.acts.push(Box::pin(async move {
            let outcome = perform(&client, &pod, act).await;
            Attempt { pod, act, outcome }
        }));
    }

    /// Plans what follows an attempt: the same act again if it failed, or one that became due meanwhile.
    fn attempted(&mut self, Attempt { pod, act, outcome }: Attempt, pods: &Follow) {
        let (name, uid) = (meta::name_of(&pod), meta::text(&pod, "uid"));
        self.busy.remove(uid);
        let Some(now) = pods.get(&name.0, &name.1).filter(|now| meta::text(now, "uid") == uid) else {
            return;
        };
        if outcome == Outcome::Refused {
            self.refusals.add(name);
        }
        if outcome != Outcome::Done && rules::next_act(now) == Some(act) {
            self.after(self.pace.look, now, act);
        } else {
            self.plan(now);
        }
    }
}

/// Performs an act.
async fn perform(client: &Client, pod: &Value, act: Act) -> Outcome {
    let (namespace, name) = meta::name_of(pod);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let say = async |phase: &str| {
        outcome(&client.patch(&format!("{path}/status"), &rules::status(pod, phase)).await)
    };
    match act {
        Act::Start => match claims_are_ready(client, pod, &namespace).await {
            Outcome::Done => say("Running").await,
            failed => failed,
        },
        Act::Finish => say("Succeeded").await,
        Act::Remove => {
            if rules::is_unfinished(pod) && say("Failed").await != Outcome::Done {
                return Outcome::Failed;
            }
            outcome(&client.delete_at_once(&path, meta::text(pod, "uid")).await)
        }
    }
}

/// Reads every claim of a Pod. A claim that does not exist is not ready.
async fn claims_are_ready(client: &Client, pod: &Value, namespace: &str) -> Outcome {
    let Some(claims) = rules::claims(pod) else { return Outcome::Refused };
    for name in claims {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        let claim = client.get(&path).await;
        if !claim.is_success() && !claim.is_missing() {
            return Outcome::Failed;
        }
        if !claim.is_success() || !rules::is_ready(&claim.object, pod) {
            return Outcome::Refused;
        }
    }
    Outcome::Done
}

/// A conflict is tried again, too: another write came between, or the watch is about to show another Pod with
/// this name.
fn outcome(reply: &Reply) -> Outcome {
    if reply.is_success() || reply.is_missing() { Outcome::Done } else { Outcome::Failed }
}

/// Waits until a moment, or for ever if there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
