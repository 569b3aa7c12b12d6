//! Accounting policies of claims, and the combinations that are not allowed (docs/accounting.md 3).
//!
//! Kubernetes has no accounting policies. The rules are those of the draft of KEP-5517, with
//! decisions where the draft has a gap:
//! - A device in use stays in use. A `Max` or `AddPerReference` amount that no running container
//!   takes up counts by itself, once: for a claim that no container names, and after the init
//!   container that named the claim has ended.
//! - A `Max` claim of two containers counts for each of them.
//! - Containers that name the same pools draw together, by the formula for Pods: the larger of the
//!   sum at run time and the peak of the init containers.
//! - A pool and a Pod-level request of the same resource exclude each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dragoman_objects::Name;

use super::{Container, PodSpecView};
use crate::claim::contribution::Line;
use crate::claim::footprint::AccountingPolicy;
use crate::resource::Resource;

/// Policies that cannot be combined on one resource of one container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("container {container:?}: {resource}: {why}")]
pub struct Incompatible {
    /// The container.
    pub container: Name,
    /// The resource.
    pub resource: Resource,
    /// The rule that is broken.
    pub why: Clash,
}

/// The rule that forbids a combination of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clash {
    /// Several `Max` claims of one container must come from one driver.
    MaxOfSeveralDrivers,
    /// Several pools of one container must come from one driver.
    PoolsOfSeveralDrivers,
    /// A container cannot both take the larger amount and draw from a pool.
    MaxAndPool,
    /// Drawn requests cannot be told apart within a Pod-level request.
    PoolAndPodLevel,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxOfSeveralDrivers => "claims of several drivers have the policy Max",
            Self::PoolsOfSeveralDrivers => "claims of several drivers have the policy ConsumeFrom",
            Self::MaxAndPool => "one claim has the policy Max, another ConsumeFrom",
            Self::PoolAndPodLevel => "a claim has the policy ConsumeFrom, and the Pod requests it as a whole",
        })
    }
}

/// Returns the combinations in a Pod that are not allowed. They are counted all the same: every
/// amount is held, and a container takes the larger of its request and the sum of its `Max` claims.
pub fn incompatible(pod: &PodSpecView) -> Vec<Incompatible> {
    let mut found = Vec::new();
    if pod.contributions.iter().flat_map(|c| &c.lines).all(|line| line.policy.is_none()) {
        return found;
    }
    for container in pod.all_containers() {
        let mut drivers: BTreeMap<(Resource, AccountingPolicy), BTreeSet<&str>> = BTreeMap::new();
        for line in named_by(pod, container) {
            if let Some(policy) = line.policy {
                drivers.entry((line.resource, policy)).or_default().insert(&line.driver);
            }
        }
        for (&(resource, policy), names) in &drivers {
            let mut clash = |why| {
                found.push(Incompatible { container: container.name.clone(), resource, why });
            };
            match policy {
                AccountingPolicy::Max if names.len() > 1 => clash(Clash::MaxOfSeveralDrivers),
                AccountingPolicy::ConsumeFrom => {
                    if names.len() > 1 {
                        clash(Clash::PoolsOfSeveralDrivers);
                    }
                    if drivers.contains_key(&(resource, AccountingPolicy::Max)) {
                        clash(Clash::MaxAndPool);
                    }
                    let level = pod.pod_level.as_ref();
                    if level.is_some_and(|level| level.requests.named(resource).is_some()) {
                        clash(Clash::PoolAndPodLevel);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// The lines of the claims that a container names.
fn named_by<'a>(pod: &'a PodSpecView, container: &'a Container) -> impl Iterator<Item = &'a Line> {
    let named = pod.contributions.iter().filter(|c| c.containers.contains(&container.name));
    named.flat_map(|contribution| &contribution.lines)
}
