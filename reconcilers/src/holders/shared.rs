//! State that the controllers of gates, ledgers and holders share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dragoman_accounting::ledger::NodeLedger;
use dragoman_accounting::ledger::fit::Headroom;
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::per_resource::Units;
use dragoman_accounting::resource::Resource;
use dragoman_machinery::controller::{Controller, ObjectKey};

use super::index::Holders;
use super::plan::surplus;
use crate::cluster::{Assumed, Cluster, node_key};

/// Shared by the table of controllers. A controller that does not run leaves its part empty.
#[derive(Default)]
pub struct SharedHolders {
    /// There once the controller of holders has been put together: holders are on.
    pub(super) kit: OnceLock<Arc<Controller<Holders>>>,
    assumed: Mutex<Assumed>,
    /// Gated Pods that wait for the holder of a node.
    waiting: Mutex<BTreeMap<Arc<str>, BTreeSet<ObjectKey>>>,
    /// Nodes whose holders hold room that a released Pod would need.
    crowded: Mutex<BTreeSet<Arc<str>>>,
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
    /// this lock, so that no room is given twice. It is taken before that of an index, never inside; of indexes, that of the
    /// cluster comes first.
    pub(crate) fn assumed(&self) -> MutexGuard<'_, Assumed> {
        locked(&self.assumed)
    }

    /// Notes how gated Pods are woken.
    pub(crate) fn on_ready(&self, wake: Box<dyn Fn(Vec<ObjectKey>) + Send + Sync>) {
        // A table that is put together again keeps its first controllers.
        self.gates.get_or_init(|| wake);
    }

    /// Whether everything is known that Pods and claims take from a node.
    pub(super) fn is_certain(&self, cluster: &Controller<Cluster>, node: &str) -> bool {
        let is_known = |ledger: &NodeLedger| {
            let all = [Resource::Cpu, Resource::Memory];
            all.into_iter().all(|resource| matches!(ledger.headroom(resource), Headroom::Left(_)))
        };
        self.over(cluster, node, is_known).unwrap_or(true)
    }

    /// Returns what claims take from a node, those of assumed Pods included, and kube-scheduler does not see;
    /// `None` while claims take something and it is not known what kube-scheduler sees.
    pub(super) fn required(
        &self,
        cluster: &Controller<Cluster>,
        node: &str,
        by: Option<Scheduler>,
    ) -> Option<Units> {
        self.over(cluster, node, |ledger| request(ledger, by)).unwrap_or_else(|| Some(Units::default()))
    }

    /// Gives a holder up before it is deleted, if that is still right: a gate may have been opened because of it since that was decided.
    /// Both are decided under one lock.
    pub(super) fn give_up(
        &self,
        cluster: &Controller<Cluster>,
        node: &str,
        uid: &str,
        by: Option<Scheduler>,
    ) -> bool {
        let Some(kit) = self.kit.get() else { return true };
        let assumed = self.assumed();
        cluster.read(|cluster| {
            let required = over(cluster, &assumed, node, |ledger| request(ledger, by));
            // Without an account of the node nothing has to be held there.
            let required = required.unwrap_or_else(|| Some(Units::default()));
            kit.note(|index| index.give_up(node, uid, required.as_ref()))
        })
    }

    /// Asks the ledger of a node with everything that is assumed there.
    fn over<T>(
        &self,
        cluster: &Controller<Cluster>,
        node: &str,
        ask: impl FnOnce(&NodeLedger) -> T,
    ) -> Option<T> {
        let assumed = self.assumed();
        cluster.read(|cluster| over(cluster, &assumed, node, ask))
    }

    /// Whether the holders of a node hold what claims take there, and no room that an assumed Pod needs:
    /// kube-scheduler would refuse it, and move its devices.
    pub(super) fn suit(
        &self,
        (cluster, assumed): (&Cluster, &Assumed),
        node: &Arc<str>,
        by: Scheduler,
    ) -> bool {
        let Some(kit) = self.kit.get() else { return true };
        let asked = over(cluster, assumed, node, |ledger| {
            let left = |resource| match ledger.headroom(resource) {
                Headroom::Left(left) => left.max(0),
                Headroom::Unknown => i128::MAX,
            };
            (ledger.holder(by).request, left(Resource::Cpu), left(Resource::Memory))
        });
        let Some((required, cpu, memory)) = asked else { return true };
        let (is_held, surplus) =
            kit.read(|index| (index.holds(node, &required), surplus(&index.counted(node), &required)));
        let is_crowded = i128::from(surplus.get(Resource::Cpu)) > cpu
            || i128::from(surplus.get(Resource::Memory)) > memory;
        let mut crowded = locked(&self.crowded);
        if is_crowded {
            crowded.insert(Arc::clone(node));
        } else {
            crowded.remove(node);
        }
        is_held && !is_crowded
    }

    /// Whether a released Pod would need what the holders of a node hold too much.
    pub(super) fn is_crowded(&self, node: &str) -> bool {
        locked(&self.crowded).contains(node)
    }

    /// Nothing is assumed of a Pod any more; its node has to hold less.
    pub(crate) fn forget(&self, assumed: &mut Assumed, pod: &ObjectKey) {
        let node = assumed.node_of(pod).map(|node| Arc::from(&**node));
        assumed.remove(pod);
        node.iter().for_each(|node| self.look_at(node));
    }

    /// Looks at a node: its ledger has changed.
    pub(crate) fn look_at(&self, node: &Arc<str>) {
        self.kit.get().into_iter().for_each(|kit| kit.enqueue(vec![node_key(node)]));
    }

    /// Whether a gated Pod can be released, as far as the holders of its node are concerned. If not, it is woken once
    /// it can.
    pub(crate) fn let_in(
        &self,
        (cluster, assumed): (&Cluster, &Assumed),
        node: &Arc<str>,
        pod: &ObjectKey,
        by: Scheduler,
    ) -> bool {
        // Before the look: what is raised in between wakes the Pod.
        locked(&self.waiting).entry(Arc::clone(node)).or_default().insert(pod.clone());
        let suit = self.suit((cluster, assumed), node, by);
        if suit {
            self.waits_no_more(node, pod);
        } else {
            self.look_at(node);
        }
        suit
    }

    /// Whether gated Pods wait for the holders of a node.
    pub(super) fn has_waiting(&self, node: &str) -> bool {
        locked(&self.waiting).contains_key(node)
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

    /// The holders of a node suit.
    pub(super) fn wake(&self, node: &Arc<str>) {
        let pods = locked(&self.waiting).remove(node).unwrap_or_default();
        if let Some(wake) = self.gates.get().filter(|_| !pods.is_empty()) {
            wake(pods.into_iter().collect());
        }
    }
}

/// Returns the amounts that holders have to hold on a node; `None` while claims take something and it is not known what kube-scheduler sees.
fn request(ledger: &NodeLedger, by: Option<Scheduler>) -> Option<Units> {
    let all = ledger.holder(Scheduler::Unaware).request;
    // Nothing has to be held, whatever kube-scheduler sees.
    if all.is_empty() { Some(all) } else { Some(ledger.holder(by?).request) }
}

fn over<T>(
    cluster: &Cluster,
    assumed: &Assumed,
    node: &str,
    ask: impl FnOnce(&NodeLedger) -> T,
) -> Option<T> {
    Some(ask(&assumed.over(cluster.ledger().node(node)?, node, None)))
}
