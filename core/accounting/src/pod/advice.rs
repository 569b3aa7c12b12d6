//! Advice to the author of a Pod about its claims and resources.

use dragoman_objects::Name;
use dragoman_quantity::{Decimal, Overflow};

use super::PodSpecView;
use super::budget::{Checks, OverBudget, unschedulable};
use super::cgroups::{Cgroup, Kubelet, Qos, container_cgroup, pod_cgroup, qos};
use super::limits::container_share;
use crate::claim::footprint::AccountingPolicy;
use crate::pod::policy::{Incompatible, incompatible};
use crate::resource::Resource;

/// A piece of advice: a fact about the Pod, or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// The QoS class.
    Qos(Qos),
    /// The cgroup of the Pod.
    Pod(Cgroup),
    /// The cgroup of a container.
    Container {
        /// The container.
        container: Name,
        /// The cgroup.
        cgroup: Cgroup,
    },
    /// The limit of a container is below its request plus its claims. The container is throttled or
    /// killed while it uses what it was given.
    LimitBelowClaim {
        /// The container.
        container: Name,
        /// The resource.
        resource: Resource,
        /// The limit.
        limit: Decimal,
        /// The request of the container plus its share of its claims.
        needs: Decimal,
    },
    /// The Pod has Pod-level resources, but no Pod-level request for a resource that its claims
    /// bring. If the Pod has any Pod-level limit, the API server sets the request to the sum of the
    /// containers' requests, which leaves no room for the claims.
    BudgetMissing {
        /// The resource.
        resource: Resource,
    },
    /// The Pod-level resources are smaller than containers and claims need. The Pod is never
    /// scheduled.
    OverBudget(OverBudget),
    /// Claims bring cpu or memory, and the spec requests none. The Pod is BestEffort: it has the
    /// least cpu weight and is evicted first.
    ClaimOnlyBestEffort,
    /// A container draws from a pool without a request. Nothing keeps it from using more than is
    /// left.
    UnboundedDraw {
        /// The container.
        container: Name,
        /// The resource.
        resource: Resource,
    },
    /// Accounting policies that cannot be combined.
    Incompatible(Incompatible),
}

/// Returns all advice for a Pod with its claims, facts first.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn advice(pod: &PodSpecView, kubelet: Kubelet) -> Result<Vec<Advice>, Overflow> {
    let class = qos(pod);
    let mut advice = vec![Advice::Qos(class), Advice::Pod(pod_cgroup(pod, kubelet)?)];
    for container in pod.all_containers() {
        let cgroup = container_cgroup(pod, container, kubelet)?;
        advice.push(Advice::Container { container: container.name.clone(), cgroup });
    }
    advice.extend(limits_below_claims(pod, kubelet)?);
    let checks = match kubelet {
        Kubelet::V1_36 => Checks::V1_36,
        Kubelet::V1_37 => Checks::V1_37,
    };
    advice.extend(budgets_missing(pod));
    advice.extend(unschedulable(pod, checks)?.into_iter().map(Advice::OverBudget));
    if class == Qos::BestEffort && brought(pod).any(Resource::resizable) {
        advice.push(Advice::ClaimOnlyBestEffort);
    }
    advice.extend(unbounded_draws(pod));
    advice.extend(incompatible(pod).into_iter().map(Advice::Incompatible));
    Ok(advice)
}

/// The resources of which the claims bring a non-zero amount, sorted.
fn brought(pod: &PodSpecView) -> impl Iterator<Item = Resource> {
    let brings = |resource: &Resource| {
        let lines = pod.contributions.iter().flat_map(|claim| claim.of(*resource));
        lines
            .flat_map(|line| [line.mapping, line.per_pod, line.per_container])
            .flatten()
            .any(|a| !a.is_zero())
    };
    pod.resources().filter(brings)
}

fn limits_below_claims(pod: &PodSpecView, kubelet: Kubelet) -> Result<Vec<Advice>, Overflow> {
    let mut advice = Vec::new();
    for container in pod.all_containers() {
        let cgroup = container_cgroup(pod, container, kubelet)?;
        let share = container_share(&pod.contributions, &container.name)?;
        for (resource, limit) in [(Resource::Cpu, cgroup.cpu_max), (Resource::Memory, cgroup.memory_max)] {
            let needs = container.resources.requests.get(resource).checked_add(share.get(resource))?;
            if let Some(limit) = limit.filter(|limit| *limit < needs && !share.get(resource).is_zero()) {
                advice.push(Advice::LimitBelowClaim {
                    container: container.name.clone(),
                    resource,
                    limit,
                    needs,
                });
            }
        }
    }
    Ok(advice)
}

fn budgets_missing(pod: &PodSpecView) -> Vec<Advice> {
    let level = pod.pod_level.as_ref().filter(|l| !(l.requests.is_empty() && l.limits.is_empty()));
    let Some(level) = level else { return Vec::new() };
    let missing = brought(pod).filter(|r| r.at_pod_level() && level.requests.named(*r).is_none());
    missing.map(|resource| Advice::BudgetMissing { resource }).collect()
}

fn unbounded_draws(pod: &PodSpecView) -> Vec<Advice> {
    let mut advice = Vec::new();
    for container in pod.all_containers() {
        let pools = pod.contributions.iter().filter(|claim| claim.containers.contains(&container.name));
        let pools = pools.flat_map(|claim| &claim.lines);
        for line in pools.filter(|line| line.policy == Some(AccountingPolicy::ConsumeFrom)) {
            let unbounded =
                Advice::UnboundedDraw { container: container.name.clone(), resource: line.resource };
            if container.resources.requests.get(line.resource).is_zero() && !advice.contains(&unbounded) {
                advice.push(unbounded);
            }
        }
    }
    advice
}
