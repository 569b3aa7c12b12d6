//! Pod-level resources as a budget for containers and claims (docs/accounting.md 2.5).
//!
//! The API server checks it when a Pod is created and cannot see claims; kube-scheduler
//! checks it again once they are allocated, and gives the node up if it does not hold.

use dragoman_quantity::{Decimal, Overflow};

use super::limits::{container_share, limit};
use super::requests::{Claims, Options, request};
use super::{Container, PodSpecView, Resources};
use crate::amounts::Amounts;
use crate::resource::Resource;

/// A Pod-level amount that does not hold what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// Containers and claims request more than the Pod.
    #[error("spec.resources.requests[{resource}] is {budget}, but containers and claims request {inner}")]
    Requests {
        /// The resource.
        resource: Resource,
        /// What is inside.
        inner: Decimal,
        /// What the Pod requests.
        budget: Decimal,
    },
    /// The Pod requests more than its limit.
    #[error("spec.resources.limits[{resource}] is {budget}, but the Pod requests {inner}")]
    Limit {
        /// The resource.
        resource: Resource,
        /// What the Pod requests.
        inner: Decimal,
        /// Its limit.
        budget: Decimal,
    },
    /// Containers and claims together may use more huge pages than the Pod.
    #[error(
        "spec.resources.limits[{resource}] is {budget}, but the limits of containers and claims are {inner}"
    )]
    HugePages {
        /// Their size.
        resource: Resource,
        /// What is inside.
        inner: Decimal,
        /// The Pod's limit.
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
        /// Its limit and its share of its claims.
        inner: Decimal,
        /// The Pod's limit.
        budget: Decimal,
    },
}

/// Whose checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// kube-scheduler 1.36: requests only.
    V1_36,
    /// kube-scheduler 1.37: huge pages and limits of containers too.
    V1_37,
}

/// What keeps the API server from taking the Pod, as far as budgets go. Requests at Pod
/// level are those after [`defaulted`].
///
/// # Errors
/// A sum cannot be held.
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

/// What keeps kube-scheduler from giving the Pod any node with these claims: `Unschedulable
/// AndUnresolvable`, until the Pod or the claims are others.
///
/// # Errors
/// A sum cannot be held.
pub fn unschedulable(pod: &PodSpecView, checks: Checks) -> Result<Vec<OverBudget>, Overflow> {
    let Some(level) = pod.pod_level.as_ref().filter(|_| !pod.contributions.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut over = over_requests(pod, level, Claims::WholeLife)?;
    if checks == Checks::V1_36 {
        return Ok(over);
    }
    over.extend(over_huge_pages(pod, level, Claims::WholeLife)?);
    // Init containers and sidecars are not looked at.
    for container in &pod.containers {
        let share = container_share(&pod.contributions, &container.name)?;
        over.extend(over_limits(level, container, &share, |_| true)?);
    }
    Ok(over)
}

/// The limits of a container, raised by its share of its claims, above those of the Pod.
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

/// Containers and claims alone.
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

/// The Pod-level resources that the API server stores for a Pod that has any. Huge pages
/// are limited to what containers may use together. Where there is a limit of anything,
/// what is not requested for the Pod as a whole, but by its containers, is requested as
/// much as they do together; what has a limit and is requested by nobody, as much as the
/// limit.
///
/// A request that was made of what containers request leaves no room for claims, which
/// the API server does not see: such a Pod is never scheduled.
///
/// # Errors
/// A sum cannot be held.
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
            // Of huge pages a Pod requests what it is limited to, no less.
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
