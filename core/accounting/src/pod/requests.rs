//! The requests of a Pod (docs/accounting.md 2.2, docs/accounting.md 2.4), as computed by
//! `k8s.io/component-helpers/resource` v0.37.

use dragoman_quantity::{Decimal, Overflow};

pub use super::container_totals::Claims;
use super::container_totals::{Total, larger, sum};
use super::{Container, PodSpecView};
use crate::amounts::Amounts;
use crate::resource::Resource;

/// The options of the computation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to count the status of containers: the requests that the kubelet has agreed to and those in
    /// force, for resizes in place.
    pub status: bool,
    /// Whether to count the status at Pod level too.
    pub pod_level_status: bool,
    /// Whether to leave out Pod-level requests and limits.
    pub skip_pod_level: bool,
    /// Whether to leave out the overhead of the Pod.
    pub exclude_overhead: bool,
    /// The way in which claims are counted.
    pub claims: Claims,
}

impl Options {
    /// Returns the options with which kube-scheduler computes what a Pod takes from its node.
    pub fn scheduler(claims: Claims) -> Self {
        Self { status: true, pod_level_status: true, claims, ..Self::default() }
    }
}

/// The ways in which claims are counted, without the option to ignore them.
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

/// Returns the exact requests of the Pod, not rounded.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn requests(pod: &PodSpecView, options: Options) -> Result<Amounts, Overflow> {
    let mut total = Amounts::default();
    for resource in pod.resources() {
        if let Some(amount) = request(pod, resource, options)? {
            total.set(resource, amount);
        }
    }
    Ok(total)
}

/// Returns the Pod's request of one resource; `None` if neither the Pod nor its claims name it.
///
/// # Errors
/// The sum does not fit into a `Decimal`.
pub fn request(pod: &PodSpecView, resource: Resource, options: Options) -> Result<Option<Decimal>, Overflow> {
    let draws = if options.claims == Claims::Ignored { Draws::Count } else { Draws::LeftOut };
    counted(pod, resource, options, draws)
}

/// The request of a Pod for one resource, computed in three ways.
pub(crate) struct Parts {
    /// The request as a scheduler without KEP-5517 counts it.
    pub seen: Decimal,
    /// The request without claims, and without what is drawn from them ([policy] `ConsumeFrom`). Totals that kubelet reports for
    /// the whole Pod are left out: they may include claims.
    ///
    /// [policy]: crate::pod::policy
    pub own: Decimal,
    /// The request with everything.
    pub all: Decimal,
    /// Whether an accounting policy has a say.
    pub policed: bool,
}

/// Returns the request of a Pod for one resource, without and with its claims.
pub(crate) fn parts(pod: &PodSpecView, resource: Resource, variant: Variant) -> Result<Parts, Overflow> {
    let claims = Claims::from(variant);
    let options = Options::scheduler(claims);
    let lines = || pod.contributions.iter().flat_map(|claim| claim.of(resource));
    let policed = lines().any(|line| line.policy.is_some());
    let simple = variant == Variant::WholeLife && !policed && settled(pod, resource);
    if simple && pod_level(pod, resource, options).is_none() {
        // Nearly always: the claims are added to the containers and the overhead.
        let own = Total { pod, resource, claims: Claims::Ignored, without_draws: false }
            .of(|container| container.resources.requests.named(resource))?;
        let own = sum(own, pod.overhead.named(resource))?.unwrap_or_default();
        let mut claims = pod.contributions.iter().map(|claim| claim.counted(resource));
        let all = claims.try_fold(own, |sum, claim| sum.checked_add(claim?))?;
        return Ok(Parts { seen: own, own, all, policed });
    }
    let of = |options, draws| Ok(counted(pod, resource, options, draws)?.unwrap_or_default());
    let without = Options::scheduler(Claims::Ignored);
    let seen = of(without, Draws::Count)?;
    // The totals that kubelet reports may include claims; what it reports of containers does not.
    let level = pod.pod_level.as_ref().filter(|_| resource.at_pod_level());
    let level = level.is_some_and(|level| level.requests.named(resource).is_some());
    let draws = if policed { Draws::LeftOut } else { Draws::Count };
    let own = of(Options { pod_level_status: level, ..without }, draws)?;
    // A kubelet that counts no claims reports totals without them.
    let by_containers = of(Options { pod_level_status: level, ..options }, Draws::LeftOut)?;
    let all = of(options, Draws::LeftOut)?.max(by_containers);
    Ok(Parts { seen, own, all, policed })
}

/// Whether the spec, the requests that the kubelet has agreed to, and those in force are the same.
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

/// The request of a container that the kubelet has agreed to; `desired` if the status has none.
fn allocated(container: &Container, resource: Resource, desired: Option<Decimal>) -> Option<Decimal> {
    let agreed = container.status.as_ref().and_then(|status| status.allocated.as_ref());
    agreed.map_or(desired, |list| list.named(resource))
}

/// The request of a container that is in force.
fn actual(container: &Container, resource: Resource, desired: Option<Decimal>) -> Option<Decimal> {
    let reported = container.status.as_ref().and_then(|status| status.actual.as_ref());
    let reported = reported.map(|actual| &actual.requests).filter(|list| !list.is_empty());
    reported.map_or_else(|| allocated(container, resource, desired), |list| list.named(resource))
}

/// The treatment of requests that are drawn from a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Draws {
    /// Drawn requests count like others.
    Count,
    /// Drawn requests are left out: the mapping of the pool covers them.
    LeftOut,
}

/// Like [`request`], with the treatment of draws as a separate argument.
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

/// The request of all containers together, claims included.
///
/// With the status it is the largest of three sums: the spec, the requests that the kubelet has
/// agreed to, and those in force. An infeasible resize will not happen, so the spec is left out
/// then. The sum in force is computed without claims.
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
        // The totals of the kubelet include claims.
        return Ok(larger(larger(most, allocated.named(resource)), actual.requests.named(resource)));
    }
    let most = larger(most, total(options.claims).of(|c| allocated(c, resource, desired(c)))?);
    Ok(larger(most, total(Claims::Ignored).of(|c| actual(c, resource, desired(c)))?))
}

/// The Pod-level request, which replaces the requests of the containers.
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

/// The request of the containers for which `who` is true, while they run together and without
/// claims. A container counts with the largest of its spec, the request agreed to, and that in
/// force.
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
