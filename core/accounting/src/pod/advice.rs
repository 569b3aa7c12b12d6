//! Advice to the author of a Pod about its claims and resources.

use std::fmt::{self, Display, Formatter};

use dragoman_objects::Name;
use dragoman_quantity::{Decimal, Overflow};

use super::PodSpecView;
use super::budget::{Checks, OverBudget, unschedulable};
use super::cgroups::{Cgroup, Kubelet, Qos, container_cgroup, pod_cgroup, qos};
use super::limits::container_share;
use crate::amounts::written;
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
    /// A container requests as much as its claims bring, and both are charged: the author repeats what the devices take. The
    /// policy `Max` charges it once.
    Repeated {
        /// The container.
        container: Name,
        /// The resource.
        resource: Resource,
        /// The request, and what the claims bring.
        amount: Decimal,
    },
    /// Accounting policies that cannot be combined.
    Incompatible(Incompatible),
}

impl Advice {
    /// Whether the author of the Pod should change something. The rest are facts.
    pub fn is_warning(&self) -> bool {
        !matches!(self, Self::Qos(_) | Self::Pod(_) | Self::Container { .. })
    }
}

impl Display for Advice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let amount = |resource: &Resource, amount: &Decimal| written(*resource, *amount).0;
        match self {
            Self::Qos(class) => write!(f, "its QoS class is {class:?}"),
            Self::Pod(cgroup) => write!(f, "its cgroup has {}", limits_of(cgroup)),
            Self::Container { container, cgroup } => {
                write!(f, "the cgroup of container {container} has {}", limits_of(cgroup))
            }
            Self::LimitBelowClaim { container, resource, limit, needs } => write!(
                f,
                "container {container} has a limit of {} {resource}, and its request and its claims are {}: raise the limit",
                amount(resource, limit),
                amount(resource, needs),
            ),
            Self::BudgetMissing { resource } => write!(
                f,
                "the claims bring {resource}, and spec.resources does not request any: request what containers and claims need together"
            ),
            Self::OverBudget(over) => write!(f, "its containers and claims exceed spec.resources: {over:?}"),
            Self::ClaimOnlyBestEffort => f.write_str(
                "no cpu and no memory are requested beside the claims: BestEffort, with the least cpu weight, and evicted first; \
                 request what the containers need",
            ),
            Self::UnboundedDraw { container, resource } => write!(
                f,
                "container {container} draws {resource} from a pool and requests none: nothing keeps it from using more than is left"
            ),
            Self::Repeated { container, resource, amount: of } => write!(
                f,
                "container {container} requests {} {resource}, as much as its claims bring, and both are charged: drop the request, or give \
                 the device the accounting policy Max",
                amount(resource, of),
            ),
            Self::Incompatible(Incompatible { container, resource, why }) => {
                write!(f, "container {container}, {resource}: {why}")
            }
        }
    }
}

/// The amounts of a cgroup in words.
fn limits_of(cgroup: &Cgroup) -> String {
    let or = |amount: Option<Decimal>, resource, words: &str, none: &str| {
        amount.map_or_else(|| none.to_owned(), |amount| format!("{words} of {}", written(resource, amount).0))
    };
    format!(
        "{}, {} and {}",
        or(cgroup.cpu_weight, Resource::Cpu, "the cpu weight of a request", "the least cpu weight"),
        or(cgroup.cpu_max, Resource::Cpu, "a cpu limit", "no cpu limit"),
        or(cgroup.memory_max, Resource::Memory, "a memory limit", "no memory limit"),
    )
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
    advice.extend(repeated(pod)?);
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

/// Requests that are equal to what the claims of a container bring, where both are charged.
fn repeated(pod: &PodSpecView) -> Result<Vec<Advice>, Overflow> {
    let mut advice = Vec::new();
    for container in pod.all_containers() {
        let share = container_share(&pod.contributions, &container.name)?;
        let is_charged_twice = |resource: Resource| {
            let claims = pod.contributions.iter().filter(|claim| claim.containers.contains(&container.name));
            claims.flat_map(|claim| claim.of(resource)).all(|line| line.policy.is_none())
        };
        for resource in pod.resources().filter(|resource| is_charged_twice(*resource)) {
            let amount = container.resources.requests.get(resource);
            if !amount.is_zero() && amount == share.get(resource) {
                advice.push(Advice::Repeated { container: container.name.clone(), resource, amount });
            }
        }
    }
    Ok(advice)
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
