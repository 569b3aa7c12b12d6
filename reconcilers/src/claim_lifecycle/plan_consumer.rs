//! Plan for a Pod or PodGroup that names claims: the pure part (docs/claim-lifecycle.md 2 and 3).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use dragoman_machinery::kind::{Kind, RESOURCE_CLAIM};
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects::{ClaimEntries, ConsumerReference, MAX_CONSUMERS, Name};
use serde_json::{Value, json};

use super::claim_name::is_ours;
use super::facts::{ClaimFacts, OwnerKind, Published, Source};
use super::snapshot::{
    ConsumerKind, ConsumerSnapshot, EntrySnapshot, GroupSnapshot, NamedClaim, OwnedClaim, TemplateState,
};

/// Field manager of the claim names in status: the built-in controller's, so that
/// taking over from it leaves no field behind without an owner.
pub const STATUS_MANAGER: &str = "ResourceClaimController";

/// Plan for one consumer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConsumerPlan {
    /// Claims named in status that the index lacks: ask the API server whether
    /// they are gone, then plan again.
    pub confirm: Vec<Name>,
    /// Claims to create.
    pub create: Vec<Creation>,
    /// The names that are settled without a creation, by entry.
    pub settled: BTreeMap<Name, Name>,
    /// Claims to reserve.
    pub reserve: Vec<Reservation>,
    /// Troubles that the author of the consumer is told.
    pub notes: Vec<Note>,
}

/// A claim to be made from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// Position of the entry in the snapshot.
    pub entry: usize,
    /// Whether the entry had a claim before, which was lost or is terminating.
    pub is_successor: bool,
    /// Name of that claim, if it may seed the next name.
    pub predecessor: Option<Name>,
}

/// A claim to be reserved for the consumer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// Name of the entry.
    pub entry: Name,
    /// Name of the claim.
    pub claim: Name,
    /// The consumer to be added.
    pub reference: ConsumerReference,
}

/// Something that stands in the way of an entry. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Name of the entry.
    pub entry: Name,
    /// Trouble with the entry.
    pub trouble: Trouble,
}

/// Trouble with the claim of an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The entry has a shape that this version does not know.
    #[error(
        "neither resourceClaimName nor resourceClaimTemplateName alone is set: this API is not supported"
    )]
    UnknownApi,
    /// The template is not there.
    #[error("resource claim template {0:?} not found")]
    NoTemplate(Name),
    /// The template does not decode.
    #[error("resource claim template {0:?} does not decode and cannot be used")]
    UnreadableTemplate(Name),
    /// The claim does not decode.
    #[error("resource claim {0:?} does not decode: nothing is done about it")]
    UnreadableClaim(Name),
    /// The PodGroup is not there.
    #[error("pod group {0:?} not found")]
    NoGroup(Name),
    /// PodGroups are not served.
    #[error("pod group {0:?}: the API server serves no PodGroups that are understood here")]
    GroupsUnserved(Name),
    /// The PodGroup does not decode.
    #[error("pod group {0:?} does not decode")]
    UnreadableGroup(Name),
    /// There are too many entries.
    #[error("there are {0} entries, and no claim is created where there are more than {most}", most = ClaimEntries::MOST)]
    TooManyEntries(usize),
    /// `reservedFor` is full.
    #[error("resource claim {0:?} is reserved for {MAX_CONSUMERS} consumers already, which is the limit")]
    TooManyConsumers(Name),
    /// A release gate of the claim is closed, and the Pod got to its node past it.
    #[error("resource claim {0:?} has a closed release gate, and is not reserved before that is open")]
    ReleaseGateClosed(Name),
}

dragoman_machinery::words! {
    Trouble, WORDS, word;
    Self::UnknownApi => "UnknownApi",
    Self::NoTemplate(_) => "TemplateNotFound",
    Self::UnreadableTemplate(_) => "TemplateUnreadable",
    Self::UnreadableClaim(_) => "ClaimUnreadable",
    Self::NoGroup(_) => "PodGroupNotFound",
    Self::GroupsUnserved(_) => "PodGroupsUnserved",
    Self::UnreadableGroup(_) => "PodGroupUnreadable",
    Self::TooManyEntries(_) => "TooManyEntries",
    Self::TooManyConsumers(_) => "TooManyConsumers",
    Self::ReleaseGateClosed(_) => "ReleaseGateClosed",
}

