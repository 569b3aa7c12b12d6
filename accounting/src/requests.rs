//! What a Pod requests (node-allocatable.md 2.2 to 2.4), with the answers of
//! `k8s.io/component-helpers/resource` v0.37.

use dragoman_quantity::Overflow;

use crate::amounts::Amounts;
use crate::contribution::Contribution;
use crate::pod::{Container, PodSpecView, Resources};
use crate::resource::Resource;

/// What is taken into account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// What the kubelet has agreed to and what is in force, for resizes in place.
    pub status: bool,
    /// The same at Pod level.
    pub pod_level_status: bool,
    /// Leave Pod-level requests and limits out.
    pub skip_pod_level: bool,
    /// Leave the Pod's overhead out.
    pub exclude_overhead: bool,
    /// What claims bring along, and how it is counted.
    pub claims: Claims,
}

/// How the part of the claims is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Claims {
    /// Not at all.
    #[default]
    Ignored,
    /// For the whole life of the Pod, as Kubernetes 1.37 does.
    WholeLife,
    /// What is counted per container only while that container runs
    /// (kubernetes/kubernetes#141375): differs where init containers use claims.
    Peak,
}

/// What the Pod requests of its node, exactly; not yet rounded.
///
/// # Errors
/// A sum cannot be held.
pub fn requests(pod: &PodSpecView, options: Options) -> Result<Amounts, Overflow> {
    let mut total = aggregated_requests(pod, options)?;
    if !options.skip_pod_level
        && let Some(level) = &pod.pod_level
    {
        for (resource, amount) in pod_level_requests(pod, level, options) {
            total.set(resource, amount);
        }
    }
    if !options.exclude_overhead {
        total.add_all(&pod.overhead)?;
    }
    Ok(total)
}

/// What all containers request together, claims included.
///
/// With the status it is the most of three sums: what the spec asks for, what the kubelet
/// has agreed to, what is in force. A resize that is infeasible will not happen: then the
/// spec says nothing.
fn aggregated_requests(pod: &PodSpecView, options: Options) -> Result<Amounts, Overflow> {
    let infeasible = options.status && pod.status.resize_infeasible;
    let desired = |container: &Container| -> Amounts {
        if infeasible { Amounts::default() } else { container.resources.requests.clone() }
    };
    let mut most = if infeasible { Amounts::default() } else { with_claims(pod, options.claims, desired)? };
    if !options.status {
        return Ok(most);
    }
    if let (true, Some(allocated), Some(actual)) =
        (options.pod_level_status, &pod.status.allocated, &pod.status.actual)
        && !actual.requests.is_empty()
    {
        // The kubelet's own totals: claims are in them.
        most.raise(allocated);
        most.raise(&actual.requests);
        return Ok(most);
    }
    let status = |container: &'_ Container| container.status.clone().unwrap_or_default();
    let allocated =
        |container: &'_ Container| status(container).allocated.unwrap_or_else(|| desired(container));
    let actual = |container: &'_ Container| {
        let reported = status(container).actual.map(|actual| actual.requests);
        reported.filter(|requests| !requests.is_empty()).unwrap_or_else(|| allocated(container))
    };
    most.raise(&with_claims(pod, options.claims, allocated)?);
    most.raise(&with_claims(pod, Claims::Ignored, actual)?);
    Ok(most)
}

/// The formula of sidecars (KEP-753) over one list of each container, and the claims.
fn with_claims(
    pod: &PodSpecView,
    claims: Claims,
    list: impl Fn(&Container) -> Amounts,
) -> Result<Amounts, Overflow> {
    let own = |container: &Container| -> Result<Amounts, Overflow> {
        let mut own = list(container);
        if claims == Claims::Peak {
            for contribution in &pod.contributions {
                if contribution.containers.contains(&container.name) {
                    own.add_all(&contribution.per_container()?)?;
                }
            }
        }
        Ok(own)
    };
    let mut running = Amounts::default();
    for container in &pod.containers {
        running.add_all(&own(container)?)?;
    }
    let (mut sidecars, mut peak) = (Amounts::default(), Amounts::default());
    for container in &pod.init_containers {
        let own = own(container)?;
        if container.sidecar {
            running.add_all(&own)?;
            sidecars.add_all(&own)?;
            peak.raise(&sidecars);
        } else {
            peak.raise(&sidecars.plus(&own)?);
        }
    }
    running.raise(&peak);
    for contribution in &pod.contributions {
        match claims {
            Claims::Ignored => {}
            Claims::WholeLife => running.add_all(&contribution.total()?)?,
            Claims::Peak => running.add_all(&contribution.fixed(pod)?)?,
        }
    }
    Ok(running)
}

