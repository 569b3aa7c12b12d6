//! Counts of claims for metrics, kept in step with every change: a scrape looks at no claim.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::facts::{ClaimFacts, ReferenceKind};
use super::index::ClaimRecord;

/// The claims that count as one kind in the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimClass {
    /// Whether it is allocated.
    pub allocated: bool,
    /// Whether it asks for admin access.
    pub admin_access: bool,
    /// Source of the claim, in the words of upstream's metric.
    pub source: &'static str,
}

/// Every source, in the words of upstream's metric.
pub(super) const SOURCES: [&str; 3] = ["", "resource_claim_template", "extended_resource"];

impl From<&ClaimFacts> for ClaimClass {
    fn from(claim: &ClaimFacts) -> Self {
        let source = match (claim.extended, &claim.entry) {
            (true, _) => "extended_resource",
            (false, Some(_)) => "resource_claim_template",
            (false, None) => "",
        };
        Self { allocated: claim.allocated, admin_access: claim.admin_access, source }
    }
}

/// The counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClaimTally {
    classes: HashMap<ClaimClass, i64>,
    /// Claims that are allocated and unreserved, by the time at which that was seen.
    idle: BTreeSet<(Timestamp, Arc<str>, Arc<str>)>,
    foreign: i64,
}

impl ClaimTally {
    /// A claim appeared, changed or is gone; one that does not decode counts as nothing.
    pub fn changed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&ClaimRecord>,
        new: Option<&ClaimRecord>,
    ) {
        for (record, by) in [(old, -1), (new, 1)] {
            let Some(record) = record else { continue };
            let class = ClaimClass::from(&record.facts);
            let count = self.classes.entry(class).or_default();
            *count += by;
            if *count == 0 {
                self.classes.remove(&class);
            }
            self.foreign += by * i64::from(is_held_by_foreign(&record.facts));
            if let Some(since) = record.idle_since {
                let place = (since, Arc::clone(namespace), Arc::clone(name));
                let _ = if by > 0 { self.idle.insert(place) } else { self.idle.remove(&place) };
            }
        }
    }

    /// The number of claims of a class.
    pub fn of(&self, class: ClaimClass) -> i64 {
        self.classes.get(&class).copied().unwrap_or_default()
    }

    /// The number of claims that are allocated and unreserved, and since when the oldest is.
    pub fn idle(&self) -> (usize, Option<Timestamp>) {
        (self.idle.len(), self.idle.first().map(|(since, _, _)| *since))
    }

    /// The number of claims that are reserved for a kind of consumer that is unknown here.
    pub fn foreign(&self) -> i64 {
        self.foreign
    }
}

fn is_held_by_foreign(claim: &ClaimFacts) -> bool {
    claim.reserved.iter().any(|consumer| ReferenceKind::of(consumer) == ReferenceKind::Foreign)
}
