//! What a Pod requests (docs/accounting.md 2.2 to 2.4), with the answers of
//! `k8s.io/component-helpers/resource` v0.37.

use dragoman_quantity::{Decimal, Overflow};

pub use super::container_totals::Claims;
use super::container_totals::{Total, larger, sum};
use super::{Container, PodSpecView};
use crate::amounts::Amounts;
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

impl Options {
    /// As kube-scheduler asks for what a Pod takes from its node.
    pub fn scheduler(claims: Claims) -> Self {
        Self { status: true, pod_level_status: true, claims, ..Self::default() }
    }
}

/// Which of the two ways, where claims are counted in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Variant {
    /// [`Claims::WholeLife`].
    #[default]
    WholeLife,
    /// [`Claims::Peak`].
    Peak,
}

impl From<Variant> for Claims {
    fn from(variant: Variant) -> Self {
        match variant {
            Variant::WholeLife => Self::WholeLife,
            Variant::Peak => Self::Peak,
        }
    }
}

/// What the Pod requests of its node, exactly; not yet rounded.
///
/// # Errors
/// A sum cannot be held.
pub fn requests(pod: &PodSpecView, options: Options) -> Result<Amounts, Overflow> {
    let mut total = Amounts::default();
    for resource in pod.resources() {
        if let Some(amount) = request(pod, resource, options)? {
            total.set(resource, amount);
        }
    }
    Ok(total)
}

/// What the Pod requests of one resource, if it or its claims name it.
///
/// # Errors
/// The sum cannot be held.
pub fn request(pod: &PodSpecView, resource: Resource, options: Options) -> Result<Option<Decimal>, Overflow> {
    let draws = if options.claims == Claims::Ignored { Draws::Count } else { Draws::LeftOut };
    counted(pod, resource, options, draws)
}

/// What a Pod requests of one resource, seen in three ways.
pub(crate) struct Parts {
    /// As a scheduler sees it that knows nothing of claims.
    pub seen: Decimal,
    /// Without claims, and without what is drawn from them ([policy] `ConsumeFrom`).
    ///
    /// [policy]: crate::pod::policy
    pub own: Decimal,
    /// With everything.
    pub all: Decimal,
}

/// What a Pod requests of one resource and what its claims add.
pub(crate) fn parts(pod: &PodSpecView, resource: Resource, variant: Variant) -> Result<Parts, Overflow> {
    let claims = Claims::from(variant);
    let options = Options::scheduler(claims);
    let lines = || pod.contributions.iter().flat_map(|claim| claim.of(resource));
    let policed = lines().any(|line| line.policy.is_some());
    let simple = variant == Variant::WholeLife && !policed && settled(pod, resource);
    if simple && pod_level(pod, resource, options).is_none() {
        // Nearly always: the claims come on top, and nothing else has to be looked at.
        let own = Total { pod, resource, claims: Claims::Ignored, without_draws: false }
            .of(|container| container.resources.requests.named(resource))?;
        let own = sum(own, pod.overhead.named(resource))?.unwrap_or_default();
        let mut claims = pod.contributions.iter().map(|claim| claim.counted(resource));
        let all = claims.try_fold(own, |sum, claim| sum.checked_add(claim?))?;
        return Ok(Parts { seen: own, own, all });
    }
    let of =
        |claims, draws| Ok(counted(pod, resource, Options::scheduler(claims), draws)?.unwrap_or_default());
    let seen = of(Claims::Ignored, Draws::Count)?;
    let own = if policed { of(Claims::Ignored, Draws::LeftOut)? } else { seen };
    Ok(Parts { seen, own, all: of(claims, Draws::LeftOut)? })
}

/// Whether what the spec asks for, what the kubelet has agreed to and what is in force are
/// the same.
fn settled(pod: &PodSpecView, resource: Resource) -> bool {
    let whole = |amounts: &Option<Amounts>| amounts.as_ref().is_none_or(Amounts::is_empty);
    let nothing_reported = whole(&pod.status.allocated) && pod.status.actual.is_none();
    nothing_reported
        && !pod.status.resize_infeasible
        && pod.all_containers().all(|container| {
            let desired = container.resources.requests.named(resource);
            container.status.is_none()
                || (allocated(container, resource, desired) == desired
                    && actual(container, resource, desired) == desired)
        })
}

