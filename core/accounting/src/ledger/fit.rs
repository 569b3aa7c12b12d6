//! The check whether one more Pod fits.

use std::collections::{BTreeMap, BTreeSet};

use super::charge::{ClaimCharge, PodCharge, Rare};
use super::pools::{Pool, pools};
use super::shared::Shared;
use super::{Bucket, Charging, DeviceId, NodeLedger, bucket};
use crate::claim::sharing::Sharing;
use crate::object::ObjectRef;
use crate::per_resource::{Sums, Units};
use crate::pod::budget::OverBudget;
use crate::pod::policy::Incompatible;
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// A Pod in question, with its claims.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The charge that the Pod would get.
    pub pod: PodCharge,
    /// The devices that its claims would use, with the reservations of their drivers.
    pub devices: Vec<(DeviceId, Units)>,
}

/// The remaining amount of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headroom {
    /// The amount; negative if the node is overcommitted.
    Left(i128),
    /// A fact about the resource cannot be read.
    Unknown,
}

/// The answer whether a Pod fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// The Pod fits.
    Yes,
    /// The Pod does not fit now; these amounts are missing. [`NodeLedger::who_has`] lists the
    /// holders of a resource.
    Missing(Sums),
    /// The node has less of these resources in all than the Pod would take.
    Never(BTreeSet<Resource>),
    /// Facts about these resources cannot be read.
    Unknown(BTreeSet<Resource>),
    /// The candidate cannot be judged, or Kubernetes would refuse the Pod.
    Refused(Vec<Refusal>),
}

/// The reason why a candidate is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field of the candidate cannot be read.
    #[error("{0}")]
    Unaccounted(Unaccounted),
    /// The accounting policies of the candidate cannot be combined.
    #[error("{0}")]
    Incompatible(Incompatible),
    /// The claims and containers of the candidate take more than `spec.resources` allows, on any node.
    #[error("{0}")]
    OverBudget(OverBudget),
    /// Another Pod uses a claim of the candidate whose devices are node resources.
    #[error("{claim}: its devices are node resources, and another Pod uses it")]
    OnePod {
        /// The claim.
        claim: ObjectRef,
    },
    /// The candidate would draw more from its pools than they have.
    #[error("{0}")]
    Overdrawn(Pool),
}

impl NodeLedger {
    /// The remaining amount of `resource`.
    pub fn headroom(&self, resource: Resource) -> Headroom {
        if self.is_unknown(resource) {
            return Headroom::Unknown;
        }
        Headroom::Left(i128::from(self.allocatable(resource)) - self.requested(resource))
    }

    /// Whether a fact about `resource` cannot be read, or the node is not listed.
    pub fn is_unknown(&self, resource: Resource) -> bool {
        self.allocatable.is_none() || self.unaccounted().any(|u| u.resource.is_none_or(|r| r == resource))
    }

    /// By how much more of `resource` is certainly taken than the node has, if it is. What is not known
    /// can only add to it.
    pub fn short_by(&self, resource: Resource) -> Option<i128> {
        let requested = self.requested(resource);
        let is_short = self.is_known_to_have_less(resource, requested);
        is_short.then(|| requested - i128::from(self.allocatable(resource)))
    }

    /// Whether the node certainly has less than `need` in all.
    fn is_known_to_have_less(&self, resource: Resource, need: i128) -> bool {
        let unread = self.unread_allocatable.iter().any(|u| u.resource.is_none_or(|r| r == resource));
        self.allocatable.is_some() && !unread && need > i128::from(self.allocatable(resource))
    }

    /// Returns whether a Pod fits beside all charges. Only resources that the Pod needs are
    /// checked: an overcommitted resource does not exclude a Pod that needs none of it.
    ///
    /// For a Pod that is charged already, the answer is that of the ledger without it.
    pub fn fits(&self, candidate: &Candidate) -> Fit {
        if self.pods.contains_key(&candidate.pod.object) {
            let mut without = self.clone();
            without.remove_pod(candidate.pod.object.uid());
            return without.fits(candidate);
        }
        let refusals = self.refusals(&candidate.pod);
        if !refusals.is_empty() {
            return Fit::Refused(refusals);
        }
        let (mut missing, mut never, mut unknown) = (Sums::default(), BTreeSet::new(), BTreeSet::new());
        for (resource, need) in self.needs(candidate).iter().filter(|(_, need)| *need > 0) {
            match self.headroom(resource) {
                _ if self.is_known_to_have_less(resource, need) => {
                    never.insert(resource);
                }
                Headroom::Unknown => {
                    unknown.insert(resource);
                }
                Headroom::Left(left) if need > left => missing.set(resource, need - left),
                Headroom::Left(_) => {}
            }
        }
        if !never.is_empty() {
            Fit::Never(never)
        } else if !missing.is_empty() {
            Fit::Missing(missing)
        } else if !unknown.is_empty() {
            Fit::Unknown(unknown)
        } else {
            Fit::Yes
        }
    }

    /// The amounts by which the charges would rise.
    fn needs(&self, candidate: &Candidate) -> Sums {
        let mut needs = Sums::default();
        if Bucket::TAKING.contains(&bucket(candidate.pod.stage)) {
            needs.add(&candidate.pod.spec);
        }
        for claim in &candidate.pod.claims {
            needs.add(&claim.overhead);
            let mut shared = self.claims.get(&claim.object).cloned().unwrap_or_default();
            needs.take(&shared.charged(self.charging));
            shared.put(candidate.pod.object.clone(), claim.mapping.clone());
            needs.add(&shared.charged(self.charging));
        }
        let mut woken: BTreeMap<&DeviceId, Shared> = BTreeMap::new();
        for (i, (device, reservation)) in candidate.devices.iter().enumerate() {
            let known = || self.devices.get(device).cloned().unwrap_or_default();
            let shared = woken.entry(device).or_insert_with(known);
            needs.take(&shared.charged(Charging::PerClaim));
            // A user of its own: which claim it is makes no difference.
            shared.put(ObjectRef::from(&*format!("candidate {i}")), reservation.clone());
            needs.add(&shared.charged(Charging::PerClaim));
        }
        needs
    }

    fn refusals(&self, pod: &PodCharge) -> Vec<Refusal> {
        let others = |claim: &&ClaimCharge| self.claims.contains_key(&claim.object);
        let one_pods =
            |claim: &&ClaimCharge| claim.sharing == Sharing::OnePod || self.is_one_pods(&claim.object);
        let taken = pod.claims.iter().filter(others).filter(one_pods);
        let mut refusals: Vec<Refusal> =
            taken.map(|claim| Refusal::OnePod { claim: claim.object.clone() }).collect();
        let Some(Rare { unaccounted, incompatible, over_budget, draws, .. }) = pod.rare.as_deref() else {
            return refusals;
        };
        refusals.extend(unaccounted.iter().cloned().map(Refusal::Unaccounted));
        refusals.extend(incompatible.iter().cloned().map(Refusal::Incompatible));
        refusals.extend(over_budget.iter().cloned().map(Refusal::OverBudget));
        if !draws.is_empty() {
            let pools = pools(self.pods().chain([pod]));
            let overdrawn =
                pools.into_iter().filter(|pool| pool.short > 0 && pool.consumers.contains(&pod.object));
            refusals.extend(overdrawn.map(Refusal::Overdrawn));
        }
        refusals
    }
}
