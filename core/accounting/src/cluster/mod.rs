//! From the objects of a cluster to a ledger for every node, object by object.
//!
//! A [`ClusterLedger`] learns which objects exist and which are gone, in any order, and returns the
//! nodes whose account changes. Links lead from a Pod to its claims, from a claim to its devices,
//! and back. An event computes anew what it touches:
//!
//! | event | computed anew |
//! |---|---|
//! | Node | what the node has |
//! | Pod | the Pod |
//! | ResourceClaim | the reservations of its devices; the Pods that name it, or for which it is reserved |
//! | ResourceSlice | the claims with an edited device, and the Pods that name them |
//! | ResourceSlice that changes the newest generation of its pool | the same for all its devices |
//! | DeviceFootprint | the claims with a device of its driver, and the Pods that name them |
//!
//! The state follows from the objects that exist, not from the events that led to it: a claim may
//! come before its Pod or after it, and a Pod before its Node. A cluster that was listed is a fold
//! over the same events ([`Index`]).

mod account;
mod batch;
mod devices;
mod drawn;
mod links;
mod notice;
mod objects;
mod overdrawn;
mod reserved;
mod selector;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use batch::{Account, Cluster, Index};
pub use notice::{About, Notice};
pub use objects::{Claim, ClaimName, Counter, DeviceFootprint, Node, Pod, PodClaim, Slice, SliceDevice};
pub use overdrawn::{Overdrawn, Scarce};
pub use selector::Selector;

use dragoman_objects::Name;

use crate::Uid;
use crate::claim::allocation::Judgement;
use crate::ledger::charge::charge;
use crate::ledger::{Charging, NodeLedger, Stage};
use crate::pod::requests::Variant;
use crate::unaccounted::Unaccounted;
use account::{Accounts, Event, NodeAccount};
use devices::Devices;
use links::{BoundPod, ClaimEntry};
use objects::{ClaimKey, claim_key};
use reserved::Incomplete;
use view::Seen;
pub use view::{AllocatedDevice, ClaimsOfPod, PodDevice};

/// The rules by which is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// Claims of a Pod.
    pub variant: Variant,
    /// Claims of several Pods.
    pub charging: Charging,
    /// Where Kubernetes counts otherwise than is recommended.
    pub judgement: Judgement,
}

/// A set of nodes, by name.
pub type NodeNames = BTreeSet<Arc<str>>;

/// The ledgers of all nodes of a cluster, kept up to date object by object.
///
/// A node has an account while its Node is there, a Pod is bound to it, or a device of it for which
/// the driver holds something is in use.
///
/// Every `put_*` puts an object in place of the one that was known under its name (a Pod: under its
/// uid), whichever of both is older. Removing an unknown object does nothing. Each method returns
/// exactly the nodes whose account differs from the one before: it was opened or closed, or its
/// ledger or its notices are others.
///
/// ```
/// use dragoman_accounting::amounts::Amounts;
/// use dragoman_accounting::cluster::{ClusterLedger, Node, Pod, Rules};
/// use dragoman_accounting::ledger::fit::Headroom;
/// use dragoman_accounting::pod::PodSpecView;
/// use dragoman_accounting::resource::Resource;
/// use dragoman_quantity::Decimal;
///
/// let mut allocatable = Amounts::default();
/// allocatable.set(Resource::Cpu, Decimal::from(4));
/// let mut requests = Amounts::default();
/// requests.set(Resource::Cpu, Decimal::from(1));
///
/// let mut ledger = ClusterLedger::new(Rules::default());
/// ledger.put_node(Node { name: "n".into(), allocatable, ..Node::default() });
/// let view = PodSpecView { uid: "u".into(), overhead: requests, ..PodSpecView::default() };
/// let changed = ledger.put_pod(Pod { view, node: Some("n".into()), ..Pod::default() });
/// assert!(changed.contains("n"));
/// let left = ledger.node("n").map(|node| node.headroom(Resource::Cpu));
/// assert_eq!(left, Some(Headroom::Left(3_000)), "in thousandths of a cpu");
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClusterLedger {
    rules: Rules,
    accounts: Accounts,
    /// The Pods that take something from a node.
    pods: BTreeMap<Uid, BoundPod>,
    /// Claims, those that are only named by a Pod included.
    claims: BTreeMap<ClaimKey, Box<ClaimEntry>>,
    incomplete: Incomplete,
    /// The claims with a device on the node whose costs are not known.
    uncertain: BTreeMap<Name, BTreeSet<ClaimKey>>,
    devices: Devices,
    /// Unreadable entries by the name of their object, with the node that each is about.
    unread: BTreeMap<Name, Vec<(Option<Name>, Unaccounted)>>,
}

