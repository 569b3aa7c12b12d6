//! The cluster as the allocator and the ledger read it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dragoman_accounting::cluster::{self, ClaimName};
use dragoman_allocator::{Alignment, Choice, Rank, Snapshot, Standing};
use dragoman_machinery::controller::{self, Links, ObjectKey, Place};
use dragoman_machinery::kind::{
    DEVICE_CLASS, DEVICE_FOOTPRINT, DEVICE_TAINT_RULES, DRIVER_OWNER, Kind, NODE, PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM, POD, POD_GROUPS, RESOURCE_CLAIM, RESOURCE_SLICES, STORAGE_CLASS,
};
use dragoman_machinery::watch::{Record, Store, StoreState};
use dragoman_objects::{ClaimEntry, ConsumerReference, Name};

use super::contested::Contested;
use super::groups::{Groups, PodGroupFacts};
use super::large::Lent;
use super::owners::Owners;
use super::pins::Pins;
use super::rank::{ByDriver, Ranking, Tally, taken};
use super::shapes::{Around, Changes, EquivalenceClassId, EquivalenceClasses, Nodes, QueuePosition};
use super::undecidable::Undecidable;
use super::volumes::Storage;
use crate::cluster::Accounts;
use dragoman_cluster::placement::{
    Neighbours, NodeView, PodKind, PodTerms, SchedulingConstraints, Taken, Takes,
};
use dragoman_crds::protocol::{LaterGates, Rejection, Verdict};

/// The index.
#[derive(Default)]
pub(super) struct Allocation {
    /// Devices, classes, rules, nodes, and the claims that hold devices.
    pub(super) snapshot: Snapshot,
    /// Amounts that Pods and claims take from every node.
    pub(super) accounts: Accounts,
    pub(super) pods: Store<PodState>,
    pub(super) claims: Store<Arc<ClaimFacts>>,
    pub(super) nodes: Store<Arc<NodeView>>,
    pub(super) slices: Store<SliceNode>,
    pub(super) contested: Contested,
    pub(super) undecidable: Undecidable,
    pub(super) classes: Store<()>,
    pub(super) rules: Store<()>,
    pub(super) footprints: Store<()>,
    pub(super) owners: Owners,
    pub(super) pod_groups: Store<PodGroupFacts>,
    pub(super) groups: Groups,
    unserved: BTreeSet<&'static str>,
    /// Kinds that are served and may not be read.
    unseen: BTreeSet<&'static str>,
    pods_of_claim: Links,
    /// Number of the Pods that are bound to each node, and what they take of it.
    bound: HashMap<Name, Arc<Taken>>,
    /// The Pods that are bound, as other Pods see them.
    pub(super) neighbours: Neighbours,
    /// The Pods without a node that have anti-affinity of their own.
    pub(super) repelling: BTreeSet<ObjectKey>,
    /// The Pods without a node that have topology spread.
    pub(super) spreading: BTreeSet<ObjectKey>,
    /// The Pods without a node that take host ports or extended resources.
    pub(super) taking: BTreeSet<ObjectKey>,
    pub(super) storage: Storage,
    /// The devices that slices publish for a node.
    pub(super) published: Tally,
    /// The devices of a node that claims have.
    given: Tally,
    pub(super) pins: Pins,
    pub(super) lent: Lent,
    pub(super) changes: Changes,
    /// The changes of ranks.
    pub(super) reranked: Changes,
    pub(super) shapes: EquivalenceClasses,
    /// The name of the allocator. The claims that name another one, or none, are not searched for.
    pub(super) allocator: Option<Name>,
    /// The gates of others that are opened after that of the protocol.
    pub(super) later: LaterGates,
    /// The order in which the devices of a node are tried.
    pub(super) choice: Choice,
    /// Whether devices of a Pod that are close to each other are preferred.
    pub(super) align: Alignment,
}

