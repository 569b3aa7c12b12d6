//! Leader election on one `coordination.k8s.io/v1` Lease.
//!
//! [`decide`] is the whole of it, a pure function; the rest reads and writes.
//! A rival's lease is timed from when *we* saw it change, on our own monotonic
//! clock, so that clocks which disagree cannot make two leaders. Every write of
//! the Lease is guarded by its resourceVersion. A lease that runs out ends the
//! process. A leader that does not see the cluster, or may not write, frees the
//! Lease and stands again once it is fit to lead.
//!
//! Requests are get, create and update: these verbs, and not patch, have the API
//! server's priority for leader election (the suggested flow schemas
//! `system-leader-election` and `workload-leader-election`).

mod decide;
mod elsewhere;
mod holder;
mod leadership;

use std::time::Duration;

use dragoman_objects::Meta;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Api, Live, decode};
use crate::kind::LEASE;
use crate::metrics::MachineryMetrics;
use crate::refusal::Refusal;
use crate::write::{Action, Guard, Write};

pub use decide::{Decision, Fitness, PATIENCE, Periods, Reason, Seen, View, decide, pause};
pub use elsewhere::Elsewhere;
pub use holder::live_holder;
pub use leadership::{AtWork, Leadership};

/// One candidate for one Lease.
pub struct Candidate {
    /// For requests: a client of its own, so that no other request holds a renewal up.
    pub api: Api,
    /// For counting.
    pub metrics: MachineryMetrics,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: &'static str,
    /// Our identity, unique to this process.
    pub identity: String,
    /// Periods.
    pub periods: Periods,
    /// Says how well this process could lead now.
    pub fitness: Box<dyn Fn() -> Fitness + Send + Sync>,
}

/// A Lease as it is read.
#[derive(Debug, Deserialize)]
pub struct Lease {
    metadata: Meta,
    #[serde(default)]
    spec: LeaseSpec,
}

impl Lease {
    /// `spec.holderIdentity`; empty where nothing holds it.
    pub fn holder(&self) -> &str {
        self.spec.holder_identity.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    lease_transitions: Option<u64>,
    acquire_time: Option<String>,
}

/// The longest time for which a Lease without renewals holds, whatever duration it has: a forged one stops the controllers no longer.
const LONGEST: Duration = Duration::from_mins(10);

impl LeaseSpec {
    /// The time for which the Lease holds without a renewal, if it says so.
    fn validity(&self) -> Option<Duration> {
        self.lease_duration_seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST))
    }
}

/// The Lease as read or written last.
struct Known {
    /// The whole object: fields that we do not know survive an update.
    object: Value,
    guard: Guard,
    seen: Seen,
    transitions: u64,
    acquired: Option<String>,
}

/// The state of a candidate in an election.
#[derive(Default)]
struct Standing {
    /// The Lease, unless it does not exist or was never read.
    known: Option<Known>,
    /// The start of our last successful acquisition or renewal.
    renewed: Option<Instant>,
    /// When we last gave the Lease up for want of a right.
    barred_at: Option<Instant>,
}

/// Time for which a leader that gives up waits for its last writes. With one attempt to free the Lease
/// this is less than is left of a Lease renewed on time: the next leader need not wait for its end.
const LAST_WRITES: Duration = Duration::from_secs(5);

impl Known {
    /// An update that sets these fields of the spec.
    fn update(&self, fields: Value) -> Action {
        let mut object = self.object.clone();
        if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
            match object.get_mut("spec").and_then(Value::as_object_mut) {
                Some(spec) => spec.extend(fields),
                None => drop(object.insert("spec".to_owned(), Value::Object(fields))),
            }
        }
        Action::Update { guard: self.guard.clone(), object }
    }
}

/// Result of an attempt to write the Lease.
#[derive(PartialEq, Eq)]
enum Attempt {
    /// The Lease was written, or could not be.
    Over,
    /// The Lease had changed, and was read again.
    Conflict,
}

/// Why an election ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The lease went to another process or could not be renewed in time.
    #[error("the lease {0} is lost")]
    Lost(String),
}

