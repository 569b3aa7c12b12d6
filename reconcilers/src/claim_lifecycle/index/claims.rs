//! ResourceClaims.

use std::collections::HashSet;
use std::sync::Arc;

use dragoman_machinery::controller::{Keeps, Left, Place};
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects::{self as objects, ConsumerReference, MAX_CONSUMERS, Name};
use jiff::Timestamp;
use tokio::time::Instant;

use super::super::facts::{ClaimFacts, OwnerKind, Published};
use super::super::key::{Key, Subject};
use super::super::state::State;
use super::Index;

/// A claim with what was learnt about it beside its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRecord {
    /// Content of the claim.
    pub facts: ClaimFacts,
    /// When this process first read the present `reservedFor`, on the index's own
    /// clock: a list of consumers begun later that lacks one proves it gone.
    pub read_at: u64,
    /// The same on the wall clock.
    pub read_since: Timestamp,
    /// Since when it has been allocated and unreserved.
    pub idle_since: Option<Timestamp>,
}

impl std::ops::Deref for ClaimRecord {
    type Target = ClaimFacts;
    fn deref(&self) -> &ClaimFacts {
        &self.facts
    }
}

/// The uids of the consumers of a claim, its owner left out.
fn others(facts: &ClaimFacts) -> impl Iterator<Item = &Name> {
    let owner = facts.owner.as_ref().map(|owner| &owner.uid);
    facts.reserved.iter().map(|consumer| &consumer.uid).filter(move |uid| Some(*uid) != owner)
}

impl Keeps<objects::ResourceClaim> for State {
    type Projection = Arc<ClaimRecord>;

    fn store_mut(&mut self) -> &mut Store<Arc<ClaimRecord>> {
        &mut self.index.claims
    }

    fn tick(&mut self) -> u64 {
        self.evidence.next_tick()
    }

    fn project(&mut self, claim: &objects::ResourceClaim) -> Option<Arc<ClaimRecord>> {
        let tick = self.evidence.next_tick();
        let meta = &claim.metadata;
        let before = self.index.claims.get(&meta.namespace, &meta.name);
        let before = before.filter(|record| record.uid == meta.uid).and_then(|record| record.readable());
        let facts = ClaimFacts::from(claim);
        let known = before.filter(|before| before.facts.reserved == facts.reserved);
        let idle = facts.allocated && facts.reserved.is_empty();
        let idle_since = idle.then(|| before.and_then(|before| before.idle_since).unwrap_or(self.now));
        let read_at = known.map_or(tick, |known| known.read_at);
        let read_since = known.map_or(self.now, |known| known.read_since);
        Some(Arc::new(ClaimRecord { facts, read_at, read_since, idle_since }))
    }

    fn changed(
        &mut self,
        place: &Place,
        old: Option<&Arc<ClaimRecord>>,
        new: Option<&Arc<ClaimRecord>>,
    ) -> Vec<Key> {
        let Place { namespace, name, .. } = place;
        if let Some(new) = new.filter(|_| old.is_none()) {
            self.claim_appeared(namespace, name, &new.facts);
        }
        let (old, new) = (old.map(|old| &**old), new.map(|new| &**new));
        self.index.link_owner(namespace, name, old, new);
        self.index.link_consumers(namespace, name, old, new);
        self.measure_claim(namespace, name, old, new);
        let mut dirty = vec![Key::new(Subject::Claim, Arc::clone(namespace), Arc::clone(name))];
        let (old, new) = (old.map(|old| &old.facts), new.map(|new| &new.facts));
        dirty.extend(self.index.consumers_concerned(namespace, name, old, new));
        dirty
    }

    fn removed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        last: &Record<Arc<ClaimRecord>>,
        _how: Left,
    ) -> Vec<Key> {
        let last = last.readable().map(|last| &**last);
        self.held.remove(namespace, name);
        self.index.link_owner(namespace, name, last, None);
        self.index.link_consumers(namespace, name, last, None);
        self.measure_claim(namespace, name, last, None);
        let mut dirty = self.index.users_of(namespace, name, last.map(|last| &last.facts));
        dirty.extend(self.quota.claim_went(namespace, Instant::now()));
        dirty
    }
}

impl Index {
    fn link_owner(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&ClaimRecord>,
        new: Option<&ClaimRecord>,
    ) {
        let uid = |record: Option<&ClaimRecord>| {
            let owner = record?.facts.owner.as_ref()?;
            (owner.kind != OwnerKind::Other).then(|| owner.uid.clone())
        };
        let (old, new) = (uid(old), uid(new));
        if old == new {
            return;
        }
        if let Some(uid) = old
            && let Some(claims) = self.claims_of_owner.get_mut(&uid)
        {
            claims.retain(|(ns, claim)| (ns, claim) != (namespace, name));
            if claims.is_empty() {
                self.claims_of_owner.remove(&uid);
            }
        }
        if let Some(uid) = new {
            let claims = self.claims_of_owner.entry(uid).or_insert_with(|| Vec::with_capacity(1));
            claims.push((Arc::clone(namespace), Arc::clone(name)));
        }
    }