/// What the kubelet has agreed to for a container; what is `desired` if it does not say.
fn allocated(container: &Container, resource: Resource, desired: Option<Decimal>) -> Option<Decimal> {
    let agreed = container.status.as_ref().and_then(|status| status.allocated.as_ref());
    agreed.map_or(desired, |list| list.named(resource))
}

/// What is in force for a container.
fn actual(container: &Container, resource: Resource, desired: Option<Decimal>) -> Option<Decimal> {
    let reported = container.status.as_ref().and_then(|status| status.actual.as_ref());
    let reported = reported.map(|actual| &actual.requests).filter(|list| !list.is_empty());
    reported.map_or_else(|| allocated(container, resource, desired), |list| list.named(resource))
}

/// What happens to requests that are drawn from a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Draws {
    /// They count like others.
    Count,
    /// The pool has them.
    LeftOut,
}

/// As [`request`]; claims and draws apart.
fn counted(
    pod: &PodSpecView,
    resource: Resource,
    options: Options,
    draws: Draws,
) -> Result<Option<Decimal>, Overflow> {
    let level = if options.skip_pod_level { None } else { pod_level(pod, resource, options) };
    let total = match level {
        Some(level) => Some(level),
        None => aggregated(pod, resource, options, draws)?,
    };
    if options.exclude_overhead { Ok(total) } else { sum(total, pod.overhead.named(resource)) }
}

/// What all containers request together, claims included.
///
/// With the status it is the most of three sums: what the spec asks for, what the kubelet
/// has agreed to, what is in force. A resize that is infeasible will not happen: then the
/// spec says nothing.
fn aggregated(
    pod: &PodSpecView,
    resource: Resource,
    options: Options,
    draws: Draws,
) -> Result<Option<Decimal>, Overflow> {
    let total = |claims| Total { pod, resource, claims, without_draws: draws == Draws::LeftOut };
    let infeasible = options.status && pod.status.resize_infeasible;
    let desired = |c: &Container| if infeasible { None } else { c.resources.requests.named(resource) };
    let most = if infeasible { None } else { total(options.claims).of(desired)? };
    if !options.status || settled(pod, resource) {
        return Ok(most);
    }
    if let (true, Some(allocated), Some(actual)) =
        (options.pod_level_status, &pod.status.allocated, &pod.status.actual)
        && !actual.requests.is_empty()
    {
        // The kubelet's own totals: claims are in them.
        return Ok(larger(larger(most, allocated.named(resource)), actual.requests.named(resource)));
    }
    let most = larger(most, total(options.claims).of(|c| allocated(c, resource, desired(c)))?);
    Ok(larger(most, total(Claims::Ignored).of(|c| actual(c, resource, desired(c)))?))
}

/// What is requested for the Pod as a whole: in place of what its containers do.
fn pod_level(pod: &PodSpecView, resource: Resource, options: Options) -> Option<Decimal> {
    let level = pod.pod_level.as_ref().filter(|_| resource.at_pod_level())?;
    let desired = level.requests.named(resource);
    let reported = pod.status.actual.as_ref().filter(|_| options.status && options.pod_level_status);
    let named = level.requests.iter().any(|(resource, _)| resource.at_pod_level());
    let (Some(actual), true) = (reported, named) else { return desired };
    let desired = desired.filter(|_| !pod.status.resize_infeasible);
    let allocated = pod.status.allocated.as_ref().and_then(|allocated| allocated.named(resource));
    larger(larger(desired, actual.requests.named(resource)), allocated)
}

/// What the containers for which `who` is true request together while they run, claims
/// apart: each the most of what it asks for, was agreed to and has.
pub(crate) fn drawn(
    pod: &PodSpecView,
    resource: Resource,
    who: impl Fn(&Container) -> bool,
) -> Result<Decimal, Overflow> {
    let infeasible = pod.status.resize_infeasible;
    let own = |container: &Container| {
        let desired = container.resources.requests.named(resource).filter(|_| !infeasible);
        let agreed = larger(desired, allocated(container, resource, desired));
        larger(agreed, actual(container, resource, desired)).filter(|_| who(container))
    };
    let total = Total { pod, resource, claims: Claims::Ignored, without_draws: false };
    Ok(total.of(own)?.unwrap_or_default())
}
