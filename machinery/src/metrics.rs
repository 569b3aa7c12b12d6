//! The metrics of the machinery, under the names that dashboards already know.
//!
//! Labels are taken from fixed sets only (verbs, codes, reasons, kinds): the
//! number of series does not grow with the cluster.

mod client;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

pub use self::client::ClientMetrics;

use crate::watch::Failure;

/// Registration of a metric in the place where it is declared.
pub trait Declare {
    /// A new metric under this name, registered; `help` says what it counts, with its unit.
    fn declare<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.declare_as(name, help, M::default())
    }

    /// The same with a metric that cannot be made from nothing, such as a histogram with its buckets.
    fn declare_as<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M;
}

impl Declare for Registry {
    fn declare_as<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.register(name, help, metric.clone());
        metric
    }
}

/// A gauge of seconds or other fractions.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// 1 ms to 65 s in powers of two.
fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    controller: &'static str,
    kind: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindReason {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    verb: &'static str,
    outcome: &'static str,
}

/// The families that every controller has a share in. Registered once in a process: a family that
/// is registered twice is printed twice, which `OpenMetrics` forbids.
#[derive(Clone)]
pub struct ControllerFamilies {
    depth: Family<NameLabel, Gauge>,
    adds: Family<NameLabel, Counter>,
    queue_duration: Family<NameLabel, Histogram, fn() -> Histogram>,
    work_duration: Family<NameLabel, Histogram, fn() -> Histogram>,
    unfinished: Family<NameLabel, FloatGauge>,
    longest_running: Family<NameLabel, FloatGauge>,
    retries: Family<NameLabel, Counter>,
    failing: Family<NameLabel, Gauge>,
    failing_oldest: Family<NameLabel, FloatGauge>,
    reconciles: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabel, Counter>,
    time: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    active: Family<ControllerLabel, Gauge>,
    most: Family<ControllerLabel, Gauge>,
    stale_skips: Family<ControllerLabel, Counter>,
    stale_overdue: Family<ControllerLabel, Counter>,
    objects: Family<ObjectLabels, Gauge>,
}

impl ControllerFamilies {
    /// Registers the families.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            depth: registry.declare("workqueue_depth", "Keys waiting"),
            adds: registry.declare("workqueue_adds", "Keys added"),
            queue_duration: registry.declare_as(
                "workqueue_queue_duration_seconds",
                "Seconds a key waits",
                Family::new_with_constructor(latency),
            ),
            work_duration: registry.declare_as(
                "workqueue_work_duration_seconds",
                "Seconds a key is in work",
                Family::new_with_constructor(latency),
            ),
            unfinished: registry.declare("workqueue_unfinished_work_seconds", "Seconds of work in progress"),
            longest_running: registry
                .declare("workqueue_longest_running_processor_seconds", "Seconds of the longest running key"),
            retries: registry.declare("workqueue_retries", "Keys put back with backoff"),
            failing: registry.declare("dragoman_keys_failing", "Keys whose last reconciliation failed"),
            failing_oldest: registry.declare(
                "dragoman_keys_failing_oldest_seconds",
                "Seconds since the first failure of the key that has failed longest",
            ),
            reconciles: registry.declare("controller_runtime_reconcile", "Reconciliations by result"),
            errors: registry.declare("controller_runtime_reconcile_errors", "Reconciliations that failed"),
            time: registry.declare_as(
                "controller_runtime_reconcile_time_seconds",
                "Seconds per reconciliation",
                Family::new_with_constructor(latency),
            ),
            active: registry.declare("controller_runtime_active_workers", "Keys in work"),
            most: registry
                .declare("controller_runtime_max_concurrent_reconciles", "Keys that may be in work at once"),
            stale_skips: registry.declare(
                "dragoman_stale_skips",
                "Reconciliations put off until the index holds our own write",
            ),
            stale_overdue: registry
                .declare("dragoman_stale_overdue", "Waits for the index given up after a minute"),
            objects: registry
                .declare("dragoman_objects", "Objects in the index of a controller by kind and state"),
        }
    }

    /// The share of `controller`, whose queue dashboards know as `queue` and which runs up to
    /// `workers` keys at once.
    pub fn of(&self, controller: &'static str, queue: &'static str, workers: usize) -> ControllerMetrics {
        let label = ControllerLabel { controller };
        self.most.get_or_create(&label).set(i64::try_from(workers).unwrap_or(i64::MAX));
        for result in ["success", "error", "requeue", "requeue_after"] {
            self.reconciles.get_or_create(&ResultLabels { controller, result }).inc_by(0);
        }
        let name = NameLabel { name: queue };
        ControllerMetrics {
            controller,
            queue: QueueMetrics {
                depth: self.depth.get_or_create_owned(&name),
                adds: self.adds.get_or_create_owned(&name),
                queue_duration: self.queue_duration.get_or_create_owned(&name),
                work_duration: self.work_duration.get_or_create_owned(&name),
                unfinished: self.unfinished.get_or_create_owned(&name),
                longest_running: self.longest_running.get_or_create_owned(&name),
                retries: self.retries.get_or_create_owned(&name),
                failing: self.failing.get_or_create_owned(&name),
                failing_oldest: self.failing_oldest.get_or_create_owned(&name),
            },
            errors: self.errors.get_or_create_owned(&label),
            time: self.time.get_or_create_owned(&label),
            active: self.active.get_or_create_owned(&label),
            stale_skips: self.stale_skips.get_or_create_owned(&label),
            stale_overdue: self.stale_overdue.get_or_create_owned(&label),
            reconciles: self.reconciles.clone(),
            objects: self.objects.clone(),
        }
    }
}

