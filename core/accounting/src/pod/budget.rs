//! Pod-level resources as a budget for containers and claims (docs/accounting.md 2.5).
//!
//! The API server checks the budget when a Pod is created and cannot see claims. kube-scheduler
//! checks it again after allocating the claims, and rejects the node if the budget is exceeded.

use dragoman_objects::Name;
use dragoman_quantity::{Decimal, Overflow};

use super::limits::{container_share, limit};
use super::requests::{Claims, Options, request};
use super::{Container, PodSpecView, Resources};
use crate::amounts::Amounts;
use crate::resource::Resource;

/// A Pod-level amount that is exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// Containers and claims request more than the Pod.
    #[error("spec.resources.requests[{resource}] is {budget}, but containers and claims request {inner}")]
    Requests {
        /// The resource.
        resource: Resource,
        /// The sum of the requests of containers and claims.
        inner: Decimal,
        /// The Pod-level request.
        budget: Decimal,
    },
    /// The Pod requests more than its limit.
    #[error("spec.resources.limits[{resource}] is {budget}, but the Pod requests {inner}")]
    Limit {
        /// The resource.
        resource: Resource,
        /// The Pod-level request.
        inner: Decimal,
        /// The Pod-level limit.
        budget: Decimal,
    },
    /// Containers and claims together may use more huge pages than the Pod.
    #[error(
        "spec.resources.limits[{resource}] is {budget}, but the limits of containers and claims are {inner}"
    )]
    HugePages {
        /// The huge pages.
        resource: Resource,
        /// The sum of the limits of containers and claims.
        inner: Decimal,
        /// The Pod-level limit.
        budget: Decimal,
    },
    /// A container may use more than the Pod.
    #[error(
        "spec.resources.limits[{resource}] is {budget}, but container {container:?} with its claims may use {inner}"
    )]
    Container {
        /// The container.
        container: Name,
        /// The resource.
        resource: Resource,
        /// The limit of the container plus its share of its claims.
        inner: Decimal,
        /// The Pod-level limit.
        budget: Decimal,
    },
}

/// The version of Kubernetes whose checks and defaults apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// 1.36: kube-scheduler checks requests only, and the API server completes a Pod with a Pod-level
    /// limit.
    V1_36,
    /// 1.37: kube-scheduler checks huge pages and limits of containers too, and the API server
    /// completes every Pod with Pod-level resources, limits included.
    V1_37,
}

/// Returns the budget errors for which the API server refuses the Pod. The Pod-level requests have
/// to be those after [`defaulted`].
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn refused(pod: &PodSpecView) -> Result<Vec<OverBudget>, Overflow> {
    let Some(level) = &pod.pod_level else { return Ok(Vec::new()) };
    let mut over = over_requests(pod, level, Claims::Ignored)?;
    for (resource, budget) in level.limits.iter() {
        if let Some(inner) = level.requests.named(resource).filter(|inner| *inner > budget) {
            over.push(OverBudget::Limit { resource, inner, budget });
        }
    }
    over.extend(over_huge_pages(pod, level, Claims::Ignored)?);
    let resizable = |resource: Resource| resource.resizable();
    for container in pod.all_containers() {
        over.extend(over_limits(level, container, &Amounts::default(), resizable)?);
    }
    Ok(over)
}

/// Returns the budget errors for which kube-scheduler rejects a node with these claims as
/// `UnschedulableAndUnresolvable`. They last until the Pod or the claims change.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn unschedulable(pod: &PodSpecView, checks: Checks) -> Result<Vec<OverBudget>, Overflow> {
    let Some(level) = pod.pod_level.as_ref().filter(|_| !pod.contributions.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut over = over_requests(pod, level, Claims::WholeLife)?;
    if checks == Checks::V1_36 {
        return Ok(over);
    }
    over.extend(over_huge_pages(pod, level, Claims::WholeLife)?);
    // kube-scheduler does not check init containers and sidecars.
    for container in &pod.containers {
        let share = container_share(&pod.contributions, &container.name)?;
        over.extend(over_limits(level, container, &share, |_| true)?);
    }
    Ok(over)
}

