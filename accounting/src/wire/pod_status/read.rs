//! Reading it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use dragoman_quantity::Decimal;

use super::{
    AdditionalNodeAllocatableResources, MappingStatus, NativeResourceClaimStatus,
    NodeAllocatableResourceClaimStatus, OverheadStatus, SourceReference,
};
use crate::Uid;
use crate::amounts::{Text, largest, non_negative};
use crate::claim::contribution::{Contribution, Line, Source};
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// Everything that a Pod's status says about claims.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recorded<'a> {
    /// The draft.
    pub native: &'a [NativeResourceClaimStatus],
    /// 1.36 and 1.37.
    pub statuses: &'a [NodeAllocatableResourceClaimStatus],
    /// 1.38.
    pub additional: &'a [AdditionalNodeAllocatableResources],
}

/// Two generations in one status say different things of one source. The newer counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("status of {kind} {name}: {resource} is {newer} in the newer fields and {older} in the older ones")]
pub struct Conflict {
    /// Kind of the source.
    pub kind: Box<str>,
    /// Name of the source.
    pub name: Box<str>,
    /// The resource.
    pub resource: Resource,
    /// What counts.
    pub newer: Decimal,
    /// What does not.
    pub older: Decimal,
}

/// What a status says, in the canonical model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// One for each source.
    pub contributions: Vec<Contribution>,
    /// Where generations contradict each other.
    pub conflicts: Vec<Conflict>,
}

type BySource = BTreeMap<Source, Contribution>;

/// Reads a status. What does not parse goes to `unaccounted`, which names `object`.
pub fn read(recorded: Recorded<'_>, object: &str, unaccounted: &mut Vec<Unaccounted>) -> Reading {
    let mut reader = Reader { object, unaccounted };
    let generations = [
        reader.additional(recorded.additional),
        reader.mapped(recorded.statuses),
        reader.totals(recorded.statuses),
        reader.native(recorded.native),
    ];
    let mut reading = Reading::default();
    for older in generations.into_iter().flat_map(BTreeMap::into_values) {
        match reading.contributions.iter().find(|known| known.source.is(&older.source)) {
            None => reading.contributions.push(older),
            Some(newer) => reading.conflicts.extend(conflicts(newer, &older)),
        }
    }
    reading
}

fn conflicts(newer: &Contribution, older: &Contribution) -> Vec<Conflict> {
    let resources: BTreeSet<Resource> = newer.lines.iter().chain(&older.lines).map(|l| l.resource).collect();
    let both = resources.into_iter().filter_map(|resource| {
        // What cannot be summed is said when it is charged.
        let (new, old) = (newer.counted(resource).ok()?, older.counted(resource).ok()?);
        (new != old).then(|| Conflict {
            kind: newer.source.kind.clone(),
            name: newer.source.name.clone(),
            resource,
            newer: new,
            older: old,
        })
    });
    both.collect()
}

/// Two entries of one generation for one source are two facts: both count. (The list of
/// 1.36 is atomic, nothing keeps its entries apart.)
fn merge(by_source: &mut BySource, further: Contribution) {
    match by_source.entry(further.source.clone()) {
        Entry::Vacant(place) => {
            place.insert(further);
        }
        Entry::Occupied(mut known) => {
            let known = known.get_mut();
            known.containers.extend(further.containers);
            known.lines.extend(further.lines);
        }
    }
}

struct Reader<'a> {
    object: &'a str,
    unaccounted: &'a mut Vec<Unaccounted>,
}

