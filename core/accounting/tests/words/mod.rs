//! Short constructors for Pods, claims and amounts.

#![expect(clippy::unwrap_used, reason = "a test")]
#![allow(dead_code, reason = "not every test needs every word")]

use std::collections::BTreeSet;

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::contribution::{Contribution, Line, Source};
use dragoman_accounting::claim::footprint::AccountingPolicy;
use dragoman_accounting::per_resource::Units;
use dragoman_accounting::pod::requests::{Claims, Options, requests};
use dragoman_accounting::pod::{Container, PodSpecView, Resources};
use dragoman_accounting::resource::Resource;
use dragoman_objects::Name;
use dragoman_quantity::{Decimal, Quantity};

pub(crate) fn q(text: &str) -> Decimal {
    text.parse::<Quantity>().unwrap().amount
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::of(name).unwrap()
}

pub(crate) fn amounts(list: &[(&str, &str)]) -> Amounts {
    Amounts::parse(list.iter().copied()).unwrap()
}

/// Amounts in the units of a node.
pub(crate) fn units(list: &[(&str, i64)]) -> Units {
    list.iter().map(|(name, count)| (resource(name), *count)).collect()
}

/// A container with requests.
pub(crate) fn container(name: &str, requests: &[(&str, &str)]) -> Container {
    limited(name, requests, &[])
}

/// A container with requests and limits.
pub(crate) fn limited(name: &str, requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Container {
    let resources = Resources { requests: amounts(requests), limits: amounts(limits) };
    Container { name: name.into(), resources, ..Container::default() }
}

/// A line with mapping, overhead per Pod and overhead per container. An empty text sets none.
pub(crate) fn line(name: &str, mapping: &str, per_pod: &str, per_container: &str) -> Line {
    let amount = |text: &str| (!text.is_empty()).then(|| q(text));
    Line {
        mapping: amount(mapping),
        per_pod: amount(per_pod),
        per_container: amount(per_container),
        ..Line::empty(resource(name))
    }
}

/// A line of `cpu` cpus of `driver` under a policy.
pub(crate) fn policed(driver: &str, policy: AccountingPolicy, cpu: &str) -> Line {
    Line { driver: driver.into(), policy: Some(policy), ..Line::mapping(Resource::Cpu, q(cpu)) }
}

/// A claim with the containers that name it.
pub(crate) fn claim(name: &str, containers: &[&str], lines: Vec<Line>) -> Contribution {
    let containers: BTreeSet<Name> = containers.iter().map(|c| Name::from(*c)).collect();
    let source = Source { uid: Some(name.into()), ..Source::claim(name) };
    Contribution { source, containers, lines, ..Contribution::default() }
}

pub(crate) fn pod(containers: Vec<Container>, contributions: Vec<Contribution>) -> PodSpecView {
    PodSpecView {
        namespace: "ns".into(),
        name: "pod".into(),
        uid: "pod".into(),
        containers,
        contributions,
        ..PodSpecView::default()
    }
}

/// Returns the requests of the Pod.
pub(crate) fn total(pod: &PodSpecView, claims: Claims) -> Amounts {
    requests(pod, Options { claims, ..Options::default() }).unwrap()
}

/// Returns the requests of the Pod in Kubernetes 1.37.
pub(crate) fn now(pod: &PodSpecView) -> Amounts {
    total(pod, Claims::WholeLife)
}

pub(crate) fn cpu(pod: &PodSpecView) -> Decimal {
    now(pod).get(Resource::Cpu)
}
