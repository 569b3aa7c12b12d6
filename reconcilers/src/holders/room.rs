//! The room that holders have to hold on a node, and the gated Pods that wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_accounting::ledger::NodeLedger;
use dragoman_accounting::ledger::fit::Headroom;
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::per_resource::Units;
use dragoman_accounting::resource::Resource;
use dragoman_machinery::controller::ObjectKey;

use super::index::Holders;
use super::plan::surplus;
use crate::cluster::{Assumed, Charged};

/// Gated Pods and the nodes whose holders they wait for.
#[derive(Debug, Default)]
pub(super) struct GatedPods {
    /// The Pods that wait for the holder of a node.
    waiting: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// Nodes whose holders hold room that a released Pod would need.
    crowded: BTreeSet<Arc<str>>,
    /// Nodes whose holders are to be looked at, and Pods that wait for none any more: since they were last asked for.
    woken: (BTreeSet<Arc<str>>, BTreeSet<ObjectKey>),
}

impl GatedPods {
    fn waits_no_more(&mut self, node: &str, pod: &ObjectKey) {
        if let Some(pods) = self.waiting.get_mut(node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.waiting.remove(node);
            }
        }
    }
}

impl Holders {
    /// Whether the controller of holders runs.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The holders of a node are to be looked at: what is taken from it has changed.
    fn look_at(&mut self, node: &str) {
        if self.is_on {
            self.gated.woken.0.insert(node.into());
        }
    }

    /// The nodes whose holders are to be looked at, and the gated Pods that wait for none any more, since the last call.
    pub(crate) fn take_woken(&mut self) -> (BTreeSet<Arc<str>>, BTreeSet<ObjectKey>) {
        std::mem::take(&mut self.gated.woken)
    }

    /// Nothing is assumed of a Pod any more; its node has to hold less.
    pub(crate) fn forget(&mut self, assumed: &mut Assumed, pod: &ObjectKey) {
        let Some(node) = assumed.node_of(pod).cloned() else { return };
        assumed.remove(pod);
        self.gated.waits_no_more(&node, pod);
        self.look_at(&node);
    }

    /// Whether a gated Pod can be released, as far as the holders of its node are concerned. If not, it is woken once
    /// it can.
    pub(crate) fn let_in(
        &mut self,
        charged: Charged<'_>,
        node: &Arc<str>,
        pod: &ObjectKey,
        by: Scheduler,
    ) -> bool {
        let suit = self.suit(charged, node, by);
        if suit {
            self.gated.waits_no_more(node, pod);
        } else {
            self.gated.waiting.entry(Arc::clone(node)).or_default().insert(pod.clone());
            self.look_at(node);
        }
        suit
    }

    /// Whether the holders of a node hold what claims take there, and no room that an assumed Pod needs:
    /// kube-scheduler would refuse it, and move its devices.
    fn suit(&mut self, charged: Charged<'_>, node: &Arc<str>, by: Scheduler) -> bool {
        let Some(ledger) = charged.ledger(node).filter(|_| self.is_on) else { return true };
        let left = |resource| match ledger.headroom(resource) {
            Headroom::Left(left) => left.max(0),
            Headroom::Unknown => i128::MAX,
        };
        let required = ledger.holder(by).request;
        let surplus = surplus(&self.counted(node), &required);
        let is_crowded = [Resource::Cpu, Resource::Memory]
            .into_iter()
            .any(|resource| i128::from(surplus.get(resource)) > left(resource));
        if is_crowded {
            self.gated.crowded.insert(Arc::clone(node));
        } else {
            self.gated.crowded.remove(node);
        }
        self.holds(node, &required) && !is_crowded
    }

    /// Wakes the Pods that wait for the holders of a node, if these suit.
    pub(super) fn wake(&mut self, charged: Charged<'_>, node: &Arc<str>, by: Scheduler) {
        if self.suit(charged, node, by) {
            let pods = self.gated.waiting.remove(node);
            self.gated.woken.1.extend(pods.into_iter().flatten());
        }
    }

    /// Whether a released Pod would need what the holders of a node hold too much.
    pub(super) fn is_crowded(&self, node: &str) -> bool {
        self.gated.crowded.contains(node)
    }

    /// Whether gated Pods wait for the holders of a node.
    pub(super) fn has_waiting(&self, node: &str) -> bool {
        self.gated.waiting.contains_key(node)
    }
}

/// Whether everything is known that Pods and claims take from a node.
pub(super) fn is_certain(charged: Charged<'_>, node: &str) -> bool {
    let all = [Resource::Cpu, Resource::Memory];
    let is_known = |ledger: NodeLedger| {
        all.into_iter().all(|resource| matches!(ledger.headroom(resource), Headroom::Left(_)))
    };
    charged.ledger(node).is_none_or(is_known)
}

/// Returns what claims take from a node, those of assumed Pods included, and kube-scheduler does not see; `None` while claims take
/// something and it is not known what kube-scheduler sees. Without an account of the node nothing has to be held there.
pub(super) fn required(charged: Charged<'_>, node: &str, by: Option<Scheduler>) -> Option<Units> {
    let Some(ledger) = charged.ledger(node) else { return Some(Units::default()) };
    let all = ledger.holder(Scheduler::Unaware).request;
    // Nothing has to be held, whatever kube-scheduler sees.
    if all.is_empty() { Some(all) } else { Some(ledger.holder(by?).request) }
}
