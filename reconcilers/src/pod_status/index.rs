//! The Pods whose status may need entries.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::pod::PodSpecView;
use dragoman_machinery::controller::{self, Keeps, Left, ObjectKey, Place};
use dragoman_machinery::kind::{Kind, POD};
use dragoman_machinery::watch::{Record, Store, StoreState};
use dragoman_objects::{Name, Pod, Tolerated};

use super::plan::OwnWrites;
use crate::indexes::Indexes;

/// The index: for Pods that have a node and claims and have not ended, what their status records.
#[derive(Debug, Default)]
pub struct PodStatuses {
    pods: Store<Recorded>,
    /// Writes of this process, by the uid of the Pod.
    pub(super) mine: HashMap<Name, OwnWrites>,
}

/// Record of its claims in the status of a Pod: `None`, or a number that tells the entries apart.
pub(super) type Recorded = Option<u64>;

impl controller::Index for PodStatuses {
    type Key = ObjectKey;
    type Whole = Indexes;

    fn key_of(object: ObjectKey) -> Option<ObjectKey> {
        Some(object)
    }

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        std::iter::once((POD, &self.pods as &dyn StoreState))
    }

    fn all_keys(&self) -> Vec<ObjectKey> {
        let pods = self.pods.iter().filter(|(_, _, record)| record.readable().is_some());
        // In order, so that a simulated run repeats itself.
        let names: BTreeSet<_> = pods.map(|(namespace, name, _)| (namespace, name)).collect();
        let key = |(namespace, name)| ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        names.into_iter().map(key).collect()
    }
}

impl Keeps<Pod> for PodStatuses {
    type Projection = Recorded;

    fn store_mut(&mut self) -> &mut Store<Recorded> {
        &mut self.pods
    }

    fn project(&mut self, pod: &Pod) -> Option<Recorded> {
        let (spec, status) = (&pod.spec, &pod.status);
        let is_done = matches!(&*status.phase, "Succeeded" | "Failed");
        // An extended resource may come with a claim that no entry of the spec names.
        let has_claims = !spec.resource_claims.is_empty() || status.extended_resource_claim_status.is_some();
        let concerned = has_claims && !spec.node_name.is_empty() && !is_done;
        (concerned && !pod.metadata.deleting).then(|| recorded(pod))
    }

    fn changed(&mut self, pod: &Place, old: Option<&Recorded>, new: Option<&Recorded>) -> Vec<ObjectKey> {
        if new.is_some() {
            return if old == new { Vec::new() } else { vec![pod.into()] };
        }
        self.mine.remove(&pod.uid);
        Vec::new()
    }

    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        _name: &Arc<str>,
        last: &Record<Recorded>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        self.mine.remove(&last.uid);
        Vec::new()
    }
}

impl PodStatuses {
    /// Changes what is remembered of this process's writes to a Pod. It ends with the Pod's record in the index, so nothing is
    /// remembered of a Pod that has none any more.
    pub(super) fn remember<R>(
        &mut self,
        key: &ObjectKey,
        uid: &Name,
        change: impl FnOnce(&mut OwnWrites) -> R,
    ) -> Option<R> {
        let is_known = self.pod(key).is_some_and(|(known, _)| known == uid);
        is_known.then(|| change(self.mine.entry(uid.clone()).or_default()))
    }

    /// The uid of a Pod that is concerned, and what its status records.
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<(&Name, Recorded)> {
        let record = self.pods.get(&key.namespace, &key.name)?;
        Some((&record.uid, *record.readable()?))
    }
}

/// Returns the record of its claims in the status of a Pod, in whichever generation.
pub(super) fn recorded(pod: &Pod) -> Recorded {
    // Most Pods have none of the fields: their requests are not read for it.
    let status = &pod.status;
    let lists = (
        &status.native_resource_claim_status,
        &status.node_allocatable_resource_claim_statuses,
        &status.additional_node_allocatable_resources,
    );
    if lists == (&Tolerated::default(), &Tolerated::default(), &Tolerated::default()) {
        return None;
    }
    let contributions = PodSpecView::of(pod, &mut Vec::new()).contributions;
    // A field that does not decode is an entry of another writer, too.
    Some(fingerprint(&contributions))
}

fn fingerprint(contributions: &[Contribution]) -> u64 {
    let mut sorted: Vec<&Contribution> = contributions.iter().collect();
    sorted.sort_by(|a, b| a.source.cmp(&b.source));
    let mut hasher = DefaultHasher::new();
    format!("{sorted:?}").hash(&mut hasher);
    hasher.finish()
}
