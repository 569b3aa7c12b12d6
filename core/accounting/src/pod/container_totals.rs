//! The sidecar formula (KEP-753) over one amount of each container, with the additions of claims
//! (docs/accounting.md 2.2, docs/accounting.md 2.3, docs/accounting.md 3).

use dragoman_quantity::{Decimal, Overflow};

use super::{Container, PodSpecView};
use crate::claim::contribution::{Contribution, Line, number};
use crate::claim::footprint::AccountingPolicy;
use crate::resource::Resource;

/// The way in which claims are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Claims {
    /// Claims are not counted.
    #[default]
    Ignored,
    /// Claims count for the whole life of the Pod, as in Kubernetes 1.37.
    WholeLife,
    /// Amounts per container count only while the container runs (kubernetes/kubernetes#141375).
    /// The result differs if init containers use claims.
    Peak,
}

/// The total of one resource over the containers of a Pod.
#[derive(Clone, Copy)]
pub(super) struct Total<'a> {
    pub pod: &'a PodSpecView,
    pub resource: Resource,
    pub claims: Claims,
    /// Whether to leave out what containers draw from pools.
    pub without_draws: bool,
}

impl<'a> Total<'a> {
    /// Returns the total; `None` if no container or claim names the resource. `own` is the amount
    /// of a container.
    pub(super) fn of(self, own: impl Fn(&Container) -> Option<Decimal>) -> Result<Option<Decimal>, Overflow> {
        let Self { pod, .. } = self;
        let plain = self.plain();
        let effective = |container: &Container| {
            if plain { Ok(own(container)) } else { self.effective(container, &own) }
        };
        let mut idle = if plain { Idle::default() } else { Idle::of(self) };
        let (mut sidecars, mut most) = (None, None);
        for container in &pod.init_containers {
            let total = sum(sidecars, effective(container)?)?;
            idle.starts(container);
            most = larger(most, sum(total, idle.held()?)?);
            if container.sidecar {
                sidecars = total;
            } else {
                idle.ends(container);
            }
        }
        let mut total = sidecars;
        for container in &pod.containers {
            total = sum(total, effective(container)?)?;
            idle.starts(container);
        }
        total = sum(total, idle.held()?)?;
        sum(larger(most, total), self.fixed()?)
    }

    /// Whether each container takes just its own amount, which is the case for nearly every Pod.
    fn plain(self) -> bool {
        let policed = || {
            let mut lines = self.pod.contributions.iter().flat_map(|claim| claim.of(self.resource));
            lines.any(|line| line.policy.is_some())
        };
        match self.claims {
            Claims::Ignored => !self.without_draws || !policed(),
            Claims::WholeLife => !policed(),
            Claims::Peak => self.pod.contributions.is_empty(),
        }
    }

    /// The amount that a container takes while it runs.
    fn effective(
        self,
        container: &Container,
        own: impl Fn(&Container) -> Option<Decimal>,
    ) -> Result<Option<Decimal>, Overflow> {
        let mut own = own(container);
        let named = |claim: &&Contribution| claim.containers.contains(&container.name);
        let lines = || self.pod.contributions.iter().filter(named).flat_map(|claim| claim.of(self.resource));
        if self.without_draws && lines().any(|line| line.policy == Some(AccountingPolicy::ConsumeFrom)) {
            own = own.map(|_| Decimal::ZERO);
        }
        if self.claims == Claims::Ignored {
            return Ok(own);
        }
        let max = lines().filter(|line| line.policy == Some(AccountingPolicy::Max));
        own = larger(own, max.map(|line| line.mapping).try_fold(None, sum)?);
        if self.claims == Claims::Peak {
            for line in lines() {
                own = sum(own, line.per_container)?;
                if line.policy == Some(AccountingPolicy::AddPerReference) {
                    own = sum(own, line.mapping)?;
                }
            }
        }
        Ok(own)
    }

