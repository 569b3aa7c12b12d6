//! Workers: take keys from a queue and reconcile them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::metrics::ControllerMetrics;
use crate::queue::{Keyed, SharedQueue};

/// How a reconciliation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time even if nothing changes.
    After(Duration),
    /// It failed; try again with backoff. The text is for the log.
    Failed(String),
}

/// Brings the world in line with one key.
pub trait Reconcile: Send + Sync + 'static {
    /// What it works on.
    type Key: Keyed + std::fmt::Debug;
    /// Works on `key` once.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Verdict> + Send;
}

/// Works on the keys of `queue` with up to `workers` at once until `stop` is true,
/// then finishes what is in work.
pub async fn run<R: Reconcile>(
    reconciler: Arc<R>,
    queue: SharedQueue<R::Key>,
    workers: usize,
    metrics: ControllerMetrics,
    mut stop: watch::Receiver<bool>,
) {
    let mut running = JoinSet::new();
    loop {
        while running.len() >= workers.max(1) {
            running.join_next().await;
        }
        let key = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            key = queue.next() => key,
        };
        // Collect what has ended, or the set would only grow.
        while running.try_join_next().is_some() {}
        running.spawn(one(Arc::clone(&reconciler), queue.clone(), key, metrics.clone()));
    }
    while running.join_next().await.is_some() {}
}

async fn one<R: Reconcile>(
    reconciler: Arc<R>,
    queue: SharedQueue<R::Key>,
    key: R::Key,
    metrics: ControllerMetrics,
) {
    let started = Instant::now();
    metrics.begin();
    // A level below the log's default: only who traces, or debugs, pays for it.
    let span = tracing::debug_span!(
        "reconcile",
        controller = metrics.controller(),
        ?key,
        result = tracing::field::Empty
    );
    let verdict = reconciler.reconcile(&key).instrument(span.clone()).await;
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
            tracing::debug!(?key, error = %why, ?delay, "reconciliation failed");
            "error"
        }
    };
    span.record("result", result);
    queue.worked(started.elapsed());
    metrics.end(result, started.elapsed());
}
