//! The QoS class and the cgroups that the kubelet gives a Pod (docs/accounting.md 4).

use dragoman_quantity::{Decimal, Overflow};

use super::limits::{container_share, limits};
use super::requests::{Claims, Options, requests};
use super::{Container, PodSpecView, Resources};
use crate::amounts::Amounts;
use crate::resource::Resource;

/// The QoS class. Every version derives it from the spec alone, without claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Every container has limits of cpu and memory, and requests equal to them.
    Guaranteed,
    /// Some cpu or memory is requested or limited.
    Burstable,
    /// No cpu or memory is requested or limited. Such Pods are evicted first.
    BestEffort,
}

/// Returns the QoS class of the Pod. Requests must have been defaulted from limits, as the API
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
    // Pod-level resources of cpu or memory decide alone.
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

/// The version of the kubelet.
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

/// A cgroup, in amounts of the API. The container runtime converts them into values of `cpu.weight`
/// and `cpu.max`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// The request behind `cpu.weight`, in cpus; `None`: the least weight.
    pub cpu_weight: Option<Decimal>,
    /// The limit behind `cpu.max`, in cpus; `None`: unlimited.
    pub cpu_max: Option<Decimal>,
    /// `memory.max` in bytes; `None`: unlimited.
    pub memory_max: Option<Decimal>,
    /// `hugetlb.SIZE.max` in bytes; an absent size is zero.
    pub huge_pages: Amounts,
}

/// Returns the cgroup of the Pod: weight from requests, maxima from limits, claims and overhead
/// included. A resource is limited only if the Pod or every container has a limit of it.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
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

/// Returns the cgroup of a container: weight from its own request, maxima from its own limits plus
/// its share of its claims. A container without a limit of cpu or memory has the Pod-level limit,
/// if there is one. Without a limit of huge pages it has those of its claims.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
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