/// Projection of a Pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PodState {
    /// The Pod is in a PodGroup and has neither a node nor claims.
    InGroup,
    /// The Pod is on this node, takes this of it if anything, and is of this kind.
    Bound(Name, Option<Box<Takes>>, Arc<PodKind>),
    /// The Pod has claims and no node.
    Waiting(Arc<PodFacts>),
}

/// A Pod with claims that has no node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodFacts {
    /// Whether it has the gate of the protocol.
    pub(super) is_gated: bool,
    /// Whether a gate of another controller that comes before ours is closed.
    pub(super) is_behind_another: bool,
    /// Whether the operator says of it, in its status, that it was released. A tenant cannot write that.
    pub(super) was_released: bool,
    pub(super) deleting: bool,
    pub(super) priority: i32,
    /// The PodGroup that it is in.
    pub(super) group: Option<Name>,
    /// The attribute that all its devices have to share.
    pub(super) aligned_by: Option<Name>,
    /// `spec.resourceClaims` of a Pod in a PodGroup.
    pub(super) entries: Box<[ClaimEntry]>,
    /// `metadata.creationTimestamp`.
    pub(super) created: Name,
    pub(super) accounted: Arc<cluster::Pod>,
    pub(super) placement: Arc<SchedulingConstraints>,
    /// The Pod as others see it.
    pub(super) kind: Arc<PodKind>,
}

impl PodFacts {
    /// The Pod as if it did not name these claims.
    pub(super) fn without(&self, claims: &[NamedClaim]) -> Self {
        let mut accounted = cluster::Pod::clone(&self.accounted);
        let is_named = |of: &cluster::PodClaim| {
            let named = |NamedClaim { name, .. }: &NamedClaim| matches!(&of.claim, ClaimName::Named(known) if known == name);
            claims.iter().any(named)
        };
        accounted.claims.retain(|of| !is_named(of));
        Self { accounted: Arc::new(accounted), ..self.clone() }
    }

    /// Returns the position of the Pod in the order of waiting Pods.
    pub(super) fn queue_position(&self, key: &ObjectKey) -> QueuePosition {
        QueuePosition { priority: Reverse(self.priority), created: self.created.clone(), key: key.clone() }
    }
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimFacts {
    pub(super) version: Name,
    /// The allocator that the label names.
    pub(super) allocator: Option<Name>,
    /// Whether a gate before allocation is closed.
    pub(super) is_held_back: bool,
    /// Whether a gate before release is closed.
    pub(super) is_held: bool,
    pub(super) is_allocated: bool,
    /// Whether its allocation does not decode: nothing is decided about a Pod that names it.
    pub(super) is_unreadable: bool,
    /// Length of its requests in bytes, where the index does not keep them.
    pub(super) left_behind: Option<usize>,
    /// The devices that it has.
    pub(super) devices: ByDriver,
    /// The node that its devices are on, if they are on one.
    pub(super) node: Option<Arc<str>>,
    /// The uids of its consumers, in the order of `reservedFor`.
    pub(super) consumers: Box<[Name]>,
    pub(super) deleting: bool,
    /// Whether it has a finalizer.
    pub(super) is_finalized: bool,
    /// Whether the finalizer that keeps an allocated claim from vanishing is among them.
    pub(super) is_protected: bool,
    pub(super) rejections: Box<[Rejection]>,
    /// The verdict, if it can be read.
    pub(super) verdict: Option<Box<Verdict>>,
}

impl ClaimFacts {
    pub(super) fn is_reserved_for(&self, uid: &str) -> bool {
        self.consumers.iter().any(|consumer| **consumer == *uid)
    }
}

/// A claim that a Pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedClaim {
    pub(super) name: Name,
    pub(super) uid: Name,
    pub(super) facts: Arc<ClaimFacts>,
    /// The PodGroup of the Pod, where the claim is reserved for it and not for the Pod.
    pub(super) group: Option<ConsumerReference>,
}

