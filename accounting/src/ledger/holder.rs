//! What a holder has to hold: a Pod on the node that requests what claims take there, so
//! that a kube-scheduler that knows nothing of claims leaves it alone.

use super::{Cause, Holding, NodeLedger, Stage};
use crate::per_resource::{Sums, Units};
use crate::resource::Resource;

/// What kube-scheduler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// Nothing of claims: it counts the specs of Pods.
    Unaware,
    /// It also counts what the status of a Pod says of its claims (KEP-5517 switched on).
    Aware,
}

/// What a holder has to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// What it has to request: what can be resized in place, so cpu and memory.
    pub request: Units,
    /// What no holder can hold: huge pages and ephemeral storage cannot be resized.
    pub uncovered: Units,
    /// The charges that an aware scheduler counts through the status of Pods, resource by
    /// resource. They are in `request` for an unaware one, and not for an aware one.
    pub published: Vec<(Resource, Holding)>,
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
            for claim in pod.claims.iter().filter(|claim| claim.published) {
                let mapping = Cause::Mapping(claim.uid.clone());
                let overhead = Cause::Overhead { pod: pod.uid.clone(), claim: claim.uid.clone() };
                for (cause, units) in [(mapping, &claim.mapping), (overhead, &claim.overhead)] {
                    let holdings =
                        units.iter().map(|(r, amount)| (r, Holding { cause: cause.clone(), amount }));
                    holder.published.extend(holdings);
                    if scheduler == Scheduler::Aware {
                        seen.add(units);
                    }
                }
            }
        }
        for resource in self.resources() {
            let hidden = (self.requested(resource) - seen.get(resource)).max(0);
            let hidden = i64::try_from(hidden).unwrap_or(i64::MAX);
            let part = if resource.resizable() { &mut holder.request } else { &mut holder.uncovered };
            part.set(resource, hidden);
        }
        holder
    }
}
