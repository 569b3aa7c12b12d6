//! The Pods that wait for a node, their claims, and the labels of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use dragoman_accounting::cluster::ClaimName;
use dragoman_machinery::controller::{self, Keeps, Left, Links, ObjectKey, Place};
use dragoman_machinery::kind::{DEVICE_CLASS, Kind, NODE, POD, RESOURCE_CLAIM};
use dragoman_machinery::watch::{Body, Record, Store, StoreState};
use dragoman_objects::{ConsumerReference, DeviceClass, Name, Node, Pod, ResourceClaim};

use super::configured::JudgedClass;
use super::facts::{Allocated, ClaimFacts, Nameless, PodFacts};
use super::groups::{GatedPod, Groups};
use crate::indexes::Indexes;
use dragoman_cluster::placement::NodeView;
use dragoman_crds::protocol::LaterGates;

/// Pods that a change of the account of a node wakes at once: some milliseconds of decisions.
const MOST_WOKEN: usize = 32;

/// The gated Pods that wait for a node.
#[derive(Debug, Default)]
struct Waiters {
    pods: BTreeSet<ObjectKey>,
    /// The last one that was woken: the next turn begins behind it.
    last: Option<ObjectKey>,
}

/// The index.
#[derive(Debug, Default)]
pub struct Gates {
    /// The Pods that concern gates.
    pub(super) pods: Store<PodState>,
    /// Number of Pods that were seen.
    seen: u64,
    /// Claims.
    pub(super) claims: Store<Arc<ClaimFacts>>,
    /// Device classes.
    pub(super) classes: Store<Arc<JudgedClass>>,
    /// Whether they are not there: devices cannot be judged.
    pub(super) lacks_classes: bool,
    /// Rises with each change of a class.
    pub(super) classes_revision: u64,
    /// The gates of others that are opened after ours.
    pub(super) later: LaterGates,
    /// Nodes.
    pub(super) nodes: Store<Arc<NodeView>>,
    /// The Pods that name a claim.
    pods_of_claim: Links,
    /// Pods without the gate and without a node whose status does not name all their claims.
    nameless: BTreeMap<ObjectKey, Nameless>,
    /// The claims that are reserved for a consumer, by the name of the consumer.
    reserved: Links,
    /// Those of the nameless for which a claim is reserved that they do not name.
    uncounted: BTreeSet<ObjectKey>,
    /// The Pods of PodGroups.
    pub(super) groups: Groups,
    /// The gated Pods that wait for something about a node to be known.
    waiting_for: BTreeMap<Name, Waiters>,
    /// The node that each of them waits for.
    waits_for: BTreeMap<ObjectKey, Name>,
}

/// A Pod that concerns gates.
#[derive(Debug, Clone, PartialEq)]
pub enum PodState {
    /// The Pod has claims, no node, and has not ended.
    Waiting(Arc<PodFacts>),
    /// The status of the Pod does not name all of its claims, or the Pod is in a PodGroup: `nameless` and `groups` have the rest.
    Linked,
}

impl PodState {
    /// The Pod, if it waits.
    fn waiting(&self) -> Option<&Arc<PodFacts>> {
        if let Self::Waiting(facts) = self { Some(facts) } else { None }
    }
}

/// A claim that a Pod needs, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamedClaim {
    /// The status of the Pod does not name it yet.
    Unnamed,
    /// There is no claim of this name.
    Missing(Name),
    /// The claim of this name does not decode; the reason.
    Unreadable(Name, Name),
    /// The index has the claim.
    Known(KnownClaim),
}

/// A claim that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownClaim {
    /// Name of the claim.
    pub(super) name: Name,
    /// Uid of the claim.
    pub(super) uid: Name,
    /// Projection of the claim.
    pub(super) facts: Arc<ClaimFacts>,
    /// The consumer as which the Pod uses it, if it is reserved: the Pod, or its PodGroup.
    pub(super) reserved_for: Option<ConsumerReference>,
}

