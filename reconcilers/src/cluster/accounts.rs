//! The ledger of a cluster on its way from objects: what is read counts, and what cannot be read is in doubt. The index of the
//! operator and the one of the allocator feed their ledgers here, so that both answer alike.
//!
//! An object that does not decode takes an unknown amount from the nodes that are known to be concerned: the node that the
//! object names, those of its last readable state, or every node where it may be about any device. A Node that does not decode
//! keeps its last state, in doubt, in the index of the operator; the allocator has no such Node.

use std::sync::Arc;

use dragoman_accounting::cluster::{self, Claim, ClusterLedger, NodeNames, Rules};
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_machinery::controller::Place;
use dragoman_machinery::watch::{Body, Record, Unread};
use dragoman_objects::{Name, Node, Pod, ResourceClaim};

use crate::holders::is_holder;

/// The ledger, and the nodes whose accounts were changed since they were last asked for.
#[derive(Debug)]
pub(crate) struct Accounts {
    ledger: ClusterLedger,
    changed: NodeNames,
    /// Our own namespace: holder Pods there take nothing.
    pub(crate) namespace: Arc<str>,
}

impl Default for Accounts {
    fn default() -> Self {
        let ledger = ClusterLedger::new(Rules::default());
        Self { ledger, changed: NodeNames::new(), namespace: Arc::default() }
    }
}

/// Why an object does not decode, if it does not.
fn unread<P>(record: Option<&Record<P>>) -> Option<&Unread> {
    match &record?.body {
        Body::Unreadable(unread) => Some(&**unread),
        Body::Readable(_) => None,
    }
}

/// An object of a namespace in messages. The uid tells it from another one of its name.
fn in_words(kind: &str, Place { namespace, name, uid }: &Place) -> String {
    format!("{kind} {namespace}/{name} ({uid})")
}

impl Accounts {
    pub(crate) fn ledger(&self) -> &ClusterLedger {
        &self.ledger
    }

    /// The nodes that were changed since the last call.
    pub(crate) fn take_changed(&mut self) -> NodeNames {
        std::mem::take(&mut self.changed)
    }

    fn take_in(&mut self, change: impl FnOnce(&mut ClusterLedger) -> NodeNames) {
        let changed = change(&mut self.ledger);
        self.changed.extend(changed);
    }

    /// Notes that an object does not decode, and the nodes that it concerns (`None`: any), or that it does.
    fn doubt(&mut self, object: &str, nodes: &[Option<Name>], why: Option<&str>) {
        let unread = |why: &str| Unaccounted {
            object: object.into(),
            field: Name::default(),
            resource: None,
            why: why.into(),
        };
        let unread = why.map(unread).into_iter();
        let unread =
            unread.flat_map(|unread| nodes.iter().map(move |node| (node.clone(), unread.clone()))).collect();
        self.take_in(|ledger| ledger.put_unread(object, unread));
    }

    /// A Node was read.
    pub(crate) fn put_node(&mut self, node: &Node) {
        self.take_in(|ledger| ledger.put_node(node.into()));
    }

    /// A Node appeared or changed. One that does not decode keeps its last state, in doubt.
    pub(crate) fn saw_node<P>(&mut self, name: &str, record: Option<&Record<P>>) {
        let why = unread(record).map(|unread| &*unread.why);
        self.doubt(&format!("Node {name}"), &[Some(name.into())], why);
    }

    /// A Node is gone.
    pub(crate) fn remove_node(&mut self, name: &str) {
        self.take_in(|ledger| ledger.remove_node(name));
        self.doubt(&format!("Node {name}"), &[], None);
    }

    /// A Pod as it is accounted for.
    pub(crate) fn accounted(&self, pod: &Pod) -> cluster::Pod {
        let mut accounted = cluster::Pod::from(pod).condensed();
        accounted.holder = is_holder(pod, &self.namespace);
        accounted
    }

