//! Index of what is taken from every node, kept in step with the API event by event. All controllers that
//! look at nodes share it.
//!
//! The [`ClusterLedger`] has the content of the objects; the stores beside it know which objects
//! exist and which do not decode. Everything follows from the API: after a restart the lists build it
//! anew. A key is the name of a node whose account, Node or published state has changed.
//!
//! Only watches write here. A controller that has decided something which the API does not show yet (a
//! gate that opens, an allocation under way) puts that charge into [`Assumed`] beside it: every decision charges a copy of the
//! node's ledger with them, at [`Stage::Assumed`](dragoman_accounting::ledger::Stage). The charge is taken back when the index has
//! reached the version of the write, which then counts instead, or when the write is refused. A charge is therefore counted once, and none
//! outlives the process that assumed it.
//!
//! Objects that cannot be read are in doubt (`accounts`). A user of one namespace cannot make uncertain the
//! account of a node on which none of the user's Pods runs.

mod accounts;
mod assumed;
mod objects;
mod passage;
mod published;
mod supply;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_accounting::cluster::{ClusterLedger, NodeNames};
use dragoman_machinery::controller::{self, ObjectKey};
use dragoman_machinery::kind::{
    DEVICE_FOOTPRINT, Kind, NODE, NODE_ALLOCATABLE_DRA_CLAIM_STATE, POD, RESOURCE_CLAIM, RESOURCE_SLICES,
};
use dragoman_machinery::watch::{Store, StoreState};
use dragoman_objects::Name;

pub(crate) use self::accounts::Accounts;
pub(crate) use self::assumed::{Assumed, Charged};
pub use self::passage::Passage;
pub use self::published::{Published, fingerprint};
pub use self::supply::{Devices, Supply};
use crate::indexes::Indexes;

/// The index.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Amounts that Pods and claims take from every node.
    pub(crate) accounts: Accounts,
    /// Nodes.
    pub nodes: Store<()>,
    pods: Store<Passage>,
    claims: Store<supply::Held>,
    slices: Store<supply::Published>,
    /// DeviceFootprints, with the reason why one is refused.
    pub footprints: Store<Option<Name>>,
    /// Published ledgers of nodes, as they were read back.
    pub published: Store<Arc<Published>>,
    /// The plurals of the kinds that are not served.
    unserved: BTreeSet<&'static str>,
    /// The nodes whose account has changed since controllers that wait for one were last woken.
    moved: NodeNames,
    /// DeviceFootprints that are refused and not reported yet, by name.
    pub refused: BTreeMap<Name, RefusedFootprint>,
}

/// A DeviceFootprint that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedFootprint {
    /// Uid of the DeviceFootprint.
    pub uid: Name,
    /// The reason: names the field.
    pub why: Name,
}

impl controller::Index for Cluster {
    type Key = ObjectKey;
    type Whole = Indexes;

    fn key_of(object: ObjectKey) -> Option<ObjectKey> {
        Some(object)
    }

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        let stores: [(Kind, &dyn StoreState); 6] = [
            (NODE, &self.nodes),
            (POD, &self.pods),
            (RESOURCE_CLAIM, &self.claims),
            (RESOURCE_SLICES[0], &self.slices),
            (DEVICE_FOOTPRINT, &self.footprints),
            (NODE_ALLOCATABLE_DRA_CLAIM_STATE, &self.published),
        ];
        stores.into_iter()
    }

    fn is_unserved(&self, kind: Kind) -> bool {
        self.unserved.contains(kind.plural)
    }

    fn all_keys(&self) -> Vec<ObjectKey> {
        let nodes = self.nodes.iter().map(|(_, name, _)| name);
        let published = self.published.iter().map(|(_, name, _)| name);
        let names: BTreeSet<&Arc<str>> = nodes.chain(published).collect();
        names.into_iter().map(node_key).collect()
    }

    fn remarks(&self) -> Vec<String> {
        let unserved = self.unserved.iter().map(|plural| format!("not served: {plural}"));
        let refused = self.footprints.iter().filter_map(|(_, name, record)| {
            let why = record.readable()?.as_ref()?;
            Some(format!("  refused DeviceFootprint {name}: {why}"))
        });
        let twice = self.ledger().overdrawn().into_iter().map(|overdrawn| {
            let claims: Vec<&str> = overdrawn.claims.iter().map(|claim| &**claim).collect();
            format!("  promised twice: {overdrawn}: claims {}", claims.join(", "))
        });
        unserved.chain(refused).chain(twice).collect()
    }
}

impl Cluster {
    /// Returns the ledger of what Pods and claims take from every node.
    pub fn ledger(&self) -> &ClusterLedger {
        self.accounts.ledger()
    }

    /// Whether the API server serves what is published of the ledger.
    pub fn publishes(&self) -> bool {
        !self.unserved.contains(NODE_ALLOCATABLE_DRA_CLAIM_STATE.plural)
    }

    /// The kind that is not there and without which no account of a node is right: nothing is known of what
    /// devices take.
    pub fn missing_kind(&self) -> Option<Kind> {
        let kinds = [DEVICE_FOOTPRINT, RESOURCE_SLICES[0]];
        kinds.into_iter().find(|kind| self.unserved.contains(kind.plural))
    }

    /// The keys of the nodes that were changed since the last call.
    fn take_changed(&mut self) -> Vec<ObjectKey> {
        let changed = self.accounts.take_changed();
        let keys = changed.iter().map(node_key).collect();
        self.moved.extend(changed);
        keys
    }

    /// The nodes whose account has changed since the last call.
    pub(crate) fn take_moved(&mut self) -> NodeNames {
        std::mem::take(&mut self.moved)
    }
}

/// The key of a node.
pub fn node_key(name: &Arc<str>) -> ObjectKey {
    ObjectKey { namespace: Arc::from(""), name: Arc::clone(name) }
}
