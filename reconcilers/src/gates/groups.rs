//! The Pods of PodGroups: a claim of a group is reserved once, for the group (KEP-5729), and is used as long as one of its Pods may run.

use std::collections::HashMap;
use std::sync::Arc;

use dragoman_machinery::controller::{Links, ObjectKey};
use dragoman_objects::{ConsumerReference, Name, Pod};

use super::facts::PodFacts;
use super::index::{Gates, KnownClaim};
use dragoman_crds::protocol::GATE;

/// The Pods of PodGroups that have not ended.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The group of a Pod, and whether the Pod has the gate of the protocol.
    of: HashMap<ObjectKey, (Name, bool)>,
    gated: Links,
    others: Links,
}

/// The most Pods of a group that gives a claim back: each is asked about.
const MOST: usize = 64;

impl Groups {
    /// Takes in a Pod.
    pub(super) fn put(&mut self, key: &ObjectKey, pod: &Pod) {
        self.remove(key);
        let is_done = matches!(&*pod.status.phase, "Succeeded" | "Failed");
        let group = pod.spec.scheduling_group.pod_group_name.as_ref().filter(|_| !is_done);
        let Some(group) = group else { return };
        let is_gated = pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE);
        self.links(is_gated).link(&key.namespace, group, &key.name);
        self.of.insert(key.clone(), (group.clone(), is_gated));
    }

    /// Whether a Pod is in a group and has not ended.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.of.contains_key(key)
    }

    /// A Pod is gone.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let Some((group, is_gated)) = self.of.remove(key) else { return };
        self.links(is_gated).unlink(&key.namespace, &group, &key.name);
    }

    fn links(&mut self, is_gated: bool) -> &mut Links {
        if is_gated { &mut self.gated } else { &mut self.others }
    }

    /// The Pods of a group, if all of them have the gate and they are few.
    fn all_gated(&self, namespace: &Arc<str>, group: &str) -> Option<Vec<ObjectKey>> {
        if self.others.of(namespace, group).next().is_some() {
            return None;
        }
        let key = |name: &Arc<str>| ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let keys: Vec<ObjectKey> = self.gated.of(namespace, group).take(MOST + 1).map(key).collect();
        (keys.len() <= MOST).then_some(keys)
    }
}

/// A Pod with claims that its gate keeps from running.
#[derive(Debug)]
pub(super) struct GatedPod {
    pub(super) key: ObjectKey,
    pub(super) uid: Name,
    pub(super) facts: Arc<PodFacts>,
}

impl GatedPod {
    /// Returns the position of the Pod in the order of waiting Pods.
    pub(super) fn age(&self) -> (&str, u64) {
        self.facts.age()
    }
}

impl Gates {
    /// The Pods as which a claim is used by a consumer, if each of them is one that its gate keeps from running.
    pub(super) fn gated_users(&self, namespace: &str, consumer: &ConsumerReference) -> Option<Vec<GatedPod>> {
        let namespace: Arc<str> = namespace.into();
        let keys = if consumer.is_pod_group() {
            self.groups.all_gated(&namespace, &consumer.name)?
        } else {
            vec![ObjectKey { namespace, name: (&*consumer.name).into() }]
        };
        let gated = |key: ObjectKey| {
            let (uid, facts) = self.pod(&key).filter(|(_, facts)| facts.gate.is_some())?;
            let is_consumer = consumer.is_pod_group() || uid == consumer.uid;
            is_consumer.then_some(GatedPod { key, uid, facts })
        };
        keys.into_iter().map(gated).collect()
    }

    /// The Pods whose gates have to be closed when a Pod is to give this claim back: its own, or those of its PodGroup. `None` where one
    /// may run, or where the Pod holds nothing of it. A group of more Pods than can be asked about keeps its claims.
    pub(super) fn gated_together(&self, key: &ObjectKey, claim: &KnownClaim) -> Option<Vec<GatedPod>> {
        self.gated_users(&key.namespace, claim.reserved_for.as_ref()?)
    }
}
