//! A whole cluster at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_objects::Name;

use super::{Claim, ClusterLedger, DeviceFootprint, Node, Pod, Rules, Slice};
use crate::ledger::NodeLedger;
use crate::ledger::fit::Candidate;
use crate::unaccounted::Unaccounted;

/// Everything that says something of nodes, as it was listed. Where an object is listed twice, the
/// later entry counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The Pods.
    pub pods: Vec<Pod>,
    /// The claims.
    pub claims: Vec<Claim>,
    /// The slices.
    pub slices: Vec<Slice>,
    /// The costs of devices by driver, as administrators define them.
    pub footprints: Vec<DeviceFootprint>,
    /// Objects that could not be read at all, with the node that each is about; `None`: any.
    pub unread: Vec<(Option<Name>, Unaccounted)>,
}

/// The ledger of a node, with notices for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Ledger of the node.
    pub ledger: NodeLedger,
    /// Findings that people should look at, sorted.
    pub notices: Vec<String>,
}

/// A listed cluster with the ledgers of its nodes.
#[derive(Debug, Clone)]
pub struct Index(ClusterLedger);

impl Index {
    /// Indexes a cluster.
    pub fn new(cluster: &Cluster, rules: Rules) -> Self {
        Self(ClusterLedger::of(cluster, rules))
    }

    /// Returns the account of every node, Pods on nodes that were not listed included.
    pub fn accounts(&self) -> BTreeMap<Name, Account> {
        self.0.accounts()
    }

    /// Returns a Pod as it would be on `node`, with what its claims would wake up there.
    pub fn candidate(&self, pod: &Pod, node: &str) -> Candidate {
        self.0.candidate(pod, node)
    }
}

impl ClusterLedger {
    /// Returns the ledger of a cluster that was listed.
    pub fn of(cluster: &Cluster, rules: Rules) -> Self {
        let mut ledger = Self::new(rules);
        // Pods come last: each is computed once.
        for node in &cluster.nodes {
            ledger.put_node(node.clone());
        }
        for slice in &cluster.slices {
            ledger.put_slice(slice.clone());
        }
        for footprint in &cluster.footprints {
            ledger.put_footprint(footprint.clone());
        }
        for claim in &cluster.claims {
            ledger.put_claim(claim.clone());
        }
        for pod in &cluster.pods {
            ledger.put_pod(pod.clone());
        }
        let mut unread: BTreeMap<&str, Vec<(Option<Name>, Unaccounted)>> = BTreeMap::new();
        for entry in &cluster.unread {
            unread.entry(&entry.1.object).or_default().push(entry.clone());
        }
        for (object, unread) in unread {
            ledger.put_unread(object, unread);
        }
        ledger
    }

    /// Returns a copy of the account of every node.
    pub fn accounts(&self) -> BTreeMap<Name, Account> {
        let account = |(name, ledger): (&Arc<str>, &NodeLedger)| {
            let notices = self.notices(name).map(ToString::to_string).collect();
            (name.clone(), Account { ledger: ledger.clone(), notices })
        };
        self.nodes().map(account).collect()
    }
}
