//! Projections that the index keeps of objects: only the fields that some decision reads.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_objects::{
    self as objects, ConsumerReference, DELETE_PROTECTION, Name, SCHEDULING_GROUP, annotation,
};
use jiff::Timestamp;
use serde_json::value::RawValue;

use dragoman_crds::protocol::{GATE, RELEASE_GATES};

/// A Pod. Sixteen bytes for the many Pods without claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Phase Succeeded or Failed.
    pub terminal: bool,
    /// `deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.nodeName` is set.
    pub scheduled: bool,
    /// The Pod has the scheduling gate of the claim gate protocol.
    pub gated: bool,
    /// The garbage collection of Pods ended the Pod, for a node that is gone or out of service. No kubelet
    /// said that it ended.
    pub lost: bool,
    /// Claims that spec and status of the Pod name; absent if there are none.
    pub claims: Option<Arc<ConsumerClaims>>,
}

impl PodFacts {
    /// Whether the Pod will never use a claim again: it has ended, or it is being
    /// deleted and never reached a node (docs/claim-lifecycle.md 4.2).
    pub fn done(&self) -> bool {
        self.terminal || (self.deleting && !self.scheduled)
    }

    /// Drops its node, which only those ask for that hold claims for Pods that vanished.
    pub(super) fn forget_node(&mut self) {
        if let Some(claims) = self.claims.as_mut().and_then(Arc::get_mut) {
            claims.node = None;
        }
    }

    /// Whether containers of it may be running on a node.
    pub fn may_run(&self) -> bool {
        self.scheduled && (!self.terminal || self.lost)
    }
}

impl From<&objects::Pod> for PodFacts {
    fn from(pod: &objects::Pod) -> Self {
        let extended = pod.status.extended_resource_claim_status.as_ref();
        let extended = extended.map(|status| status.resource_claim_name.clone());
        let claims = ConsumerClaims {
            group: pod.spec.scheduling_group.pod_group_name.clone(),
            node: Some(pod.spec.node_name.clone()).filter(|name| !name.is_empty()),
            entries: entries(&pod.spec.resource_claims),
            left_out: pod.spec.resource_claims.left_out,
            published: published(&pod.status.resource_claim_statuses, &pod.spec.resource_claims),
            extended: extended.filter(|name| !name.is_empty()),
        };
        let relevant = !claims.entries.is_empty() || claims.extended.is_some();
        Self {
            terminal: matches!(&*pod.status.phase, "Succeeded" | "Failed"),
            deleting: pod.metadata.deleting,
            scheduled: !pod.spec.node_name.is_empty(),
            gated: pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE),
            lost: pod.status.conditions.iter().any(is_lost),
            claims: relevant.then(|| Arc::new(claims)),
        }
    }
}

/// Whether a condition says that kube-controller-manager ended a Pod in place of its kubelet.
fn is_lost(condition: &objects::Condition) -> bool {
    (&*condition.r#type, &*condition.reason) == ("DisruptionTarget", "DeletionByPodGC")
}

/// A PodGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    /// `deletionTimestamp` is set.
    pub deleting: bool,
    /// Claims that spec and status of the PodGroup name.
    pub claims: Arc<ConsumerClaims>,
}

impl From<&objects::PodGroup> for GroupFacts {
    fn from(group: &objects::PodGroup) -> Self {
        Self {
            deleting: group.metadata.deleting,
            claims: Arc::new(ConsumerClaims {
                group: None,
                node: None,
                entries: entries(&group.spec.resource_claims),
                left_out: group.spec.resource_claims.left_out,
                published: published(&group.status.resource_claim_statuses, &group.spec.resource_claims),
                extended: None,
            }),
        }
    }
}

/// Claims that spec and status of a Pod or PodGroup name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerClaims {
    /// `spec.schedulingGroup.podGroupName` of a Pod.
    pub group: Option<Name>,
    /// `spec.nodeName` of a Pod, where claims are held for Pods that vanished.
    pub node: Option<Name>,
    /// `spec.resourceClaims`, in order, as far as they are read.
    pub entries: Box<[Entry]>,
    /// Number of the entries that are not read. The API sets no limit; a Pod with more gets no claims, and its author is told.
    pub left_out: usize,
    /// `status.resourceClaimStatuses`, in order.
    pub published: Box<[Published]>,
    /// `status.extendedResourceClaimStatus.resourceClaimName` of a Pod.
    pub extended: Option<Name>,
}

