//! Everything this controller knows of the cluster, and what a change makes dirty.
//!
//! The watches write here, the snapshots read here. Nothing is decided here.

mod groups;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dragoman_crds::wire::{ConsumerReference, Meta, Name};
use dragoman_machinery::kind::Kind;
use dragoman_machinery::watch::{Body, Record, Removed, Store};

use super::ended::{Ended, HowEnded};
use super::facts::{ClaimFacts, GroupFacts, HolderClaims, MAX_CONSUMERS, OwnerKind, PodFacts, TemplateFacts};
use super::key::{Key, Subject};
use super::quota::QuotaWait;
use super::second_writer::{self, SecondWriter};
use super::users::Users;

/// Which store an expectation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kept {
    /// Pods.
    Pods,
    /// ResourceClaims.
    Claims,
    /// `ResourceClaimTemplates`.
    Templates,
    /// PodGroups.
    Groups,
}

/// A claim with what was learnt about it beside its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRecord {
    /// Its content.
    pub facts: ClaimFacts,
    /// When this process first read the present `reservedFor`, on the index's own
    /// clock: a list of consumers begun later that lacks one proves it gone.
    pub read_at: u64,
    /// Since when (seconds since the epoch) it has been allocated and unreserved.
    pub idle_since: Option<i64>,
}

/// Objects of one kind that claims may be reserved for.
#[derive(Debug)]
pub struct Consumers<P> {
    /// The objects.
    pub store: Store<P>,
    /// When the list in progress began, on the index's clock.
    list_began: u64,
    /// When the last complete list had begun.
    listed_at: u64,
}

impl<P> Default for Consumers<P> {
    fn default() -> Self {
        Self { store: Store::default(), list_began: 0, listed_at: 0 }
    }
}

impl<P> Consumers<P> {
    /// Whether the last complete list had begun after `tick`.
    pub fn listed_after(&self, tick: u64) -> bool {
        self.listed_at > tick
    }
}

/// The index.
#[derive(Debug, Default)]
pub struct Index {
    /// Pods.
    pub pods: Consumers<PodFacts>,
    /// PodGroups.
    pub groups: Consumers<GroupFacts>,
    /// Claims.
    pub claims: Store<Arc<ClaimRecord>>,
    /// Templates.
    pub templates: Store<Arc<TemplateFacts>>,
    /// Whether PodGroups are served; absent while unknown.
    pub groups_served: Option<bool>,
    /// The version of PodGroups that is watched.
    pub groups_kind: Option<Kind>,
    /// Proof of a second full writer, once there is one.
    pub second_writer: Option<SecondWriter>,
    /// Since when (seconds since the epoch) we lead.
    pub leading_since: Option<i64>,
    ended: Ended,
    tick: u64,
    pods_of_claim: Users,
    groups_of_claim: Users,
    pods_of_template: Users,
    groups_of_template: Users,
    pods_of_group: Users,
    claims_of_owner: HashMap<Name, Vec<(Arc<str>, Arc<str>)>>,
    /// Claims that are reserved for somebody else than their owner, by his uid: he may name
    /// none of them.
    claims_of_consumer: Users,
    /// Keys whose creation a quota refused.
    pub quota: QuotaWait,
}

/// The uids of those a claim is reserved for, its owner left out.
fn others(facts: &ClaimFacts) -> impl Iterator<Item = &Name> {
    let owner = facts.owner.as_ref().map(|owner| &owner.uid);
    facts.reserved.iter().map(|consumer| &consumer.uid).filter(move |uid| Some(*uid) != owner)
}

fn body<T, P>(object: Result<T, String>, project: impl FnOnce(T) -> P) -> Body<P> {
    match object {
        Ok(object) => Body::Readable(project(object)),
        Err(why) => Body::Unreadable(why.into()),
    }
}

impl Index {
    /// A complete list of `kind` begins.
    pub fn began(&mut self, kind: Kept) {
        self.tick += 1;
        match kind {
            Kept::Pods => {
                self.pods.list_began = self.tick;
                self.pods.store.begin();
            }
            Kept::Groups => {
                self.groups.list_began = self.tick;
                self.groups.store.begin();
            }
            Kept::Claims => self.claims.begin(),
            Kept::Templates => self.templates.begin(),
        }
    }

    /// What `kind` has reached.
    pub fn reached(&self, kind: Kept) -> u64 {
        match kind {
            Kept::Pods => self.pods.store.reached(),
            Kept::Groups => self.groups.store.reached(),
            Kept::Claims => self.claims.reached(),
            Kept::Templates => self.templates.reached(),
        }
    }