impl KnownClaim {
    /// Whether it is reserved for the PodGroup of the Pod, and not for the Pod.
    pub(super) fn is_of_group(&self) -> bool {
        self.reserved_for.as_ref().is_some_and(ConsumerReference::is_pod_group)
    }
}

impl NamedClaim {
    /// The claim, if it is there.
    pub(super) fn known(&self) -> Option<&KnownClaim> {
        if let Self::Known(claim) = self { Some(claim) } else { None }
    }
}

impl controller::Index for Gates {
    type Key = ObjectKey;
    type Whole = Indexes;

    fn key_of(object: ObjectKey) -> Option<ObjectKey> {
        Some(object)
    }

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        let stores: [(Kind, &dyn StoreState); 4] = [
            (POD, &self.pods),
            (RESOURCE_CLAIM, &self.claims),
            (NODE, &self.nodes),
            (DEVICE_CLASS, &self.classes),
        ];
        stores.into_iter()
    }

    fn is_unserved(&self, kind: Kind) -> bool {
        self.lacks_classes && kind.is(DEVICE_CLASS)
    }

    fn all_keys(&self) -> Vec<ObjectKey> {
        let waits = |record: &Record<PodState>| record.readable().and_then(PodState::waiting).is_some();
        let pods = self.pods.iter().filter(|(_, _, record)| waits(record));
        // In order, so that a simulated run repeats itself.
        let names: BTreeSet<_> = pods.map(|(namespace, name, _)| (namespace, name)).collect();
        let key = |(namespace, name)| ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        names.into_iter().map(key).collect()
    }
}

impl Gates {
    /// The namespaces of Pods that wait behind the gate.
    pub(super) fn gated_namespaces(&self) -> BTreeSet<Arc<str>> {
        let is_gated = |record: &Record<PodState>| {
            record.readable().and_then(PodState::waiting).is_some_and(|pod| pod.gate.is_some())
        };
        let gated = self.pods.iter().filter(|(.., record)| is_gated(record));
        gated.map(|(namespace, ..)| Arc::clone(namespace)).collect()
    }

    /// Returns the uid of a Pod and what is kept of it.
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<(Name, Arc<PodFacts>)> {
        let record = self.pods.get(&key.namespace, &key.name)?;
        Some((record.uid.clone(), Arc::clone(record.readable()?.waiting()?)))
    }

    /// Returns the claims that a Pod names, each once. An entry that needs none is left out.
    pub(super) fn claims_of(&self, namespace: &str, uid: &str, pod: &PodFacts) -> Vec<NamedClaim> {
        let (mut claims, mut names) = (Vec::new(), BTreeSet::new());
        for entry in &pod.accounted.claims {
            match &entry.claim {
                ClaimName::NotYet => claims.push(NamedClaim::Unnamed),
                ClaimName::Named(name) if names.insert(name) => {
                    claims.push(self.named(namespace, name, uid, pod));
                }
                ClaimName::None | ClaimName::Named(_) => {}
            }
        }
        claims
    }

    fn named(&self, namespace: &str, name: &Name, pod: &str, facts: &PodFacts) -> NamedClaim {
        match self.claims.get(namespace, name) {
            None => NamedClaim::Missing(name.clone()),
            Some(Record { body: Body::Unreadable(unread), .. }) => {
                NamedClaim::Unreadable(name.clone(), unread.why.clone())
            }
            Some(Record { uid, body: Body::Readable(claim), .. }) => NamedClaim::Known(KnownClaim {
                name: name.clone(),
                uid: uid.clone(),
                facts: Arc::clone(claim),
                reserved_for: claim.reserved_for(pod, facts.group.as_ref()).cloned(),
            }),
        }
    }

