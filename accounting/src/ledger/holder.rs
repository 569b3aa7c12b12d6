//! What a holder has to hold: a Pod on the node that requests what claims take there, so
//! that a kube-scheduler that knows nothing of claims leaves it alone.

use std::collections::BTreeSet;

use super::{NodeLedger, Stage};
use crate::claim::contribution::Generation;
use crate::object::ObjectRef;
use crate::per_resource::{Sums, Units};
use crate::resource::Resource;

/// What kube-scheduler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// Nothing of claims: it counts the specs of Pods.
    Unaware,
    /// It also counts what the status of a Pod says of its claims in the generation that it
    /// knows (KEP-5517 switched on).
    Aware(Generation),
}

/// What a holder has to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// What it has to request: what can be resized in place, so cpu and memory.
    pub request: Units,
    /// What no holder can hold: huge pages and ephemeral storage cannot be resized.
    pub uncovered: Units,
    /// What the status of Pods tells a scheduler that reads it, by Pod. It is in `request`
    /// for one that does not, and not for one that does.
    pub published: Vec<(ObjectRef, Generation, Units)>,
    /// Of these nobody knows how much there is: what could not be read is not in here.
    pub unknown: BTreeSet<Resource>,
}

impl NodeLedger {
    /// The truth less what the scheduler sees, never below zero. The truth is everything
    /// that takes something, Pods on their way and reservations too; it sees the Pods that
    /// are bound. Holders themselves are left out on both sides.
    pub fn holder(&self, scheduler: Scheduler) -> Holder {
        let mut seen = Sums::default();
        let mut holder = Holder::default();
        for pod in self.pods.values().filter(|pod| pod.stage == Stage::Bound) {
            seen.add(&pod.spec);
            if let Some(rare) = &pod.rare {
                seen.add(&rare.drawn);
            }
            for (generation, units) in &pod.published {
                holder.published.push((pod.object.clone(), *generation, units.clone()));
                if scheduler == Scheduler::Aware(*generation) {
                    seen.add(units);
                }
            }
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
