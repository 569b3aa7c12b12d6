//! Charges of Pods that have a node in their claims and not in the API yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dragoman_accounting::ledger::NodeLedger;
use dragoman_accounting::ledger::charge::PodCharge;
use dragoman_machinery::controller::ObjectKey;
use dragoman_objects::Name;

use super::Cluster;

/// Assumed charges of Pods. A charge is put when a Pod is accounted for on a node, and taken back when the
/// Pod is bound, gone, or loses its allocation: the index of the cluster counts it from its binding on.
#[derive(Debug, Default)]
pub(crate) struct Assumed {
    charges: BTreeMap<Name, BTreeMap<ObjectKey, Arc<PodCharge>>>,
    nodes: HashMap<ObjectKey, Name>,
}

impl Assumed {
    /// Assumes that a Pod takes this from a node, in place of what was assumed for it before.
    pub(crate) fn put(&mut self, key: &ObjectKey, node: &str, charge: PodCharge) {
        self.remove(key);
        self.nodes.insert(key.clone(), node.into());
        self.charges.entry(node.into()).or_default().insert(key.clone(), Arc::new(charge));
    }

    /// Takes a charge back.
    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        let Some(node) = self.nodes.remove(key) else { return };
        if let Some(charges) = self.charges.get_mut(&node) {
            charges.remove(key);
            if charges.is_empty() {
                self.charges.remove(&node);
            }
        }
    }

    /// The node that is assumed for a Pod.
    pub(crate) fn node_of(&self, key: &ObjectKey) -> Option<&Name> {
        self.nodes.get(key)
    }

    /// The Pods with the nodes that are assumed for them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&ObjectKey, &Name)> {
        self.nodes.iter()
    }

    /// Returns the charge that is assumed for a Pod.
    pub(crate) fn charge_of(&self, key: &ObjectKey) -> Option<&PodCharge> {
        self.charges.get(self.nodes.get(key)?)?.get(key).map(|charge| &**charge)
    }

    /// The ledger of a node with everything that is assumed there, for this Pod excepted. A Pod that the
    /// ledger has already counts once: its charge is put in place of that one.
    pub(crate) fn over(&self, ledger: &NodeLedger, node: &str, except: Option<&ObjectKey>) -> NodeLedger {
        let mut ledger = ledger.clone();
        let charges = self.charges.get(node).into_iter().flatten();
        let others = charges.filter(|(key, _)| Some(*key) != except);
        for (_, charge) in others {
            ledger.put_pod(Arc::clone(charge));
        }
        ledger
    }

    /// Whether something is assumed for a node.
    pub(crate) fn has(&self, node: &str) -> bool {
        self.charges.contains_key(node)
    }

    /// The number of charges.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// Everything that is taken from the nodes, with the charges that the API does not show yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charged<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) assumed: &'a Assumed,
}

impl Charged<'_> {
    /// The ledger of a node with everything that is assumed there; nothing where the node has no account.
    pub(crate) fn ledger(&self, node: &str) -> Option<NodeLedger> {
        Some(self.assumed.over(self.cluster.ledger().node(node)?, node, None))
    }
}