impl ClusterLedger {
    /// A ledger of no objects.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Lists a Node.
    pub fn put_node(&mut self, node: Node) -> NodeNames {
        let Node { name, allocatable, unaccounted } = node;
        let mut event = Event::default();
        self.open(&name, &mut event);
        if let Some(account) = self.accounts.touch(&name, &mut event) {
            account.listed = true;
            account.ledger.set_allocatable(&allocatable);
            account.ledger.doubt_allocatable(unaccounted);
        }
        self.accounts.settle(event)
    }

    /// Removes a Node. Its Pods stay charged, and what it has is unknown.
    pub fn remove_node(&mut self, name: &str) -> NodeNames {
        let mut event = Event::default();
        if let Some(account) = self.accounts.touch(name, &mut event) {
            account.listed = false;
            account.ledger.forget_allocatable();
        }
        self.accounts.settle(event)
    }

    /// Charges a Pod to its node. A Pod without a node and one that is done take nothing.
    pub fn put_pod(&mut self, pod: Pod) -> NodeNames {
        let pod = pod.condensed();
        let uid = pod.view.uid.clone();
        if self.pods.get(&uid).is_some_and(|known| known.pod.as_deref() == Some(&pod)) {
            return NodeNames::new();
        }
        let Some(node) = pod.node.clone().filter(|_| !pod.done) else { return self.remove_pod(&uid) };
        let mut event = Event::default();
        let mut notices = BTreeSet::new();
        if let Some(known) = self.unlink_pod(&uid) {
            if known.node == node {
                notices = known.notices;
            } else {
                self.discharge(&uid, &known, &mut event);
            }
        }
        let has_claims = !pod.claims.is_empty() || pod.is_incomplete();
        self.link_pod(&uid, BoundPod { node, pod: Some(Box::new(pod)), notices });
        self.recharge(&uid, &mut event);
        if let Some(known) = self.pods.get_mut(&uid).filter(|_| !has_claims) {
            known.pod = None;
        }
        self.accounts.settle(event)
    }

    /// Removes a Pod.
    pub fn remove_pod(&mut self, uid: &str) -> NodeNames {
        let mut event = Event::default();
        if let Some(known) = self.unlink_pod(uid) {
            self.discharge(uid, &known, &mut event);
        }
        self.accounts.settle(event)
    }

    /// Puts a claim, which the Pods of its namespace know by its name.
    pub fn put_claim(&mut self, claim: Claim) -> NodeNames {
        let key = claim_key(&claim.namespace, &claim.name);
        self.edit_claim(&key, Some(claim))
    }

