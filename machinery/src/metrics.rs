//! The metrics of the machinery, under the names that dashboards already know.
//!
//! Labels are taken from fixed sets only (verbs, codes, reasons, kinds): the
//! number of series does not grow with the cluster.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// A gauge of seconds or other fractions.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// 1 ms to 65 s in powers of two.
fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: String,
    host: String,
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

/// Requests to the API server: `rest_client_*`.
#[derive(Clone)]
pub struct ClientMetrics {
    host: Arc<str>,
    requests: Family<RequestLabels, Counter>,
    duration: Family<VerbLabels, Histogram, fn() -> Histogram>,
    repeated: Family<VerbLabels, Counter>,
    pauses: Counter,
}

impl ClientMetrics {
    /// Registers the metrics; `host` is the label client-go also sets.
    pub fn register(registry: &mut Registry, host: &str) -> Self {
        let metrics = Self {
            host: host.into(),
            requests: Family::default(),
            duration: Family::new_with_constructor(latency),
            repeated: Family::default(),
            pauses: Counter::default(),
        };
        registry.register(
            "rest_client_requests",
            "Attempts of requests by status code, method and host; code 0 is no answer",
            metrics.requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Seconds from sending an attempt to its answer",
            metrics.duration.clone(),
        );
        registry.register(
            "dragoman_client_repetitions",
            "Attempts repeated after a transient failure",
            metrics.repeated.clone(),
        );
        registry.register(
            "dragoman_client_pauses",
            "Times the API server asked the whole client to wait (429)",
            metrics.pauses.clone(),
        );
        metrics
    }

    /// Counts one attempt; `code` is absent where there was no answer.
    pub fn attempt(&self, method: &Method, code: Option<u16>, took: Duration) {
        let host = self.host.to_string();
        let code = code.unwrap_or(0).to_string();
        self.requests.get_or_create(&RequestLabels { code, method: method.to_string(), host }).inc();
        self.duration.get_or_create(&self.verb(method)).observe(took.as_secs_f64());
    }

    /// Counts a repetition.
    pub fn repeated(&self, method: &Method) {
        self.repeated.get_or_create(&self.verb(method)).inc();
    }

    /// Counts an ordered pause.
    pub fn paused(&self) {
        self.pauses.inc();
    }

    fn verb(&self, method: &Method) -> VerbLabels {
        VerbLabels { verb: method.to_string(), host: self.host.to_string() }
    }
}

/// A work queue: `workqueue_*`.
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
}

impl QueueMetrics {
    /// Registers the metrics of the queue called `name`.
    pub fn register(registry: &mut Registry, name: &'static str) -> Self {
        let metrics = Self {
            depth: Gauge::default(),
            adds: Counter::default(),
            queue_duration: latency(),
            work_duration: latency(),
            unfinished: FloatGauge::default(),
            longest_running: FloatGauge::default(),
            retries: Counter::default(),
        };
        let queue = registry.sub_registry_with_labels([("name".into(), name.into())].into_iter());
        queue.register("workqueue_depth", "Keys waiting", metrics.depth.clone());
        queue.register("workqueue_adds", "Keys added", metrics.adds.clone());
        queue.register(
            "workqueue_queue_duration_seconds",
            "Seconds a key waits",
            metrics.queue_duration.clone(),
        );
        queue.register(
            "workqueue_work_duration_seconds",
            "Seconds a key is in work",
            metrics.work_duration.clone(),
        );
        queue.register(
            "workqueue_unfinished_work_seconds",
            "Seconds of work in progress",
            metrics.unfinished.clone(),
        );
        queue.register(
            "workqueue_longest_running_processor_seconds",
            "Seconds of the longest running key",
            metrics.longest_running.clone(),
        );
        queue.register("workqueue_retries", "Keys put back with backoff", metrics.retries.clone());
        metrics
    }
}

/// A controller: `controller_runtime_*`.
#[derive(Clone)]
pub struct ControllerMetrics {
    controller: &'static str,
    reconciles: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabel, Counter>,
    time: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    active: Family<ControllerLabel, Gauge>,
}

