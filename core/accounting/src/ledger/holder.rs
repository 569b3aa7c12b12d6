//! The amounts of a holder: a Pod that requests on its node what claims take there, so that a
//! kube-scheduler without KEP-5517 leaves that room free (docs/accounting.md 5).

use std::collections::BTreeSet;

use super::{NodeLedger, Stage};
use crate::claim::contribution::Generation;
use crate::object::ObjectRef;
use crate::per_resource::{Sums, Units};
use crate::resource::Resource;

/// The amounts that kube-scheduler counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// The specs of Pods; nothing of claims.
    Unaware,
    /// The specs of Pods, and the status about claims in the generation that the scheduler reads
    /// (KEP-5517 switched on).
    Aware(Generation),
}

/// The amounts that a holder has to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// The request of the holder: cpu and memory, which can be resized in place.
    pub request: Units,
    /// Hidden amounts that a holder cannot hold: huge pages and ephemeral storage cannot be
    /// resized.
    pub uncovered: Units,
    /// Amounts that the status of Pods tells a scheduler that reads it, by Pod. They are in `request` for a
    /// scheduler that does not read the status, and not for one that does.
    pub published: Vec<(ObjectRef, Generation, Units)>,
    /// Resources with facts that could not be read. The amounts of these facts are missing above.
    pub unknown: BTreeSet<Resource>,
}

impl NodeLedger {
    /// Returns all charges less what the scheduler sees, never below zero. All charges include what the
    /// claims of assumed Pods take, and reservations; the scheduler counts the spec of an assumed Pod
    /// itself when it binds the Pod, and one that counts claims also what slices say of them. Holders are left out on
    /// both sides.
    pub fn holder(&self, scheduler: Scheduler) -> Holder {
        let mut seen = Sums::default();
        let mut holder = Holder::default();
        for pod in self.pods.values().filter(|pod| pod.stage != Stage::Holder) {
            seen.add(&pod.spec);
            if let Some(rare) = &pod.rare {
                seen.add(&rare.drawn);
            }
            let mut told = Units::default();
            if let (Scheduler::Aware(_), Some(rare)) = (scheduler, &pod.rare) {
                told = rare.sliced.clone();
            }
            for (generation, units) in &pod.published {
                holder.published.push((pod.object.clone(), *generation, units.clone()));
                if scheduler == Scheduler::Aware(*generation) {
                    told.combine(units, |told, said| *told = (*told).max(said));
                }
            }
            seen.add(&told);
        }
        for resource in self.resources() {
            let hidden = (self.requested(resource) - seen.get(resource)).max(0);
            let hidden = i64::try_from(hidden).unwrap_or(i64::MAX);
            let part = if resource.resizable() { &mut holder.request } else { &mut holder.uncovered };
            part.set(resource, hidden);
            if self.is_unknown(resource) {
                holder.unknown.insert(resource);
            }
        }
        holder
    }
}
