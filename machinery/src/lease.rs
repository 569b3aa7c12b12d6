//! Leader election on one `coordination.k8s.io/v1` Lease.
//!
//! [`decide`] is the whole of it, a pure function; the rest reads and writes.
//! A rival's lease is timed from when *we* saw it change, on our own monotonic
//! clock, so that clocks which disagree cannot make two leaders. Every write of
//! the Lease is guarded by its resourceVersion. Losing the lease ends the process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::api::{Api, Live};
use crate::kind::LEASE;
use crate::metrics::MachineryMetrics;
use crate::refusal::Refusal;
use crate::write::{Action, Guard, Write};
use dragoman_crds::wire::Meta;

/// Periods of the election; the defaults are those of every Kubernetes component.
#[derive(Debug, Clone, Copy)]
pub struct Periods {
    /// How long a lease is valid after its last renewal.
    pub lease: Duration,
    /// How long the leader goes on without a successful renewal.
    pub renew: Duration,
    /// Pause between attempts.
    pub retry: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// What we last read of the Lease, and when we saw it change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Holder; empty when given up.
    pub holder: String,
    /// The validity the holder claims.
    pub lease: Duration,
    /// When we first saw this version of it.
    pub changed: Instant,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write ourselves in as the holder.
    Acquire,
    /// Renew our lease.
    Renew,
    /// Somebody else leads: look again after this time.
    Wait(Duration),
    /// We led and do no longer.
    Lost,
}

/// Decides. `seen` is absent where the Lease does not exist, `renewed` is our
/// last successful acquisition or renewal.
pub fn decide(
    me: &str,
    seen: Option<&Seen>,
    renewed: Option<Instant>,
    now: Instant,
    periods: Periods,
) -> Decision {
    if let Some(renewed) = renewed {
        let ours = seen.is_some_and(|s| s.holder == me);
        return if ours && now.saturating_duration_since(renewed) < periods.renew {
            Decision::Renew
        } else {
            Decision::Lost
        };
    }
    match seen {
        None => Decision::Acquire,
        Some(s) if s.holder.is_empty() || s.holder == me => Decision::Acquire,
        Some(s) => {
            let expires = s.changed + s.lease;
            if now >= expires { Decision::Acquire } else { Decision::Wait(periods.retry.min(expires - now)) }
        }
    }
}

/// The shortest pause between attempts, when the time is short.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a write. One that took its time (the server may have asked for patience) counts
/// from before it began, so that a full pause could outlast what is left: never more than half.
pub fn pause(renewed: Option<Instant>, now: Instant, periods: Periods) -> Duration {
    let Some(renewed) = renewed else { return periods.retry };
    let left = (renewed + periods.renew).saturating_duration_since(now);
    periods.retry.min((left / 2).max(SHORTEST_PAUSE))
}

/// Proof of leadership that writers look at before each write.
#[derive(Debug, Clone, Default)]
pub struct Leadership {
    valid_until: Arc<Mutex<Option<Instant>>>,
}

impl Leadership {
    /// Leadership that never ends, for processes that run without a Lease.
    pub fn without_lease() -> Self {
        let leadership = Self::default();
        // A year: this is not a protocol constant, only "never".
        leadership.set(Some(Instant::now() + Duration::from_hours(8760)));
        leadership
    }

