//! The metrics: decisions, Pods that wait, and what is not given.

use dragoman_machinery::kind::Kind;
use dragoman_machinery::metrics::Declare as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics.
pub(super) struct AllocationMetrics {
    outcomes: Family<Vec<(&'static str, &'static str)>, Counter>,
    waiting: Gauge,
    ignored: Gauge,
    undecidable: Family<Vec<(&'static str, &'static str)>, Gauge>,
}

/// Outcome of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecisionOutcome {
    /// The devices were written.
    Allocated,
    /// No node takes the Pod.
    Refused,
    /// The devices were given back.
    GivenBack,
}

dragoman_machinery::words! {
    DecisionOutcome, WORDS, word;
    Self::Allocated => "allocated",
    Self::Refused => "refused",
    Self::GivenBack => "given_back",
}

impl AllocationMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            outcomes: registry
                .declare("dragoman_allocator_decisions", "Decisions about gated Pods, by outcome"),
            waiting: registry.declare("dragoman_allocator_waiting_pods", "Gated Pods that no node takes now"),
            ignored: registry.declare(
                "dragoman_allocator_ignored_slices",
                "ResourceSlices with devices of another node, of which no device is given",
            ),
            undecidable: registry.declare(
                "dragoman_allocator_undecidable_objects",
                "ResourceSlices, DeviceClasses, DeviceTaintRules and allocations of ResourceClaims of which \
                 a part is not understood, by kind: no device that it concerns is given",
            ),
        };
        for outcome in DecisionOutcome::WORDS {
            metrics.outcomes.get_or_create(&vec![("outcome", *outcome)]).inc_by(0);
        }
        metrics
    }

    /// Counts a decision about a Pod.
    pub(super) fn decided(&self, outcome: DecisionOutcome) {
        self.outcomes.get_or_create(&vec![("outcome", outcome.word())]).inc();
    }

    /// Sets the Pods that no node takes now, and the slices of which no device is given.
    pub(super) fn measure(&self, waiting: usize, ignored: usize) {
        for (gauge, count) in [(&self.waiting, waiting), (&self.ignored, ignored)] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Sets how many objects of a kind are not understood.
    pub(super) fn undecidable(&self, kind: Kind, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.undecidable.get_or_create(&vec![("kind", kind.kind)]).set(count);
    }
}