/// Plans for one consumer. `gone` are claims proven to be gone, `found` claims that
/// exist although the index lacks them.
pub fn plan_consumer(
    consumer: &ConsumerSnapshot,
    gone: &BTreeSet<Name>,
    found: &BTreeSet<Name>,
) -> ConsumerPlan {
    let mut plan = ConsumerPlan::default();
    if consumer.done {
        return plan;
    }
    if let Some(trouble) = group_trouble(&consumer.group) {
        // Whether an entry is the group's or the Pod's own cannot be known, so
        // nothing is created for any.
        if let Some(first) = consumer.entries.first() {
            plan.notes.push(Note { entry: first.entry.name.clone(), trouble });
        }
        return plan;
    }
    if consumer.left_out > 0 {
        // Part of its claims would not help the Pod: a Pod starts with all of them or not at all.
        if let Some(first) = consumer.entries.first() {
            let trouble = Trouble::TooManyEntries(consumer.entries.len() + consumer.left_out);
            plan.notes.push(Note { entry: first.entry.name.clone(), trouble });
        }
        return plan;
    }
    for (position, entry) in consumer.entries.iter().enumerate() {
        plan_entry(consumer, position, entry, gone, found, &mut plan);
    }
    if consumer.scheduled && !consumer.deleting && consumer.kind == ConsumerKind::Pod {
        plan_reservations(consumer, &mut plan);
    }
    plan
}

fn group_trouble(group: &GroupSnapshot) -> Option<Trouble> {
    match group {
        GroupSnapshot::None | GroupSnapshot::Present { .. } => None,
        GroupSnapshot::Missing(name) => Some(Trouble::NoGroup(name.clone())),
        GroupSnapshot::Unserved(name) => Some(Trouble::GroupsUnserved(name.clone())),
        GroupSnapshot::Unreadable(name) => Some(Trouble::UnreadableGroup(name.clone())),
    }
}

fn plan_entry(
    consumer: &ConsumerSnapshot,
    position: usize,
    entry: &EntrySnapshot,
    gone: &BTreeSet<Name>,
    found: &BTreeSet<Name>,
    plan: &mut ConsumerPlan,
) {
    let name = &entry.entry.name;
    let mut note = |trouble| plan.notes.push(Note { entry: name.clone(), trouble });
    let template = match &entry.entry.source {
        Source::Claim(_) => return,
        Source::Unknown => return note(Trouble::UnknownApi),
        Source::Template(template) => template,
    };
    if entry.published == Some(None) {
        // The status says that no claim is needed.
        return;
    }
    let named = entry.named.as_ref();
    if let Some(NamedClaim::Present { name: claim, facts, .. }) = named
        && facts.owned_by(consumer.owner_kind(), &consumer.uid)
    {
        // Also while it is terminating: its successor comes when it is gone. And also where the PodGroup has such an entry by now:
        // the Pod may have begun with the claim.
        plan.settled.insert(name.clone(), claim.clone());
        return;
    }
    if let Some(shared) = &entry.shared {
        // The PodGroup's claim: made for the group, only its name is ours to write.
        if let Some(claim) = shared {
            plan.settled.insert(name.clone(), claim.clone());
        }
        return;
    }
    match named {
        Some(NamedClaim::Unreadable(claim)) => return note(Trouble::UnreadableClaim(claim.clone())),
        Some(NamedClaim::Absent(claim)) if found.contains(claim) => return,
        Some(NamedClaim::Absent(claim)) if !gone.contains(claim) && !consumer.deleting => {
            plan.confirm.push(claim.clone());
            return;
        }
        Some(NamedClaim::Absent(_) | NamedClaim::Present { .. }) | None => {}
    }
    if let Some(claim) = adoptable(consumer, entry) {
        plan.settled.insert(name.clone(), claim.name.clone());
        return;
    }
    if consumer.deleting {
        return;
    }
    match &entry.template {
        TemplateState::Absent => note(Trouble::NoTemplate(template.clone())),
        TemplateState::Unreadable => note(Trouble::UnreadableTemplate(template.clone())),
        TemplateState::Present(_) => {
            let terminating = entry.owned.iter().map(|claim| claim.name.clone()).max();
            // Only names that Dragoman generated may seed the next name. A foreign name in the status
            // would produce a duplicate of a claim that the index has not seen yet.
            let lost = named.map(NamedClaim::name).filter(|claim| is_ours(claim, &consumer.uid, name));
            let predecessor = lost.cloned().or(terminating);
            let is_successor = named.is_some() || predecessor.is_some();
            plan.create.push(Creation { entry: position, is_successor, predecessor });
        }
    }
}

/// The claim that an entry without a name gets, of those that were made for it: the one that the
/// consumer may be using already.
fn adoptable<'a>(consumer: &ConsumerSnapshot, entry: &'a EntrySnapshot) -> Option<&'a OwnedClaim> {
    let adoptable = entry.owned.iter().filter(|claim| !claim.facts.deleting);
    adoptable.min_by_key(|OwnedClaim { name, facts }| {
        let reserved = facts.reserved.iter().any(|c| c.uid == consumer.uid);
        let ours = is_ours(name, &consumer.uid, &entry.entry.name);
        (!reserved, !facts.allocated, !ours, name.clone())
    })
}

