//! Pods whose gate is open and that have no node yet. kube-scheduler binds most of them in a moment; it does not bind a Pod whose
//! node is lost, tainted or filled. Where a claim confines the Pod, kube-scheduler takes the devices back and allocates
//! elsewhere; a Pod whose affinity names the node, or that shares its claims, stays where it cannot run.

use std::borrow::Cow;

use dragoman_accounting::cluster;
use dragoman_machinery::controller::{ObjectKey, Outcome};

use super::decide::{Decision, Look};
use super::facts::PodFacts;
use super::index::{Gates, KnownClaim, NamedClaim};
use super::pass::{Notice, Purpose};
use super::plan::{self, Opened, Reason, Wait};
use super::{attributes, writes};
use crate::cluster::{Assumed, Cluster};
use dragoman_cluster::{Account, account};
use dragoman_crds::protocol::NOT_BOUND;

/// Assumes a Pod that has no gate of the protocol any more and is not bound yet: its claims say where
/// it goes. A Pod that is assumed stays so while its claims are allocated: where a write of a binding fails,
/// kube-scheduler takes the reservations back, keeps the allocations, and tries again. A process that is started in this moment
/// learns from the Pod that it was released.
pub(super) fn assume(
    index: &Gates,
    cluster: &Cluster,
    assumed: &mut Assumed,
    key: &ObjectKey,
    pod: &PodFacts,
    claims: &[NamedClaim],
) {
    let is_charged = assumed.node_of(key).is_some();
    let is_known = pod.was_released || is_charged;
    let kept = |claim: &NamedClaim, is_known| matches!(claim, NamedClaim::Known(claim) if plan::keeps(claim, is_known));
    let all: Option<Vec<&KnownClaim>> =
        claims.iter().map(|claim| claim.known().filter(|_| kept(claim, is_known))).collect();
    // The claims beyond the entries that are read also say where the Pod goes, and what it takes there.
    let beyond = index.reserved_beyond(key, pod);
    let node = all.filter(|claims| !claims.is_empty()).and_then(|mut claims| {
        claims.extend(&beyond);
        plan::goes_to(&claims, index.nodes_of(&claims).into_iter(), pod.affinity.node().map(AsRef::as_ref))
    });
    match node {
        Some(node) => {
            let candidate = cluster.ledger().candidate(&with_claims(&pod.accounted, &beyond), &node);
            // A tenant can write that a Pod was released. Without a reservation it takes what is free, and nothing that others have.
            let is_sure = is_charged || claims.iter().all(|claim| kept(claim, false));
            let fits = || {
                let ledger = cluster.ledger().node(&node)?;
                Some(account(&assumed.over(ledger, &node, Some(key)), &candidate) == Account::Fits)
            };
            if is_sure || fits() == Some(true) {
                assumed.put(key, &node, candidate.pod);
            }
        }
        // A Pod that was pinned to its node stays charged there while it has its claims.
        None if is_known && !claims.iter().all(|claim| kept(claim, true)) => assumed.remove(key),
        None => {}
    }
}

/// A Pod with more entries than are read, as accounting reads it with these claims in place of the others.
fn with_claims<'a>(pod: &'a cluster::Pod, beyond: &[KnownClaim]) -> Cow<'a, cluster::Pod> {
    if pod.left_out == 0 {
        return Cow::Borrowed(pod);
    }
    let mut whole = cluster::Pod { left_out: 0, ..pod.clone() };
    let others = beyond.iter().map(|claim| cluster::PodClaim::unnamed(claim.name.clone(), &pod.view));
    whole.claims.extend(others);
    Cow::Owned(whole)
}

impl Decision<'_> {
    /// Decides the next steps of a Pod without the gate.
    pub(super) fn released(&mut self) -> Outcome {
        let Look { key, pod, claims, index, cluster, .. } = self.look;
        if pod.is_bound {
            self.charges_nothing();
            self.memory.forget(key);
            self.waits_no_more(Opened::Bound);
            return Outcome::Done;
        }
        assume(index, cluster, self.assumed, key, pod, claims);
        self.tell();
        if let Some(why) = self.opened_in_silence() {
            self.waits_no_more(why);
        }
        self.unbound()
    }

    /// Why the gate was opened, where the condition still says what the Pod waited for: a process that dies, or loses an answer,
    /// between the two writes leaves it so.
    fn opened_in_silence(&self) -> Option<Opened> {
        let Look { pod, claims, .. } = self.look;
        let (status, reason) = pod.condition.as_ref()?;
        if **status == *"True" || **reason == *NOT_BOUND {
            return None;
        }
        let has_allocator =
            |claim: &NamedClaim| claim.known().is_some_and(|claim| claim.facts.allocator.is_some());
        Some(match pod.was_released {
            true => Opened::Released,
            false if claims.iter().any(has_allocator) => Opened::Early,
            false => Opened::NoAllocator,
        })
    }

    /// Follows a new allocation of a Pod that waits for its node: kube-scheduler may allocate anew. Once the Pod has a node
    /// nothing changes, because a container may have read it.
    fn tell(&mut self) {
        let Look { key, uid, pod, claims, cluster, .. } = self.look;
        if pod.asked.is_none() || !plan::is_allocated_for(claims) {
            return;
        }
        // What cannot be told any more holds nothing up: the node may be gone, and the devices with it.
        if let Ok(answers) = attributes::of(pod, cluster.ledger())
            && !attributes::are_given(pod, &answers)
        {
            self.send(Purpose::Tell, writes::tell(key, uid, pod, &answers));
        }
    }

    /// Says that a Pod cannot be bound once kube-scheduler has said so for a while, and deletes it where that
    /// is asked for and a Pod is made in its place.
    fn unbound(&mut self) -> Outcome {
        let Look { key, uid, pod, now, options, .. } = self.look;
        let Some(wait) = self.not_bound() else {
            self.memory.closed.opened(key);
            return Outcome::Done;
        };
        let since = self.memory.closed.closed(key, wait.reason, *now);
        if *now >= since + wait.patience && !self.is_said(&wait) {
            self.say(Notice::Warning(wait.reason, "Bind", wait.message.clone()));
        }
        let said = self.waits(&wait);
        let Some(after) = options.delete_unbound_after.filter(|_| pod.is_replaced) else { return said };
        let left = after.max(wait.patience).saturating_sub(*now - since);
        if !left.is_zero() {
            return said.most_urgent(Outcome::After(left));
        }
        self.send(Purpose::Delete, writes::delete(key, uid, pod));
        self.say(Notice::Warning(Reason::NotBound, "Delete", format!("deleted: {}", wait.message)));
        self.say(Notice::Deleted(wait.message));
        Outcome::Done
    }

    /// Why a Pod is not bound, if an allocator has allocated its claims and kube-scheduler has a reason. A Pod
    /// whose claims kube-scheduler allocates waits for no node of ours.
    fn not_bound(&self) -> Option<Wait> {
        let Look { key, pod, claims, index, .. } = self.look;
        if let Some(lost) = plan::lost(claims).filter(|_| pod.was_released) {
            return Some(lost);
        }
        let says = pod.unschedulable.as_deref()?;
        if !plan::is_allocated_for(claims) {
            return None;
        }
        let pin = pod.affinity.node();
        let node = self.assumed.node_of(key).cloned().or_else(|| pin.cloned())?;
        let is_there = index.nodes.get("", &node).is_some();
        Some(plan::not_bound(&node, is_there, pin == Some(&node), says))
    }
}
