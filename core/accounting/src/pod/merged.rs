//! Many containers of one Pod, put together. A tenant may write 9 000 into one Pod, which would take megabytes of each reader.

use dragoman_quantity::{Decimal, Overflow};

use super::{Container, ContainerStatus, PodSpecView, Resources};
use crate::amounts::Amounts;
use crate::resource::Resource;

/// The containers of a Pod, and its init containers, that are kept one by one.
const KEPT: usize = 32;
/// The containers that name claims and are kept one by one: a policy of a claim may ask which of them take what.
const NAMING: usize = 128;

impl PodSpecView {
    /// Puts containers together where there are many that name no claim. Their sum is what they take. Init containers are put
    /// together so that the Pod takes no less than before: sidecars come first, and the largest amounts of the others last.
    /// Limits of cpu and memory are lost: the API server has compared each with those of the Pod.
    pub fn merge_containers(&mut self) {
        if self.containers.len() > KEPT {
            self.containers = merged(std::mem::take(&mut self.containers), |plain| {
                Ok([Some(together(&plain, Decimal::checked_add)?), None])
            });
        }
        if self.init_containers.len() > KEPT {
            self.init_containers = merged(std::mem::take(&mut self.init_containers), |plain| {
                let (sidecars, others): (Vec<_>, Vec<_>) = plain.iter().partition(|of| of.sidecar);
                let first = Container { sidecar: true, ..together(&sidecars, Decimal::checked_add)? };
                let last = together(&others, |a, b| Ok(a.max(b)))?;
                Ok([(!sidecars.is_empty()).then_some(first), (!others.is_empty()).then_some(last)])
            });
        }
    }
}

/// The containers that stay as they are, and the others as `put` puts them together: before the former, and after them. All stay as
/// they are where a sum does not fit.
fn merged(
    containers: Vec<Container>,
    put: impl Fn(&[Container]) -> Result<[Option<Container>; 2], Overflow>,
) -> Vec<Container> {
    let mut named = 0;
    let stays = |container: &Container| {
        named += usize::from(container.names_claims);
        container.names_claims && named <= NAMING
    };
    let (mut stay, plain): (Vec<_>, Vec<_>) = containers.into_iter().partition(stays);
    if plain.is_empty() {
        return stay;
    }
    match put(&plain) {
        Ok([before, after]) => {
            stay.splice(0..0, before);
            stay.extend(after);
        }
        Err(Overflow) => stay.extend(plain),
    }
    stay.shrink_to_fit();
    stay
}

/// One container that takes what these take.
fn together<'a>(
    containers: &(impl IntoIterator<Item = &'a Container> + Clone),
    add: impl Fn(Decimal, Decimal) -> Result<Decimal, Overflow>,
) -> Result<Container, Overflow> {
    let all = || containers.clone().into_iter();
    let fold = |amounts: &mut dyn Iterator<Item = &Amounts>| -> Result<Amounts, Overflow> {
        let mut sum = Amounts::default();
        for (resource, amount) in amounts.flat_map(Amounts::iter) {
            let known = sum.named(resource);
            sum.set(resource, known.map_or(Ok(amount), |known| add(known, amount))?);
        }
        Ok(sum)
    };
    let agreed = |of: &'a Container| {
        of.status.as_ref().and_then(|of| of.allocated.as_ref()).unwrap_or(&of.resources.requests)
    };
    let in_force = |of: &'a Container| {
        let actual = of.status.as_ref().and_then(|of| of.actual.as_ref()).map(|of| &of.requests);
        actual.filter(|requests| !requests.is_empty()).unwrap_or_else(|| agreed(of))
    };
    let requests = fold(&mut all().map(|of| &of.resources.requests))?;
    let limits = fold(&mut all().map(|of| &of.resources.limits))?;
    let limits = limits.iter().filter(|(resource, _)| matches!(resource, Resource::HugePages(_))).collect();
    let status = if all().any(|of| of.status.is_some()) {
        let actual = Resources { requests: fold(&mut all().map(in_force))?, limits: Amounts::default() };
        Some(ContainerStatus { allocated: Some(fold(&mut all().map(agreed))?), actual: Some(actual) })
    } else {
        None
    };
    Ok(Container { resources: Resources { requests, limits }, status, ..Container::default() })
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::pod::requests::{Claims, Options, request};

    fn amounts(rng: &mut Rng) -> Amounts {
        let mut amounts = Amounts::default();
        for resource in [Resource::Cpu, Resource::Memory] {
            if rng.u8(..4) > 0 {
                amounts.set(resource, Decimal::from(rng.i64(0..9)));
            }
        }
        amounts
    }

    fn container(number: usize, rng: &mut Rng) -> Container {
        let status = (rng.u8(..3) == 0).then(|| ContainerStatus {
            allocated: rng.bool().then(|| amounts(rng)),
            actual: rng.bool().then(|| Resources { requests: amounts(rng), limits: Amounts::default() }),
        });
        Container {
            name: format!("c{number}").as_str().into(),
            resources: Resources { requests: amounts(rng), limits: Amounts::default() },
            sidecar: rng.bool(),
            names_claims: rng.u8(..4) == 0,
            status,
        }
    }

    /// A Pod with many containers takes what it took before; one with many init containers takes no less.
    #[test]
    fn what_a_pod_takes_stays() {
        let rng = &mut Rng::with_seed(1);
        for round in 0..300 {
            let (most, few) = if round % 2 == 0 { (200, 5) } else { (5, 200) };
            let pod = PodSpecView {
                containers: (0..rng.usize(..most)).map(|number| container(number, rng)).collect(),
                init_containers: (0..rng.usize(..few)).map(|number| container(number, rng)).collect(),
                ..PodSpecView::default()
            };
            let mut merged = pod.clone();
            merged.merge_containers();
            let before = [pod.containers.len(), pod.init_containers.len()];
            assert!(merged.containers.len() <= before[0].min(129));
            assert!(merged.init_containers.len() <= before[1].min(130));
            for resource in [Resource::Cpu, Resource::Memory] {
                let of = |pod| request(pod, resource, Options::scheduler(Claims::Ignored)).expect("it fits");
                let (whole, less) = (of(&pod), of(&merged));
                let is_same = if before[1] > 32 { less >= whole } else { less == whole };
                assert!(is_same, "round {round}: {whole:?} before, {less:?} merged");
            }
        }
    }

    /// Sidecars run beside all others, whatever their order was.
    #[test]
    fn sidecars_and_the_largest_init_container_are_exact_where_they_stand_so() {
        let of = |sidecar, cpu: i64| Container {
            sidecar,
            resources: Resources {
                requests: [(Resource::Cpu, Decimal::from(cpu))].into_iter().collect(),
                limits: Amounts::default(),
            },
            ..Container::default()
        };
        let mut pod = PodSpecView {
            init_containers: (0..40).map(|_| of(true, 1)).chain((0..40).map(|cpu| of(false, cpu))).collect(),
            ..PodSpecView::default()
        };
        pod.merge_containers();
        assert_eq!(pod.init_containers.len(), 2);
        let cpu = request(&pod, Resource::Cpu, Options::default()).expect("it fits");
        assert_eq!(cpu, Some(Decimal::from(79)));
    }
}