/// A work queue: `workqueue_*` with its label.
#[derive(Clone)]
pub struct QueueMetrics {
    /// Keys ready to be worked on.
    pub depth: Gauge,
    /// Keys added, duplicates of waiting ones not counted.
    pub adds: Counter,
    /// Seconds a key waited.
    pub queue_duration: Histogram,
    /// Seconds a key was worked on.
    pub work_duration: Histogram,
    /// Seconds of work in progress, summed over the keys in work.
    pub unfinished: FloatGauge,
    /// Seconds the longest running key has been in work.
    pub longest_running: FloatGauge,
    /// Keys put back with backoff.
    pub retries: Counter,
    /// Keys whose last reconciliation failed.
    pub failing: Gauge,
    /// Seconds since the first failure of the key that has failed longest.
    pub failing_oldest: FloatGauge,
}

/// The metrics of one controller.
#[derive(Clone)]
pub struct ControllerMetrics {
    controller: &'static str,
    /// Metrics of the controller's queue.
    pub queue: QueueMetrics,
    reconciles: Family<ResultLabels, Counter>,
    errors: Counter,
    time: Histogram,
    active: Gauge,
    /// Reconciliations put off because the index had not caught up with a write.
    pub stale_skips: Counter,
    /// Waits for the index that were given up.
    pub stale_overdue: Counter,
    objects: Family<ObjectLabels, Gauge>,
}

impl ControllerMetrics {
    /// The name of the controller.
    pub fn controller(&self) -> &'static str {
        self.controller
    }

    /// A key is taken into work.
    pub fn begin(&self) {
        self.active.inc();
    }

    /// A key is done; `result` is one of controller-runtime's words.
    pub fn end(&self, result: &'static str, took: Duration) {
        self.active.dec();
        self.reconciles.get_or_create(&ResultLabels { controller: self.controller, result }).inc();
        if result == "error" {
            self.errors.inc();
        }
        self.time.observe(took.as_secs_f64());
    }

    /// Sets how many objects of `kind` the index has, and how many of them do not decode.
    pub fn objects(&self, kind: &'static str, count: usize, unreadable: usize) {
        let controller = self.controller;
        for (state, count) in [("readable", count.saturating_sub(unreadable)), ("unreadable", unreadable)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.objects.get_or_create(&ObjectLabels { controller, kind, state }).set(count);
        }
    }
}

/// The outcomes of writes that an alert may be about, as [`crate::refusal::Refusal::reason`] spells
/// them.
const OUTCOMES: [&str; 9] = [
    "Done",
    "Conflict",
    "OwnedByAnother",
    "QuotaExceeded",
    "Forbidden",
    "Invalid",
    "Throttled",
    "Transient",
    "Undecodable",
];

/// Watches, writes, lease and events: `dragoman_*`.
#[derive(Clone, Default)]
pub struct MachineryMetrics {
    watch_events: Family<KindLabel, Counter>,
    watch_failures: Family<KindReason, Counter>,
    watch_progress: Family<KindLabel, FloatGauge>,
    served: Family<KindLabel, Gauge>,
    relists: Family<KindLabel, Counter>,
    writes: Family<WriteLabels, Counter>,
    live_gets: Family<KindLabel, Counter>,
    leader: Family<NameLabel, Gauge>,
    lease_transitions: Family<NameLabel, Gauge>,
    /// Seconds since this process renewed the Lease; 0 while it does not lead.
    pub lease_age: FloatGauge,
    /// Leases of our name that are renewed in other namespaces, as far as a leader sees.
    pub leaders_elsewhere: Gauge,
    /// Events accepted for sending.
    pub events_sent: Counter,
    /// Events dropped by a bucket or a full channel.
    pub events_dropped: Counter,
}