    fn link_consumers(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&ClaimRecord>,
        new: Option<&ClaimRecord>,
    ) {
        let [old, new] = [old, new].map(|record| record.map(|record| &record.facts));
        let is_same =
            |old: &ClaimFacts, new: &ClaimFacts| old.reserved == new.reserved && old.owner == new.owner;
        if old.zip(new).is_some_and(|(old, new)| is_same(old, new)) {
            return;
        }
        let links = &mut self.claims_of_consumer;
        old.into_iter().flat_map(others).for_each(|uid| links.unlink(namespace, uid, name));
        new.into_iter().flat_map(others).for_each(|uid| links.link(namespace, uid, name));
    }

    /// The Pods and PodGroups whose plan a change of a claim can alter. A change of
    /// `reservedFor` concerns only those that came or went, not all that share it.
    fn consumers_concerned(
        &self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&ClaimFacts>,
        new: Option<&ClaimFacts>,
    ) -> Vec<Key> {
        let shape = |facts: Option<&ClaimFacts>| {
            facts.map(|f| (f.deleting, f.allocated, f.is_held, f.owner.clone(), f.entry.clone()))
        };
        // A consumer that found it full may try again.
        let is_full = |facts: Option<&ClaimFacts>| facts.is_some_and(|f| f.reserved.len() >= MAX_CONSUMERS);
        let has_room_again = is_full(old) && !is_full(new);
        if old.is_none() || shape(old) != shape(new) || has_room_again {
            return self.users_of(namespace, name, new.or(old));
        }
        let consumers = |facts: Option<&ClaimFacts>| -> HashSet<ConsumerReference> {
            facts.into_iter().flat_map(|f| f.reserved.iter().cloned()).collect()
        };
        let (old, new) = (consumers(old), consumers(new));
        let subject = |consumer: &ConsumerReference| match &*consumer.resource {
            "pods" => Some(Subject::Pod),
            "podgroups" => Some(Subject::PodGroup),
            _ => None,
        };
        let changed = old.symmetric_difference(&new);
        let keys = changed.filter_map(|c| Some(Key::new(subject(c)?, Arc::clone(namespace), &*c.name)));
        Key::in_order(keys)
    }

    fn users_of(&self, namespace: &Arc<str>, name: &Arc<str>, facts: Option<&ClaimFacts>) -> Vec<Key> {
        let key = |subject| {
            move |consumer: &Arc<str>| Key::new(subject, Arc::clone(namespace), Arc::clone(consumer))
        };
        let pods = self.pods_of_claim.of(namespace, name).map(key(Subject::Pod));
        let groups = self.groups_of_claim.of(namespace, name).map(key(Subject::PodGroup));
        let owner = facts.and_then(|f| f.owner.as_ref()).and_then(|owner| {
            let subject = match owner.kind {
                OwnerKind::Pod => Subject::Pod,
                OwnerKind::PodGroup => Subject::PodGroup,
                OwnerKind::Other => return None,
            };
            Some(Key::new(subject, Arc::clone(namespace), &*owner.name))
        });
        pods.chain(groups).chain(owner).collect()
    }
}

impl State {
    fn measure_claim(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&ClaimRecord>,
        new: Option<&ClaimRecord>,
    ) {
        self.tally.changed(namespace, name, old, new);
        let is_readable = new.is_some();
        let is_there = self.index.claims.get(namespace, name).is_some();
        let old = old.map_or(&[][..], |old| &old.facts.reserved);
        let new = new.map_or(&[][..], |new| &new.facts.reserved);
        // One that does not decode any more may be reserved as before.
        if old == new || (is_there && !is_readable) {
            return;
        }
        let still: HashSet<&Name> = new.iter().map(|consumer| &consumer.uid).collect();
        let left = old.iter().map(|consumer| &consumer.uid).filter(|uid| !still.contains(uid));
        left.for_each(|uid| self.ends.released(uid, self.now));
    }

    /// Judges the name of a claim that has just appeared: its owner may have named it in the status before.
    fn claim_appeared(&mut self, namespace: &Arc<str>, name: &Arc<str>, facts: &ClaimFacts) {
        let Some(owner) = &facts.owner else { return };
        let claims = match owner.kind {
            OwnerKind::Pod => {
                let pod = self.index.pods.get(namespace, &owner.name).filter(|pod| pod.uid == owner.uid);
                pod.and_then(Record::readable).and_then(|pod| pod.claims.clone())
            }
            OwnerKind::PodGroup => {
                let group =
                    self.index.groups.get(namespace, &owner.name).filter(|group| group.uid == owner.uid);
                group.and_then(Record::readable).map(|group| Arc::clone(&group.claims))
            }
            OwnerKind::Other => None,
        };
        if let Some(claims) = claims {
            let is_this = |published: &&Published| published.claim.as_deref() == Some(&**name);
            self.judge_names(namespace, &owner.uid, &claims, claims.published.iter().filter(is_this));
        }
    }
}