/// Limits of a container, raised by its share of its claims, that exceed those of the Pod.
fn over_limits(
    level: &Resources,
    container: &Container,
    share: &Amounts,
    checked: impl Fn(Resource) -> bool,
) -> Result<Vec<OverBudget>, Overflow> {
    let mut over = Vec::new();
    for (resource, budget) in level.limits.iter().filter(|(resource, _)| checked(*resource)) {
        let Some(limit) = container.resources.limits.named(resource) else { continue };
        let inner = limit.checked_add(share.get(resource))?;
        if inner > budget {
            over.push(OverBudget::Container { container: container.name.clone(), resource, inner, budget });
        }
    }
    Ok(over)
}

/// The options for the sum of containers and claims, without Pod-level resources and overhead.
fn inner(claims: Claims) -> Options {
    Options { skip_pod_level: true, exclude_overhead: true, claims, ..Options::default() }
}

fn over_requests(pod: &PodSpecView, level: &Resources, claims: Claims) -> Result<Vec<OverBudget>, Overflow> {
    let mut over = Vec::new();
    for (resource, budget) in level.requests.iter() {
        if let Some(inner) = request(pod, resource, inner(claims))?.filter(|inner| *inner > budget) {
            over.push(OverBudget::Requests { resource, inner, budget });
        }
    }
    Ok(over)
}

fn over_huge_pages(
    pod: &PodSpecView,
    level: &Resources,
    claims: Claims,
) -> Result<Vec<OverBudget>, Overflow> {
    let mut over = Vec::new();
    for (resource, budget) in level.limits.iter().filter(|(r, _)| matches!(r, Resource::HugePages(_))) {
        if let Some(inner) = limit(pod, resource, inner(claims))?.filter(|inner| *inner > budget) {
            over.push(OverBudget::HugePages { resource, inner, budget });
        }
    }
    Ok(over)
}

/// Returns the Pod-level resources that the API server stores; `None` for a Pod without any.
///
/// A missing Pod-level limit of huge pages becomes the sum of the containers' limits. Since 1.37 so
/// does that of cpu and memory where every container, init containers included, has a limit; it is at
/// least the Pod-level request. If the Pod then has any Pod-level limit (since 1.37: in any case),
/// missing Pod-level requests are set: those of huge pages to the Pod-level limit, others to the sum of
/// the containers' requests, or to the Pod-level limit if no container requests the resource.
///
/// The API server does not see claims, so a request that is the sum of the containers' requests
/// leaves no room for them. Such a Pod is never scheduled.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn defaulted(pod: &PodSpecView, checks: Checks) -> Result<Option<Resources>, Overflow> {
    let Some(level) = &pod.pod_level else { return Ok(None) };
    let mut stored = level.clone();
    for pages in pod.resources().filter(|resource| matches!(resource, Resource::HugePages(_))) {
        if let (None, Some(inside)) = (level.limits.named(pages), limit(pod, pages, inner(Claims::Ignored))?)
        {
            stored.limits.set(pages, inside);
        }
    }
    if checks == Checks::V1_37 {
        default_limits(pod, level, &mut stored.limits)?;
    }
    if stored.limits.is_empty() && (checks == Checks::V1_36 || level.requests.is_empty()) {
        return Ok(Some(stored));
    }
    for resource in pod.resources().filter(|resource| resource.at_pod_level()) {
        if level.requests.named(resource).is_none() {
            let limit = stored.limits.named(resource);
            // The request of huge pages always equals their limit.
            let inside = match resource {
                Resource::HugePages(_) => None,
                _ => request(pod, resource, inner(Claims::Ignored))?,
            };
            if let Some(amount) = inside.or(limit) {
                stored.requests.set(resource, amount);
            }
        }
    }
    Ok(Some(stored))
}

/// Sets missing Pod-level limits of cpu and memory, as the API server does since 1.37.
fn default_limits(pod: &PodSpecView, level: &Resources, limits: &mut Amounts) -> Result<(), Overflow> {
    let limited = |resource: Resource| {
        let mut containers = pod.containers.iter().chain(&pod.init_containers);
        containers.all(|container| container.resources.limits.named(resource).is_some())
    };
    for resource in [Resource::Cpu, Resource::Memory] {
        if limits.named(resource).is_none()
            && limited(resource)
            && let Some(inside) = limit(pod, resource, inner(Claims::Ignored))?
        {
            limits.set(resource, inside.max(level.requests.get(resource)));
        }
    }
    Ok(())
}
