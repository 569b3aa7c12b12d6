//! PodGroups, which may not be served.

use std::sync::Arc;

use dragoman_machinery::controller::{Keeps, Left, Place};
use dragoman_machinery::kind::Kind;
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects as objects;

use super::super::ended::{End, HowEnded};
use super::super::facts::{ConsumerClaims, GroupFacts, ReferenceKind};
use super::super::key::{Key, Subject};
use super::super::state::State;
use super::Index;

impl Keeps<objects::PodGroup> for State {
    type Projection = GroupFacts;

    fn store_mut(&mut self) -> &mut Store<GroupFacts> {
        &mut self.index.groups
    }

    fn tick(&mut self) -> u64 {
        self.evidence.next_tick()
    }

    fn project(&mut self, group: &objects::PodGroup) -> Option<GroupFacts> {
        Some(group.into())
    }

    fn changed(&mut self, place: &Place, old: Option<&GroupFacts>, new: Option<&GroupFacts>) -> Vec<Key> {
        let Place { namespace, name, uid } = place;
        if old.is_some() && old == new {
            return Vec::new();
        }
        self.index.link_group(namespace, name, old.map(|old| &*old.claims), new.map(|new| &*new.claims));
        if let Some(new) = new {
            self.look_for_second_writer(namespace, uid, old.map(|old| &*old.claims), &new.claims);
        }
        let mut dirty = vec![Key::new(Subject::PodGroup, Arc::clone(namespace), Arc::clone(name))];
        dirty.extend(self.index.members(namespace, name));
        dirty
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<GroupFacts>,
        _how: Left,
    ) -> Vec<Key> {
        let claims = last.readable().map(|group| Arc::clone(&group.claims));
        self.index.link_group(namespace, name, claims.as_deref(), None);
        let end = End { how: HowEnded::Orderly, node: None, at: self.now };
        self.evidence.insert(last.uid.clone(), end);
        self.ends.ended(&last.uid, self.now);
        let mut dirty = self.index.claims_of(namespace, claims.as_deref(), &last.uid);
        dirty.extend(self.index.members(namespace, name));
        dirty
    }

    fn serving(&mut self, kind: Kind) {
        self.index.groups_kind = Some(kind);
    }

    /// Marks PodGroups as served. On a transition, wakes member Pods and all claims that are
    /// reserved for a PodGroup.
    fn listed(&mut self) -> Vec<Key> {
        if self.index.groups_served.replace(true) == Some(true) {
            return Vec::new();
        }
        let mut dirty = self.index.all_members();
        dirty.extend(
            self.index.reserved_for(|consumer| ReferenceKind::of(consumer) == ReferenceKind::PodGroup),
        );
        dirty
    }

    /// Marks PodGroups as not served: a claim that is reserved for one is held by an unknown
    /// consumer, and Pods in one have to wait.
    fn unserved(&mut self) -> Vec<Key> {
        if self.index.groups_served.replace(false) == Some(false) {
            return Vec::new();
        }
        self.index.all_members()
    }
}

impl Index {
    /// Every Pod that is in a PodGroup.
    fn all_members(&self) -> Vec<Key> {
        let members = self.pods_of_group.all();
        members.map(|(ns, pod)| Key::new(Subject::Pod, Arc::clone(ns), Arc::clone(pod))).collect()
    }

    fn link_group(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&ConsumerClaims>,
        new: Option<&ConsumerClaims>,
    ) {
        if let Some(old) = old {
            old.named().for_each(|claim| self.groups_of_claim.unlink(namespace, claim, name));
            old.templates().for_each(|t| self.groups_of_template.unlink(namespace, t, name));
        }
        if let Some(new) = new {
            new.named().for_each(|claim| self.groups_of_claim.link(namespace, claim, name));
            new.templates().for_each(|t| self.groups_of_template.link(namespace, t, name));
        }
    }

    fn members(&self, namespace: &Arc<str>, group: &str) -> Vec<Key> {
        let members = self.pods_of_group.of(namespace, group);
        members.map(|pod| Key::new(Subject::Pod, Arc::clone(namespace), Arc::clone(pod))).collect()
    }
}
