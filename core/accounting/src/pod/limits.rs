//! The limits of a Pod (docs/accounting.md 2.2), as computed by `k8s.io/component-helpers/resource`
//! v0.37.

use dragoman_quantity::{Decimal, Overflow};

use super::container_totals::{Total, larger, sum};
use super::requests::{Claims, Options};
use super::{Container, PodSpecView};
use crate::amounts::Amounts;
use crate::claim::contribution::Contribution;
use crate::resource::Resource;

/// Returns the exact limits of the Pod. An absent resource is unlimited.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn limits(pod: &PodSpecView, options: Options) -> Result<Amounts, Overflow> {
    let mut total = Amounts::default();
    for resource in pod.resources() {
        if let Some(amount) = limit(pod, resource, options)? {
            total.set(resource, amount);
        }
    }
    Ok(total)
}

/// Returns the Pod's limit of one resource; `None`: unlimited.
///
/// # Errors
/// The sum does not fit into a `Decimal`.
pub fn limit(pod: &PodSpecView, resource: Resource, options: Options) -> Result<Option<Decimal>, Overflow> {
    let level = if options.skip_pod_level { None } else { pod_level(pod, resource, options) };
    let total = match level {
        Some(level) => Some(level),
        None => aggregated(pod, resource, options)?,
    };
    // Overhead is added to an existing limit only: it would limit an unlimited resource.
    let limited = total.is_some_and(|total| !total.is_zero());
    if options.exclude_overhead || !limited { Ok(total) } else { sum(total, pod.overhead.named(resource)) }
}

fn pod_level(pod: &PodSpecView, resource: Resource, options: Options) -> Option<Decimal> {
    let level = pod.pod_level.as_ref().filter(|_| resource.at_pod_level())?;
    let desired = level.limits.named(resource);
    let reported = pod.status.actual.as_ref().filter(|_| options.status && options.pod_level_status);
    let set = level.limits.iter().chain(level.requests.iter()).any(|(resource, _)| resource.at_pod_level());
    let (Some(actual), true) = (reported, set) else { return desired };
    larger(desired.filter(|_| !pod.status.resize_infeasible), actual.limits.named(resource))
}

fn aggregated(pod: &PodSpecView, resource: Resource, options: Options) -> Result<Option<Decimal>, Overflow> {
    let infeasible = options.status && pod.status.resize_infeasible;
    let desired = |c: &Container| if infeasible { None } else { c.resources.limits.named(resource) };
    let total = Total { pod, resource, claims: Claims::Ignored, without_draws: false };
    let mut most = total.of(desired)?;
    // A claim does not limit an unlimited resource. Huge pages are always limited.
    let limited = most.is_some() || matches!(resource, Resource::HugePages(_));
    if !infeasible && limited && options.claims != Claims::Ignored {
        for contribution in &pod.contributions {
            if contribution.of(resource).next().is_some() {
                most = sum(most, Some(contribution.counted(resource)?))?;
            }
        }
    }
    if !options.status {
        return Ok(most);
    }
    let reported =
        pod.status.actual.as_ref().filter(|actual| options.pod_level_status && !actual.limits.is_empty());
    if let Some(actual) = reported {
        return Ok(larger(most, actual.limits.named(resource)));
    }
    let actual = |container: &Container| {
        let reported = container.status.as_ref().and_then(|status| status.actual.as_ref());
        let reported = reported.map(|actual| &actual.limits).filter(|list| !list.is_empty());
        reported.map_or_else(|| desired(container), |list| list.named(resource))
    };
    Ok(larger(most, total.of(actual)?))
}

/// Returns the amounts of the claims that a container names: mapping, and overhead per Pod and per
/// container (`GetContainerDRAAllocations`). A claim that several containers name counts whole for
/// each.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn container_share(contributions: &[Contribution], container: &str) -> Result<Amounts, Overflow> {
    let mut share = Amounts::default();
    for contribution in contributions.iter().filter(|c| c.containers.contains(container)) {
        for (resource, amount) in contribution.share()?.iter() {
            share.add(resource, amount)?;
        }
    }
    Ok(share)
}
