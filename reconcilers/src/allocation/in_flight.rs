//! Decisions that the index does not show yet.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dragoman_allocator::input::Claim;
use dragoman_allocator::{Overlay, Snapshot};
use dragoman_machinery::backoff::Backoff;
use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::times;
use dragoman_objects::Name;
use tokio::time::Instant;

use super::decide::Decision;
use super::index::{ClaimFacts, NamedClaim};
use super::pins::node_of;
use super::rank::{ByDriver, Tally, devices_of};
use super::sharers::Writing;
use crate::cluster::Assumed;

/// Decisions that the index does not show yet. A decision stands until the index shows it, or shows that it
/// was not written: the answer to a write may be lost, and a device must not be given away a second time
/// meanwhile.
#[derive(Debug, Default)]
pub(super) struct InFlightAllocations {
    /// The allocations.
    pub(super) overlay: Overlay,
    /// Charges of Pods that have their devices, on the nodes of these devices, until the Pods are bound.
    pub(super) assumed: Assumed,
    /// The claims that were decided on for a Pod.
    claims: HashMap<ObjectKey, HashMap<Name, InFlight>>,
    /// Their devices, by node.
    pub(super) flying: Tally,
    /// The Pod that was decided on under a name.
    pods: HashMap<ObjectKey, Name>,
    /// Pods that gave devices back: until when they rest, and how often they did.
    rests: HashMap<ObjectKey, (Instant, u32)>,
    /// Pods that have a part of their devices and find no others, with the time since when.
    parts: HashMap<ObjectKey, Instant>,
    /// Gated Pods that have been seen with all their devices.
    settled: HashSet<ObjectKey>,
    /// The writes of claims that are under way.
    pub(super) writing: Writing,
}

/// A claim that was decided on.
#[derive(Debug)]
struct InFlight {
    /// The version that its allocation was written on.
    on: u64,
    node: Name,
    devices: ByDriver,
}

/// The rests of a Pod that gave devices back.
/// Two Pods that each hold a part of what both need, or two leaders for a moment, would take turns for ever.
const REST: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// Time for which a Pod keeps a part of its devices before it gives them back. The leader before may already have
/// written the other part, and the watch has not brought it yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// Times for which a Pod that waits for another allocator or for a gate keeps its devices while other Pods
/// wait for some. Each rest of the Pod doubles the time.
const HOLD: Backoff = Backoff::new(Duration::from_mins(5), Duration::from_hours(1));

/// Whether a claim may still get the allocation that was written on this version.
pub(super) fn stands(facts: &ClaimFacts, on: u64) -> bool {
    !facts.is_allocated && number(&facts.version) <= on
}

fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

