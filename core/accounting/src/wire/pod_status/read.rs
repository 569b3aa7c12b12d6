//! Conversion of each generation into contributions.

use std::collections::BTreeSet;

use dragoman_objects::{
    AdditionalNodeAllocatableResources, MappingStatus, Name, NativeResourceClaimStatus,
    NodeAllocatableResourceClaimStatus, OverheadStatus, SourceReference,
};
use dragoman_quantity::{Decimal, QuantityText};

use crate::Uid;
use crate::amounts::{largest, non_negative};
use crate::claim::contribution::{Contribution, Generation, Line, Source};
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// The records about claims in a Pod's status, of all generations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recorded<'a> {
    /// `status.nativeResourceClaimStatus`, the draft.
    pub native: &'a [NativeResourceClaimStatus],
    /// `status.nodeAllocatableResourceClaimStatuses`, Kubernetes 1.36 and 1.37.
    pub statuses: &'a [NodeAllocatableResourceClaimStatus],
    /// `status.additionalNodeAllocatableResources`, Kubernetes 1.38.
    pub additional: &'a [AdditionalNodeAllocatableResources],
}

/// A contradiction of two generations about one source. The newer generation counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("status of {kind} {name}: {resource} is {newer} in the newer fields and {older} in the older ones")]
pub struct Conflict {
    /// The kind of the source.
    pub kind: Name,
    /// The name of the source.
    pub name: Name,
    /// The resource.
    pub resource: Resource,
    /// The amount of the newer generation, which counts.
    pub newer: Decimal,
    /// The amount of the older generation, which does not count.
    pub older: Decimal,
}

/// The records in a Pod's status, in the canonical model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// The contributions that count: for each source the entries of the newest generation.
    pub contributions: Vec<Contribution>,
    /// All entries. A kube-scheduler reads those of its own generation.
    pub recorded: Vec<Contribution>,
    /// The contradictions between generations.
    pub conflicts: Vec<Conflict>,
}

/// Reads the records in a status. An amount that does not parse goes to `unaccounted`, with
/// `object`.
///
/// Several entries of one generation for one source all count. The list of 1.36 is atomic, so the
/// API server accepts duplicates.
pub fn read(recorded: Recorded<'_>, object: &str, unaccounted: &mut Vec<Unaccounted>) -> Reading {
    let mut reader = Reader { object, unaccounted };
    let generations = [
        reader.additional(recorded.additional),
        reader.mapped(recorded.statuses),
        reader.totals(recorded.statuses),
        reader.native(recorded.native),
    ];
    let mut reading = Reading::default();
    for generation in generations {
        let of = |all: &[Contribution], source: &Source| -> Vec<Contribution> {
            all.iter().filter(|known| known.source.is(source)).cloned().collect()
        };
        let mut further = Vec::new();
        for entry in &generation {
            let newer = of(&reading.contributions, &entry.source);
            if newer.is_empty() {
                further.push(entry.clone());
            } else {
                reading.conflicts.extend(conflicts(&newer, &of(&generation, &entry.source)));
            }
        }
        reading.contributions.extend(further);
        reading.recorded.extend(generation);
    }
    reading.conflicts.dedup();
    reading
}

fn conflicts(newer: &[Contribution], older: &[Contribution]) -> Vec<Conflict> {
    let lines = newer.iter().chain(older).flat_map(|contribution| &contribution.lines);
    let resources: BTreeSet<Resource> = lines.map(|line| line.resource).collect();
    let sum = |all: &[Contribution], resource| {
        let counted = all.iter().map(|contribution| contribution.counted(resource));
        // Amounts are capped, so that their sums do not overflow.
        counted.into_iter().try_fold(Decimal::ZERO, |sum, more| sum.checked_add(more?)).ok()
    };
    let both = resources.into_iter().filter_map(|resource| {
        let (new, old) = (sum(newer, resource)?, sum(older, resource)?);
        let source = &newer.first()?.source;
        (new != old).then(|| Conflict {
            kind: source.kind.clone(),
            name: source.name.clone(),
            resource,
            newer: new,
            older: old,
        })
    });
    both.collect()
}

struct Reader<'a> {
    object: &'a str,
    unaccounted: &'a mut Vec<Unaccounted>,
}

