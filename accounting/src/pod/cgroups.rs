//! What the kubelet makes of a Pod: its QoS class and its cgroups (docs/accounting.md 4).

use dragoman_quantity::{Decimal, Overflow};

use super::limits::{container_share, limits};
use super::requests::{Claims, Options, requests};
use super::{Container, PodSpecView, Resources};
use crate::amounts::Amounts;
use crate::resource::Resource;

/// The QoS class: by the spec in every version, whatever claims bring along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Every container has limits of cpu and memory, and requests as much.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Nothing is: evicted first.
    BestEffort,
}

/// The QoS class of the Pod. Requests must have been defaulted from limits, as the API
/// server does.
pub fn qos(pod: &PodSpecView) -> Qos {
    let named = |resources: &Resources| {
        [&resources.requests, &resources.limits]
            .into_iter()
            .flat_map(Amounts::iter)
            .any(|(resource, amount)| resource.resizable() && !amount.is_zero())
    };
    let guaranteed = |resources: &Resources| {
        [Resource::Cpu, Resource::Memory].into_iter().all(|resource| {
            let limit = resources.limits.get(resource);
            !limit.is_zero() && resources.requests.get(resource) == limit
        })
    };
    // Pod-level resources alone decide, where there are any.
    if let Some(level) = pod.pod_level.as_ref().filter(|level| named(level)) {
        return if guaranteed(level) { Qos::Guaranteed } else { Qos::Burstable };
    }
    if !pod.all_containers().any(|container| named(&container.resources)) {
        Qos::BestEffort
    } else if pod.all_containers().all(|container| guaranteed(&container.resources)) {
        Qos::Guaranteed
    } else {
        Qos::Burstable
    }
}

/// Which kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubelet {
    /// Up to 1.36, or without KEP-5517: claims do not touch cgroups.
    V1_36,
    /// 1.37 with KEP-5517.
    V1_37,
}

impl Kubelet {
    fn claims(self) -> Claims {
        match self {
            Self::V1_36 => Claims::Ignored,
            Self::V1_37 => Claims::WholeLife,
        }
    }
}

/// A cgroup, in amounts of the API: how `cpu.weight` and `cpu.max` are spelled in the file
/// system is the container runtime's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// What `cpu.weight` is made of, in cpus; none: the least there is.
    pub cpu_weight: Option<Decimal>,
    /// What `cpu.max` is made of, in cpus; none: unlimited.
    pub cpu_max: Option<Decimal>,
    /// `memory.max` in bytes; none: unlimited.
    pub memory_max: Option<Decimal>,
    /// `hugetlb.SIZE.max` in bytes; what is absent is zero.
    pub huge_pages: Amounts,
}

/// The cgroup of the Pod: weight from requests, maxima from limits, claims and overhead
/// included. It is limited only if every container is, or the Pod as a whole.
///
/// # Errors
/// A sum cannot be held.
pub fn pod_cgroup(pod: &PodSpecView, kubelet: Kubelet) -> Result<Cgroup, Overflow> {
    let options = Options { claims: kubelet.claims(), ..Options::default() };
    let (requests, limits) = (requests(pod, options)?, limits(pod, options)?);
    let level = pod.pod_level.as_ref();
    let limited = |resource: Resource| {
        let whole = level.is_some_and(|level| level.limits.named(resource).is_some());
        let each = || pod.all_containers().all(|c| !c.resources.limits.get(resource).is_zero());
        limits.named(resource).filter(|_| whole || each())
    };
    Ok(Cgroup {
        cpu_weight: some(requests.get(Resource::Cpu)),
        cpu_max: limited(Resource::Cpu),
        memory_max: limited(Resource::Memory),
        huge_pages: huge_pages(&limits),
    })
}

/// The cgroup of a container: weight from its own request, maxima from its own limits
/// with its share of its claims. Without a limit of its own it has the Pod's, if there
/// is one, and of huge pages what its claims bring.
///
/// # Errors
/// A sum cannot be held.
pub fn container_cgroup(
    pod: &PodSpecView,
    container: &Container,
    kubelet: Kubelet,
) -> Result<Cgroup, Overflow> {
    let share = match kubelet {
        Kubelet::V1_36 => Amounts::default(),
        Kubelet::V1_37 => container_share(&pod.contributions, &container.name)?,
    };
    let level = pod.pod_level.as_ref().map(|level| &level.limits);
    let limited = |resource: Resource| match container.resources.limits.named(resource) {
        Some(limit) => limit.checked_add(share.get(resource)).map(Some),
        None => Ok(level.and_then(|limits| limits.named(resource))),
    };
    let mut pages = huge_pages(&container.resources.limits);
    for (resource, amount) in huge_pages(&share).iter() {
        pages.add(resource, amount)?;
    }
    Ok(Cgroup {
        cpu_weight: some(container.resources.requests.get(Resource::Cpu)),
        cpu_max: limited(Resource::Cpu)?,
        memory_max: limited(Resource::Memory)?,
        huge_pages: pages,
    })
}

fn some(amount: Decimal) -> Option<Decimal> {
    (!amount.is_zero()).then_some(amount)
}

fn huge_pages(amounts: &Amounts) -> Amounts {
    amounts.iter().filter(|(resource, _)| matches!(resource, Resource::HugePages(_))).collect()
}