impl InFlightAllocations {
    /// The decisions that the index does not show yet, and the charges of Pods without a node, in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let claims =
            self.claims.iter().flat_map(|(key, claims)| claims.iter().map(move |claim| (key, claim)));
        let in_flight = claims.map(|(key, (uid, InFlight { node, .. }))| {
            format!("in flight: claim {uid} on node {node} for Pod {}/{}", key.namespace, key.name)
        });
        let charges = self
            .assumed
            .nodes()
            .map(|(key, node)| format!("charged to node {node}: Pod {}/{}", key.namespace, key.name));
        let mut lines: Vec<String> = in_flight.chain(charges).collect();
        lines.sort_unstable();
        lines
    }

    /// Whether a claim is decided on for another Pod that shares it, and the index does not show it yet.
    pub(super) fn is_for_another(&self, key: &ObjectKey, uid: &str) -> bool {
        let own = self.claims.get(key).is_some_and(|claims| claims.contains_key(uid));
        !own && self.overlay.assumes(uid).is_some()
    }

    /// A claim, with the devices that are decided on for it.
    pub(super) fn claim(&self, snapshot: &Snapshot, uid: &str) -> Option<Arc<Claim>> {
        let claim = snapshot.claim(uid)?;
        Some(match self.overlay.assumes(uid).filter(|_| claim.allocation.is_none()) {
            None => Arc::clone(claim),
            Some(devices) => Arc::new(Claim { allocation: Some(devices.clone()), ..Claim::clone(claim) }),
        })
    }

    /// Whether a decision about a Pod stands.
    pub(super) fn is_decided(&self, key: &ObjectKey) -> bool {
        self.claims.get(key).is_some_and(|claims| !claims.is_empty())
    }

    /// Whether a Pod was given devices that other nodes have, too.
    pub(super) fn is_anywhere(&self, key: &ObjectKey) -> bool {
        let claims = self.claims.get(key).into_iter().flat_map(HashMap::keys);
        let mut given = claims.filter_map(|uid| self.overlay.assumes(uid));
        given.any(|devices| node_of(devices).is_none())
    }

    /// Takes a decision about a Pod with these claims in.
    pub(super) fn put(&mut self, key: &ObjectKey, uid: &Name, claims: &[NamedClaim], decision: &Decision) {
        self.pods.insert(key.clone(), uid.clone());
        let known = self.claims.entry(key.clone()).or_default();
        for (uid, devices) in &decision.allocations {
            let version = claims
                .iter()
                .find(|NamedClaim { uid: of, .. }| of == uid)
                .map(|NamedClaim { facts, .. }| &*facts.version);
            let flight = InFlight {
                on: number(version.unwrap_or_default()),
                node: decision.node.clone(),
                devices: devices_of(devices),
            };
            self.flying.add(&flight.node, &flight.devices, 1);
            if let Some(before) = known.insert(uid.clone(), flight) {
                self.flying.add(&before.node, &before.devices, -1);
            }
            self.overlay.assume((**uid).into(), devices.clone());
        }
        self.assumed.put(key, &decision.node, decision.charge.clone());
    }

    /// The allocation of a claim is about to be written on this version.
    pub(super) fn writes_on(&mut self, key: &ObjectKey, uid: &Name, version: &Name) {
        self.writing.begins(key, uid, version);
        let known = self.claims.get_mut(key).and_then(|claims| claims.get_mut(uid));
        known.into_iter().for_each(|known| known.on = number(version));
    }

    /// Whether something is decided on for another Pod of this name, which is gone.
    pub(super) fn is_of_namesake(&self, key: &ObjectKey, uid: &str) -> bool {
        self.pods.get(key).is_some_and(|known| **known != *uid)
    }

    /// Compares with the index. What it shows is counted there; a claim that has moved on without its
    /// allocation did not get it, and one that the Pod does not name any more was replaced.
    pub(super) fn compare(&mut self, key: &ObjectKey, claims: &[NamedClaim]) {
        self.keep_those_that_stand(key, |uid, on| {
            let claim = claims.iter().find(|NamedClaim { uid: of, .. }| of == uid);
            claim.is_some_and(|NamedClaim { facts, .. }| stands(facts, on))
        });
    }

    /// Forgets the decisions about claims of a Pod that do not stand any more, given the uid of a claim and the version that it was
    /// written on.
    pub(super) fn keep_those_that_stand(&mut self, key: &ObjectKey, stands: impl Fn(&Name, u64) -> bool) {
        let Some(known) = self.claims.get_mut(key) else { return };
        let over: Vec<Name> =
            known.iter().filter(|(uid, of)| !stands(uid, of.on)).map(|(uid, _)| uid.clone()).collect();
        for uid in over {
            if let Some(InFlight { node, devices, .. }) = known.remove(&uid) {
                self.flying.add(&node, &devices, -1);
            }
            self.overlay.forget(&uid);
        }
        if known.is_empty() {
            self.claims.remove(key);
        }
    }

    /// The decision about a Pod that still stands, as far as the index does not show it.
    pub(super) fn standing(&self, key: &ObjectKey) -> Option<Decision> {
        let node = self.assumed.node_of(key)?.clone();
        let allocations = self.claims.get(key)?.keys().filter_map(|uid| {
            let devices = self.overlay.assumes(uid)?.clone();
            Some((uid.clone(), devices))
        });
        Some(Decision {
            node,
            allocations: allocations.collect(),
            charge: self.assumed.charge_of(key)?.clone(),
        })
    }

    /// A Pod has a part of its devices and finds no others at `now`. Returns how long it waits before it
    /// gives them back.
    pub(super) fn keeps_part(&mut self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let since = *self.parts.entry(key.clone()).or_insert(now);
        times::left(since + PATIENCE, now)
    }

    /// A Pod has its devices at `now` and waits for something else. Returns how long it keeps them in any
    /// case: longer each time, so that a slow gate opens in time at last.
    pub(super) fn holds(&mut self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let since = *self.parts.entry(key.clone()).or_insert(now);
        let times = self.rests.get(key).map_or(0, |(_, times)| *times);
        times::left(since + HOLD.pause(times), now)
    }

    /// A Pod gave devices back at `now`. `jitter` is below one.
    pub(super) fn gave_back(&mut self, key: &ObjectKey, now: Instant, jitter: f64) {
        self.parts.remove(key);
        self.rests_again(key, now, jitter);
    }

    /// A Pod rests from `now` on, longer each time, and keeps what it has of its devices no longer for that.
    pub(super) fn rests_again(&mut self, key: &ObjectKey, now: Instant, jitter: f64) {
        let (until, times) = self.rests.entry(key.clone()).or_insert((now, 0));
        let rest = REST.pause(*times);
        *until = now + rest + rest.mul_f64(jitter);
        *times += 1;
    }

    /// The leader before has put a Pod to rest for so long, of which so much is left at `now`: it rests on, and
    /// longer the next time.
    pub(super) fn rests_on(&mut self, key: &ObjectKey, rest: Duration, left: Duration, now: Instant) {
        self.rests.entry(key.clone()).or_insert_with(|| (now + left, REST.doubled(rest) + 1));
    }

    /// Returns the time that a Pod still rests at `now`; `None` if it does not rest.
    pub(super) fn rests(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let (until, _) = self.rests.get(key)?;
        times::left(*until, now)
    }

    /// A Pod has all its devices.
    pub(super) fn is_settled(&mut self, key: &ObjectKey) {
        self.parts.remove(key);
        self.settled.insert(key.clone());
    }

    /// Whether a Pod has been seen with all its devices.
    pub(super) fn was_settled(&self, key: &ObjectKey) -> bool {
        self.settled.contains(key)
    }

    /// Whether a Pod that lacks devices had them: another party has taken them back, for a reason that this
    /// process does not see, and would do so again at once.
    pub(super) fn has_lost(&mut self, key: &ObjectKey) -> bool {
        self.settled.remove(key)
    }

    /// A Pod does not wait for devices any more.
    pub(super) fn is_rested(&mut self, key: &ObjectKey) {
        self.rests.remove(key);
        self.holds_nothing(key);
    }

    /// A Pod has no devices, and needs none for now.
    pub(super) fn holds_nothing(&mut self, key: &ObjectKey) {
        self.parts.remove(key);
        self.settled.remove(key);
    }

    /// The API server refuses the allocation of a claim.
    pub(super) fn refused(&mut self, key: &ObjectKey, uid: &Name) {
        self.writing.ends(key);
        if let Some(claims) = self.claims.get_mut(key)
            && let Some(InFlight { node, devices, .. }) = claims.remove(uid)
        {
            self.flying.add(&node, &devices, -1);
        }
        self.overlay.forget(uid);
    }

    /// Forgets what is decided for a Pod: it is bound, gone, not for this allocator, or the decision is undone. Returns the node that
    /// has room again, unless the index counts the Pod there.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> Option<Name> {
        self.pods.remove(key);
        for (uid, InFlight { node, devices, .. }) in self.claims.remove(key).into_iter().flatten() {
            self.flying.add(&node, &devices, -1);
            self.overlay.forget(&uid);
        }
        let node = self.assumed.node_of(key).cloned();
        self.assumed.remove(key);
        node
    }
}