    /// Whether every kind has been listed completely.
    pub fn missing(&self) -> Vec<&'static str> {
        let groups = self.groups_served == Some(false) || self.groups.store.synced();
        [
            (self.pods.store.synced(), "pods"),
            (self.claims.synced(), "resourceclaims"),
            (self.templates.synced(), "resourceclaimtemplates"),
            (groups, "podgroups"),
        ]
        .into_iter()
        .filter_map(|(synced, name)| (!synced).then_some(name))
        .collect()
    }

    // Pods.

    /// A Pod was added or changed.
    pub fn pod_applied(&mut self, meta: &Meta, object: Result<dragoman_crds::wire::Pod, String>) -> Vec<Key> {
        let body = body(object, PodFacts::from);
        let new = match &body {
            Body::Readable(facts) => Some(facts.clone()),
            Body::Unreadable(_) => None,
        };
        let (namespace, name, old) = self.pods.store.insert(meta, body);
        let mut dirty = Vec::new();
        let old = match old {
            Some(old) if old.uid != meta.uid => {
                // Its end went unseen.
                dirty.extend(self.pod_ended(&namespace, &name, &old, HowEnded::Orderly));
                None
            }
            old => old.and_then(|record| record.readable().cloned()),
        };
        dirty.extend(self.pod_changed(&namespace, &name, old.as_ref(), new.as_ref(), &meta.uid));
        dirty
    }

    fn pod_changed(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&PodFacts>,
        new: Option<&PodFacts>,
        uid: &str,
    ) -> Vec<Key> {
        if old.is_some() && old == new {
            return Vec::new();
        }
        self.link_pod(namespace, name, old, new);
        let old_claims = old.and_then(|o| o.claims.clone());
        let new_claims = new.and_then(|n| n.claims.clone());
        let Some(new) = new else { return Vec::new() };
        if new.done() {
            let now = self.claims_of(namespace, new_claims.as_deref(), uid);
            let before = self.claims_of(namespace, old_claims.as_deref(), uid);
            return Key::in_order(now.into_iter().chain(before));
        }
        new_claims
            .map(|_| Key::new(Subject::Pod, Arc::clone(namespace), Arc::clone(name)))
            .into_iter()
            .collect()
    }

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

    /// The deletion of a Pod was seen.
    pub fn pod_deleted(&mut self, meta: &Meta) -> Vec<Key> {
        match self.pods.store.remove(meta) {
            Some(removed) => {
                // An unreadable Pod may have been running.
                let running = removed.record.readable().is_none_or(PodFacts::may_run);
                let how = if running { HowEnded::Abruptly } else { HowEnded::Orderly };
                self.pod_ended(&removed.namespace, &removed.name, &removed.record, how)
            }
            None => Vec::new(),
        }
    }

    fn pod_ended(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        record: &Record<PodFacts>,
        how: HowEnded,
    ) -> Vec<Key> {
        let facts = record.readable();
        self.link_pod(namespace, name, facts, None);
        let claims = facts.and_then(|f| f.claims.clone());
        // An unreadable Pod may have had claims.
        if claims.is_some() || facts.is_none() {
            self.ended.insert(record.uid.clone(), how);
        }
        self.claims_of(namespace, claims.as_deref(), &record.uid)
    }

    /// Every claim that is reserved for such a consumer: a search through all there are.
    fn reserved_for(&self, is_meant: impl Fn(&ConsumerReference) -> bool) -> Vec<Key> {
        let reserved = self.claims.iter().filter(|(_, _, record)| {
            record.readable().is_some_and(|claim| claim.facts.reserved.iter().any(&is_meant))
        });
        reserved.map(|(ns, name, _)| Key::new(Subject::Claim, Arc::clone(ns), Arc::clone(name))).collect()
    }

    /// Every claim a holder names or owns, or that is reserved for it.
    fn claims_of(&self, namespace: &Arc<str>, claims: Option<&HolderClaims>, uid: &str) -> Vec<Key> {
        let named = claims.into_iter().flat_map(HolderClaims::named);
        let named = named.map(|claim| Key::new(Subject::Claim, Arc::clone(namespace), claim));
        let owned = self.claims_of_owner.get(uid).into_iter().flatten();
        let owned = owned.map(|(ns, name)| Key::new(Subject::Claim, Arc::clone(ns), Arc::clone(name)));
        let reserved = self.claims_of_consumer.of(namespace, uid);
        let reserved =
            reserved.map(|claim| Key::new(Subject::Claim, Arc::clone(namespace), Arc::clone(claim)));
        let mut all: Vec<_> = named.chain(owned).chain(reserved).collect();
        all.sort();
        all.dedup();
        all
    }

    /// A complete list of `kind` at `version` has ended.
    pub fn completed(&mut self, kind: Kept, version: &str) -> Vec<Key> {
        match kind {
            Kept::Pods => {
                let removed = self.pods.store.complete(version);
                self.pods.listed_at = self.pods.list_began;
                // Missing from a list, they are gone; how they ended nobody saw.
                let mut dirty = Vec::new();
                for Removed { namespace, name, record } in &removed {
                    dirty.extend(self.pod_ended(namespace, name, record, HowEnded::Orderly));
                }
                dirty
            }
            Kept::Groups => {
                let removed = self.groups.store.complete(version);
                self.groups.listed_at = self.groups.list_began;
                let mut dirty = self.groups_appeared();
                removed.iter().for_each(|removed| dirty.extend(self.group_removed(removed)));
                dirty
            }
            Kept::Claims => {
                let removed = self.claims.complete(version);
                removed.iter().flat_map(|r| self.claim_removed(r)).collect()
            }
            Kept::Templates => {
                self.templates.complete(version);
                Vec::new()
            }
        }
    }

    /// Everything of `kind` up to `version` has been seen.
    pub fn advanced(&mut self, kind: Kept, version: &str) {
        match kind {
            Kept::Pods => self.pods.store.advance(version),
            Kept::Groups => self.groups.store.advance(version),
            Kept::Claims => self.claims.advance(version),
            Kept::Templates => self.templates.advance(version),
        }
    }

    // Claims.

    /// A claim was added or changed; `now` in seconds since the epoch.
    pub fn claim_applied(
        &mut self,
        meta: &Meta,
        object: Result<dragoman_crds::wire::ResourceClaim, String>,
        now: i64,
    ) -> Vec<Key> {
        self.tick += 1;
        let before = self.claims.get(&meta.namespace, &meta.name);
        let same = before.filter(|record| record.uid == meta.uid).and_then(|r| r.readable().cloned());
        let body = body(object, |claim| {
            let facts = ClaimFacts::from(claim);
            let known = same.as_ref().filter(|s| s.facts.reserved == facts.reserved);
            let idle = facts.allocated && facts.reserved.is_empty();
            let idle_since = idle.then(|| same.as_ref().and_then(|s| s.idle_since).unwrap_or(now));
            let read_at = known.map_or(self.tick, |s| s.read_at);
            Arc::new(ClaimRecord { facts, read_at, idle_since })
        });
        let new = match &body {
            Body::Readable(record) => Some(Arc::clone(record)),
            Body::Unreadable(_) => None,
        };
        let fresh = self.claims.synced() && same.is_none();
        let (namespace, name, old) = self.claims.insert(meta, body);
        let mut dirty = Vec::new();
        let old = match old {
            Some(old) if old.uid != meta.uid => {
                dirty.extend(self.claim_ended(&namespace, &name, &old));
                None
            }
            old => old.and_then(|record| record.readable().cloned()),
        };
        if let Some(new) = new.as_ref().filter(|_| fresh)
            && let Some(since) = self.leading_since
        {
            let found = second_writer::proof(&namespace, &name, &new.facts, since);
            self.second_writer = self.second_writer.take().or(found);
        }
        self.link_owner(&namespace, &name, old.as_deref(), new.as_deref());
        self.link_consumers(&namespace, &name, old.as_deref(), new.as_deref());
        dirty.push(Key::new(Subject::Claim, Arc::clone(&namespace), Arc::clone(&name)));
        let (old, new) = (old.as_deref().map(|r| &r.facts), new.as_deref().map(|r| &r.facts));
        dirty.extend(self.holders_concerned(&namespace, &name, old, new));
        dirty
    }

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
            claims.retain(|(_, claim)| claim != name);
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
    fn holders_concerned(
        &self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        old: Option<&ClaimFacts>,
        new: Option<&ClaimFacts>,
    ) -> Vec<Key> {
        let shape = |facts: Option<&ClaimFacts>| {
            facts.map(|f| (f.deleting, f.allocated, f.owner.clone(), f.entry.clone()))
        };
        // Whoever found it full may try again.
        let is_full = |facts: Option<&ClaimFacts>| facts.is_some_and(|f| f.reserved.len() >= MAX_CONSUMERS);
        let has_room_again = is_full(old) && !is_full(new);
        if old.is_none() || shape(old) != shape(new) || has_room_again {
            return self.holders_of(namespace, name, new.or(old));
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

    fn holders_of(&self, namespace: &Arc<str>, name: &Arc<str>, facts: Option<&ClaimFacts>) -> Vec<Key> {
        let key =
            |subject| move |holder: &Arc<str>| Key::new(subject, Arc::clone(namespace), Arc::clone(holder));
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

    /// The deletion of a claim was seen.
    pub fn claim_deleted(&mut self, meta: &Meta) -> Vec<Key> {
        match self.claims.remove(meta) {
            Some(removed) => self.claim_removed(&removed),
            None => Vec::new(),
        }
    }

    fn claim_removed(&mut self, removed: &Removed<Arc<ClaimRecord>>) -> Vec<Key> {
        self.claim_ended(&removed.namespace, &removed.name, &removed.record)
    }

    fn claim_ended(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        record: &Record<Arc<ClaimRecord>>,
    ) -> Vec<Key> {
        let facts = record.readable();
        self.link_owner(namespace, name, facts.map(|r| &**r), None);
        self.link_consumers(namespace, name, facts.map(|r| &**r), None);
        let mut dirty = self.holders_of(namespace, name, facts.map(|r| &r.facts));
        dirty.extend(self.quota.claim_went(namespace));
        dirty
    }

    // Templates.

    /// A template was added or changed.
    pub fn template_applied(
        &mut self,
        meta: &Meta,
        object: Result<dragoman_crds::wire::ResourceClaimTemplate, String>,
    ) -> Vec<Key> {
        let body = body(object, |template| Arc::new(TemplateFacts::from(template)));
        let (namespace, name, _) = self.templates.insert(meta, body);
        let key = |subject| {
            let namespace = Arc::clone(&namespace);
            move |holder: &Arc<str>| Key::new(subject, Arc::clone(&namespace), Arc::clone(holder))
        };
        let pods = self.pods_of_template.of(&namespace, &name).map(key(Subject::Pod));
        let groups = self.groups_of_template.of(&namespace, &name).map(key(Subject::PodGroup));
        groups.chain(pods).collect()
    }

    /// The deletion of a template was seen. Claims made from it live on.
    pub fn template_deleted(&mut self, meta: &Meta) {
        self.templates.remove(meta);
    }

    // Questions.

    /// The index's own clock: what is read now is read after everything before.
    pub fn now(&self) -> u64 {
        self.tick
    }

    /// A live read or a refusal has proven that the holder with `uid` is gone: our
    /// view of it is stale until the watch says so too.
    pub fn proven_gone(&mut self, uid: &str) {
        self.ended.insert(uid.into(), HowEnded::Orderly);
    }

    /// How the holder with `uid` ended, if its end was seen.
    pub fn ended(&self, uid: &str) -> Option<HowEnded> {
        self.ended.get(uid)
    }

    /// The claims controlled by the holder with `uid` in `namespace`.
    pub fn claims_owned_by<'a>(
        &'a self,
        namespace: &'a str,
        uid: &str,
    ) -> impl Iterator<Item = (&'a str, &'a Record<Arc<ClaimRecord>>)> {
        let claims = self.claims_of_owner.get(uid).into_iter().flatten();
        claims
            .filter(move |(ns, _)| &**ns == namespace)
            .filter_map(|(ns, name)| Some((&**name, self.claims.get(ns, name)?)))
    }

    /// Every key there is: what the level timer enqueues.
    pub fn all_keys(&self) -> Vec<Key> {
        let key =
            |subject, ns: &Arc<str>, name: &Arc<str>| Key::new(subject, Arc::clone(ns), Arc::clone(name));
        let claims = self.claims.iter().map(|(ns, name, _)| key(Subject::Claim, ns, name));
        let groups = self.groups.store.iter().map(|(ns, name, _)| key(Subject::PodGroup, ns, name));
        let pods = self
            .pods
            .store
            .iter()
            .filter(|(_, _, record)| record.readable().is_some_and(|f| f.claims.is_some() && !f.done()));
        Key::in_order(claims.chain(groups).chain(pods.map(|(ns, name, _)| key(Subject::Pod, ns, name))))
    }
}