/// The node of a slice, if all its devices are on one, and its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SliceNode(pub(super) Option<Name>, pub(super) ByDriver);

impl controller::Index for Allocation {
    type Key = ObjectKey;
    type Whole = Self;

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        let stores: [(Kind, &dyn StoreState); 12] = [
            (NODE, &self.nodes),
            (RESOURCE_SLICES[0], &self.slices),
            (DEVICE_CLASS, &self.classes),
            (DEVICE_TAINT_RULES[0], &self.rules),
            (DEVICE_FOOTPRINT, &self.footprints),
            (DRIVER_OWNER, &self.owners.of),
            (POD_GROUPS[0], &self.pod_groups),
            (STORAGE_CLASS, &self.storage.classes),
            (PERSISTENT_VOLUME, &self.storage.volumes),
            (PERSISTENT_VOLUME_CLAIM, &self.storage.claims),
            (RESOURCE_CLAIM, &self.claims),
            (POD, &self.pods),
        ];
        stores.into_iter()
    }

    fn is_unserved(&self, kind: Kind) -> bool {
        self.unserved.contains(kind.plural)
    }

    fn all_keys(&self) -> Vec<ObjectKey> {
        let waiting = self.pods.iter().filter_map(|(namespace, name, record)| {
            let Some(PodState::Waiting(facts)) = record.readable() else { return None };
            let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
            Some(facts.queue_position(&key))
        });
        let turns: BTreeSet<QueuePosition> = waiting.collect();
        turns.into_iter().map(|turn| turn.key).collect()
    }

    fn remarks(&self) -> Vec<String> {
        vec![format!("Pods that no node takes: {}", self.shapes.waiting())]
    }
}

/// The nodes as a Pod sees them.
struct Ranked<'a> {
    nodes: &'a Store<Arc<NodeView>>,
    accounts: &'a Accounts,
    ranking: Ranking<'a>,
    /// Devices that are published, and those that are given.
    devices: [&'a Tally; 2],
}

impl Nodes for Ranked<'_> {
    fn all(&self) -> Vec<Name> {
        names(self.nodes)
    }

    fn rank(&self, node: &str) -> Rank {
        let site = self.nodes.get("", node).and_then(Record::readable);
        let (repels, preferred) = site.map_or((0, 0), |site| site.preference(self.ranking.pod));
        let free = self.ranking.free(node, self.devices);
        let taken = self.accounts.ledger().node(node).map(taken).unwrap_or_default();
        // Which alternatives the node has is not known yet.
        self.ranking.policy.rank(&Standing { preference: 0, repels, preferred, free, taken })
    }
}

fn names(nodes: &Store<Arc<NodeView>>) -> Vec<Name> {
    nodes.iter().map(|(_, name, _)| Name::from(&**name)).collect()
}

impl Allocation {
    /// Returns the uid of a Pod that has no node, and what is kept of it.
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<(Name, Arc<PodFacts>)> {
        let record = self.pods.get(&key.namespace, &key.name)?;
        let Some(PodState::Waiting(facts)) = record.readable() else { return None };
        Some((record.uid.clone(), Arc::clone(facts)))
    }

    /// Returns the facts about a Pod that has no node.
    pub(super) fn waiting(&self, key: &ObjectKey) -> Option<&Arc<PodFacts>> {
        match self.pods.get(&key.namespace, &key.name)?.readable()? {
            PodState::Waiting(facts) => Some(facts),
            PodState::Bound(..) | PodState::InGroup => None,
        }
    }

    /// Returns the claims that a Pod names; `None` where one is not there or does
    /// not decode.
    pub(super) fn claims_of(&self, namespace: &str, pod: &PodFacts) -> Option<Vec<NamedClaim>> {
        // It gets nothing: claim_lifecycle makes no claims of its entries either.
        if pod.accounted.left_out > 0 {
            return None;
        }
        let mut names = BTreeSet::new();
        let is_new =
            |claim: &Option<NamedClaim>| claim.as_ref().is_none_or(|claim| names.insert(claim.name.clone()));
        self.entries_of(namespace, pod).filter(is_new).collect()
    }

