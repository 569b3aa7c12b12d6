//! PodGroups: their Pods, and the claims that are reserved for the group in the place of its Pods (KEP-5729).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dragoman_machinery::controller::{Keeps, ObjectKey, Place};
use dragoman_machinery::kind::Watchable as _;
use dragoman_machinery::watch::Store;
use dragoman_objects::{ClaimEntry, ConsumerReference, Name, PodGroup};

use super::index::{Allocation, NamedClaim, PodFacts};
use super::pod_state::{PodState, pod_state};

/// Projection of a PodGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodGroupFacts {
    /// The minimum of its gang policy; 0 without one.
    pub(super) min: usize,
    /// `spec.resourceClaims`.
    entries: Box<[ClaimEntry]>,
    /// Number of the entries that are not read: which claims of its Pods are those of the group is not known.
    pub(super) left_out: usize,
}

/// A Pod of a PodGroup that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether it has claims and no node.
    pub(super) waits: bool,
    /// Whether it has the gate of the protocol.
    pub(super) is_gated: bool,
}

/// The Pods of every PodGroup.
#[derive(Debug, Default)]
pub(super) struct Groups {
    of: HashMap<ObjectKey, Name>,
    /// By namespace and name of the group.
    members: BTreeMap<ObjectKey, BTreeMap<ObjectKey, Standing>>,
}

/// The most Pods of a group that get a verdict each, and that are asked about before the group gives its claims back.
const SMALL: usize = 64;
/// The Pods of a group that are placed at once: a tenth of a second.
pub(super) const MOST: usize = 1_024;

impl Groups {
    /// Takes in a Pod, and the group that it is in.
    pub(super) fn put(&mut self, pod: ObjectKey, group: Option<&Name>, standing: Standing) {
        self.remove(&pod);
        let Some(group) = group else { return };
        let of = ObjectKey { namespace: Arc::clone(&pod.namespace), name: (**group).into() };
        self.members.entry(of).or_default().insert(pod.clone(), standing);
        self.of.insert(pod, group.clone());
    }

    /// A Pod is gone or has ended.
    pub(super) fn remove(&mut self, pod: &ObjectKey) {
        let Some(of) = self.group_of(pod) else { return };
        self.of.remove(pod);
        if let Some(members) = self.members.get_mut(&of) {
            members.remove(pod);
            if members.is_empty() {
                self.members.remove(&of);
            }
        }
    }

    fn group_of(&self, pod: &ObjectKey) -> Option<ObjectKey> {
        let group = self.of.get(pod)?;
        Some(ObjectKey { namespace: Arc::clone(&pod.namespace), name: (**group).into() })
    }

    /// The Pods that wait in the group of a Pod. Those of a group that is too large wait until it is smaller.
    pub(super) fn beside(&self, pod: &ObjectKey) -> Vec<ObjectKey> {
        let Some(group) = self.group_of(pod).filter(|group| self.size(group) <= MOST) else {
            return Vec::new();
        };
        self.members(&group).filter(|(_, of)| of.waits).map(|(pod, _)| pod.clone()).collect()
    }

    /// Whether the group of this Pod is so small that the claims of each of its Pods get a verdict. In a large group those of the
    /// first Pod do: verdicts on all would be written as often as a Pod comes or goes.
    pub(super) fn is_small(&self, pod: &ObjectKey) -> bool {
        self.group_of(pod).is_some_and(|group| self.size(&group) <= SMALL)
    }

    pub(super) fn size(&self, group: &ObjectKey) -> usize {
        self.members.get(group).map_or(0, BTreeMap::len)
    }

    pub(super) fn members(&self, group: &ObjectKey) -> impl Iterator<Item = (&ObjectKey, Standing)> {
        self.members.get(group).into_iter().flatten().map(|(pod, standing)| (pod, *standing))
    }
}

impl NamedClaim {
    /// The entry of `reservedFor` for a Pod, given its name and its uid: the Pod, or its PodGroup where the claim is that of the group.
    pub(super) fn consumer(&self, name: &str, uid: &str) -> ConsumerReference {
        self.group.clone().unwrap_or_else(|| ConsumerReference::pod(name.into(), uid.into()))
    }

    /// The uid of that entry for the Pod of this uid.
    pub(super) fn consumer_uid<'a>(&'a self, pod: &'a str) -> &'a str {
        self.group.as_ref().map_or(pod, |group| &group.uid)
    }

