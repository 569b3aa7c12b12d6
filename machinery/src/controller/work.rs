//! Workers: take keys from the queue of a controller and reconcile them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::{Controller, Index};
use crate::expectations::{PATIENCE, Readiness};
use crate::trace;

/// How a reconciliation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time even if nothing changes.
    After(Duration),
    /// It failed; try again with backoff. The text is for the log.
    Failed(String),
}

impl Verdict {
    /// The most urgent of two verdicts.
    pub fn most_urgent(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(why), _) | (_, Self::Failed(why)) => Self::Failed(why),
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
            (Self::After(delay), Self::Done) | (Self::Done, Self::After(delay)) => Self::After(delay),
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// What is particular about a controller: how it brings the cluster in line with one key.
pub trait Reconcile: Send + Sync + 'static {
    /// What it knows of the cluster.
    type Index: Index;
    /// Its part of the kit.
    fn controller(&self) -> &Arc<Controller<Self::Index>>;
    /// Works on `key` once. The index holds every earlier write of this key, or a minute has passed
    /// since.
    fn reconcile(&self, key: &<Self::Index as Index>::Key) -> impl Future<Output = Verdict> + Send;
    /// This process leads since `now` (seconds since the epoch), called before the first key.
    fn leads_since(&self, _now: i64) {}
    /// Brings its own gauges up to date; `now` in seconds since the epoch.
    fn measure(&self, _now: i64) {}
}

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
    let verdict = decided(&*reconciler, &key).instrument(span.clone()).await;
    let result = match &verdict {
        Verdict::Done => {
            queue.succeeded(&key);
            "success"
        }
        Verdict::After(delay) => {
            queue.succeeded(&key);
            queue.add_after(key, *delay);
            "requeue_after"
        }
        Verdict::Failed(why) => {
            let delay = queue.failed(&key);
            trace::failed(&span, why);
            tracing::debug!(?key, error = %why, ?delay, "reconciliation failed");
            "error"
        }
    };
    span.record("result", result);
    queue.worked(started.elapsed());
    metrics.end(result, started.elapsed());
}

async fn decided<R: Reconcile>(reconciler: &R, key: &<R::Index as Index>::Key) -> Verdict {
    let controller = reconciler.controller();
    if !controller.works() {
        return Verdict::Done;
    }
    match controller.readiness(key) {
        Readiness::Ready | Readiness::Overdue => reconciler.reconcile(key).await,
        Readiness::Parked => Verdict::After(PATIENCE),
    }
}