impl Reader<'_> {
    fn additional(&mut self, entries: &[AdditionalNodeAllocatableResources]) -> Vec<Contribution> {
        let says = |entry: &AdditionalNodeAllocatableResources| {
            !(entry.mapping.is_empty() && entry.overhead.is_empty())
        };
        let read = entries.iter().enumerate().filter(|(_, entry)| says(entry)).map(|(i, entry)| {
            let SourceReference { api_group, kind, name } = entry.source.clone();
            let source = Source { api_group, kind, name, uid: None };
            let field = format!("status.additionalNodeAllocatableResources[{i}]");
            let lines = self.lines(&field, &entry.mapping, &entry.overhead);
            contribution(source, &entry.containers, lines, Generation::V1_38)
        });
        read.collect()
    }

    fn mapped(&mut self, entries: &[NodeAllocatableResourceClaimStatus]) -> Vec<Contribution> {
        // An entry without both fields states nothing. It may be an entry of 1.36 from which an API
        // server of 1.37 has dropped `resources`.
        let says = |entry: &NodeAllocatableResourceClaimStatus| {
            !(entry.mapping.is_empty() && entry.overhead.is_empty())
        };
        let read = entries.iter().enumerate().filter(|(_, entry)| says(entry)).map(|(i, entry)| {
            let field = format!("status.nodeAllocatableResourceClaimStatuses[{i}]");
            let lines = self.lines(&field, &entry.mapping, &entry.overhead);
            let source = Source::claim(entry.resource_claim_name.clone());
            contribution(source, &entry.containers, lines, Generation::V1_37)
        });
        read.collect()
    }

    fn totals(&mut self, entries: &[NodeAllocatableResourceClaimStatus]) -> Vec<Contribution> {
        let says = |entry: &NodeAllocatableResourceClaimStatus| !entry.resources.is_empty();
        let read = entries.iter().enumerate().filter(|(_, entry)| says(entry)).map(|(i, entry)| {
            let mut lines = Vec::new();
            for (name, text) in &entry.resources {
                let field = format!("status.nodeAllocatableResourceClaimStatuses[{i}].resources[{name}]");
                lines.extend(self.total(name, text, &field));
            }
            let source = Source::claim(entry.resource_claim_name.clone());
            contribution(source, &entry.containers, lines, Generation::V1_36)
        });
        read.collect()
    }

    fn native(&mut self, entries: &[NativeResourceClaimStatus]) -> Vec<Contribution> {
        let says = |entry: &NativeResourceClaimStatus| !entry.resources.is_empty();
        let read = entries.iter().enumerate().filter(|(_, entry)| says(entry)).map(|(i, entry)| {
            let mut lines = Vec::new();
            for (j, native) in entry.resources.iter().enumerate() {
                let field = format!("status.nativeResourceClaimStatus[{i}].resources[{j}]");
                lines.extend(self.total(&native.resource_name, &native.quantity, &field));
            }
            let uid = entry.claim_info.uid.as_deref().map(Uid::from);
            let source = Source { uid, ..Source::claim(entry.claim_info.name.clone()) };
            contribution(source, &entry.containers, lines, Generation::Draft)
        });
        read.collect()
    }

    fn total(&mut self, name: &str, text: &QuantityText, field: &str) -> Option<Line> {
        // An extended resource is not node-allocatable: kube-scheduler counts it by itself.
        let resource = Resource::of(name)?;
        Some(Line::mapping(resource, self.amount(resource, text, field)?))
    }

    /// Reads mapping and overhead as lines. A resource that comes twice counts twice.
    fn lines(&mut self, field: &str, mapping: &[MappingStatus], overhead: &[OverheadStatus]) -> Vec<Line> {
        let mut lines = Vec::new();
        for MappingStatus { name, quantity } in mapping {
            let Some(resource) = Resource::of(name) else { continue };
            if let Some(amount) = self.amount(resource, quantity, &format!("{field}.mapping[{name}]")) {
                lines.push(Line::mapping(resource, amount));
            }
        }
        let mut mapped: BTreeSet<usize> = (0..lines.len()).collect();
        for OverheadStatus { name, per_pod, per_container } in overhead {
            let Some(resource) = Resource::of(name) else { continue };
            let mut read = |part: &str, text: &Option<QuantityText>| {
                let field = format!("{field}.overhead[{name}].{part}");
                text.as_ref().and_then(|text| self.amount(resource, text, &field))
            };
            let (per_pod, per_container) = (read("perPod", per_pod), read("perContainer", per_container));
            // The overhead goes into the first line of the resource without overhead, else into a
            // new line.
            let beside =
                mapped.iter().copied().find(|i| lines.get(*i).is_some_and(|l| l.resource == resource));
            let beside = beside.filter(|i| mapped.remove(i));
            match beside.and_then(|i| lines.get_mut(i)) {
                Some(line) => (line.per_pod, line.per_container) = (per_pod, per_container),
                None if per_pod.or(per_container).is_some() => {
                    lines.push(Line { per_pod, per_container, ..Line::empty(resource) });
                }
                None => {}
            }
        }
        lines.sort_by_key(|line| line.resource);
        lines
    }

    fn amount(&mut self, resource: Resource, text: &QuantityText, field: &str) -> Option<Decimal> {
        match non_negative(&text.0) {
            Ok(amount) => Some(amount.min(largest())),
            Err(why) => {
                self.unaccounted.push(Unaccounted {
                    object: self.object.into(),
                    field: field.into(),
                    resource: Some(resource),
                    why: why.into(),
                });
                None
            }
        }
    }
}

fn contribution(
    source: Source,
    containers: &[Name],
    lines: Vec<Line>,
    generation: Generation,
) -> Contribution {
    let legacy_total = generation <= Generation::V1_36;
    let containers = containers.iter().cloned().collect();
    Contribution { source, containers, lines, legacy_total, recorded: Some(generation) }
}