impl Reader<'_> {
    fn additional(&mut self, entries: &[AdditionalNodeAllocatableResources]) -> BySource {
        let mut by_source = BySource::new();
        for (i, entry) in entries.iter().enumerate() {
            let SourceReference { api_group, kind, name } = entry.source.clone();
            let source = Source { api_group, kind, name, uid: None };
            let field = format!("status.additionalNodeAllocatableResources[{i}]");
            let lines = self.lines(&field, &entry.mapping, &entry.overhead);
            merge(&mut by_source, contribution(source, &entry.containers, lines));
        }
        by_source
    }

    /// 1.37: entries with mapping or overhead, or with nothing at all.
    fn mapped(&mut self, entries: &[NodeAllocatableResourceClaimStatus]) -> BySource {
        let mut by_source = BySource::new();
        for (i, entry) in entries.iter().enumerate() {
            let field = format!("status.nodeAllocatableResourceClaimStatuses[{i}]");
            let lines = self.lines(&field, &entry.mapping, &entry.overhead);
            if !lines.is_empty() || entry.resources.is_empty() {
                let source = Source::claim(entry.resource_claim_name.clone());
                merge(&mut by_source, contribution(source, &entry.containers, lines));
            }
        }
        by_source
    }

    /// 1.36: entries with totals.
    fn totals(&mut self, entries: &[NodeAllocatableResourceClaimStatus]) -> BySource {
        let mut by_source = BySource::new();
        for (i, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.resources.is_empty()) {
            let mut lines = Vec::new();
            for (name, text) in &entry.resources {
                let field = format!("status.nodeAllocatableResourceClaimStatuses[{i}].resources[{name}]");
                lines.extend(self.total(name, text, &field));
            }
            let source = Source::claim(entry.resource_claim_name.clone());
            let total = contribution(source, &entry.containers, lines);
            merge(&mut by_source, Contribution { legacy_total: true, ..total });
        }
        by_source
    }

    fn native(&mut self, entries: &[NativeResourceClaimStatus]) -> BySource {
        let mut by_source = BySource::new();
        for (i, entry) in entries.iter().enumerate() {
            let mut lines = Vec::new();
            for (j, native) in entry.resources.iter().enumerate() {
                let field = format!("status.nativeResourceClaimStatus[{i}].resources[{j}]");
                lines.extend(self.total(&native.resource_name, &native.quantity, &field));
            }
            let source = Source {
                uid: entry.claim_info.uid.as_deref().map(Uid::from),
                ..Source::claim(entry.claim_info.name.clone())
            };
            let total = contribution(source, &entry.containers, lines);
            merge(&mut by_source, Contribution { legacy_total: true, ..total });
        }
        by_source
    }

    fn total(&mut self, name: &str, text: &Text, field: &str) -> Option<Line> {
        // What is not ours to count, an extended resource, is counted by the scheduler.
        let resource = Resource::of(name)?;
        Some(Line::mapping(resource, self.amount(resource, text, field)?))
    }

    fn lines(&mut self, field: &str, mapping: &[MappingStatus], overhead: &[OverheadStatus]) -> Vec<Line> {
        let mut lines: BTreeMap<Resource, Line> = BTreeMap::new();
        let mut put = |name: &str, part: &str, text: &Text, set: &dyn Fn(&mut Line, Decimal)| {
            let Some(resource) = Resource::of(name) else { return };
            if let Some(amount) = self.amount(resource, text, &format!("{field}.{part}[{name}]")) {
                set(lines.entry(resource).or_insert_with(|| Line::empty(resource)), amount);
            }
        };
        for MappingStatus { name, quantity } in mapping {
            put(name, "mapping", quantity, &|line, amount| line.mapping = Some(amount));
        }
        for OverheadStatus { name, per_pod, per_container } in overhead {
            if let Some(text) = per_pod {
                put(name, "overhead.perPod", text, &|line, amount| line.per_pod = Some(amount));
            }
            if let Some(text) = per_container {
                put(name, "overhead.perContainer", text, &|line, amount| line.per_container = Some(amount));
            }
        }
        lines.into_values().collect()
    }

    fn amount(&mut self, resource: Resource, text: &Text, field: &str) -> Option<Decimal> {
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

fn contribution(source: Source, containers: &[Box<str>], lines: Vec<Line>) -> Contribution {
    let containers = containers.iter().cloned().collect();
    Contribution { source, containers, lines, legacy_total: false, published: true }
}
