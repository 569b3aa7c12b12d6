//! The check whether a Pod may be resized in place (docs/accounting.md 4).

use std::collections::BTreeSet;

use dragoman_objects::Name;
use dragoman_quantity::Overflow;

use super::PodSpecView;
use super::budget::{Checks, OverBudget, refused, unschedulable};
use super::cgroups::{Qos, qos};
use crate::amounts::Amounts;
use crate::resource::Resource;

/// The version of Kubernetes whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Kubernetes 1.36: a Pod with claims cannot be resized, even if they bring nothing.
    V1_36,
    /// Kubernetes 1.37 with KEP-5517: the spec may change, the amounts of claims stay.
    V1_37,
}

/// The reason why a resize is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Kubernetes 1.36: the Pod's status has amounts of claims.
    #[error("status.nodeAllocatableResourceClaimStatuses: a Pod with entries cannot be resized")]
    ClaimStatuses,
    /// Kubernetes 1.36: a container names claims, which excludes the whole Pod.
    #[error("spec.containers[{0}].resources.claims: a Pod whose containers name claims cannot be resized")]
    NamesClaims(Name),
    /// Only cpu and memory can change.
    #[error("{field}[{resource}]: only cpu and memory can be resized")]
    NotResizable {
        /// The path of the list.
        field: String,
        /// The resource.
        resource: Resource,
    },
    /// The QoS class of a Pod never changes.
    #[error("the QoS class would change from {from:?} to {to:?}")]
    Qos {
        /// The class of the current Pod.
        from: Qos,
        /// The class of the wanted Pod.
        to: Qos,
    },
    /// The Pod-level resources would be exceeded.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

/// Returns the reasons why `wanted` may not replace `current`. Both are the same Pod, with the same
/// claims and other resources. An empty list allows the resize.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn resize(current: &PodSpecView, wanted: &PodSpecView, rules: Rules) -> Result<Vec<Refused>, Overflow> {
    let mut refusals = Vec::new();
    if rules == Rules::V1_36 {
        if !current.recorded.is_empty() {
            refusals.push(Refused::ClaimStatuses);
        }
        let naming = current.all_containers().find(|container| container.names_claims);
        refusals.extend(naming.map(|container| Refused::NamesClaims(container.name.clone())));
    }
    let pairs = current.all_containers().zip(wanted.all_containers());
    for (before, after) in pairs {
        let field = |list| format!("spec.containers[{}].resources.{list}", before.name);
        refusals.extend(changed(&before.resources.requests, &after.resources.requests, &field("requests")));
        refusals.extend(changed(&before.resources.limits, &after.resources.limits, &field("limits")));
    }
    let (before, after) =
        (current.pod_level.clone().unwrap_or_default(), wanted.pod_level.clone().unwrap_or_default());
    refusals.extend(changed(&before.requests, &after.requests, "spec.resources.requests"));
    refusals.extend(changed(&before.limits, &after.limits, "spec.resources.limits"));
    let (from, to) = (qos(current), qos(wanted));
    if from != to {
        refusals.push(Refused::Qos { from, to });
    }
    refusals.extend(refused(wanted)?.into_iter().map(Refused::from));
    let checks = match rules {
        Rules::V1_36 => Checks::V1_36,
        Rules::V1_37 => Checks::V1_37,
    };
    for over in unschedulable(wanted, checks)? {
        let over = Refused::from(over);
        if !refusals.contains(&over) {
            refusals.push(over);
        }
    }
    Ok(refusals)
}

fn changed(before: &Amounts, after: &Amounts, field: &str) -> Vec<Refused> {
    let named: BTreeSet<Resource> = before.iter().chain(after.iter()).map(|(resource, _)| resource).collect();
    let stuck = named.into_iter().filter(|r| !r.resizable() && before.named(*r) != after.named(*r));
    stuck.map(|resource| Refused::NotResizable { field: field.to_owned(), resource }).collect()
}
