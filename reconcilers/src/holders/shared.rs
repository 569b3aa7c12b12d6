//! What the controllers of gates, ledgers and holders tell each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::per_resource::Units;
use dragoman_machinery::controller::{Controller, ObjectKey};

use super::index::Holders;
use crate::cluster::{Cluster, node_key};
use crate::gates::assumed::Assumed;

/// Shared by the table of controllers. A controller that does not run leaves its part empty.
#[derive(Default)]
pub struct SharedHolders {
    /// There once the controller of holders has been put together: holders are on.
    pub(super) kit: OnceLock<Arc<Controller<Holders>>>,
    assumed: Mutex<Assumed>,
    /// Gated Pods that wait for the holder of a node.
    waiting: Mutex<BTreeMap<Arc<str>, BTreeSet<ObjectKey>>>,
    gates: OnceLock<Box<dyn Fn(Vec<ObjectKey>) + Send + Sync>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedHolders {
    /// Whether holders are on.
    pub(crate) fn is_on(&self) -> bool {
        self.kit.get().is_some()
    }

    /// Decisions that the index of the cluster does not show yet. Every decision about a node is made under
    /// this lock, so that no room is given twice. It is taken before that of an index, never inside.
    pub(crate) fn assumed(&self) -> MutexGuard<'_, Assumed> {
        locked(&self.assumed)
    }

    /// Notes how gated Pods are woken.
    pub(crate) fn wakes_gates(&self, wake: Box<dyn Fn(Vec<ObjectKey>) + Send + Sync>) {
        // A table that is put together again keeps its first controllers.
        self.gates.get_or_init(|| wake);
    }

    /// What claims take from a node, with those of assumed Pods, and kube-scheduler does not see.
    pub(super) fn wants(&self, cluster: &Controller<Cluster>, node: &str) -> Units {
        let assumed = self.assumed();
        cluster.read(|cluster| {
            let ledger = cluster.ledger().node(node);
            ledger.map_or_else(Units::default, |ledger| {
                assumed.over(ledger, node, None).holder(Scheduler::Unaware).request
            })
        })
    }

    /// Nothing is assumed of a Pod any more; its node has to hold less.
    pub(crate) fn forget(&self, pod: &ObjectKey) {
        let node = {
            let mut assumed = self.assumed();
            let node = assumed.node_of(pod).map(|node| Arc::from(&**node));
            assumed.remove(pod);
            node
        };
        node.iter().for_each(|node| self.look_at(node));
    }

    /// Looks at a node: its ledger has changed.
    pub(crate) fn look_at(&self, node: &Arc<str>) {
        self.kit.get().into_iter().for_each(|kit| kit.enqueue(vec![node_key(node)]));
    }

    /// Whether the holder of a node carries what claims take from it. If not, the Pod is woken once it does.
    pub(crate) fn carries(&self, cluster: &Controller<Cluster>, node: &Arc<str>, pod: &ObjectKey) -> bool {
        let Some(kit) = self.kit.get() else { return true };
        let wants = self.wants(cluster, node);
        // Before the look: what is raised in between wakes the Pod.
        locked(&self.waiting).entry(Arc::clone(node)).or_default().insert(pod.clone());
        let carries = kit.read(|index| index.carries(node, &wants));
        if carries {
            self.waits_no_more(node, pod);
        } else {
            self.look_at(node);
        }
        carries
    }

    fn waits_no_more(&self, node: &Arc<str>, pod: &ObjectKey) {
        let mut waiting = locked(&self.waiting);
        if let Some(pods) = waiting.get_mut(node) {
            pods.remove(pod);
            if pods.is_empty() {
                waiting.remove(node);
            }
        }
    }

    /// The holder of a node carries what claims take.
    pub(super) fn wake(&self, node: &Arc<str>) {
        let pods = locked(&self.waiting).remove(node).unwrap_or_default();
        if let Some(wake) = self.gates.get().filter(|_| !pods.is_empty()) {
            wake(pods.into_iter().collect());
        }
    }
}
