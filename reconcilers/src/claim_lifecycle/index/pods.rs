//! Pods.

use std::sync::Arc;

use dragoman_machinery::controller::{Keeps, Left, Place};
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects as objects;

use super::super::ended::{End, HowEnded};
use super::super::facts::PodFacts;
use super::super::key::{Key, Subject};
use super::super::state::State;
use super::Index;

impl Keeps<objects::Pod> for State {
    type Projection = PodFacts;

    fn store_mut(&mut self) -> &mut Store<PodFacts> {
        &mut self.index.pods
    }

    fn tick(&mut self) -> u64 {
        self.evidence.next_tick()
    }

    fn project(&mut self, pod: &objects::Pod) -> Option<PodFacts> {
        let mut facts = PodFacts::from(pod);
        if !self.is_guarded() {
            facts.forget_node();
        }
        self.waits.read(pod, &facts, self.now);
        Some(facts)
    }

    fn changed(&mut self, place: &Place, old: Option<&PodFacts>, new: Option<&PodFacts>) -> Vec<Key> {
        let Place { namespace, name, uid } = place;
        if old.is_some() && old == new {
            return Vec::new();
        }
        self.index.link_pod(namespace, name, old, new);
        let Some(new) = new else {
            self.waits.gone(uid);
            return Vec::new();
        };
        if let Some(claims) = &new.claims {
            let before = old.and_then(|old| old.claims.as_deref());
            self.look_for_second_writer(namespace, uid, before, claims);
        }
        if new.done() {
            if old.is_some_and(|old| old.claims.is_some() && !old.done()) {
                self.ends.ended(uid, self.now);
            }
            let now = self.index.claims_of(namespace, new.claims.as_deref(), uid);
            let before = self.index.claims_of(namespace, old.and_then(|old| old.claims.as_deref()), uid);
            return Key::in_order(now.into_iter().chain(before));
        }
        let key =
            new.claims.as_ref().map(|_| Key::new(Subject::Pod, Arc::clone(namespace), Arc::clone(name)));
        key.into_iter().collect()
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<PodFacts>,
        how: Left,
    ) -> Vec<Key> {
        let pod = last.readable();
        // An unreadable Pod may have been running.
        let may_run = pod.is_none_or(PodFacts::may_run);
        let how = match how {
            _ if !may_run => HowEnded::Orderly,
            Left::Deleted => HowEnded::Abruptly,
            Left::Missed => HowEnded::Unseen,
        };
        self.index.link_pod(namespace, name, pod, None);
        self.waits.gone(&last.uid);
        let claims = pod.and_then(|pod| pod.claims.clone());
        if claims.is_some() {
            self.ends.ended(&last.uid, self.now);
        }
        // An unreadable Pod may have had claims.
        if claims.is_some() || pod.is_none() {
            let node = claims.as_ref().and_then(|claims| claims.node.clone());
            self.evidence.insert(last.uid.clone(), End { how, node, at: self.now });
        }
        self.index.claims_of(namespace, claims.as_deref(), &last.uid)
    }
}

impl Index {
    fn link_pod(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&PodFacts>,
        new: Option<&PodFacts>,
    ) {
        // There is nothing left to do for a Pod that is done, so nothing needs to wake it; a
        // cluster is full of those.
        let wakes = |pod: Option<&PodFacts>| pod.filter(|p| !p.done()).and_then(|p| p.claims.clone());
        let (old, new) = (wakes(old), wakes(new));
        if old == new {
            return;
        }
        if let Some(old) = old {
            old.named().for_each(|claim| self.pods_of_claim.unlink(namespace, claim, name));
            old.templates().for_each(|t| self.pods_of_template.unlink(namespace, t, name));
            old.group.iter().for_each(|g| self.pods_of_group.unlink(namespace, g, name));
        }
        if let Some(new) = new {
            new.named().for_each(|claim| self.pods_of_claim.link(namespace, claim, name));
            new.templates().for_each(|t| self.pods_of_template.link(namespace, t, name));
            new.group.iter().for_each(|g| self.pods_of_group.link(namespace, g, name));
        }
    }
}