impl ConsumerClaims {
    /// The claims that `status` names, by entry: "none needed", or a name. A list that is searched
    /// for each entry would cost the square of their number.
    pub fn published_by_entry(&self) -> HashMap<&str, Option<&str>> {
        // Of two with one name the first counts.
        self.published.iter().rev().map(|p| (&*p.entry, p.claim.as_deref())).collect()
    }

    /// Every claim that is named, by an entry, its status or for extended resources.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let published = self.published_by_entry();
        let named = self.entries.iter().filter_map(move |entry| entry.resolved(&published));
        named.chain(self.extended.as_deref())
    }

    /// Every template that an entry names.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|e| match &e.source {
            Source::Template(name) => Some(&**name),
            Source::Claim(_) | Source::Unknown => None,
        })
    }
}

/// An entry of `spec.resourceClaims`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Name of the entry.
    pub name: Name,
    /// Where its claim comes from.
    pub source: Source,
}

impl Entry {
    /// The name of its claim as far as it is settled; `published` is what the status says.
    pub fn resolved<'a>(&'a self, published: &HashMap<&str, Option<&'a str>>) -> Option<&'a str> {
        match &self.source {
            Source::Claim(name) => Some(name),
            Source::Template(_) => published.get(&*self.name).copied().flatten(),
            Source::Unknown => None,
        }
    }
}

/// Where the claim of an entry comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// An existing claim.
    Claim(Name),
    /// A claim to be made from this template.
    Template(Name),
    /// An API shape that this version does not know.
    Unknown,
}

/// An entry of `status.resourceClaimStatuses`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Published {
    /// Name of the entry.
    pub entry: Name,
    /// Name of the claim; absent where none is needed.
    pub claim: Option<Name>,
}

fn entries(entries: &[objects::ClaimEntry]) -> Box<[Entry]> {
    let convert = |entry: &objects::ClaimEntry| Entry {
        name: entry.name.clone(),
        source: match (&entry.resource_claim_name, &entry.resource_claim_template_name) {
            (Some(claim), None) => Source::Claim(claim.clone()),
            (None, Some(template)) => Source::Template(template.clone()),
            // Both is as unknown as neither: guessing could make a second claim.
            (None, None) | (Some(_), Some(_)) => Source::Unknown,
        },
    };
    entries.iter().map(convert).collect()
}

/// Returns the entries of the status. Their names are taken from `entries`, so that one copy of each is kept.
fn published(statuses: &[objects::ClaimEntryStatus], entries: &[objects::ClaimEntry]) -> Box<[Published]> {
    // A list that is searched for each entry would cost the square of their number: they come in one order.
    let convert = |(number, status): (usize, &objects::ClaimEntryStatus)| Published {
        entry: entries
            .get(number)
            .filter(|of| of.name == status.name)
            .map_or(&status.name, |of| &of.name)
            .clone(),
        claim: status.resource_claim_name.clone(),
    };
    statuses.iter().enumerate().map(convert).collect()
}

/// A ResourceClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFacts {
    /// `metadata.resourceVersion`: every write names the version it was decided on.
    pub version: Name,
    /// `metadata.creationTimestamp`; the epoch where it does not decode.
    pub created: Timestamp,
    /// `deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`, in order.
    pub finalizers: Box<[Name]>,
    /// The controller owner.
    pub owner: Option<Owner>,
    /// Annotation: the entry it was made for.
    pub entry: Option<Name>,
    /// Annotation: made by kube-scheduler for extended resources.
    pub extended: bool,
    /// Some request asks for admin access.
    pub admin_access: bool,
    /// A release gate is closed (docs/protocol.md): an annotation.
    pub is_held: bool,
    /// `status.allocation` is set.
    pub allocated: bool,
    /// `status.reservedFor`, in order.
    pub reserved: Box<[ConsumerReference]>,
}

/// The controller owner of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Kind of the owner.
    pub kind: OwnerKind,
    /// Name of the owner.
    pub name: Name,
    /// Uid of the owner.
    pub uid: Name,
}

/// Kinds of owners that make a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerKind {
    /// `v1` Pod.
    Pod,
    /// PodGroup of any version.
    PodGroup,
    /// Anything else.
    Other,
}

impl ClaimFacts {
    /// Position of the delete-protection finalizer.
    pub fn protection(&self) -> Option<usize> {
        self.finalizers.iter().position(|f| &**f == DELETE_PROTECTION)
    }

