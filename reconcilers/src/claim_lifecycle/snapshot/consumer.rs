//! From the index to what a plan about a Pod or PodGroup is made on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dragoman_machinery::watch::Body;
use dragoman_objects::Name;

use super::super::facts::{ConsumerClaims, Entry, OwnerKind, Published, Source, TemplateFacts};
use super::super::index::ClaimRecord;
use super::super::state::State;

/// The kinds of consumers that name claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerKind {
    /// A Pod.
    Pod,
    /// A PodGroup.
    PodGroup,
}

/// A consumer with everything its plan needs.
#[derive(Debug, Clone)]
pub struct ConsumerSnapshot {
    /// Kind of the consumer.
    pub kind: ConsumerKind,
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// Uid.
    pub uid: Name,
    /// The consumer will never use a claim again.
    pub done: bool,
    /// The consumer is being deleted.
    pub deleting: bool,
    /// The consumer has a node.
    pub scheduled: bool,
    /// The consumer has the scheduling gate of the claim gate protocol.
    pub gated: bool,
    /// The PodGroup of a Pod.
    pub group: GroupSnapshot,
    /// Entries of the consumer, in order.
    pub entries: Vec<EntrySnapshot>,
    /// Number of entries beyond those that are served.
    pub left_out: usize,
    /// `status.resourceClaimStatuses` of the consumer.
    pub published: Vec<Published>,
}

/// The PodGroup of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupSnapshot {
    /// The Pod is in none.
    None,
    /// The index has the PodGroup.
    Present {
        /// Name of the PodGroup.
        name: Name,
        /// Uid of the PodGroup.
        uid: Name,
    },
    /// The index has no such group.
    Missing(Name),
    /// PodGroups are not served, or it is not known whether they are.
    Unserved(Name),
    /// The PodGroup does not decode.
    Unreadable(Name),
}

/// An entry with what is known about its claim.
#[derive(Debug, Clone)]
pub struct EntrySnapshot {
    /// The entry.
    pub entry: Entry,
    /// Statement of the status about the entry: absent, no claim needed, or a name.
    pub published: Option<Option<Name>>,
    /// The claim it names, directly or through status.
    pub named: Option<NamedClaim>,
    /// Claims that the consumer controls and that were made for this entry.
    pub owned: Vec<OwnedClaim>,
    /// Present if the entry is its PodGroup's: the group's claim, once it exists.
    pub shared: Option<Option<Name>>,
    /// The template.
    pub template: TemplateState,
}

impl EntrySnapshot {
    /// The template that it names.
    pub fn template_name(&self) -> Option<&Name> {
        match &self.entry.source {
            Source::Template(name) => Some(name),
            Source::Claim(_) | Source::Unknown => None,
        }
    }
}

/// A claim that is named somewhere.
#[derive(Debug, Clone)]
pub enum NamedClaim {
    /// The index has it.
    Present {
        /// Name of the claim.
        name: Name,
        /// Content of the claim.
        facts: Arc<ClaimRecord>,
    },
    /// The claim does not decode.
    Unreadable(Name),
    /// The index lacks it.
    Absent(Name),
}

impl NamedClaim {
    /// Returns the name of the claim.
    pub fn name(&self) -> &Name {
        match self {
            Self::Present { name, .. } | Self::Unreadable(name) | Self::Absent(name) => name,
        }
    }
}

/// A claim that the consumer controls.
#[derive(Debug, Clone)]
pub struct OwnedClaim {
    /// Name of the claim.
    pub name: Name,
    /// Content of the claim.
    pub facts: Arc<ClaimRecord>,
}

/// The template of an entry.
#[derive(Debug, Clone)]
pub enum TemplateState {
    /// Not there, or not needed.
    Absent,
    /// The template does not decode.
    Unreadable,
    /// The template exists. Its payload is absent if the index does not keep it; then it has to be read.
    Present(Option<Arc<TemplateFacts>>),
}

impl ConsumerSnapshot {
    /// A Pod; `None` where it is absent, unreadable or has no claims.
    pub fn of_pod(state: &State, namespace: &str, name: &str) -> Option<Self> {
        let record = state.index.pods.get(namespace, name)?;
        let facts = record.readable()?;
        let claims = facts.claims.as_ref()?;
        let (group, group_claims) = group_of(state, namespace, claims);
        let shared = group_claims.as_ref().map(|(claims, uid)| Shared::of(state, namespace, claims, uid));
        Some(Self {
            kind: ConsumerKind::Pod,
            namespace: namespace.into(),
            name: name.into(),
            uid: record.uid.clone(),
            done: facts.done() || state.evidence.ended(&record.uid).is_some(),
            deleting: facts.deleting,
            scheduled: facts.scheduled,
            gated: facts.gated,
            entries: entries(state, namespace, &record.uid, claims, shared.as_ref()),
            left_out: claims.left_out,
            group,
            published: claims.published.to_vec(),
        })
    }