    /// The claims with devices that are reserved for a Pod with more entries than are read, and that are not among the first of them.
    pub(super) fn reserved_beyond(&self, key: &ObjectKey, pod: &PodFacts) -> Vec<KnownClaim> {
        if pod.accounted.left_out == 0 {
            return Vec::new();
        }
        let uid = &pod.accounted.view.uid;
        let entries = pod.accounted.claims.iter();
        let named: BTreeSet<&str> = entries.filter_map(|of| of.claim.name()).collect();
        let others = self.reserved.of(&key.namespace, &key.name).filter(|claim| !named.contains(&***claim));
        let others = others.map(|claim| self.named(&key.namespace, &Name::from(&**claim), uid, pod));
        let has_devices = |claim: &KnownClaim| {
            claim.reserved_for.is_some() && !matches!(claim.facts.allocation, None | Some(Allocated::Nothing))
        };
        others.filter_map(|claim| claim.known().filter(|claim| has_devices(claim)).cloned()).collect()
    }

    /// Whether each consumer of a claim is a Pod that its gate keeps from running, or a PodGroup of such Pods.
    pub(super) fn is_held_by_gated(&self, namespace: &str, claim: &ClaimFacts) -> bool {
        claim.consumers.iter().all(|consumer| self.gated_users(namespace, consumer).is_some())
    }

    /// Whether every consumer of a claim (`NAMESPACE/NAME`) is a gated Pod, or a PodGroup of such, for which this is true: of the Pod, and
    /// of the uid of the claim.
    pub(super) fn is_held_by(&self, claim: &str, is_so: impl Fn(&GatedPod, &Name) -> bool) -> bool {
        let Some((namespace, name)) = claim.split_once('/') else { return false };
        let Some(record) = self.claims.get(namespace, name) else { return false };
        let Some(claim) = record.readable() else { return false };
        let are_so = |consumer: &ConsumerReference| {
            let users = self.gated_users(namespace, consumer).filter(|users| !users.is_empty());
            users.is_some_and(|users| users.iter().all(|user| is_so(user, &record.uid)))
        };
        !claim.consumers.is_empty() && claim.consumers.iter().all(are_so)
    }

    /// The number with which a Pod was seen first.
    fn seen_as(&mut self, key: &ObjectKey, uid: &str) -> u64 {
        if let Some((_, known)) = self.pod(key).filter(|(known, _)| **known == *uid) {
            return known.seen;
        }
        self.seen += 1;
        self.seen
    }

    /// A Pod that was released, has no node yet, and holds a claim with devices for this node that its status does not name: another
    /// writer has replaced the status. Once the Pod has its node, the ledger counts what is reserved for it. Pods with more entries than
    /// are read are not among them.
    pub(super) fn uncounted_on(&self, node: &str) -> Option<&ObjectKey> {
        let node = self.nodes.get("", node).and_then(Record::readable)?;
        self.uncounted.iter().find(|key| {
            let ObjectKey { namespace, name } = key;
            let Some(pod) = self.nameless.get(key) else { return false };
            self.reserved.of(namespace, name).filter(|claim| !pod.names(claim)).any(|claim| {
                let claim = self.claims.get(namespace, claim).and_then(Record::readable);
                claim.is_some_and(|claim| {
                    claim.reserved_for(&pod.uid, None).is_some()
                        && match &claim.allocation {
                            Some(Allocated::Nodes(selector)) => node.is_selected(selector),
                            Some(Allocated::Anywhere | Allocated::Unreadable(_)) => true,
                            Some(Allocated::Nothing) | None => false,
                        }
                })
            })
        })
    }

    /// Whether a class stands behind an extended resource.
    pub(super) fn is_backed(&self, resource: &str) -> bool {
        let mut classes = self.classes.iter().filter_map(|(.., record)| record.readable());
        classes.any(|of| of.class.is_behind(resource))
    }

