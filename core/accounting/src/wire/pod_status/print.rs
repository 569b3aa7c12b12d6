//! Conversion of contributions into each generation, with the losses.

use std::collections::BTreeMap;

use dragoman_objects::{
    AdditionalNodeAllocatableResources, MappingStatus, Name, NativeResource, NativeResourceClaimStatus,
    NodeAllocatableResourceClaimStatus, ObjectReference, OverheadStatus, SourceReference,
};
use dragoman_quantity::{Decimal, Overflow};

use crate::amounts::written;
use crate::claim::contribution::{Contribution, Source};
use crate::resource::Resource;

/// A part of a contribution that a generation has no field for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Loss {
    /// The generation has one amount for each resource, from which limits of containers cannot be
    /// derived.
    #[error("{0}: what of it is mapping and what overhead")]
    Split(Resource),
    /// No generation names drivers or policies.
    #[error("{0}: which driver it comes from and how it adds up")]
    Lines(Resource),
    /// Up to 1.37 only claims have a place in the status. The amounts count all the same.
    #[error("{0} {1}: everything, because it is no claim")]
    Source(Name, Name),
}

/// The lines of one resource, added up.
#[derive(Debug, Clone, Copy, Default)]
struct Collapsed {
    mapping: Option<Decimal>,
    per_pod: Option<Decimal>,
    per_container: Option<Decimal>,
}

fn add(sum: &mut Option<Decimal>, more: Option<Decimal>) -> Result<(), Overflow> {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or_default().checked_add(more)?);
    }
    Ok(())
}

fn collapsed(
    contribution: &Contribution,
    losses: &mut Vec<Loss>,
) -> Result<BTreeMap<Resource, Collapsed>, Overflow> {
    let mut by_resource: BTreeMap<Resource, Collapsed> = BTreeMap::new();
    for line in &contribution.lines {
        let sums = by_resource.entry(line.resource).or_default();
        add(&mut sums.mapping, line.mapping)?;
        add(&mut sums.per_pod, line.per_pod)?;
        add(&mut sums.per_container, line.per_container)?;
        if (!line.driver.is_empty() || line.policy.is_some()) && !losses.contains(&Loss::Lines(line.resource))
        {
            losses.push(Loss::Lines(line.resource));
        }
    }
    Ok(by_resource)
}

fn mapping(by_resource: &BTreeMap<Resource, Collapsed>) -> Vec<MappingStatus> {
    let mapped = by_resource.iter().filter_map(|(resource, sums)| {
        Some(MappingStatus { name: resource.to_string().into(), quantity: written(*resource, sums.mapping?) })
    });
    mapped.collect()
}

fn overhead(by_resource: &BTreeMap<Resource, Collapsed>) -> Vec<OverheadStatus> {
    let costly = by_resource.iter().filter(|(_, sums)| sums.per_pod.or(sums.per_container).is_some());
    let entry = |(resource, sums): (&Resource, &Collapsed)| OverheadStatus {
        name: resource.to_string().into(),
        per_pod: sums.per_pod.map(|amount| written(*resource, amount)),
        per_container: sums.per_container.map(|amount| written(*resource, amount)),
    };
    costly.map(entry).collect()
}

fn is_claim(source: &Source) -> bool {
    source.is(&Source::claim(source.name.clone()))
}

/// The contributions of claims; the others are losses.
fn claims<'a>(contributions: &'a [Contribution], losses: &mut Vec<Loss>) -> Vec<&'a Contribution> {
    let (claims, others): (Vec<_>, Vec<_>) = contributions.iter().partition(|c| is_claim(&c.source));
    losses.extend(others.iter().map(|c| Loss::Source(c.source.kind.clone(), c.source.name.clone())));
    claims
}

fn containers(contribution: &Contribution) -> Vec<Name> {
    contribution.containers.iter().cloned().collect()
}