    /// Whether the claim is controlled by the object with `uid` of `kind`.
    pub fn owned_by(&self, kind: OwnerKind, uid: &str) -> bool {
        self.owner.as_ref().is_some_and(|o| o.kind == kind && &*o.uid == uid)
    }
}

impl From<&objects::ResourceClaim> for ClaimFacts {
    fn from(claim: &objects::ResourceClaim) -> Self {
        let meta = &claim.metadata;
        let owner = meta.controller.as_ref().map(|controller| Owner {
            kind: match (controller.group(), &*controller.kind) {
                ("", "Pod") => OwnerKind::Pod,
                (SCHEDULING_GROUP, "PodGroup") => OwnerKind::PodGroup,
                _ => OwnerKind::Other,
            },
            name: controller.name.clone(),
            uid: controller.uid.clone(),
        });
        // Nearly every consumer is the owner: one copy of its names is kept.
        let consumer = |of: &ConsumerReference| match &owner {
            Some(owner) if owner.uid == of.uid && owner.name == of.name => {
                ConsumerReference { name: owner.name.clone(), uid: owner.uid.clone(), ..of.clone() }
            }
            _ => of.clone(),
        };
        let reserved = claim.status.reserved_for.iter().map(consumer).collect();
        let created = meta.creation_timestamp.as_ref().and_then(|text| text.parse().ok());
        Self {
            version: meta.resource_version.clone(),
            created: created.unwrap_or(Timestamp::UNIX_EPOCH),
            deleting: meta.deleting,
            finalizers: meta.finalizers.as_slice().into(),
            owner,
            entry: meta.annotation(annotation::POD_CLAIM_NAME).filter(|name| !name.is_empty()).cloned(),
            extended: meta.annotation(annotation::EXTENDED_RESOURCE_CLAIM).is_some_and(|is| **is == *"true"),
            admin_access: claim.admin_access(),
            is_held: meta.annotations().any(|(key, _)| key.starts_with(RELEASE_GATES)),
            allocated: claim.status.allocation.is_some(),
            reserved,
        }
    }
}

/// The largest template whose payload is kept, in bytes of JSON. An ordinary one has a few hundred.
const KEPT: usize = 8 << 10;

/// A ResourceClaimTemplate, as far as it is kept.
#[derive(Debug, Clone)]
pub struct TemplateRecord {
    /// Tells payloads apart.
    pub fingerprint: u64,
    /// The payload; `None` where it is too large to be kept and is read when a claim is created.
    pub payload: Option<Arc<TemplateFacts>>,
}

impl TemplateRecord {
    /// Makes the record of a template, where `room` bytes may be kept.
    pub fn of(template: &objects::ResourceClaimTemplate, room: usize) -> Self {
        let facts = TemplateFacts::from(template);
        let mut hasher = DefaultHasher::new();
        [&facts.metadata, &facts.spec].map(|raw| raw.as_ref().map(|raw| raw.get())).hash(&mut hasher);
        let is_kept = facts.bytes() <= KEPT.min(room);
        Self { fingerprint: hasher.finish(), payload: is_kept.then(|| Arc::new(facts)) }
    }

    /// Returns the number of bytes of payload that are kept.
    pub fn bytes(&self) -> usize {
        self.payload.as_ref().map_or(0, |payload| payload.bytes())
    }
}

/// The payload of a ResourceClaimTemplate, JSON text as it was read.
#[derive(Debug, Clone)]
pub struct TemplateFacts {
    /// `spec.metadata`.
    pub metadata: Option<Box<RawValue>>,
    /// `spec.spec`.
    pub spec: Option<Box<RawValue>>,
}

impl TemplateFacts {
    fn bytes(&self) -> usize {
        [&self.metadata, &self.spec].into_iter().flatten().map(|raw| raw.get().len()).sum()
    }
}

impl From<&objects::ResourceClaimTemplate> for TemplateFacts {
    fn from(template: &objects::ResourceClaimTemplate) -> Self {
        Self { metadata: template.spec.metadata.clone(), spec: template.spec.spec.clone() }
    }
}

/// The kinds of consumers that we can judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReferenceKind {
    /// `{"", pods}`.
    Pod,
    /// `{scheduling.k8s.io, podgroups}`.
    PodGroup,
    /// Anything else.
    Foreign,
}

impl ReferenceKind {
    /// The kind of `consumer`.
    pub(super) fn of(consumer: &ConsumerReference) -> Self {
        if consumer.is_pod() {
            Self::Pod
        } else if consumer.is_pod_group() {
            Self::PodGroup
        } else {
            Self::Foreign
        }
    }
}