    /// Whether the claim is reserved for the Pod of this uid, or for its PodGroup where the claim is that of the group.
    pub(super) fn is_reserved_for(&self, pod: &str) -> bool {
        self.facts.is_reserved_for(self.consumer_uid(pod))
    }
}

/// Whether something is reserved for the Pod of this uid alone, by this allocator or another one. What is reserved for its PodGroup does
/// not say that the Pod was gated.
pub(super) fn holds_something(uid: &str, claims: &[NamedClaim]) -> bool {
    claims.iter().any(|claim| claim.group.is_none() && claim.facts.is_reserved_for(uid))
}

impl Allocation {
    /// The PodGroup of a Pod, if the claim of the entry at this position is that of the group.
    pub(super) fn group_as_consumer(
        &self,
        namespace: &str,
        pod: &PodFacts,
        position: usize,
    ) -> Option<ConsumerReference> {
        let name = pod.group.as_ref().filter(|_| !self.is_without_groups())?;
        let group = self.pod_groups.get(namespace, name)?;
        let is_of_group = pod.entries.get(position)?.is_of_group(&group.readable()?.entries);
        is_of_group.then(|| ConsumerReference::pod_group(name.clone(), group.uid.clone()))
    }

    /// The Pods, with their uids, whose gates have to be closed when a Pod gives a claim back: its own, or those of its PodGroup. `None`
    /// where it may not: the operator may be about to release another one, which `may_go` finds in the claims of a Pod that has everything.
    /// A group of more Pods than can be asked about keeps its claims.
    pub(super) fn gated_together(
        &self,
        key: &ObjectKey,
        uid: &Name,
        allocator: &str,
        claim: &NamedClaim,
        may_go: fn(&[NamedClaim]) -> bool,
    ) -> Option<Vec<(ObjectKey, Name)>> {
        if claim.group.is_none() {
            return Some(vec![(key.clone(), uid.clone())]);
        }
        let group = self.groups.group_of(key).filter(|_| self.groups.is_small(key))?;
        let goes = |member: &ObjectKey| {
            let Some((uid, pod)) = self.pod(member).filter(|_| member != key) else { return false };
            match pod_state(allocator, &uid, &pod, self.claims_of(&member.namespace, &pod)) {
                PodState::Allocated(claims) => may_go(&claims),
                _ => false,
            }
        };
        let member = |(member, standing): (&ObjectKey, Standing)| {
            let uid = self.pods.get(&member.namespace, &member.name)?.uid.clone();
            (standing.is_gated && !goes(member)).then(|| (member.clone(), uid))
        };
        self.groups.members(&group).map(member).collect()
    }
}

impl Keeps<PodGroup> for Allocation {
    type Projection = PodGroupFacts;

    fn store_mut(&mut self) -> &mut Store<PodGroupFacts> {
        &mut self.pod_groups
    }

    fn project(&mut self, group: &PodGroup) -> Option<PodGroupFacts> {
        let gang = group.spec.scheduling_policy.gang.as_ref();
        Some(PodGroupFacts {
            min: gang.map_or(0, |gang| usize::try_from(gang.min_count).unwrap_or_default()),
            entries: group.spec.resource_claims.to_vec().into(),
            left_out: group.spec.resource_claims.left_out,
        })
    }

    fn changed(
        &mut self,
        group: &Place,
        old: Option<&PodGroupFacts>,
        new: Option<&PodGroupFacts>,
    ) -> Vec<ObjectKey> {
        if old == new {
            return Vec::new();
        }
        let group = group.into();
        let members = self.groups.members(&group);
        members.filter(|(_, of)| of.waits).map(|(pod, _)| pod.clone()).collect()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.serves(PodGroup::NEWEST, true)
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.serves(PodGroup::NEWEST, false)
    }

    fn forbidden(&mut self) -> Vec<ObjectKey> {
        self.may_not_see(PodGroup::NEWEST)
    }
}

#[cfg(test)]
mod tests {
    use dragoman_objects::{Pod, ResourceClaim};
    use serde_json::{Value, json};

    use super::super::pod_state::{PodState, pod_state};
    use super::super::tests::{applied, claim, cluster, key, pod};
    use super::super::writes;
    use super::*;