    /// The claims of a Pod that are there.
    pub(super) fn present_claims_of(&self, namespace: &str, pod: &PodFacts) -> Vec<NamedClaim> {
        let mut claims: Vec<NamedClaim> = self.entries_of(namespace, pod).flatten().collect();
        claims.sort_by(|a, b| a.name.cmp(&b.name));
        claims.dedup_by(|a, b| a.name == b.name);
        claims
    }

    /// The claim of each entry of a Pod that needs one; `None` where it is not there, or does not decode.
    fn entries_of(&self, namespace: &str, pod: &PodFacts) -> impl Iterator<Item = Option<NamedClaim>> {
        let entries = pod.accounted.claims.iter().enumerate();
        entries.filter(|(_, entry)| entry.claim != ClaimName::None).map(move |(position, entry)| {
            let ClaimName::Named(name) = &entry.claim else { return None };
            let (uid, facts) = self.claim_facts(namespace, name)?;
            let group = self.group_as_consumer(namespace, pod, position);
            Some(NamedClaim { name: name.clone(), uid: uid.clone(), facts: Arc::clone(facts), group })
        })
    }

    /// The claim of this name, with its uid; nothing where it is not there or does not decode.
    fn claim_facts(&self, namespace: &str, name: &str) -> Option<(&Name, &Arc<ClaimFacts>)> {
        let record = self.claims.get(namespace, name)?;
        Some((&record.uid, record.readable().filter(|facts| !facts.is_unreadable)?))
    }

    /// The claim with this uid among those that a Pod names, as far as they are there.
    pub(super) fn claim_of(&self, namespace: &str, pod: &PodFacts, uid: &str) -> Option<&Arc<ClaimFacts>> {
        pod.accounted.claims.iter().find_map(|entry| {
            let ClaimName::Named(name) = &entry.claim else { return None };
            let (of, facts) = self.claim_facts(namespace, name)?;
            (**of == *uid).then_some(facts)
        })
    }

