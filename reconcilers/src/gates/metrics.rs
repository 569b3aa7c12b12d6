//! The closed gates, counted as they close and open.

use std::collections::HashMap;

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::metrics::FloatGauge;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
}

/// The closed gates.
#[derive(Debug, Default)]
pub(super) struct ClosedGates(HashMap<ObjectKey, Closed>);

/// A closed gate; times are in milliseconds since the epoch.
#[derive(Debug)]
struct Closed {
    reason: Reason,
    since: i64,
    /// When the condition was written last, and its message.
    said: Option<(i64, String)>,
}

impl ClosedGates {
    /// Notes what a Pod waits for; returns since when it has waited for anything. What comes after the gate of another controller
    /// begins when that gate is open.
    pub(super) fn closed(&mut self, key: &ObjectKey, reason: Reason, now: i64) -> i64 {
        let gate = self.0.entry(key.clone()).or_insert(Closed { reason, since: now, said: None });
        if gate.reason == Reason::OtherGateClosed && reason != gate.reason {
            gate.since = now;
        }
        gate.reason = reason;
        gate.since
    }

    /// When the condition of a Pod was written last, and its message.
    pub(super) fn said(&self, key: &ObjectKey) -> Option<(i64, String)> {
        self.0.get(key)?.said.clone()
    }

    /// The condition of a Pod is written with this message.
    pub(super) fn says(&mut self, key: &ObjectKey, now: i64, message: &str) {
        self.0.get_mut(key).into_iter().for_each(|gate| gate.said = Some((now, message.to_owned())));
    }

    /// The gate is open, or the Pod is gone.
    pub(super) fn opened(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }
}

impl GateMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            closed: Family::default(),
            oldest: Family::default(),
            released: Counter::default(),
            rejected: Counter::default(),
            assumed: Gauge::default(),
        };
        registry.register(
            "dragoman_gates_closed",
            "Pods whose gate dragoman.dev/claims is closed, or that cannot be bound (NotBound), by what they wait for",
            metrics.closed.clone(),
        );
        registry.register(
            "dragoman_gates_oldest_seconds",
            "Age of the wait of the oldest of them",
            metrics.oldest.clone(),
        );
        registry.register("dragoman_gates_opened", "Pods whose gate was opened", metrics.released.clone());
        registry.register(
            "dragoman_gates_rejections",
            "Allocations that were refused because the Pod does not fit on their node",
            metrics.rejected.clone(),
        );
        registry.register(
            "dragoman_gates_assumed",
            "Pods that are charged to a node and are not bound yet",
            metrics.assumed.clone(),
        );
        metrics
    }

    /// Brings the gauges up to date at `now`, in milliseconds since the epoch.
    pub(super) fn measure(&self, gates: &ClosedGates, assumed: usize, now: i64) {
        self.assumed.set(i64::try_from(assumed).unwrap_or(i64::MAX));
        let mut by_reason: HashMap<Reason, (i64, i64)> = HashMap::new();
        for Closed { reason, since, .. } in gates.0.values() {
            let (count, oldest) = by_reason.entry(*reason).or_insert((0, *since));
            *count += 1;
            *oldest = (*oldest).min(*since);
        }
        for reason in Reason::ALL {
            let label = vec![("reason", reason.word())];
            let (count, oldest) = by_reason.get(&reason).copied().unwrap_or((0, now));
            self.closed.get_or_create(&label).set(count);
            #[expect(clippy::cast_precision_loss, reason = "an age")]
            self.oldest.get_or_create(&label).set((now - oldest).max(0) as f64 / 1e3);
        }
    }
}