impl ControllerMetrics {
    /// Registers the metrics of `controller`, which runs up to `workers` keys at once.
    pub fn register(registry: &mut Registry, controller: &'static str, workers: usize) -> Self {
        let metrics = Self {
            controller,
            reconciles: Family::default(),
            errors: Family::default(),
            time: Family::new_with_constructor(latency),
            active: Family::default(),
        };
        let most = Family::<ControllerLabel, Gauge>::default();
        most.get_or_create(&ControllerLabel { controller }).set(i64::try_from(workers).unwrap_or(i64::MAX));
        registry.register(
            "controller_runtime_reconcile",
            "Reconciliations by result",
            metrics.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Reconciliations that failed",
            metrics.errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Seconds per reconciliation",
            metrics.time.clone(),
        );
        registry.register("controller_runtime_active_workers", "Keys in work", metrics.active.clone());
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "Keys that may be in work at once",
            most,
        );
        for result in ["success", "error", "requeue", "requeue_after"] {
            metrics.reconciles.get_or_create(&ResultLabels { controller, result }).inc_by(0);
        }
        metrics.errors.get_or_create(&ControllerLabel { controller }).inc_by(0);
        metrics
    }

    /// The name of the controller.
    pub fn controller(&self) -> &'static str {
        self.controller
    }

    /// A key is taken into work.
    pub fn begin(&self) {
        self.active.get_or_create(&self.label()).inc();
    }

    /// A key is done; `result` is one of controller-runtime's words.
    pub fn end(&self, result: &'static str, took: Duration) {
        let controller = self.controller;
        self.active.get_or_create(&self.label()).dec();
        self.reconciles.get_or_create(&ResultLabels { controller, result }).inc();
        if result == "error" {
            self.errors.get_or_create(&self.label()).inc();
        }
        self.time.get_or_create(&self.label()).observe(took.as_secs_f64());
    }

    fn label(&self) -> ControllerLabel {
        ControllerLabel { controller: self.controller }
    }
}

/// Watches, writes, lease and events: `dragoman_*`.
#[derive(Clone, Default)]
pub struct MachineryMetrics {
    watch_events: Family<KindLabel, Counter>,
    watch_failures: Family<KindReason, Counter>,
    relists: Family<KindLabel, Counter>,
    writes: Family<WriteLabels, Counter>,
    live_gets: Family<KindLabel, Counter>,
    leader: Family<NameLabel, Gauge>,
    /// Events accepted for sending.
    pub events_sent: Counter,
    /// Events dropped by a bucket or a full channel.
    pub events_dropped: Counter,
}

impl MachineryMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("dragoman_watch_events", "Watch events received", metrics.watch_events.clone());
        registry.register(
            "dragoman_watch_failures",
            "Watches or lists that ended in an error",
            metrics.watch_failures.clone(),
        );
        registry.register("dragoman_relists", "Complete lists begun", metrics.relists.clone());
        registry.register("dragoman_writes", "Writes to the API by outcome", metrics.writes.clone());
        registry.register(
            "dragoman_live_gets",
            "Live reads made to prove an absence or before a write",
            metrics.live_gets.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 while this process holds the lease",
            metrics.leader.clone(),
        );
        registry.register(
            "dragoman_events_sent",
            "Events sent to the API server",
            metrics.events_sent.clone(),
        );
        registry.register(
            "dragoman_events_dropped",
            "Events dropped to spare the API server",
            metrics.events_dropped.clone(),
        );
        metrics
    }

    /// Counts a watch event.
    pub fn watch_event(&self, kind: &'static str) {
        self.watch_events.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a failed list or watch.
    pub fn watch_failure(&self, kind: &'static str, reason: &'static str) {
        self.watch_failures.get_or_create(&KindReason { kind, reason }).inc();
    }

    /// Counts the begin of a complete list.
    pub fn relist(&self, kind: &'static str) {
        self.relists.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a write.
    pub fn write(&self, kind: &'static str, verb: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind, verb, outcome }).inc();
    }

    /// Counts a live read.
    pub fn live_get(&self, kind: &'static str) {
        self.live_gets.get_or_create(&KindLabel { kind }).inc();
    }

    /// Says whether this process holds the lease called `name`.
    pub fn leading(&self, name: &'static str, leads: bool) {
        self.leader.get_or_create(&NameLabel { name }).set(i64::from(leads));
    }
}