    /// The Pods without a node that name a claim.
    pub(super) fn sharers(&self, namespace: &Arc<str>, claim: &str) -> impl Iterator<Item = ObjectKey> {
        let pods = self.pods_of_claim.of(namespace, claim);
        pods.map(|pod| ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(pod) })
    }

    /// A node as the Pods on it leave it.
    pub(super) fn node_view(&self, node: &str) -> Option<NodeView> {
        let site = NodeView::clone(self.nodes.get("", node)?.readable()?);
        Some(site.with(self.bound.get(node).cloned().unwrap_or_default()))
    }

    /// The number of nodes.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The first nodes that are worth a try for a Pod of this shape, and whether there are more. Neither those in `leave_out`
    /// nor those that other Pods rule out are among them.
    pub(super) fn candidates(
        &mut self,
        shape: EquivalenceClassId,
        ranking: Ranking<'_>,
        leave_out: &BTreeSet<Name>,
        around: Around,
    ) -> (Vec<Name>, bool) {
        let Self { nodes, accounts, published, given, changes, reranked, shapes, .. } = self;
        let ranked = Ranked { nodes, accounts, ranking, devices: [published, given] };
        shapes.candidates(shape, changes, reranked, &ranked, leave_out, around)
    }

    /// Counts the devices that a claim has on its node.
    pub(super) fn give(&mut self, facts: Option<&Arc<ClaimFacts>>, sign: i64) {
        let Some(facts) = facts else { return };
        let Some(node) = &facts.node else { return };
        self.given.add(node, &facts.devices, sign);
        self.reranked.node(node);
    }

    /// Notes whether a kind is served.
    pub(super) fn serves(&mut self, kind: Kind, is_served: bool) -> Vec<ObjectKey> {
        self.unseen.remove(kind.plural);
        if is_served {
            self.unserved.remove(kind.plural);
        } else {
            self.unserved.insert(kind.plural);
        }
        Vec::new()
    }

    /// Notes that a kind is served and may not be read.
    pub(super) fn may_not_see(&mut self, kind: Kind) -> Vec<ObjectKey> {
        let woken = self.serves(kind, false);
        self.unseen.insert(kind.plural);
        woken
    }

    /// Whether there are PodGroups that may not be read.
    pub(super) fn may_not_see_groups(&self) -> bool {
        self.unseen.contains(POD_GROUPS[0].plural)
    }

    /// Whether the API server knows no PodGroups.
    pub(super) fn is_without_groups(&self) -> bool {
        self.unserved.contains(POD_GROUPS[0].plural)
    }

    /// The kind that is not there and without which no search is right: devices, what they take, which of them a class means. An API
    /// server without DeviceTaintRules has no taints, and without DriverOwners no owners; where they may not be read, there may be any.
    pub(super) fn missing_kind(&self) -> Option<Kind> {
        let needed = [DEVICE_FOOTPRINT, RESOURCE_SLICES[0], DEVICE_CLASS];
        let seen = [DEVICE_TAINT_RULES[0], DRIVER_OWNER];
        let missing = needed.into_iter().find(|kind| self.unserved.contains(kind.plural));
        missing.or_else(|| seen.into_iter().find(|kind| self.unseen.contains(kind.plural)))
    }

    /// Notes the nodes whose ledger has changed. Returns the Pods to be woken.
    pub(super) fn wake(&mut self) -> Vec<ObjectKey> {
        let nodes = self.accounts.take_changed();
        nodes.iter().for_each(|node| self.changes.node(node));
        if nodes.is_empty() { Vec::new() } else { self.shapes.heads() }
    }

    pub(super) fn changed_everywhere(&mut self) -> Vec<ObjectKey> {
        self.changes.everything();
        self.shapes.heads()
    }

    /// A node has changed, or any of them. Returns the Pods to be woken.
    pub(super) fn changed_at(&mut self, node: Option<&str>) -> Vec<ObjectKey> {
        match node {
            Some(node) => {
                self.changes.node(node);
                self.shapes.heads()
            }
            None => self.changed_everywhere(),
        }
    }

    /// Adds what is kept of a Pod to the index, or takes it out.
    pub(super) fn link(&mut self, pod: &Place, kept: Option<&PodState>, is_there: bool) {
        match kept {
            Some(PodState::Waiting(facts)) => {
                for entry in &facts.accounted.claims {
                    let ClaimName::Named(claim) = &entry.claim else { continue };
                    if is_there {
                        self.pods_of_claim.link(&pod.namespace, claim, &pod.name);
                    } else {
                        self.pods_of_claim.unlink(&pod.namespace, claim, &pod.name);
                    }
                }
                if !is_there {
                    self.repelling.remove(&pod.into());
                    self.spreading.remove(&pod.into());
                    self.taking.remove(&pod.into());
                    return;
                }
                if facts.kind.repels() {
                    self.repelling.insert(pod.into());
                }
                if facts.placement.terms().is_some_and(PodTerms::spreads) {
                    self.spreading.insert(pod.into());
                }
                if !facts.placement.takes().is_nothing() {
                    self.taking.insert(pod.into());
                }
            }
            Some(PodState::Bound(node, takes, kind)) if is_there => {
                Arc::make_mut(self.bound.entry(node.clone()).or_default()).add(takes.as_deref());
                self.neighbours.add(node, kind);
            }
            Some(PodState::Bound(node, takes, kind)) => {
                self.neighbours.remove(node, kind);
                if let Some(taken) = self.bound.get_mut(node) {
                    Arc::make_mut(taken).remove(takes.as_deref());
                    if taken.is_nothing() {
                        self.bound.remove(node);
                    }
                }
            }
            Some(PodState::InGroup) | None => {}
        }
    }
}