impl MachineryMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            watch_events: registry.declare("dragoman_watch_events", "Watch events received"),
            watch_failures: registry
                .declare("dragoman_watch_failures", "Watches or lists that ended in an error"),
            watch_progress: registry.declare(
                "dragoman_watch_last_progress_seconds",
                "Seconds since something came from a watch: a page, an event, a bookmark or an orderly end",
            ),
            served: registry.declare(
                "dragoman_kind_served",
                "Whether the API server serves a kind that is watched, 1 or 0",
            ),
            relists: registry.declare("dragoman_relists", "Complete lists begun"),
            writes: registry.declare("dragoman_writes", "Writes to the API by outcome"),
            live_gets: registry
                .declare("dragoman_live_gets", "Live reads made to prove an absence or before a write"),
            leader: registry.declare("leader_election_master_status", "1 while this process holds the lease"),
            lease_transitions: registry.declare(
                "dragoman_lease_transitions",
                "Changes of its holder that the Lease counts, as this process read it last",
            ),
            lease_age: registry.declare(
                "dragoman_lease_age_seconds",
                "Seconds since this process renewed the Lease; 0 while it does not lead",
            ),
            leaders_elsewhere: registry.declare(
                "dragoman_leaders_elsewhere",
                "Leases of the same name that are renewed in other namespaces, as the leader sees them",
            ),
            events_sent: registry.declare("dragoman_events_sent", "Events sent to the API server"),
            events_dropped: registry
                .declare("dragoman_events_dropped", "Events dropped to spare the API server"),
        }
    }

    /// A watch of `kind` is to be opened: what is counted about it starts at 0, or the first failure
    /// would be no increase.
    pub fn watched(&self, kind: &'static str) {
        self.watch_events.get_or_create(&KindLabel { kind }).inc_by(0);
        self.relists.get_or_create(&KindLabel { kind }).inc_by(0);
        for reason in Failure::REASONS {
            self.watch_failures.get_or_create(&KindReason { kind, reason }).inc_by(0);
        }
    }

    /// Counts a watch event.
    pub fn watch_event(&self, kind: &'static str) {
        self.watch_events.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a failed list or watch.
    pub fn watch_failure(&self, kind: &'static str, reason: &'static str) {
        self.watch_failures.get_or_create(&KindReason { kind, reason }).inc();
    }

    /// Sets how long ago something came from the watch of a kind.
    pub fn watch_progress(&self, kind: &'static str, age: Duration) {
        self.watch_progress.get_or_create(&KindLabel { kind }).set(age.as_secs_f64());
    }

    /// Sets whether the API server serves a kind.
    pub fn served(&self, kind: &'static str, is_served: bool) {
        self.served.get_or_create(&KindLabel { kind }).set(i64::from(is_served));
    }

    /// Counts the begin of a complete list.
    pub fn relist(&self, kind: &'static str) {
        self.relists.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a write. With the first of a kind and verb the other outcomes start at 0.
    pub fn write(&self, kind: &'static str, verb: &'static str, outcome: &'static str) {
        let begun = self.writes.get(&WriteLabels { kind, verb, outcome: "Done" }).is_some();
        for outcome in OUTCOMES.into_iter().filter(|_| !begun) {
            self.writes.get_or_create(&WriteLabels { kind, verb, outcome }).inc_by(0);
        }
        self.writes.get_or_create(&WriteLabels { kind, verb, outcome }).inc();
    }

    /// Counts a live read.
    pub fn live_get(&self, kind: &'static str) {
        self.live_gets.get_or_create(&KindLabel { kind }).inc();
    }

    /// Sets how often the holder of the Lease called `name` has changed.
    pub fn transitions(&self, name: &'static str, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.lease_transitions.get_or_create(&NameLabel { name }).set(count);
    }

    /// Says whether this process holds the lease called `name`.
    pub fn leading(&self, name: &'static str, leads: bool) {
        self.leader.get_or_create(&NameLabel { name }).set(i64::from(leads));
    }
}

#[cfg(test)]
mod tests;