    /// Whether we lead now.
    pub fn holds(&self) -> bool {
        self.valid_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|until| Instant::now() < until)
    }

    fn set(&self, until: Option<Instant>) {
        *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// One candidate for one Lease.
pub struct Candidate {
    /// For requests.
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
}

#[derive(Debug, Deserialize)]
struct Lease {
    metadata: Meta,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    lease_transitions: Option<u64>,
    acquire_time: Option<String>,
}

/// The Lease as read or written last.
struct Known {
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
}

/// Why an election ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The lease went to somebody else or could not be renewed in time.
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
            let seen = standing.known.as_ref().map(|known| &known.seen);
            let wait = match decide(&self.identity, seen, standing.renewed, Instant::now(), self.periods) {
                Decision::Lost => {
                    self.withdraw(leadership);
                    return Err(Ended::Lost(self.name.to_owned()));
                }
                Decision::Wait(wait) => wait,
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
        leadership.set(None);
        self.metrics.leading(self.name, false);
    }

    /// Tries once to acquire or renew the Lease. After a conflict the Lease is read again.
    async fn attempt(&self, standing: &mut Standing, leadership: &Leadership) {
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
                leadership.set(Some(begun + self.periods.renew));
                self.metrics.leading(self.name, true);
            }
            Err(Refusal::Conflict | Refusal::AlreadyExists | Refusal::NotFound) => {
                standing.known = self.read(standing.known.take()).await.unwrap_or_else(|(last, _)| last);
            }
            Err(refusal) => {
                tracing::warn!(lease = self.name, error = %refusal, "cannot write the lease");
            }
        }
    }

    async fn read(&self, last: Option<Known>) -> Result<Option<Known>, (Option<Known>, Refusal)> {
        match self.api.get::<Lease>(LEASE, &self.namespace, self.name).await {
            Ok(Live::NotFound) => Ok(None),
            Ok(Live::Found(lease)) => Ok(Some(self.known(*lease, last))),
            Err(refusal) => Err((last, refusal)),
        }
    }

    fn known(&self, lease: Lease, last: Option<Known>) -> Known {
        let guard = Guard {
            uid: lease.metadata.uid.into(),
            resource_version: lease.metadata.resource_version.into(),
        };
        let changed = match last {
            Some(last) if last.guard == guard => last.seen.changed,
            _ => Instant::now(),
        };
        let validity = lease.spec.lease_duration_seconds.map_or(self.periods.lease, Duration::from_secs);
        Known {
            guard,
            seen: Seen { holder: lease.spec.holder_identity.unwrap_or_default(), lease: validity, changed },
            transitions: lease.spec.lease_transitions.unwrap_or(0),
            acquired: lease.spec.acquire_time,
        }
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
            Some(known) => Action::Patch {
                subresource: None,
                guard: known.guard.clone(),
                operations: vec![json!({"op": "add", "path": "/spec", "value": spec})],
            },
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
        let lease: Lease = crate::api::decode(&written)?;
        Ok(self.known(lease, None))
    }

    async fn give_up(&self, known: Option<&Known>) {
        let Some(known) = known.filter(|k| k.seen.holder == self.identity) else { return };
        let action = Action::Patch {
            subresource: None,
            guard: known.guard.clone(),
            operations: vec![
                json!({"op": "replace", "path": "/spec/holderIdentity", "value": ""}),
                json!({"op": "replace", "path": "/spec/leaseDurationSeconds", "value": 1}),
            ],
        };
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
mod tests {
    use super::*;

    fn seen(holder: &str, changed: Instant) -> Seen {
        Seen { holder: holder.to_owned(), lease: Duration::from_secs(15), changed }
    }

    #[test]
    fn a_rival_is_waited_for_from_when_we_saw_it_change() {
        let now = Instant::now();
        let periods = Periods::default();
        let rival = seen("other", now);
        let at = |secs| decide("me", Some(&rival), None, now + Duration::from_secs(secs), periods);
        assert_eq!(at(0), Decision::Wait(periods.retry));
        assert_eq!(at(14), Decision::Wait(Duration::from_secs(1)));
        assert_eq!(at(15), Decision::Acquire);
        assert_eq!(decide("me", None, None, now, periods), Decision::Acquire);
        assert_eq!(decide("me", Some(&seen("", now)), None, now, periods), Decision::Acquire);
    }

    #[test]
    fn a_slow_answer_leaves_time_for_the_next_renewal() {
        let begun = Instant::now();
        let periods = Periods::default();
        let after = |millis| pause(Some(begun), begun + Duration::from_millis(millis), periods);
        assert_eq!(after(10), periods.retry);
        assert_eq!(after(8_000), Duration::from_secs(1));
        assert_eq!(after(11_000), SHORTEST_PAUSE);
        assert_eq!(pause(None, begun, periods), periods.retry);
        // Whatever an answer took, the next attempt is still a renewal.
        for millis in (0..9_800).step_by(100) {
            let now = begun + Duration::from_millis(millis) + after(millis);
            assert_eq!(decide("me", Some(&seen("me", begun)), Some(begun), now, periods), Decision::Renew);
        }
    }

    #[test]
    fn a_leader_ends_before_its_lease_does() {
        let now = Instant::now();
        let periods = Periods::default();
        assert!(periods.renew < periods.lease);
        let mine = seen("me", now);
        let at = |secs| decide("me", Some(&mine), Some(now), now + Duration::from_secs(secs), periods);
        assert_eq!(at(9), Decision::Renew);
        assert_eq!(at(10), Decision::Lost);
        assert_eq!(decide("me", Some(&seen("other", now)), Some(now), now, periods), Decision::Lost);
        assert_eq!(decide("me", None, Some(now), now, periods), Decision::Lost);
    }
}