impl Candidate {
    /// Stands for election until `stop` is true, then gives the lease up so that
    /// the next one can take it at once. `leadership` is kept true to the state.
    ///
    /// # Errors
    /// [`Ended::Lost`] when we led and do no longer; the caller ends the process.
    pub async fn run(&self, leadership: &Leadership, mut stop: watch::Receiver<bool>) -> Result<(), Ended> {
        let mut standing = Standing::default();
        self.metrics.leading(self.name, false);
        loop {
            if *stop.borrow() {
                if standing.renewed.is_some() {
                    self.give_up(standing.known.as_ref()).await;
                }
                self.withdraw(leadership);
                return Ok(());
            }
            // A leader knows the Lease from its own last write; it reads only
            // after a conflict.
            if standing.renewed.is_none() || standing.known.is_none() {
                standing.known = self.read(standing.known.take()).await.unwrap_or_else(|(last, refusal)| {
                    tracing::warn!(lease = self.name, error = %refusal, "cannot read the lease");
                    last
                });
            }
            let view = View {
                me: &self.identity,
                seen: standing.known.as_ref().map(|known| &known.seen),
                renewed: standing.renewed,
                fitness: (self.fitness)(),
                barred_at: standing.barred_at,
            };
            let wait = match decide(view, Instant::now(), self.periods) {
                Decision::Lost => {
                    self.withdraw(leadership);
                    return Err(Ended::Lost(self.name.to_owned()));
                }
                Decision::Wait(wait) => wait,
                Decision::Resign(reason) => {
                    self.resign(&mut standing, leadership, reason).await;
                    self.periods.retry
                }
                Decision::Acquire | Decision::Renew => {
                    self.attempt(&mut standing, leadership).await;
                    pause(standing.renewed, Instant::now(), self.periods)
                }
            };
            tokio::select! {
                biased;
                () = sleep(wait) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Marks us as a candidate that does not lead.
    fn withdraw(&self, leadership: &Leadership) {
        leadership.withdraw();
        self.metrics.leading(self.name, false);
    }

    /// Stops the work of this process and frees the Lease.
    async fn resign(&self, standing: &mut Standing, leadership: &Leadership, reason: Reason) {
        tracing::warn!(lease = self.name, reason = reason.text(), "giving the lease up");
        self.withdraw(leadership);
        // Every write is guarded: one that is still on its way after this time is safe.
        if timeout(LAST_WRITES, leadership.idle()).await.is_err() {
            tracing::warn!(lease = self.name, "the lease is given up before the last write has ended");
        }
        self.give_up(standing.known.as_ref()).await;
        let barred_at = (reason == Reason::Barred).then(Instant::now).or(standing.barred_at);
        *standing = Standing { barred_at, ..Standing::default() };
    }

    /// Tries to acquire or renew the Lease. After a conflict the Lease is read again; one that is
    /// still ours (the reply to the last renewal was lost) is renewed at once.
    async fn attempt(&self, standing: &mut Standing, leadership: &Leadership) {
        if self.attempt_once(standing, leadership).await == Attempt::Conflict
            && standing.renewed.is_some()
            && standing.known.as_ref().is_some_and(|known| known.seen.holder == self.identity)
        {
            self.attempt_once(standing, leadership).await;
        }
    }

    async fn attempt_once(&self, standing: &mut Standing, leadership: &Leadership) -> Attempt {
        let begun = Instant::now();
        match self.write(standing.known.as_ref()).await {
            Ok(written) => {
                if standing.renewed.is_none() {
                    tracing::info!(lease = self.name, identity = self.identity, "leading");
                }
                standing.known = Some(written);
                // Counted from before the request: the server may have
                // taken it at any moment since.
                standing.renewed = Some(begun);
                leadership.renewed(begun, self.periods.renew);
                self.metrics.leading(self.name, true);
                Attempt::Over
            }
            Err(Refusal::Conflict | Refusal::AlreadyExists | Refusal::NotFound) => {
                standing.known = self.read(standing.known.take()).await.unwrap_or_else(|(last, _)| last);
                Attempt::Conflict
            }
            Err(refusal) => {
                tracing::warn!(lease = self.name, error = %refusal, "cannot write the lease");
                Attempt::Over
            }
        }
    }

    async fn read(&self, last: Option<Known>) -> Result<Option<Known>, (Option<Known>, Refusal)> {
        let found = match self.api.get::<Value>(LEASE, &self.namespace, self.name).await {
            Ok(Live::NotFound) => return Ok(None),
            Ok(Live::Found(object)) => self.known(*object, last.as_ref()),
            Err(refusal) => Err(refusal),
        };
        found.map(Some).map_err(|refusal| (last, refusal))
    }

    fn known(&self, object: Value, last: Option<&Known>) -> Result<Known, Refusal> {
        let lease = Lease::deserialize(&object).map_err(|e| Refusal::Undecodable(e.to_string()))?;
        let guard = Guard {
            uid: lease.metadata.uid.to_string(),
            resource_version: lease.metadata.resource_version.to_string(),
        };
        let changed = match last {
            Some(last) if last.guard == guard => last.seen.changed,
            _ => Instant::now(),
        };
        let validity = lease.spec.validity().unwrap_or(self.periods.lease);
        let transitions = lease.spec.lease_transitions.unwrap_or(0);
        self.metrics.transitions(self.name, transitions);
        Ok(Known {
            object,
            guard,
            seen: Seen { holder: lease.spec.holder_identity.unwrap_or_default(), lease: validity, changed },
            transitions,
            acquired: lease.spec.acquire_time,
        })
    }

    async fn write(&self, known: Option<&Known>) -> Result<Known, Refusal> {
        // metav1.MicroTime wants exactly six digits.
        let now = format!("{:.6}", crate::clock::now());
        let renewal = known.filter(|k| k.seen.holder == self.identity);
        let spec = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.periods.lease.as_secs(),
            "acquireTime": renewal.and_then(|k| k.acquired.clone()).unwrap_or_else(|| now.clone()),
            "renewTime": now,
            "leaseTransitions": known.map_or(0, |k| k.transitions + u64::from(renewal.is_none())),
        });
        let action = match known {
            Some(known) => known.update(spec),
            None => Action::Create {
                body: json!({
                    "apiVersion": LEASE.api_version(), "kind": LEASE.kind,
                    "metadata": {"name": self.name, "namespace": self.namespace},
                    "spec": spec,
                })
                .to_string(),
            },
        };
        let written = self.send(action).await?;
        self.known(decode(&written)?, None)
    }

    async fn give_up(&self, known: Option<&Known>) {
        let Some(known) = known.filter(|k| k.seen.holder == self.identity) else { return };
        let action = known.update(json!({"holderIdentity": "", "leaseDurationSeconds": 1}));
        if let Err(refusal) = self.send(action).await {
            tracing::warn!(lease = self.name, error = %refusal, "cannot give the lease up");
        }
    }

    async fn send(&self, action: Action) -> Result<Vec<u8>, Refusal> {
        let (namespace, name) = (self.namespace.clone(), self.name.to_owned());
        let write = Write::new(LEASE, namespace, name, action);
        Ok(write.send(&self.api, &self.metrics).await?.body)
    }
}

#[cfg(test)]
mod tests;