    /// A Pod was read.
    pub(crate) fn put_pod(&mut self, accounted: cluster::Pod) {
        self.take_in(|ledger| ledger.put_pod(accounted));
    }

    /// A Pod appeared or changed. One that does not decode is in doubt on the node that it names, and on that of its last
    /// readable state.
    pub(crate) fn saw_pod<P>(&mut self, pod: &Place, record: Option<&Record<P>>) {
        // The record may be that of another Pod, which has taken the name.
        let unread = unread(record.filter(|record| record.uid == pod.uid));
        let mut nodes: Vec<Option<Name>> =
            self.ledger.node_of(&pod.uid).map(Name::from).map(Some).into_iter().collect();
        let named = unread.and_then(|unread| unread.node.clone()).map(Some);
        nodes.extend(named.filter(|node| !nodes.contains(node)));
        self.doubt(&in_words("Pod", pod), &nodes, unread.map(|unread| &*unread.why));
    }

    /// A Pod is gone, and what was not read of it, too. Another Pod of its name has another uid.
    pub(crate) fn remove_pod(&mut self, pod: &Place) {
        self.take_in(|ledger| ledger.remove_pod(&pod.uid));
        self.doubt(&in_words("Pod", pod), &[], None);
    }

    /// A claim was read. Where its allocation does not decode, the Pods that name the claim are uncertain.
    pub(crate) fn put_claim(&mut self, claim: &ResourceClaim) {
        self.take_in(|ledger| ledger.put_claim(claim.into()));
    }

    /// A claim appeared or changed. What one that does not decode takes from the node of its Pods is not known.
    pub(crate) fn saw_claim<P>(&mut self, claim: &Place, record: Option<&Record<P>>) {
        if let Some(Unread { why, .. }) = unread(record.filter(|record| record.uid == claim.uid)) {
            let unread = unread_claim([&claim.namespace, &claim.name, &claim.uid], why.clone());
            self.take_in(|ledger| ledger.put_claim(unread));
        }
    }

    /// There is no claim of this name any more.
    pub(crate) fn remove_claim(&mut self, namespace: &str, name: &str) {
        self.take_in(|ledger| ledger.remove_claim(namespace, name));
    }

    /// A slice was read.
    pub(crate) fn put_slice(&mut self, slice: cluster::Slice) {
        self.take_in(|ledger| ledger.put_slice(slice));
    }

    /// There is no slice of this name any more, or it does not decode: its devices are in no slice, and the claims that have them
    /// are uncertain.
    pub(crate) fn remove_slice(&mut self, name: &str) {
        self.take_in(|ledger| ledger.remove_slice(name));
    }

    /// A DeviceFootprint was read. One that is refused may be about any device.
    ///
    /// Returns why it is refused, in whole or in part, if it is.
    pub(crate) fn put_footprint(&mut self, footprint: &DeviceFootprint) -> Option<String> {
        let name = &footprint.metadata.name;
        let object = format!("DeviceFootprint {name}");
        match dragoman_cluster::footprint(footprint) {
            Ok((accounted, refused)) => {
                self.take_in(|ledger| ledger.put_footprint(accounted));
                self.doubt(&object, &[], None);
                refused
            }
            Err(why) => {
                self.take_in(|ledger| ledger.remove_footprint(name));
                self.doubt(&object, &[None], Some(&why));
                Some(why)
            }
        }
    }

    /// A DeviceFootprint does not decode, or is gone (`record` is absent).
    pub(crate) fn lost_footprint<P>(&mut self, name: &str, record: Option<&Record<P>>) {
        self.take_in(|ledger| ledger.remove_footprint(name));
        let why = unread(record).map(|unread| &*unread.why);
        self.doubt(&format!("DeviceFootprint {name}"), &[None], why);
    }
}

/// A claim that does not decode.
fn unread_claim(names: [&str; 3], why: Name) -> Claim {
    let [namespace, name, uid] = names.map(Name::from);
    Claim { namespace, name, uid, unread: Some(why), ..Claim::default() }
}