/// Reservations for a Pod that has a node: the scheduler that bound it did not reserve. While a claim has yet to be made from its template,
/// which may not be there, none is reserved: the Pod cannot start, and holds nothing of its node. (The built-in controller does the same.)
fn plan_reservations(consumer: &ConsumerSnapshot, plan: &mut ConsumerPlan) {
    let is_unmade = |entry: &EntrySnapshot| {
        matches!(entry.entry.source, Source::Template(_))
            && entry.published != Some(None)
            && matches!(entry.named, None | Some(NamedClaim::Absent(_)))
    };
    if consumer.entries.iter().any(is_unmade) {
        return;
    }
    let is_own = |facts: &ClaimFacts| facts.owned_by(consumer.owner_kind(), &consumer.uid);
    for entry in &consumer.entries {
        let Some(NamedClaim::Present { name, facts, .. }) = &entry.named else { continue };
        let reference = consumer.reference_for(entry);
        let generated = matches!(entry.entry.source, Source::Template(_));
        // The name in the status may be of a foreign claim; a generated claim names its owner itself.
        let ours = match (&entry.shared, generated) {
            (Some(_), true) => facts.owned_by(OwnerKind::PodGroup, &reference.uid) || is_own(facts),
            (None, true) => is_own(facts),
            // The author names the claim itself; it need not have an owner.
            (_, false) => true,
        };
        if !ours
            || facts.deleting
            || !facts.allocated
            || facts.reserved.iter().any(|c| c.uid == reference.uid)
        {
            continue;
        }
        if facts.reserved.len() >= MAX_CONSUMERS {
            let trouble = Trouble::TooManyConsumers(name.clone());
            plan.notes.push(Note { entry: entry.entry.name.clone(), trouble });
            continue;
        }
        if facts.is_held {
            let trouble = Trouble::ReleaseGateClosed(name.clone());
            plan.notes.push(Note { entry: entry.entry.name.clone(), trouble });
            continue;
        }
        plan.reserve.push(Reservation { entry: entry.entry.name.clone(), claim: name.clone(), reference });
    }
}

impl ConsumerSnapshot {
    fn reference_for(&self, entry: &EntrySnapshot) -> ConsumerReference {
        match (&entry.shared, &self.group) {
            (Some(_), GroupSnapshot::Present { name, uid }) => {
                ConsumerReference::pod_group(name.clone(), uid.clone())
            }
            _ => ConsumerReference::pod(self.name.clone(), self.uid.clone()),
        }
    }
}

/// The status write that publishes `settled`, or `None` where the status says so
/// already. The list is always complete: a partial one would delete the rest.
pub fn publication(kind: Kind, consumer: &ConsumerSnapshot, settled: &BTreeMap<Name, Name>) -> Option<Write> {
    let published: HashSet<(&Name, &Name)> =
        consumer.published.iter().filter_map(|p| Some((&p.entry, p.claim.as_ref()?))).collect();
    let news = settled.iter().any(|named| !published.contains(&named));
    if !news {
        return None;
    }
    let mut complete: BTreeMap<&Name, &Name> = BTreeMap::new();
    for Published { entry, claim } in &consumer.published {
        complete.extend(claim.as_ref().map(|claim| (entry, claim)));
    }
    complete.extend(settled);
    let statuses: Vec<Value> = complete
        .into_iter()
        .map(|(entry, claim)| json!({"name": entry, "resourceClaimName": claim}))
        .collect();
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {"name": consumer.name, "namespace": consumer.namespace, "uid": consumer.uid},
        "status": {"resourceClaimStatuses": statuses},
    });
    let action = Action::Apply { subresource: Some("status"), manager: STATUS_MANAGER, force: true, body };
    Some(Write::new(kind, &*consumer.namespace, &*consumer.name, action))
}

/// The write that adds `consumer` to a claim just read live, or `None` where there
/// is nothing to add any more.
pub fn reservation(
    namespace: &str,
    name: &str,
    uid: &str,
    facts: &ClaimFacts,
    consumer: &ConsumerReference,
) -> Option<Write> {
    let pointless = facts.deleting
        || facts.is_held
        || !facts.allocated
        || facts.reserved.len() >= MAX_CONSUMERS
        || facts.reserved.iter().any(|c| c.uid == consumer.uid);
    if pointless {
        return None;
    }
    let operation = if facts.reserved.is_empty() {
        json!({"op": "add", "path": "/status/reservedFor", "value": [consumer]})
    } else {
        json!({"op": "add", "path": "/status/reservedFor/-", "value": consumer})
    };
    let guard = Guard { uid: uid.to_owned(), resource_version: facts.version.to_string() };
    let action = Action::Patch { subresource: Some("status"), guard, operations: vec![operation] };
    Some(Write::new(RESOURCE_CLAIM, namespace, name, action))
}