    /// A PodGroup; `None` where it is absent or unreadable.
    pub fn of_group(state: &State, namespace: &str, name: &str) -> Option<Self> {
        let record = state.index.groups.get(namespace, name)?;
        let facts = record.readable()?;
        Some(Self {
            kind: ConsumerKind::PodGroup,
            namespace: namespace.into(),
            name: name.into(),
            uid: record.uid.clone(),
            done: facts.deleting || state.evidence.ended(&record.uid).is_some(),
            deleting: facts.deleting,
            scheduled: false,
            gated: false,
            group: GroupSnapshot::None,
            entries: entries(state, namespace, &record.uid, &facts.claims, None),
            left_out: facts.claims.left_out,
            published: facts.claims.published.to_vec(),
        })
    }

    /// The kind by which its claims name it.
    pub fn owner_kind(&self) -> OwnerKind {
        match self.kind {
            ConsumerKind::Pod => OwnerKind::Pod,
            ConsumerKind::PodGroup => OwnerKind::PodGroup,
        }
    }
}

fn group_of(
    state: &State,
    namespace: &str,
    claims: &ConsumerClaims,
) -> (GroupSnapshot, Option<(Arc<ConsumerClaims>, Name)>) {
    let Some(name) = claims.group.clone() else { return (GroupSnapshot::None, None) };
    if state.index.groups_served != Some(true) {
        return (GroupSnapshot::Unserved(name), None);
    }
    match state.index.groups.get(namespace, &name) {
        None => (GroupSnapshot::Missing(name), None),
        Some(record) => match record.readable() {
            None => (GroupSnapshot::Unreadable(name), None),
            Some(facts) => {
                let uid = record.uid.clone();
                let shared = (Arc::clone(&facts.claims), uid.clone());
                (GroupSnapshot::Present { name, uid }, Some(shared))
            }
        },
    }
}

/// The claims of a PodGroup that its members share.
struct Shared<'a> {
    entries: HashSet<&'a Entry>,
    published: HashMap<&'a str, Option<&'a str>>,
    owned: HashMap<Name, Vec<OwnedClaim>>,
}

impl<'a> Shared<'a> {
    fn of(state: &State, namespace: &str, group: &'a ConsumerClaims, uid: &str) -> Self {
        Self {
            entries: group.entries.iter().collect(),
            published: group.published_by_entry(),
            owned: owned_by_entry(state, namespace, uid),
        }
    }

    /// The claim of the group for an entry of a member, if the entry is the group's (same name and
    /// same reference): named in its status, or made for it and not yet named there.
    #[expect(clippy::option_option, reason = "not the group's, the group's, its claim")]
    fn claim(&self, entry: &Entry) -> Option<Option<Name>> {
        if entry.source == Source::Unknown || !self.entries.contains(entry) {
            return None;
        }
        if let Source::Claim(name) = &entry.source {
            return Some(Some(name.clone()));
        }
        let published = self.published.get(&*entry.name).copied().flatten().map(Name::from);
        Some(published.or_else(|| {
            let made = self.owned.get(&entry.name).into_iter().flatten();
            made.filter(|claim| !claim.facts.deleting).map(|claim| claim.name.clone()).min()
        }))
    }
}

fn entries(
    state: &State,
    namespace: &str,
    uid: &str,
    claims: &ConsumerClaims,
    shared: Option<&Shared<'_>>,
) -> Vec<EntrySnapshot> {
    let published = claims.published_by_entry();
    let mut owned = owned_by_entry(state, namespace, uid);
    let snapshot = |entry: &Entry| {
        let template = match &entry.source {
            Source::Template(template) => template_state(state, namespace, template),
            Source::Claim(_) | Source::Unknown => TemplateState::Absent,
        };
        EntrySnapshot {
            entry: entry.clone(),
            published: published.get(&*entry.name).map(|claim| claim.map(Name::from)),
            named: entry.resolved(&published).map(|claim| named(state, namespace, claim)),
            owned: owned.remove(&entry.name).unwrap_or_default(),
            shared: shared.and_then(|shared| shared.claim(entry)),
            template,
        }
    };
    claims.entries.iter().map(snapshot).collect()
}

fn named(state: &State, namespace: &str, claim: &str) -> NamedClaim {
    let name = Name::from(claim);
    match state.index.claims.get(namespace, claim) {
        None => NamedClaim::Absent(name),
        Some(record) => match record.readable() {
            None => NamedClaim::Unreadable(name),
            Some(claim) => NamedClaim::Present { name, facts: Arc::clone(claim) },
        },
    }
}

/// The claims that a consumer controls, by the entry that they were made for.
fn owned_by_entry(state: &State, namespace: &str, uid: &str) -> HashMap<Name, Vec<OwnedClaim>> {
    let mut owned: HashMap<Name, Vec<OwnedClaim>> = HashMap::new();
    for (name, record) in state.index.claims_owned_by(namespace, uid) {
        if let Some(facts) = record.readable()
            && let Some(entry) = &facts.entry
        {
            let claim = OwnedClaim { name: name.into(), facts: Arc::clone(facts) };
            owned.entry(entry.clone()).or_default().push(claim);
        }
    }
    owned
}

fn template_state(state: &State, namespace: &str, template: &str) -> TemplateState {
    match state.index.templates.get(namespace, template).map(|record| &record.body) {
        None => TemplateState::Absent,
        Some(Body::Unreadable(_)) => TemplateState::Unreadable,
        Some(Body::Readable(record)) => TemplateState::Present(record.payload.clone()),
    }
}
