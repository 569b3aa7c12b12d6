//! Devices that do not lead to a release are given back: others may need them (P7 in docs/protocol.md).

use std::time::Duration;

use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::api::{Call, decode};
use dragoman_machinery::clock;
use dragoman_machinery::controller::{ObjectKey, Verdict};
use dragoman_machinery::kind::POD;
use dragoman_machinery::refusal::Refusal;
use serde::Deserialize;

use super::controller::{Allocator, locked};
use super::index::{Named, PodFacts};
use super::stance::is_for;
use super::writes;
use crate::protocol::GATE;

/// A list of Pods.
#[derive(Debug, Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

impl Allocator {
    /// Gives back what a gated Pod has of its own claims. Returns whether it had anything.
    async fn give_back(&self, key: &ObjectKey, uid: &str, claims: &[Named]) -> Result<bool, Refusal> {
        let mut own: Vec<&Named> = claims.iter().filter(|claim| is_for(&self.options.name, claim)).collect();
        // A claim with a closed gate comes first: if the gate was opened meanwhile, the guard refuses this
        // write, and the Pod keeps everything.
        own.sort_by_key(|(_, _, facts)| !facts.is_held);
        let mut is_given = false;
        for (name, claim_uid, facts) in own {
            if let Some(write) = writes::give_back(&key.namespace, name, claim_uid, facts, uid) {
                // The watch may be late, and the Pod may run (P4).
                if !self.is_gated_now(key, uid).await? {
                    return Ok(is_given);
                }
                self.kit.send(key, &write).await?;
                is_given = true;
            }
        }
        if is_given {
            self.count("given_back");
            locked(&self.decided).gave_back(key, clock::steady().as_millisecond(), fastrand::f64());
        }
        Ok(is_given)
    }

    /// Whether the API server says that a Pod has the gate: a list of that one Pod, for which the right to list
    /// is enough.
    async fn is_gated_now(&self, key: &ObjectKey, uid: &str) -> Result<bool, Refusal> {
        let ObjectKey { namespace, name } = key;
        let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=metadata.name%3D{name}");
        let answer = self.kit.context.api.send(&Call::get(POD, path, "")).await?;
        let pods: Pods = decode(&answer)?;
        let has_gate = |pod: &Pod| pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE);
        Ok(pods.items.iter().any(|pod| *pod.metadata.uid == *uid && has_gate(pod)))
    }

    /// No node takes a Pod: what it has of its devices is given back after a while, or it is said why it has
    /// none. Returns when the Pod is looked at again, if not for another reason.
    pub(super) async fn refused(
        &self,
        key: &ObjectKey,
        uid: &Name,
        claims: &[Named],
        why: &[String],
        now: i64,
    ) -> Result<Option<Verdict>, Refusal> {
        match self.gives_part_back(key, uid, claims, now).await? {
            None => {
                self.say(key, uid, claims, why).await?;
                Ok(None)
            }
            Some(Verdict::Done) => Ok(None),
            kept => Ok(kept),
        }
    }

    /// What a Pod that finds no devices has of its devices goes back after a while. Returns when the Pod is looked at again;
    /// `None` if it has none.
    pub(super) async fn gives_part_back(
        &self,
        key: &ObjectKey,
        uid: &Name,
        claims: &[Named],
        now: i64,
    ) -> Result<Option<Verdict>, Refusal> {
        let node = locked(&self.decided).forget(key);
        self.reopen(node.as_ref());
        let has_part = |claim: &&Named| {
            let (_, _, facts) = claim;
            is_for(&self.options.name, claim) && facts.is_allocated && facts.is_reserved_for(uid)
        };
        let part: Vec<Named> = claims.iter().filter(has_part).cloned().collect();
        if part.is_empty() {
            return Ok(None);
        }
        let keeps = locked(&self.decided).keeps_part(key, now);
        if let Some(milliseconds) = keeps {
            return Ok(Some(Verdict::After(Duration::from_millis(milliseconds))));
        }
        self.give_back(key, uid, &part).await?;
        Ok(Some(Verdict::Done))
    }

    /// A Pod has its devices and waits for something else: for another allocator, or for a gate. It keeps
    /// them as long as no other Pod waits for devices, and for a time beyond that.
    pub(super) async fn holds(
        &self,
        key: &ObjectKey,
        uid: &Name,
        pod: &PodFacts,
        claims: &[Named],
    ) -> Result<Verdict, Refusal> {
        let is_waiting = |(_, _, facts): &Named| facts.is_held || !facts.is_allocated;
        if !pod.is_gated || !(pod.is_behind_another || claims.iter().any(is_waiting)) {
            locked(&self.decided).is_settled(key);
            return Ok(Verdict::Done);
        }
        let left = locked(&self.decided).holds(key, clock::steady().as_millisecond());
        if let Some(milliseconds) = left {
            return Ok(Verdict::After(Duration::from_millis(milliseconds)));
        }
        if self.kit.read(|index| index.shapes.waiting()) == 0 {
            return Ok(Verdict::After(LOOKS_AGAIN));
        }
        self.give_back(key, uid, claims).await?;
        Ok(Verdict::Done)
    }
}

/// How soon it is looked again whether another Pod waits for devices.
const LOOKS_AGAIN: Duration = Duration::from_secs(10);