    /// Removes a claim.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) -> NodeNames {
        self.edit_claim(&claim_key(namespace, name), None)
    }

    fn edit_claim(&mut self, key: &ClaimKey, mut claim: Option<Claim>) -> NodeNames {
        let known = self.claims.get(key);
        let mut consumers =
            claim.as_mut().map(|claim| std::mem::take(&mut claim.reserved_for)).unwrap_or_default();
        if claim.as_ref().is_some_and(|claim| claim.unread.is_some()) && consumers.is_empty() {
            // It does not decode: its consumers are those that were known last.
            consumers = known.map(|entry| entry.reserved_for.clone()).unwrap_or_default();
        }
        let is_known = known.and_then(|entry| entry.claim.as_ref()) == claim.as_ref();
        if !is_known {
            self.link_claim(key, claim);
        }
        let pods = self.reserve(key, consumers);
        if is_known && pods.is_empty() {
            return NodeNames::new();
        }
        let changed = self.recompute(&BTreeSet::from([key.clone()]), pods);
        self.sweep(key);
        changed
    }

    /// Publishes a slice.
    pub fn put_slice(&mut self, slice: Slice) -> NodeNames {
        let devices = self.devices.put_slice(slice);
        let claims = self.claims_with(&devices);
        self.recompute(&claims, BTreeSet::new())
    }

    /// Withdraws a slice.
    pub fn remove_slice(&mut self, name: &str) -> NodeNames {
        let devices = self.devices.remove_slice(name);
        let claims = self.claims_with(&devices);
        self.recompute(&claims, BTreeSet::new())
    }

    /// Puts a DeviceFootprint.
    pub fn put_footprint(&mut self, footprint: DeviceFootprint) -> NodeNames {
        let drivers = self.devices.put_footprint(footprint);
        let claims = self.claims_of_drivers(&drivers);
        self.recompute(&claims, BTreeSet::new())
    }

    /// Removes a DeviceFootprint.
    pub fn remove_footprint(&mut self, name: &str) -> NodeNames {
        let drivers = self.devices.remove_footprint(name);
        let claims = self.claims_of_drivers(&drivers);
        self.recompute(&claims, BTreeSet::new())
    }

    /// Replaces the unreadable entries of an object, each with the node that it is about; `None`: any
    /// node. An empty list clears them.
    ///
    /// Claims, slices and DeviceFootprints may cost any node something. A Pod and a Node carry their
    /// unreadable entries themselves. An object that was readable before keeps its last state until
    /// it is removed by its own method.
    pub fn put_unread(&mut self, object: &str, unread: Vec<(Option<Name>, Unaccounted)>) -> NodeNames {
        let before = self.unread.remove(object).unwrap_or_default();
        if before.is_empty() && unread.is_empty() {
            return NodeNames::new();
        }
        let concerned = |node: &str| {
            let mut all = before.iter().chain(&unread);
            all.any(|(of, _)| of.as_ref().is_none_or(|of| **of == *node))
        };
        let nodes = self.accounts.iter().map(|(node, _)| node).filter(|node| concerned(node));
        let nodes: Vec<Arc<str>> = nodes.cloned().collect();
        if !unread.is_empty() {
            self.unread.insert(object.into(), unread);
        }
        let mut event = Event::default();
        for node in nodes {
            let unread = self.unread_on(object, &node);
            if let Some(account) = self.accounts.touch(&node, &mut event) {
                account.ledger.doubt(object, unread);
            }
        }
        self.accounts.settle(event)
    }

    /// Clears what could not be read of an object.
    pub fn remove_unread(&mut self, object: &str) -> NodeNames {
        self.put_unread(object, Vec::new())
    }

    /// Returns the ledger of a node. One whose account was closed and opened again begins anew, its
    /// revision included.
    pub fn node(&self, name: &str) -> Option<&NodeLedger> {
        Some(&self.accounts.get(name)?.ledger)
    }

    /// Returns the node that a Pod is charged to.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        Some(&*self.pods.get(uid)?.node)
    }

    /// Returns the ledger of every node, sorted by name. Nodes are among them that only Pods name.
    pub fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &NodeLedger)> {
        self.accounts.iter().map(|(name, account)| (name, &account.ledger))
    }

    /// Returns the notices for people about a node, sorted, each once.
    pub fn notices(&self, node: &str) -> impl Iterator<Item = &Notice> {
        self.accounts.get(node).into_iter().flat_map(NodeAccount::notices)
    }

    // What follows from the objects.

    /// Computes claims and the Pods that name them anew, and these Pods.
    fn recompute(&mut self, claims: &BTreeSet<ClaimKey>, mut pods: BTreeSet<Uid>) -> NodeNames {
        let mut event = Event::default();
        for key in claims {
            self.resettle(key, &mut event);
            pods.extend(self.claims.get(key).into_iter().flat_map(|entry| entry.pods.iter().cloned()));
        }
        for uid in &pods {
            self.recharge(uid, &mut event);
        }
        self.accounts.settle(event)
    }

    /// Charges a Pod anew, if it is kept.
    fn recharge(&mut self, uid: &str, event: &mut Event) {
        let Some(pod) = self.pods.get_mut(uid).and_then(|known| known.pod.take()) else { return };
        self.charge(uid, &pod, event);
        if let Some(known) = self.pods.get_mut(uid) {
            known.pod = Some(pod);
        }
    }

    /// Charges a Pod as it is seen now.
    fn charge(&mut self, uid: &str, pod: &Pod, event: &mut Event) {
        let Some(BoundPod { node, notices: before, .. }) = self.pods.get(uid) else { return };
        let (node, before) = (node.clone(), before.clone());
        let Seen { view, unaccounted, mut notices, .. } = self.seen_from(pod, &node);
        let stage = if pod.holder { Stage::Holder } else { Stage::Bound };
        let charge = charge(&view, stage, self.rules.variant, unaccounted);
        let over = charge.over_budget().iter().map(|over| format!("{}: {over}", view.object()));
        notices.extend(over.map(|over| Notice::new(About::Budget, &over)));
        self.open(&node, event);
        if let Some(account) = self.accounts.touch(&node, event) {
            account.ledger.put_pod(charge);
            account.notice(&before, &notices);
        }
        if let Some(known) = self.pods.get_mut(uid) {
            known.notices = notices;
        }
    }

    /// Takes back what is charged for a Pod that is no longer on its node.
    fn discharge(&mut self, uid: &str, pod: &BoundPod, event: &mut Event) {
        if let Some(account) = self.accounts.touch(&pod.node, event) {
            account.ledger.remove_pod(uid);
            account.notice(&pod.notices, &BTreeSet::new());
        }
    }

    /// Computes anew what a claim costs nodes by itself: the reservations of its devices, and the
    /// doubts about them.
    fn resettle(&mut self, key: &ClaimKey, event: &mut Event) {
        let Some(entry) = self.claims.get_mut(key) else { return };
        let before = entry.effects.take().map(|effects| *effects).unwrap_or_default();
        let after = entry.claim.as_ref().and_then(|claim| self.devices.effects(key, claim));
        let settled = after.clone();
        let after = after.map(|effects| *effects).unwrap_or_default();
        let same = before.uid == after.uid;
        for (node, device) in before.held.keys().filter(|at| !same || !after.held.contains_key(*at)) {
            if let Some(account) = self.accounts.touch(node, event) {
                account.ledger.leave_device(device, &before.uid);
            }
        }
        for ((node, device), reservation) in &after.held {
            self.open(node, event);
            if let Some(account) = self.accounts.touch(node, event) {
                account.ledger.use_device(device.clone(), after.uid.clone(), reservation);
            }
        }
        let nodes: BTreeSet<_> = before.doubts.keys().chain(after.doubts.keys()).collect();
        for node in nodes {
            let doubts = after.doubts.get(node).cloned().unwrap_or_default();
            self.link_uncertain(key, node, !doubts.is_empty());
            if let Some(account) = self.accounts.touch(node, event) {
                account.ledger.doubt(&devices_of(key), doubts.into_iter().collect());
            }
        }
        if let Some(entry) = self.claims.get_mut(key) {
            entry.effects = settled;
        }
    }

    /// Opens the account of a node that has none, with everything that is not known of the node.
    fn open(&mut self, node: &str, event: &mut Event) {
        if self.accounts.get(node).is_some() {
            return;
        }
        let mut ledger = NodeLedger::new(self.rules.charging);
        for object in self.unread.keys() {
            ledger.doubt(object, self.unread_on(object, node));
        }
        for key in self.uncertain.get(node).into_iter().flatten() {
            let doubts = self.claims.get(key).and_then(|entry| entry.effects.as_ref()?.doubts.get(node));
            ledger.doubt(&devices_of(key), doubts.into_iter().flatten().cloned().collect());
        }
        self.accounts.open(node, ledger, event);
    }

    /// Returns the unreadable entries of an object that are about `node`.
    fn unread_on(&self, object: &str, node: &str) -> Vec<Unaccounted> {
        let all = self.unread.get(object).into_iter().flatten();
        let about = all.filter(|(of, _)| of.as_ref().is_none_or(|of| **of == *node));
        let sorted: BTreeSet<&Unaccounted> = about.map(|(_, unaccounted)| unaccounted).collect();
        sorted.into_iter().cloned().collect()
    }
}

/// Doubts about the devices of a claim are kept apart from those about the claim itself.
fn devices_of(key: &ClaimKey) -> String {
    format!("devices of ResourceClaim {key}")
}
