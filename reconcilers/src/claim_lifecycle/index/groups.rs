//! PodGroups, which may not be served.

use std::sync::Arc;

use dragoman_crds::wire::Meta;
use dragoman_machinery::watch::{Body, Record, Removed};

use super::super::ended::HowEnded;
use super::super::evidence::ConsumerKind;
use super::super::facts::{GroupFacts, HolderClaims};
use super::super::key::{Key, Subject};
use super::{Index, body};

impl Index {
    /// A PodGroup was added or changed.
    pub fn group_applied(
        &mut self,
        meta: &Meta,
        object: Result<dragoman_crds::wire::PodGroup, String>,
    ) -> Vec<Key> {
        let body = body(object, GroupFacts::from);
        let new = match &body {
            Body::Readable(facts) => Some(facts.clone()),
            Body::Unreadable(_) => None,
        };
        let (namespace, name, old) = self.groups.store.insert(meta, body);
        let mut dirty = Vec::new();
        let old = match old {
            Some(old) if old.uid != meta.uid => {
                dirty.extend(self.group_ended(&namespace, &name, &old));
                None
            }
            old => old.and_then(|record| record.readable().cloned()),
        };
        if old.is_some() && old == new {
            return dirty;
        }
        let old_claims = old.map(|o| o.claims);
        self.link_group(&namespace, &name, old_claims.as_deref(), new.as_ref().map(|n| &*n.claims));
        dirty.push(Key::new(Subject::PodGroup, Arc::clone(&namespace), Arc::clone(&name)));
        dirty.extend(self.members(&namespace, &name));
        dirty
    }

    /// PodGroups are served. If they were not, whoever waits for one is told, and what is reserved
    /// for one is held by somebody of whom we know again.
    pub(super) fn groups_appeared(&mut self) -> Vec<Key> {
        if self.groups_served.replace(true) == Some(true) {
            return Vec::new();
        }
        let mut dirty = self.all_members();
        dirty.extend(self.reserved_for(|consumer| ConsumerKind::of(consumer) == ConsumerKind::PodGroup));
        dirty
    }

    /// PodGroups are not served (any more): what is reserved for one is held by an
    /// unknown consumer, and Pods in one have to wait.
    pub fn groups_vanished(&mut self) -> Vec<Key> {
        if self.groups_served.replace(false) == Some(false) {
            return Vec::new();
        }
        self.all_members()
    }

    /// Every Pod that is in a PodGroup.
    fn all_members(&self) -> Vec<Key> {
        let members = self.pods_of_group.all();
        members.map(|(ns, pod)| Key::new(Subject::Pod, Arc::clone(ns), Arc::clone(pod))).collect()
    }

    fn link_group(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&HolderClaims>,
        new: Option<&HolderClaims>,
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

    /// The deletion of a PodGroup was seen.
    pub fn group_deleted(&mut self, meta: &Meta) -> Vec<Key> {
        match self.groups.store.remove(meta) {
            Some(removed) => self.group_removed(&removed),
            None => Vec::new(),
        }
    }

    pub(super) fn group_removed(&mut self, removed: &Removed<GroupFacts>) -> Vec<Key> {
        self.group_ended(&removed.namespace, &removed.name, &removed.record)
    }

    fn group_ended(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        record: &Record<GroupFacts>,
    ) -> Vec<Key> {
        let claims = record.readable().map(|f| Arc::clone(&f.claims));
        self.link_group(namespace, name, claims.as_deref(), None);
        self.ended.insert(record.uid.clone(), HowEnded::Orderly);
        let mut dirty = self.claims_of(namespace, claims.as_deref(), &record.uid);
        dirty.extend(self.members(namespace, name));
        dirty
    }
}
