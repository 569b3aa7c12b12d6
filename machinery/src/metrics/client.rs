//! The metrics of requests to the API server, under the names of client-go.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Declare as _, latency};

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

/// Requests to the API server: `rest_client_*`.
#[derive(Clone)]
pub struct ClientMetrics {
    host: Arc<str>,
    requests: Family<RequestLabels, Counter>,
    duration: Family<VerbLabels, Histogram, fn() -> Histogram>,
    repeated: Family<VerbLabels, Counter>,
    pauses: Counter,
    waits: Histogram,
}

impl ClientMetrics {
    /// Registers the metrics; `host` is the label client-go also sets.
    pub fn register(registry: &mut Registry, host: &str) -> Self {
        let metrics = Self {
            host: host.into(),
            requests: registry.declare(
                "rest_client_requests",
                "Attempts of requests by status code, method and host; code 0 is no answer",
            ),
            duration: registry.declare_as(
                "rest_client_request_duration_seconds",
                "Seconds from sending an attempt to its answer",
                Family::new_with_constructor(latency),
            ),
            repeated: registry
                .declare("dragoman_client_repetitions", "Attempts repeated after a transient failure"),
            pauses: registry.declare(
                "dragoman_client_pauses",
                "Times the API server asked the whole client to wait (429)",
            ),
            waits: registry.declare_as(
                "dragoman_client_wait_seconds",
                "Seconds an attempt waited for a free request slot, and for the end of a pause",
                latency(),
            ),
        };
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            metrics.repeated.get_or_create(&metrics.verb(&method)).inc_by(0);
        }
        metrics
    }

    /// Counts one attempt; `code` is absent where there was no answer.
    pub fn attempt(&self, method: &Method, code: Option<u16>, took: Duration) {
        self.answered(method, code);
        self.duration.get_or_create(&self.verb(method)).observe(took.as_secs_f64());
    }

    /// Counts the answer to a request that lasts for as long as its watch or list does; `code` is
    /// absent where there was none.
    pub fn answered(&self, method: &Method, code: Option<u16>) {
        let host = self.host.to_string();
        let code = code.unwrap_or(0).to_string();
        self.requests.get_or_create(&RequestLabels { code, method: method.to_string(), host }).inc();
    }

    /// An attempt had to wait for so long before it was sent.
    pub fn waited(&self, wait: Duration) {
        self.waits.observe(wait.as_secs_f64());
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
