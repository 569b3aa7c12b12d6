//! What Pod status records of claims: Kubernetes 1.36 (one total for each resource), 1.37
//! (mapping and overhead) and 1.38 (under a new name, with a source).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use dragoman_quantity::Decimal;
use serde::{Deserialize, Serialize};

use crate::amounts::{ResourceList, Text, non_negative};
use crate::contribution::{Contribution, Line, Source};
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// An entry of `status.nodeAllocatableResourceClaimStatuses`, 1.36 or 1.37.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceClaimStatus {
    /// Name of the claim object.
    pub resource_claim_name: Box<str>,
    /// The containers that name it.
    pub containers: Vec<Box<str>>,
    /// 1.36: mapping and overhead in one.
    #[serde(skip_serializing_if = "ResourceList::is_empty")]
    pub resources: ResourceList,
    /// 1.37: by resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// 1.37: by resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadStatus>,
}

/// An entry of `status.additionalNodeAllocatableResources`, 1.38.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdditionalNodeAllocatableResources {
    /// Where they come from.
    pub source: SourceReference,
    /// The containers that name it.
    pub containers: Vec<Box<str>>,
    /// By resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingStatus>,
    /// By resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadStatus>,
}

/// An object in the namespace of the Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceReference {
    /// API group.
    pub api_group: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
}

/// The mapped amount of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MappingStatus {
    /// The resource.
    pub name: Box<str>,
    /// How much.
    pub quantity: Text,
}

/// The overhead of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverheadStatus {
    /// The resource.
    pub name: Box<str>,
    /// Once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Text>,
    /// For each container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Text>,
}

/// Everything that a Pod's status says about claims.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// 1.36 and 1.37.
    pub statuses: &'a [NodeAllocatableResourceClaimStatus],
    /// 1.38.
    pub additional: &'a [AdditionalNodeAllocatableResources],
}

/// What the status records, in the canonical model. Where several generations speak of
/// one source the newest counts. What does not parse goes to `unaccounted`.
pub fn contributions(
    recorded: Recorded<'_>,
    object: &str,
    unaccounted: &mut Vec<Unaccounted>,
) -> Vec<Contribution> {
    let mut by_source: BTreeMap<Source, Contribution> = BTreeMap::new();
    for (i, entry) in recorded.additional.iter().enumerate() {
        let SourceReference { api_group, kind, name } = entry.source.clone();
        let source = Source { api_group, kind, name, uid: None };
        let field = format!("status.additionalNodeAllocatableResources[{i}]");
        let mut reader = Reader { object, field, unaccounted, lines: BTreeMap::new() };
        reader.amounts(&entry.mapping, &entry.overhead);
        let contribution = reader.contribution(source.clone(), &entry.containers);
        merge(&mut by_source, source, contribution);
    }
    let newest: BTreeSet<Source> = by_source.keys().cloned().collect();
    for (i, entry) in recorded.statuses.iter().enumerate() {
        let source = Source::claim(entry.resource_claim_name.clone());
        if newest.contains(&source) {
            continue;
        }
        let field = format!("status.nodeAllocatableResourceClaimStatuses[{i}]");
        let mut reader = Reader { object, field, unaccounted, lines: BTreeMap::new() };
        reader.amounts(&entry.mapping, &entry.overhead);
        let legacy = reader.lines.is_empty() && !entry.resources.is_empty();
        if legacy {
            for (name, text) in &entry.resources {
                reader.read(name, "resources", text, |line, amount| line.mapping = Some(amount));
            }
        }
        let contribution = reader.contribution(source.clone(), &entry.containers);
        merge(&mut by_source, source, Contribution { legacy_total: legacy, ..contribution });
    }
    by_source.into_values().collect()
}

/// Two entries of one generation for one source are two facts: both count. (The list of
/// 1.36 is atomic, nothing keeps its entries apart.)
fn merge(by_source: &mut BTreeMap<Source, Contribution>, source: Source, further: Contribution) {
    match by_source.entry(source) {
        Entry::Vacant(place) => {
            place.insert(further);
        }
        Entry::Occupied(mut known) => {
            let known = known.get_mut();
            known.containers.extend(further.containers);
            known.lines.extend(further.lines);
            known.legacy_total |= further.legacy_total;
        }
    }
}

/// Reads the lines of one entry.
struct Reader<'a> {
    object: &'a str,
    field: String,
    unaccounted: &'a mut Vec<Unaccounted>,
    lines: BTreeMap<Resource, Line>,
}

impl Reader<'_> {
    fn amounts(&mut self, mapping: &[MappingStatus], overhead: &[OverheadStatus]) {
        for MappingStatus { name, quantity } in mapping {
            self.read(name, "mapping", quantity, |line, amount| line.mapping = Some(amount));
        }
        for OverheadStatus { name, per_pod, per_container } in overhead {
            if let Some(text) = per_pod {
                self.read(name, "overhead.perPod", text, |line, amount| line.per_pod = Some(amount));
            }
            if let Some(text) = per_container {
                let set = |line: &mut Line, amount| line.per_container = Some(amount);
                self.read(name, "overhead.perContainer", text, set);
            }
        }
    }

    fn read(&mut self, name: &str, part: &str, text: &Text, set: impl FnOnce(&mut Line, Decimal)) {
        let Some(resource) = Resource::of(name) else {
            // Not ours to count: an extended resource is counted by the scheduler.
            return;
        };
        match non_negative(&text.0) {
            Ok(amount) => {
                let empty = || Line { mapping: None, ..Line::mapping(resource.clone(), Decimal::ZERO) };
                set(self.lines.entry(resource.clone()).or_insert_with(empty), amount);
            }
            Err(why) => self.unaccounted.push(Unaccounted {
                object: self.object.into(),
                field: format!("{}.{part}[{name}]", self.field).into(),
                resource: Some(resource),
                why: why.into(),
            }),
        }
    }

    fn contribution(self, source: Source, containers: &[Box<str>]) -> Contribution {
        let containers = containers.iter().cloned().collect();
        Contribution { source, containers, lines: self.lines.into_values().collect(), legacy_total: false }
    }
}
