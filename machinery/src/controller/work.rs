//! Workers: take keys from the queue of a controller and reconcile them.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::{Controller, Failure, Index};
use crate::expectations::{PATIENCE, Readiness};
use crate::kind::Kind;
use crate::queue::Failing;
use crate::refusal::Refusal;
use crate::trace;

/// Result of a reconciliation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time even if nothing changes.
    After(Duration),
    /// The reconciliation failed; try again with backoff.
    Failed(Failure),
}

impl Outcome {
    /// Returns the outcome of a reconciliation whose write or read was refused. An object that is gone, or
    /// another one by now, is no failure: the watch says so soon.
    pub fn refused(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NotFound | Refusal::Replaced => Self::Done,
            other => Self::Failed(other.clone().into()),
        }
    }

    /// The most urgent of two outcomes.
    pub fn most_urgent(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(why), _) | (_, Self::Failed(why)) => Self::Failed(why),
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
            (Self::After(delay), Self::Done) | (Self::Done, Self::After(delay)) => Self::After(delay),
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// The part of a controller that is its own: bringing the cluster in line with one key.
pub trait Reconcile: Send + Sync + 'static {
    /// Index of the controller.
    type Index: Index;
    /// Returns the state of the controller that the kit keeps.
    fn controller(&self) -> &Arc<Controller<Self::Index>>;
    /// Works on `key` once. The index holds every earlier write of this key, or a minute has passed
    /// since.
    fn reconcile(&self, key: &<Self::Index as Index>::Key) -> impl Future<Output = Outcome> + Send;
    /// This process begins to lead; called before the first key.
    fn on_elected(&self) {}
    /// Returns the reason why the controller does not work, for the readiness check.
    fn degraded_reason(&self) -> Option<String> {
        None
    }
    /// A kind that the API server does not serve, and without which no key can be decided on. Its keys wait
    /// until the kind is served; other controllers go on.
    fn missing_kind(&self) -> Option<Kind> {
        None
    }
    /// Brings its own gauges up to date.
    fn measure(&self) {}
    /// Returns what the controller remembers beside its index, a line each, for the dump.
    fn remembers(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The pause after which a key is looked at again that waits for the definition of a kind. It costs no request.
const DEFINED: Duration = Duration::from_secs(5);

/// Works on the keys of a controller with up to `workers` at once until `stop` is true,
/// then finishes what is in work.
pub(super) async fn run<R: Reconcile>(reconciler: Arc<R>, workers: usize, mut stop: watch::Receiver<bool>) {
    let mut running = JoinSet::new();
    loop {
        while running.len() >= workers.max(1) {
            running.join_next().await;
        }
        let queue = &reconciler.controller().queue;
        let key = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            key = queue.next() => key,
        };
        // Collect what has ended, or the set would only grow.
        while running.try_join_next().is_some() {}
        running.spawn(one(Arc::clone(&reconciler), key));
    }
    while running.join_next().await.is_some() {}
}

async fn one<R: Reconcile>(reconciler: Arc<R>, key: <R::Index as Index>::Key) {
    let Controller { queue, metrics, .. } = &**reconciler.controller();
    let started = Instant::now();
    metrics.begin();
    // A level below the log's default: only those who trace, or debug, pay for it.
    let span = tracing::debug_span!(
        "reconcile",
        controller = metrics.controller(),
        ?key,
        result = Empty,
        requests = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    );
    let then = match reconciler.missing_kind() {
        Some(_) => Outcome::After(DEFINED),
        None => decided(&*reconciler, &key).instrument(span.clone()).await,
    };
    let result = match &then {
        Outcome::Done => {
            queue.succeeded(&key);
            "success"
        }
        Outcome::After(delay) => {
            queue.succeeded(&key);
            queue.add_after(key, *delay);
            "requeue_after"
        }
        Outcome::Failed(why) => {
            let text = why.to_string();
            let (delay, failing) = queue.failed(&key, &text);
            let warnings = &reconciler.controller().warnings;
            report(metrics.controller(), &key, why.reason(), &failing, delay, warnings);
            trace::failed(&span, &text);
            "error"
        }
    };
    span.record("result", result);
    queue.worked(started.elapsed());
    metrics.end(result, started.elapsed());
}

/// Says that a key failed: a warning at the third time, then at each power of two.
fn report<K: std::fmt::Debug>(
    controller: &'static str,
    key: &K,
    reason: &'static str,
    failing: &Failing,
    delay: Duration,
    warnings: &Warnings,
) {
    let Failing { since, count, why } = failing;
    let is_news = *count >= 3 && (*count == 3 || count.is_power_of_two());
    if is_news && let Some(unsaid) = warnings.may_say(Instant::now()) {
        let since = since.elapsed();
        tracing::warn!(controller, ?key, reason, error = %why, count, ?since, unsaid, "reconciliation keeps failing");
    } else {
        tracing::debug!(controller, ?key, reason, error = %why, count, ?delay, "reconciliation failed");
    }
}

/// Limits warnings about failing keys: when everything fails, the first ones tell why.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<(Option<Instant>, u32, u32)>);

impl Warnings {
    /// So many warnings in a minute.
    const MOST: u32 = 20;

    /// Whether one more may be said; if so, how many were not said since the last one.
    fn may_say(&self, now: Instant) -> Option<u32> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, said, unsaid) = &mut *state;
        if began.is_none_or(|began| now >= began + Duration::from_mins(1)) {
            (*began, *said) = (Some(now), 0);
        }
        if *said < Self::MOST {
            *said += 1;
            return Some(std::mem::take(unsaid));
        }
        *unsaid += 1;
        None
    }
}

async fn decided<R: Reconcile>(reconciler: &R, key: &<R::Index as Index>::Key) -> Outcome {
    let controller = reconciler.controller();
    if !controller.works() {
        return Outcome::Done;
    }
    match controller.readiness(key) {
        Readiness::Ready | Readiness::Overdue => reconciler.reconcile(key).await,
        Readiness::Parked => Outcome::After(PATIENCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_limited_and_those_left_out_are_counted() {
        let (warnings, began) = (Warnings::default(), Instant::now());
        let said = (0..100).filter(|_| warnings.may_say(began).is_some()).count();
        assert_eq!(said, Warnings::MOST as usize);
        assert_eq!(warnings.may_say(began + Duration::from_mins(1)), Some(100 - Warnings::MOST));
        assert_eq!(warnings.may_say(began + Duration::from_mins(1)), Some(0));
    }
}
