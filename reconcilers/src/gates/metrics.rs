//! The metrics: closed gates, and what became of them.

use std::collections::HashMap;

use dragoman_machinery::metrics::{Declare as _, FloatGauge};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::memory::{Closed, ClosedGates};
use super::plan::Reason;

type Label = Vec<(&'static str, &'static str)>;

/// The metrics.
pub(super) struct GateMetrics {
    closed: Family<Label, Gauge>,
    oldest: Family<Label, FloatGauge>,
    /// Pods whose gate was opened.
    pub(super) released: Counter,
    /// Allocations that did not fit.
    pub(super) rejected: Counter,
    /// Charges of Pods that are not bound yet.
    pub(super) assumed: Gauge,
    bypassed: Gauge,
}

impl GateMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            closed: registry.declare(
                "dragoman_gates_closed",
                "Pods whose gate dragoman.dev/claims is closed, or that cannot be bound (NotBound), \
                 by what they wait for",
            ),
            oldest: registry
                .declare("dragoman_gates_oldest_seconds", "Age of the wait of the oldest of them"),
            released: registry.declare("dragoman_gates_opened", "Pods whose gate was opened"),
            rejected: registry.declare(
                "dragoman_gates_rejections",
                "Allocations that were refused because the Pod does not fit on their node",
            ),
            assumed: registry
                .declare("dragoman_gates_assumed", "Pods that are charged to a node and are not bound yet"),
            bypassed: registry.declare(
                "dragoman_gates_bypassed",
                "Pods on nodes that use claims and never had the gate, in namespaces in which other Pods have it",
            ),
        }
    }

    /// Brings the gauges up to date at `now`.
    pub(super) fn measure(&self, gates: &ClosedGates, assumed: usize, bypassed: usize, now: Instant) {
        self.bypassed.set(i64::try_from(bypassed).unwrap_or(i64::MAX));
        self.assumed.set(i64::try_from(assumed).unwrap_or(i64::MAX));
        let mut by_reason: HashMap<&'static str, (i64, Instant)> = HashMap::new();
        for Closed { reason, since, .. } in gates.all() {
            let (count, oldest) = by_reason.entry(reason.word()).or_insert((0, *since));
            *count += 1;
            *oldest = (*oldest).min(*since);
        }
        for reason in Reason::WORDS {
            let label = vec![("reason", *reason)];
            let (count, oldest) = by_reason.get(reason).copied().unwrap_or((0, now));
            self.closed.get_or_create(&label).set(count);
            self.oldest.get_or_create(&label).set((now - oldest).as_secs_f64());
        }
    }
}
