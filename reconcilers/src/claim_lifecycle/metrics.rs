//! Metrics of the claim lifecycle.
//!
//! In mode own the two families of the built-in controller are served under its
//! 1.37 names (docs/claim-lifecycle.md 5.1), so that existing alerts survive. Every
//! label comes from a fixed set, and every combination of the gauge is always
//! there: a count that falls to nothing says 0.

use std::collections::HashMap;

use dragoman_machinery::metrics::FloatGauge;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::facts::{ClaimFacts, ReferenceKind, SCHEDULING_GROUP};
use super::plan_claim::ClaimStep;
use super::second_writer::Stop;
use super::snapshot::ConsumerKind;
use super::state::State;

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
#[derive(Clone, Default)]
pub(super) struct LifecycleMetrics {
    creates: Family<CreateLabels, Counter>,
    claims: Family<ClaimLabels, Gauge>,
    steps: Family<StepLabel, Counter>,
    troubles: Family<ReasonLabel, Counter>,
    idle: Gauge,
    idle_oldest: FloatGauge,
    foreign: Gauge,
    second_writer: Gauge,
    /// Consumers dropped that vanished while they may have been running.
    pub abrupt: Counter,
}

fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

const SOURCES: [&str; 3] = ["", "resource_claim_template", "extended_resource"];

fn source(claim: &ClaimFacts) -> &'static str {
    match (claim.extended, &claim.entry) {
        (true, _) => "extended_resource",
        (false, Some(_)) => "resource_claim_template",
        (false, None) => "",
    }
}

impl LifecycleMetrics {
    /// Registers the metrics.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register(
            "dynamic_resource_allocation_resourceclaim_creates",
            "Attempts to create a ResourceClaim",
            m.creates.clone(),
        );
        registry.register(
            "dynamic_resource_allocation_resource_claims",
            "ResourceClaims by state",
            m.claims.clone(),
        );
        registry.register("dragoman_claim_steps", "Steps taken at the end of claims", m.steps.clone());
        registry.register(
            "dragoman_claim_troubles",
            "Things that stood in the way of a claim",
            m.troubles.clone(),
        );
        registry.register(
            "dragoman_claims_allocated_unreserved",
            "Claims that are allocated and reserved for nobody",
            m.idle.clone(),
        );
        registry.register(
            "dragoman_claims_allocated_unreserved_oldest_seconds",
            "Age of the oldest claim that is allocated and reserved for nobody",
            m.idle_oldest.clone(),
        );
        registry.register(
            "dragoman_claims_held_by_unknown_consumer",
            "Claims reserved for a kind of consumer that is unknown here",
            m.foreign.clone(),
        );
        registry.register(
            "dragoman_second_writer",
            "Namespaces in which another process creates claims from templates too",
            m.second_writer.clone(),
        );
        registry.register(
            "dragoman_consumers_vanished_running",
            "Consumers dropped that vanished while they may have been running",
            m.abrupt.clone(),
        );
        m
    }

    /// Counts an attempt to create a claim.
    pub(super) fn created(&self, success: bool, admin_access: bool, consumer: ConsumerKind) {
        let (owner_api_group, owner_api_kind) = match consumer {
            ConsumerKind::Pod => ("", "Pod"),
            ConsumerKind::PodGroup => (SCHEDULING_GROUP, "PodGroup"),
        };
        let labels = CreateLabels {
            status: if success { "success" } else { "failure" },
            admin_access: bool_label(admin_access),
            owner_api_group,
            owner_api_kind,
        };
        self.creates.get_or_create(&labels).inc();
    }

    /// Counts a step.
    pub(super) fn step(&self, step: ClaimStep) {
        let step = match step {
            ClaimStep::Unreserve => "unreserve",
            ClaimStep::Release => "release",
            ClaimStep::Deallocate => "deallocate",
            ClaimStep::Unprotect => "unprotect",
            ClaimStep::Delete => "delete",
        };
        self.steps.get_or_create(&StepLabel { step }).inc();
    }

    /// Counts something that stood in the way; `reason` is from a fixed set.
    pub(super) fn trouble(&self, reason: &'static str) {
        self.troubles.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Computes the gauges from the state; `now` in seconds since the epoch.
    pub(super) fn measure(&self, state: &State, now: i64) {
        let mut counts = HashMap::new();
        let (mut idle, mut oldest, mut foreign) = (0, None::<i64>, 0);
        for record in state.index.claims.iter().filter_map(|(_, _, record)| record.readable()) {
            let facts = &record.facts;
            *counts.entry((facts.allocated, facts.admin_access, source(facts))).or_insert(0) += 1;
            if let Some(since) = record.idle_since {
                idle += 1;
                oldest = Some(oldest.map_or(since, |o| o.min(since)));
            }
            foreign +=
                i64::from(facts.reserved.iter().any(|c| ReferenceKind::of(c) == ReferenceKind::Foreign));
        }
        for allocated in [false, true] {
            for admin_access in [false, true] {
                for source in SOURCES {
                    let count = counts.get(&(allocated, admin_access, source)).copied().unwrap_or(0);
                    let (allocated, admin_access) = (bool_label(allocated), bool_label(admin_access));
                    self.claims.get_or_create(&ClaimLabels { allocated, admin_access, source }).set(count);
                }
            }
        }
        self.idle.set(idle);
        #[expect(clippy::cast_precision_loss, reason = "an age in seconds")]
        self.idle_oldest.set(oldest.map_or(0.0, |since| (now - since).max(0) as f64));
        self.foreign.set(foreign);
        let second_writers = match state.witnesses.stop(now) {
            Stop::Namespaces(count) | Stop::Everything(count) => count,
        };
        self.second_writer.set(i64::try_from(second_writers).unwrap_or(i64::MAX));
    }
}
