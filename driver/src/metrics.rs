//! Metrics of a driver.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// From a file on a fast disk to a device that starts slowly, in seconds.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    call: &'static str,
    status: &'static str,
}

/// The metrics.
#[derive(Clone)]
pub(crate) struct Metrics {
    calls: Family<Call, Histogram, fn() -> Histogram>,
    pub(crate) prepared: Gauge,
    pub(crate) devices: Gauge,
    pub(crate) registered: Gauge,
    pub(crate) slice_writes: Counter,
    pub(crate) slice_failures: Counter,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let new = (|| Histogram::new(BUCKETS)) as fn() -> Histogram;
        let metrics = Self {
            calls: Family::new_with_constructor(new),
            prepared: Gauge::default(),
            devices: Gauge::default(),
            registered: Gauge::default(),
            slice_writes: Counter::default(),
            slice_failures: Counter::default(),
        };
        for call in ["prepare", "unprepare"] {
            for status in ["success", "failure"] {
                drop(metrics.calls.get_or_create(&Call { call, status }));
            }
        }
        let m = &metrics;
        let mut register = |name: &str, help: &str, metric: Gauge| registry.register(name, help, metric);
        register("dra_driver_prepared_claims", "Claims that are prepared", m.prepared.clone());
        register("dra_driver_published_devices", "Devices that are to be published", m.devices.clone());
        register("dra_driver_registered", "Whether kubelet knows the driver", m.registered.clone());
        registry.register(
            "dra_driver_call_seconds",
            "Seconds until a claim was prepared or unprepared for kubelet",
            m.calls.clone(),
        );
        registry.register("dra_driver_slice_writes", "Writes of ResourceSlices", m.slice_writes.clone());
        registry.register(
            "dra_driver_slice_failures",
            "Times that ResourceSlices could not be brought up to date",
            m.slice_failures.clone(),
        );
        metrics
    }

    pub(crate) fn called(&self, call: &'static str, is_success: bool, took: Duration) {
        let status = if is_success { "success" } else { "failure" };
        self.calls.get_or_create(&Call { call, status }).observe(took.as_secs_f64());
    }
}