/// Returns `status.additionalNodeAllocatableResources` of Kubernetes 1.38, and the losses.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn to_1_38(
    contributions: &[Contribution],
) -> Result<(Vec<AdditionalNodeAllocatableResources>, Vec<Loss>), Overflow> {
    let (mut entries, mut losses) = (Vec::new(), Vec::new());
    for contribution in contributions {
        let by_resource = collapsed(contribution, &mut losses)?;
        let Source { api_group, kind, name, .. } = contribution.source.clone();
        entries.push(AdditionalNodeAllocatableResources {
            source: SourceReference { api_group, kind, name },
            containers: containers(contribution),
            mapping: mapping(&by_resource),
            overhead: overhead(&by_resource),
        });
    }
    Ok((entries, losses))
}

/// Returns `status.nodeAllocatableResourceClaimStatuses` of Kubernetes 1.37, and the losses.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn to_1_37(
    contributions: &[Contribution],
) -> Result<(Vec<NodeAllocatableResourceClaimStatus>, Vec<Loss>), Overflow> {
    let (mut entries, mut losses) = (Vec::new(), Vec::new());
    for contribution in claims(contributions, &mut losses) {
        let by_resource = collapsed(contribution, &mut losses)?;
        entries.push(NodeAllocatableResourceClaimStatus {
            resource_claim_name: contribution.source.name.clone(),
            containers: containers(contribution),
            mapping: mapping(&by_resource),
            overhead: overhead(&by_resource),
            ..NodeAllocatableResourceClaimStatus::default()
        });
    }
    Ok((entries, losses))
}

/// Returns mapping and overhead of each resource in one amount.
fn totals(
    contribution: &Contribution,
    losses: &mut Vec<Loss>,
) -> Result<BTreeMap<Resource, Decimal>, Overflow> {
    let by_resource = collapsed(contribution, losses)?;
    for (resource, sums) in &by_resource {
        if sums.per_pod.or(sums.per_container).is_some() {
            losses.push(Loss::Split(*resource));
        }
    }
    by_resource.into_keys().map(|resource| Ok((resource, contribution.counted(resource)?))).collect()
}

/// Returns `status.nodeAllocatableResourceClaimStatuses` of Kubernetes 1.36, and the losses.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn to_1_36(
    contributions: &[Contribution],
) -> Result<(Vec<NodeAllocatableResourceClaimStatus>, Vec<Loss>), Overflow> {
    let (mut entries, mut losses) = (Vec::new(), Vec::new());
    for contribution in claims(contributions, &mut losses) {
        let totals = totals(contribution, &mut losses)?;
        entries.push(NodeAllocatableResourceClaimStatus {
            resource_claim_name: contribution.source.name.clone(),
            containers: containers(contribution),
            resources: totals
                .into_iter()
                .map(|(r, amount)| (r.to_string().into(), written(r, amount)))
                .collect(),
            ..NodeAllocatableResourceClaimStatus::default()
        });
    }
    Ok((entries, losses))
}

/// Returns `status.nativeResourceClaimStatus` of the draft, and the losses.
///
/// # Errors
/// A sum does not fit into a `Decimal`.
pub fn to_draft(
    contributions: &[Contribution],
) -> Result<(Vec<NativeResourceClaimStatus>, Vec<Loss>), Overflow> {
    let (mut entries, mut losses) = (Vec::new(), Vec::new());
    for contribution in claims(contributions, &mut losses) {
        let totals = totals(contribution, &mut losses)?;
        let native = |(resource, amount): (Resource, Decimal)| NativeResource {
            resource_name: resource.to_string().into(),
            quantity: written(resource, amount),
        };
        let Source { name, uid, .. } = contribution.source.clone();
        entries.push(NativeResourceClaimStatus {
            claim_info: ObjectReference { name, uid },
            containers: containers(contribution),
            resources: totals.into_iter().map(native).collect(),
        });
    }
    Ok((entries, losses))
}