    /// The nodes that may use the devices of all these claims, by name: the one that a claim is on, or every node.
    pub(super) fn nodes_of(&self, claims: &[&KnownClaim]) -> Vec<&NodeView> {
        if let Some(node) = claims.iter().find_map(|claim| claim.facts.node()) {
            let view = self.nodes.get("", node).and_then(Record::readable);
            return view.map(|view| &**view).into_iter().collect();
        }
        let all = self.nodes.iter().filter_map(|(_, _, record)| Some(&**record.readable()?));
        let mut nodes: Vec<&NodeView> = all.collect();
        nodes.sort_unstable_by_key(|node| node.name());
        nodes
    }

    /// A gated Pod waits for something about this node to be known, or for no node any more.
    pub(crate) fn waits_for(&mut self, node: Option<&Name>, pod: &ObjectKey) {
        if let Some(before) = self.waits_for.remove(pod)
            && let Some(waiters) = self.waiting_for.get_mut(&before)
        {
            waiters.pods.remove(pod);
            if waiters.pods.is_empty() {
                self.waiting_for.remove(&before);
            }
        }
        if let Some(node) = node {
            self.waits_for.insert(pod.clone(), node.clone());
            self.waiting_for.entry(node.clone()).or_default().pods.insert(pod.clone());
        }
    }

    /// Some of the Pods that wait for something about a node to be known, in turn. Its account may change many times a second, and
    /// some of them may wait for something else all the same.
    pub(crate) fn turn_of_waiting_for(&mut self, node: &str) -> Vec<ObjectKey> {
        let Some(Waiters { pods, last }) = self.waiting_for.get_mut(node) else { return Vec::new() };
        let from = last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = pods.range((from.clone(), Bound::Unbounded));
        let before = pods.iter().take_while(|_| from != Bound::Unbounded);
        let woken: Vec<ObjectKey> = behind.chain(before).take(MOST_WOKEN.min(pods.len())).cloned().collect();
        *last = woken.last().cloned();
        woken
    }

    /// Tenants can make any number of Pods without claims; few of them have one reserved.
    fn recount(&mut self, key: &ObjectKey) {
        let ObjectKey { namespace, name } = key;
        let is_uncounted = self
            .nameless
            .get(key)
            .is_some_and(|pod| self.reserved.of(namespace, name).any(|claim| !pod.names(claim)));
        if is_uncounted {
            self.uncounted.insert(key.clone());
        } else {
            self.uncounted.remove(key);
        }
    }

    fn link(&mut self, pod: &Place, kept: Option<&PodState>, is_there: bool) {
        let facts = kept.and_then(PodState::waiting).into_iter();
        let entries = facts.flat_map(|facts| &facts.accounted.claims);
        for entry in entries {
            let ClaimName::Named(claim) = &entry.claim else { continue };
            if is_there {
                self.pods_of_claim.link(&pod.namespace, claim, &pod.name);
            } else {
                self.pods_of_claim.unlink(&pod.namespace, claim, &pod.name);
            }
        }
    }
}

impl Keeps<Pod> for Gates {
    type Projection = PodState;

    fn store_mut(&mut self) -> &mut Store<Self::Projection> {
        &mut self.pods
    }

    fn project(&mut self, pod: &Pod) -> Option<Self::Projection> {
        let meta = &pod.metadata;
        let key = ObjectKey { namespace: (*meta.namespace).into(), name: (*meta.name).into() };
        self.nameless.remove(&key);
        if let Some(nameless) = Nameless::of(pod) {
            self.nameless.insert(key.clone(), nameless);
        }
        self.groups.put(&key, pod);
        self.recount(&key);
        let facts = PodFacts::of(pod, &self.later).map(|mut facts| {
            facts.seen = self.seen_as(&key, &meta.uid);
            PodState::Waiting(Arc::new(facts))
        });
        let is_linked = self.nameless.contains_key(&key) || self.groups.has(&key);
        facts.or_else(|| is_linked.then_some(PodState::Linked))
    }