    fn group(index: &mut Allocation, entries: &Value) {
        let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g-uid", "resourceVersion": "1"},
            "spec": {"resourceClaims": entries}});
        applied::<PodGroup>(index, &group);
    }

    /// A Pod of the group that names claim 0.
    fn member(number: usize, is_gated: bool) -> Value {
        let mut pod = pod(number, "1");
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        pod["spec"]["resourceClaims"][0]["resourceClaimName"] = json!("c-0");
        if !is_gated {
            pod["spec"]["schedulingGates"] = json!([]);
        }
        pod["metadata"]["resourceVersion"] = json!(if is_gated { "1" } else { "2" });
        pod
    }

    fn world(reserved: &Value, gated: &[bool]) -> Allocation {
        let mut index = cluster(1, 1);
        group(&mut index, &json!([{"name": "gpu", "resourceClaimName": "c-0"}]));
        let devices = json!({"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com",
            "pool": "node-00000", "device": "gpu-0"}]}});
        applied::<ResourceClaim>(
            &mut index,
            &claim(0, &json!({"allocation": devices, "reservedFor": reserved})),
        );
        for (number, is_gated) in gated.iter().enumerate() {
            applied::<Pod>(&mut index, &member(number, *is_gated));
        }
        index
    }

    fn judged(index: &Allocation, number: usize) -> PodState {
        let (uid, pod) = index.pod(&key(number)).expect("a Pod");
        pod_state("dragoman", &uid, &pod, index.claims_of("ns", &pod))
    }

    fn of_group() -> Value {
        json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g-uid"}])
    }

    #[test]
    fn a_claim_of_a_group_is_reserved_for_the_group() {
        let index = world(&json!([]), &[true, true]);
        let PodState::NeedsDevices(_, claims) = judged(&index, 0) else { panic!("nothing is reserved") };
        let write = writes::allocate(&key(0), "pod-0", &claims[0], "2", None, "", &[]);
        assert!(format!("{write:?}").contains("podgroups"), "{write:?}");
        // One reservation is for all.
        let index = world(&of_group(), &[true, true]);
        assert!((0..2).all(|number| matches!(judged(&index, number), PodState::Allocated(_))));
        // It does not say of a Pod without the gate that it had one.
        let (uid, pod) = index.pod(&key(0)).expect("a Pod");
        assert!(!holds_something(&uid, &index.claims_of("ns", &pod).expect("claims")));
        // The reservation of one Pod is not that of the group.
        let one = json!([{"resource": "pods", "name": "p-0", "uid": "pod-0"}]);
        let index = world(&one, &[true, true]);
        assert!((0..2).all(|number| matches!(judged(&index, number), PodState::NeedsDevices(..))));
    }

    #[test]
    fn an_entry_of_another_name_or_claim_is_that_of_the_pod() {
        for entry in [
            json!({"name": "other", "resourceClaimName": "c-0"}),
            json!({"name": "gpu", "resourceClaimName": "c-1"}),
            json!({"name": "gpu", "resourceClaimTemplateName": "c-0"}),
            json!({"name": "gpu"}),
        ] {
            let mut index = world(&of_group(), &[true]);
            group(&mut index, &json!([entry]));
            // The update is another version.
            assert!(matches!(judged(&index, 0), PodState::NeedsDevices(..)), "{entry}");
        }
    }

    #[test]
    fn a_group_gives_a_claim_back_as_long_as_none_of_its_pods_is_released() {
        let asked = |gated: &[bool], number: usize, may_go: bool| {
            let index = world(&of_group(), gated);
            let (uid, pod) = index.pod(&key(number)).expect("a Pod");
            let claims = index.claims_of("ns", &pod).expect("claims");
            let may_go: fn(&[NamedClaim]) -> bool = if may_go { |_| true } else { |_| false };
            assert!(writes::give_back("ns", &claims[0], &uid).is_some());
            let asked = index.gated_together(&key(number), &uid, "dragoman", &claims[0], may_go)?;
            Some(asked.into_iter().map(|(_, uid)| uid.to_string()).collect::<Vec<_>>())
        };
        let both = Some(vec!["pod-0".to_owned(), "pod-1".to_owned()]);
        assert_eq!((asked(&[true, true], 0, false), asked(&[true, true], 1, false)), (both.clone(), both));
        assert_eq!(asked(&[true, true], 0, true), None, "the other one has everything");
        assert_eq!(asked(&[true, false], 0, false), None, "another one may run");
        assert_eq!(asked(&[true; SMALL + 1], 0, false), None, "so many are not asked about");
    }
}
