//! Metrics of the claim lifecycle.
//!
//! In mode own the two families of the built-in controller are served under its
//! 1.37 names (docs/claim-lifecycle.md 5.1), so that existing alerts survive. Every
//! label comes from a fixed set, and every combination of the gauge is always
//! there: a count that falls to nothing says 0.

use std::collections::BTreeMap;

use dragoman_machinery::metrics::{Declare as _, FloatGauge};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::times;
use dragoman_objects::SCHEDULING_GROUP;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::objectives::{GROUP_PENDING, PENDING, UNJUDGED};
use super::plan_claim::ClaimStep;
use super::plan_consumer::Trouble;
use super::second_writer::Stop;
use super::snapshot::ConsumerKind;
use super::state::{SECOND_WRITER, State};
use super::tally::{ClaimClass, SOURCES};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CreateLabels {
    status: &'static str,
    admin_access: &'static str,
    owner_api_group: &'static str,
    owner_api_kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClaimLabels {
    allocated: &'static str,
    admin_access: &'static str,
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The metrics.
#[derive(Clone)]
pub(super) struct LifecycleMetrics {
    creates: Family<CreateLabels, Counter>,
    claims: Family<ClaimLabels, Gauge>,
    steps: Family<StepLabel, Counter>,
    troubles: Family<ReasonLabel, Counter>,
    idle: Gauge,
    idle_oldest: FloatGauge,
    foreign: Gauge,
    second_writer: Gauge,
    waiting: Family<ReasonLabel, Gauge>,
    waiting_oldest: Family<ReasonLabel, FloatGauge>,
    held: Gauge,
    /// Consumers dropped that vanished while they may have been running.
    pub abrupt: Counter,
}

fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// Troubles of templates and of what the API server keeps, beside those of [`Trouble`] and refusals.
const OTHERS: [&str; 2] = ["TemplateUnusable", "FieldsDropped"];

/// Every trouble that an alert may be about.
fn troubles() -> impl Iterator<Item = &'static str> {
    Trouble::WORDS.iter().chain(Refusal::REASONS).copied().chain(OTHERS)
}

impl LifecycleMetrics {
    /// Registers the metrics: the first two under the names of the built-in controller. The index measures the waiting times.
    pub(super) fn register(registry: &mut Registry, state: &State) -> Self {
        let metrics = Self {
            creates: registry.declare(
                "dynamic_resource_allocation_resourceclaim_creates",
                "Attempts to create a ResourceClaim",
            ),
            claims: registry
                .declare("dynamic_resource_allocation_resource_claims", "ResourceClaims by state"),
            steps: registry.declare("dragoman_claim_steps", "Steps taken at the end of claims"),
            troubles: registry.declare("dragoman_claim_troubles", "Things that stood in the way of a claim"),
            idle: registry.declare(
                "dragoman_claims_allocated_unreserved",
                "Claims that are allocated and reserved for no consumer",
            ),
            idle_oldest: registry.declare(
                "dragoman_claims_allocated_unreserved_oldest_seconds",
                "Age of the oldest claim that is allocated and reserved for no consumer",
            ),
            foreign: registry.declare(
                "dragoman_claims_held_by_unknown_consumer",
                "Claims reserved for a kind of consumer that is unknown here",
            ),
            second_writer: registry.declare(
                "dragoman_second_writer",
                "Namespaces in which another process creates claims from templates too",
            ),
            waiting: registry.declare(
                "dragoman_pods_waiting_for_claims",
                "Pods whose status does not name all their claims from templates yet, by what stood \
                 in the way last",
            ),
            waiting_oldest: registry.declare(
                "dragoman_pods_waiting_for_claims_oldest_seconds",
                "Age of the oldest Pod that waits for its claims for this reason",
            ),
            held: registry.declare(
                "dragoman_claims_held_for_vanished_pods",
                "Claims that are held because a node may still hold the devices of a Pod that vanished",
            ),
            abrupt: registry.declare(
                "dragoman_consumers_vanished_running",
                "Consumers dropped that vanished while they may have been running",
            ),
        };
        registry.declare_as(
            "dragoman_pod_claims_published_seconds",
            "Seconds from the creation of a Pod until its status names all its claims from templates, and whether a trouble of its own held it up",
            state.waits.published.0.clone(),
        );
        registry.declare_as(
            "dragoman_claim_release_seconds",
            "Seconds from the end of a consumer until a claim is not reserved for it any more",
            state.ends.released.0.clone(),
        );
        metrics.start_at_zero();
        metrics
    }

    /// The first of each is an increase.
    fn start_at_zero(&self) {
        for step in ClaimStep::WORDS {
            self.steps.get_or_create(&StepLabel { step }).inc_by(0);
        }
        for reason in troubles() {
            self.troubles.get_or_create(&ReasonLabel { reason }).inc_by(0);
        }
    }

    /// Counts an attempt to create a claim.
    pub(super) fn created(&self, success: bool, admin_access: bool, consumer: ConsumerKind) {
        self.creates.get_or_create(&create_labels(success, admin_access, consumer)).inc();
    }

    /// This process leads from now on: every attempt to come is an increase.
    pub(super) fn leads(&self) {
        for consumer in [ConsumerKind::Pod, ConsumerKind::PodGroup] {
            for success in [false, true] {
                for admin_access in [false, true] {
                    self.creates.get_or_create(&create_labels(success, admin_access, consumer)).inc_by(0);
                }
            }
        }
    }

    /// Counts a step.
    pub(super) fn step(&self, step: ClaimStep) {
        self.steps.get_or_create(&StepLabel { step: step.word() }).inc();
    }

    /// Counts something that stood in the way; `reason` is from a fixed set.
    pub(super) fn trouble(&self, reason: &'static str) {
        self.troubles.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Brings the gauges up to date at `now`. Nothing here looks at single objects. The gauge with upstream's name
    /// is that of the leader alone: a sum over all replicas stays right.
    pub(super) fn measure(&self, state: &State, leads: bool, now: Timestamp) {
        if leads {
            self.measure_claims(state);
        } else {
            self.claims.clear();
        }
        let (idle, oldest) = state.tally.idle();
        self.idle.set(i64::try_from(idle).unwrap_or(i64::MAX));
        let age = |since: Timestamp| times::passed(since, now).as_secs_f64();
        self.idle_oldest.set(oldest.map_or(0.0, age));
        self.foreign.set(state.tally.foreign());
        // Passes know it, and a process that does not lead makes none.
        let held = if leads { state.held.len() } else { 0 };
        self.held.set(i64::try_from(held).unwrap_or(i64::MAX));
        let second_writers = match state.witnesses.stop(now) {
            Stop::Namespaces(count) | Stop::Everything(count) => count,
        };
        self.second_writer.set(i64::try_from(second_writers).unwrap_or(i64::MAX));
        self.measure_waits(state, leads, now);
    }

    fn measure_claims(&self, state: &State) {
        for allocated in [false, true] {
            for admin_access in [false, true] {
                for source in SOURCES {
                    let count = state.tally.of(ClaimClass { allocated, admin_access, source });
                    let (allocated, admin_access) = (bool_label(allocated), bool_label(admin_access));
                    self.claims.get_or_create(&ClaimLabels { allocated, admin_access, source }).set(count);
                }
            }
        }
    }

    /// A reason for which no Pod waits any more has none, not the number of before. A process that makes
    /// no passes knows no reasons.
    fn measure_waits(&self, state: &State, leads: bool, now: Timestamp) {
        self.waiting.clear();
        self.waiting_oldest.clear();
        let known = troubles().chain([PENDING, GROUP_PENDING, UNJUDGED, SECOND_WRITER]);
        let mut waits: BTreeMap<&str, (usize, Timestamp)> = known.map(|reason| (reason, (0, now))).collect();
        for (reason, count, since) in state.waits.by_reason() {
            let reason = if leads { reason } else { UNJUDGED };
            let (known, oldest) = waits.entry(reason).or_insert((0, now));
            (*known, *oldest) = (*known + count, (*oldest).min(since));
        }
        for (reason, (count, since)) in waits {
            let label = ReasonLabel { reason };
            self.waiting.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
            self.waiting_oldest.get_or_create(&label).set(times::passed(since, now).as_secs_f64());
        }
    }
}

fn create_labels(success: bool, admin_access: bool, consumer: ConsumerKind) -> CreateLabels {
    let (owner_api_group, owner_api_kind) = match consumer {
        ConsumerKind::Pod => ("", "Pod"),
        ConsumerKind::PodGroup => (SCHEDULING_GROUP, "PodGroup"),
    };
    CreateLabels {
        status: if success { "success" } else { "failure" },
        admin_access: bool_label(admin_access),
        owner_api_group,
        owner_api_kind,
    }
}