    fn changed(
        &mut self,
        pod: &Place,
        old: Option<&Self::Projection>,
        new: Option<&Self::Projection>,
    ) -> Vec<ObjectKey> {
        self.link(pod, old, false);
        self.link(pod, new, true);
        // Also a Pod of which nothing is kept any more: what is assumed for it is taken back.
        let waits = |kept: Option<&PodState>| kept.and_then(PodState::waiting).is_some();
        if waits(old) || waits(new) { vec![pod.into()] } else { Vec::new() }
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<Self::Projection>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        let (namespace, name, uid) = (Arc::clone(namespace), Arc::clone(name), last.uid.clone());
        let key = ObjectKey { namespace: Arc::clone(&namespace), name: Arc::clone(&name) };
        // Another Pod of its name may be there already.
        if self.pods.get(&namespace, &name).is_none() {
            self.nameless.remove(&key);
            self.groups.remove(&key);
        }
        self.recount(&key);
        Keeps::<Pod>::changed(self, &Place { namespace, name, uid }, last.readable(), None)
    }
}

impl Keeps<ResourceClaim> for Gates {
    type Projection = Arc<ClaimFacts>;

    fn store_mut(&mut self) -> &mut Store<Self::Projection> {
        &mut self.claims
    }

    fn project(&mut self, claim: &ResourceClaim) -> Option<Self::Projection> {
        Some(Arc::new(ClaimFacts::of(claim)))
    }

    fn changed(
        &mut self,
        claim: &Place,
        old: Option<&Self::Projection>,
        new: Option<&Self::Projection>,
    ) -> Vec<ObjectKey> {
        let Place { namespace, name, .. } = claim;
        let consumers = |facts: Option<&Arc<ClaimFacts>>| {
            let consumers = facts.into_iter().flat_map(|facts| &facts.consumers);
            consumers.map(|consumer| Arc::from(&*consumer.name)).collect::<Vec<Arc<str>>>()
        };
        let (before, after) = (consumers(old), consumers(new));
        before.iter().for_each(|consumer| self.reserved.unlink(namespace, consumer, name));
        after.iter().for_each(|consumer| self.reserved.link(namespace, consumer, name));
        for consumer in before.into_iter().chain(after).collect::<BTreeSet<_>>() {
            self.recount(&ObjectKey { namespace: Arc::clone(namespace), name: consumer });
        }
        let pods = self.pods_of_claim.of(namespace, name);
        pods.map(|pod| ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(pod) }).collect()
    }
}

impl Keeps<DeviceClass> for Gates {
    type Projection = Arc<JudgedClass>;

    fn store_mut(&mut self) -> &mut Store<Self::Projection> {
        &mut self.classes
    }

    fn project(&mut self, class: &DeviceClass) -> Option<Self::Projection> {
        Some(Arc::new(JudgedClass::of(class)))
    }

    fn changed(
        &mut self,
        _class: &Place,
        old: Option<&Self::Projection>,
        new: Option<&Self::Projection>,
    ) -> Vec<ObjectKey> {
        if old != new {
            self.classes_revision += 1;
        }
        Vec::new()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.lacks_classes = false;
        Vec::new()
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.lacks_classes = true;
        Vec::new()
    }
}

impl Keeps<Node> for Gates {
    type Projection = Arc<NodeView>;

    fn store_mut(&mut self) -> &mut Store<Self::Projection> {
        &mut self.nodes
    }

    fn project(&mut self, node: &Node) -> Option<Self::Projection> {
        Some(Arc::new(node.into()))
    }

    /// Enqueues no Pod: a Pod seldom waits for a Node. The level timer and the pace of the Pod itself look
    /// again.
    fn changed(
        &mut self,
        _node: &Place,
        _old: Option<&Self::Projection>,
        _new: Option<&Self::Projection>,
    ) -> Vec<ObjectKey> {
        Vec::new()
    }
}