    /// The lines whose mapping counts with the running containers that name their claim.
    fn taken_up(self) -> impl Iterator<Item = (&'a Contribution, &'a Line)> {
        let Self { pod, resource, claims, .. } = self;
        let counts = move |line: &Line| match line.policy {
            Some(AccountingPolicy::Max) => claims != Claims::Ignored,
            Some(AccountingPolicy::AddPerReference) => claims == Claims::Peak,
            _ => false,
        };
        let contributions = pod.contributions.iter();
        let lines = contributions.flat_map(move |claim| claim.of(resource).map(move |line| (claim, line)));
        lines.filter(move |(_, line)| counts(line))
    }

    /// The amounts of claims that count independently of which containers run.
    fn fixed(self) -> Result<Option<Decimal>, Overflow> {
        let mut fixed = None;
        if self.claims == Claims::Ignored {
            return Ok(fixed);
        }
        for claim in &self.pod.contributions {
            for line in claim.of(self.resource) {
                let (named, strangers) = match self.claims {
                    Claims::WholeLife => (claim.containers.len(), 0),
                    Claims::Peak | Claims::Ignored => (0, self.strangers(claim)),
                };
                let times = |amount: Option<Decimal>, count: usize| {
                    amount.map(|amount| amount.checked_mul(number(count)?)).transpose()
                };
                let mapping = match (line.policy, self.claims) {
                    (Some(AccountingPolicy::AddPerReference), Claims::WholeLife) => {
                        times(line.mapping, named.max(1))?
                    }
                    (Some(AccountingPolicy::AddPerReference), _) => times(line.mapping, strangers)?,
                    (Some(AccountingPolicy::Max), _) => times(line.mapping, self.strangers(claim))?,
                    (Some(AccountingPolicy::AddPerClaim | AccountingPolicy::ConsumeFrom) | None, _) => {
                        line.mapping
                    }
                };
                fixed = sum(sum(fixed, mapping)?, line.per_pod)?;
                fixed = sum(fixed, times(line.per_container, named + strangers)?)?;
            }
        }
        Ok(fixed)
    }

    /// The number of containers that a claim names and the Pod does not have. Each of them counts
    /// for the whole life of the Pod, because it is not known when it would run.
    fn strangers(&self, claim: &Contribution) -> usize {
        let known = self.pod.all_containers().filter(|container| claim.containers.contains(&container.name));
        claim.containers.len().saturating_sub(known.count())
    }
}

/// Lines that running containers take up, each with the number of these containers. A line counts
/// by itself while the number is zero.
#[derive(Default)]
struct Idle<'a>(Vec<(&'a Contribution, &'a Line, usize)>);

impl<'a> Idle<'a> {
    fn of(total: Total<'a>) -> Self {
        let lines = total.taken_up().filter(|(claim, _)| total.strangers(claim) == 0);
        Self(lines.map(|(claim, line)| (claim, line, 0)).collect())
    }

    fn starts(&mut self, container: &Container) {
        self.named_by(container).for_each(|running| *running += 1);
    }

    fn ends(&mut self, container: &Container) {
        self.named_by(container).for_each(|running| *running -= 1);
    }

    fn named_by(&mut self, container: &Container) -> impl Iterator<Item = &mut usize> {
        let named = self.0.iter_mut().filter(|(claim, ..)| claim.containers.contains(&container.name));
        named.map(|(.., running)| running)
    }

    fn held(&self) -> Result<Option<Decimal>, Overflow> {
        let idle = self.0.iter().filter(|(.., running)| *running == 0);
        idle.map(|(_, line, _)| line.mapping).try_fold(None, sum)
    }
}

/// The sum of the amounts that are set.
pub(super) fn sum(a: Option<Decimal>, b: Option<Decimal>) -> Result<Option<Decimal>, Overflow> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(a.checked_add(b)?)),
        (a, b) => Ok(a.or(b)),
    }
}

/// The larger of the amounts that are set.
pub(super) fn larger(a: Option<Decimal>, b: Option<Decimal>) -> Option<Decimal> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}