fn pod_level_requests(pod: &PodSpecView, level: &Resources, options: Options) -> Amounts {
    let reported = pod.status.actual.as_ref().filter(|_| options.status && options.pod_level_status);
    let desired = at_pod_level(&level.requests);
    let (Some(actual), false) = (reported, desired.is_empty()) else { return desired };
    let mut most = if pod.status.resize_infeasible { Amounts::default() } else { desired };
    most.raise(&at_pod_level(&actual.requests));
    most.raise(&pod.status.allocated.as_ref().map(at_pod_level).unwrap_or_default());
    most
}

fn at_pod_level(amounts: &Amounts) -> Amounts {
    amounts.iter().filter(|(resource, _)| resource.at_pod_level()).map(|(r, a)| (r.clone(), a)).collect()
}

/// The Pod's limits, exactly. A resource without any limit is absent: unlimited.
///
/// # Errors
/// A sum cannot be held.
pub fn limits(pod: &PodSpecView, options: Options) -> Result<Amounts, Overflow> {
    let mut total = aggregated_limits(pod, options)?;
    if !options.skip_pod_level
        && let Some(level) = &pod.pod_level
    {
        for (resource, amount) in pod_level_limits(pod, level, options) {
            total.set(resource, amount);
        }
    }
    if !options.exclude_overhead {
        for (resource, amount) in pod.overhead.iter() {
            // Overhead on top of no limit would make one.
            if !total.get(resource).is_zero() {
                total.add(resource, amount)?;
            }
        }
    }
    Ok(total)
}

fn pod_level_limits(pod: &PodSpecView, level: &Resources, options: Options) -> Amounts {
    let reported = pod.status.actual.as_ref().filter(|_| options.status && options.pod_level_status);
    let desired = at_pod_level(&level.limits);
    let set = !desired.is_empty() || !at_pod_level(&level.requests).is_empty();
    let (Some(actual), true) = (reported, set) else { return desired };
    let mut most = if pod.status.resize_infeasible { Amounts::default() } else { desired };
    most.raise(&at_pod_level(&actual.limits));
    most
}

/// As [`aggregated_requests`], of limits.
fn aggregated_limits(pod: &PodSpecView, options: Options) -> Result<Amounts, Overflow> {
    let infeasible = options.status && pod.status.resize_infeasible;
    let desired = |container: &Container| -> Amounts {
        if infeasible { Amounts::default() } else { container.resources.limits.clone() }
    };
    let mut most = with_claims(pod, Claims::Ignored, desired)?;
    if !infeasible {
        most = limited_claims(pod, options.claims, most)?;
    }
    if !options.status {
        return Ok(most);
    }
    let reported =
        pod.status.actual.as_ref().filter(|actual| options.pod_level_status && !actual.limits.is_empty());
    if let Some(actual) = reported {
        most.raise(&actual.limits);
        return Ok(most);
    }
    let actual = |container: &Container| {
        let reported = container.status.as_ref().and_then(|status| status.actual.as_ref());
        let reported = reported.map(|actual| actual.limits.clone());
        reported.filter(|limits| !limits.is_empty()).unwrap_or_else(|| desired(container))
    };
    most.raise(&with_claims(pod, Claims::Ignored, actual)?);
    Ok(most)
}

/// `limits` with the claims: a claim does not limit what was unlimited, but hugepages
/// are always limited.
fn limited_claims(pod: &PodSpecView, claims: Claims, mut limits: Amounts) -> Result<Amounts, Overflow> {
    if claims == Claims::Ignored {
        return Ok(limits);
    }
    for contribution in &pod.contributions {
        for (resource, amount) in contribution.total()? {
            if limits.names(&resource) || matches!(resource, Resource::HugePages(_)) {
                limits.add(&resource, amount)?;
            }
        }
    }
    Ok(limits)
}

/// What the claims that a container names bring along for it: mapping, and overhead per
/// Pod and per container (`GetContainerDRAAllocations`). Claims shared with other
/// containers count whole for each.
///
/// # Errors
/// A sum cannot be held.
pub fn container_share(contributions: &[Contribution], container: &str) -> Result<Amounts, Overflow> {
    let mut share = Amounts::default();
    for contribution in contributions.iter().filter(|c| c.containers.contains(container)) {
        share.add_all(&contribution.once()?)?;
        share.add_all(&contribution.per_container()?)?;
    }
    Ok(share)
}
