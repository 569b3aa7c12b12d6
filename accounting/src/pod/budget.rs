//! Pod-level resources as a budget for containers and claims (docs/accounting.md 2.5).
//!
//! The API server checks the budget when a Pod is created and cannot see claims. kube-scheduler
//! checks it again after allocating the claims, and rejects the node if the budget is exceeded.

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
        container: Box<str>,
        /// The resource.
        resource: Resource,
        /// The limit of the container plus its share of its claims.
        inner: Decimal,
        /// The Pod-level limit.
        budget: Decimal,
    },
}

/// The version of kube-scheduler whose checks apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// kube-scheduler 1.36: requests only.
    V1_36,
    /// kube-scheduler 1.37: huge pages and limits of containers too.
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
/// A missing Pod-level limit of huge pages becomes the sum of the containers' limits. If the Pod
/// then has any Pod-level limit, missing Pod-level requests are set: those of huge pages to the
/// Pod-level limit, others to the sum of the containers' requests, or to the Pod-level limit if no
/// container requests the resource.
///
/// The API server does not see claims, so a request that is the sum of the containers' requests
/// leaves no room for them. Such a Pod is never scheduled.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn defaulted(pod: &PodSpecView) -> Result<Option<Resources>, Overflow> {
    let Some(level) = &pod.pod_level else { return Ok(None) };
    let mut stored = level.clone();
    for pages in pod.resources().filter(|resource| matches!(resource, Resource::HugePages(_))) {
        if let (None, Some(inside)) = (level.limits.named(pages), limit(pod, pages, inner(Claims::Ignored))?)
        {
            stored.limits.set(pages, inside);
        }
    }
    if stored.limits.is_empty() {
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
