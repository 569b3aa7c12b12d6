//! Everything this controller knows of the cluster, and what a change makes dirty: a file for each
//! kind.
//!
//! The watches write here, the snapshots read here.

mod claims;
mod groups;
mod pods;
mod templates;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dragoman_crds::wire::{ConsumerReference, Name};
use dragoman_machinery::controller::{self, Links};
use dragoman_machinery::kind::{Kind, POD, POD_GROUPS, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use dragoman_machinery::watch::{Record, Store, StoreState};

pub(super) use self::claims::ClaimRecord;
use super::ended::{Ended, HowEnded};
use super::evidence::ReferenceKind;
use super::facts::{ConsumerClaims, GroupFacts, PodFacts, Published, TemplateRecord};
use super::key::{Key, Subject};
use super::quota::QuotaWaits;
use super::second_writer::{NamedBy, Witnesses};

/// The index.
#[derive(Debug, Default)]
pub struct Index {
    /// Pods.
    pub pods: Store<PodFacts>,
    /// PodGroups.
    pub groups: Store<GroupFacts>,
    /// Claims.
    pub claims: Store<Arc<ClaimRecord>>,
    /// Templates.
    pub templates: Store<TemplateRecord>,
    /// The bytes of the payloads of templates that are kept.
    payloads: usize,
    /// Whether PodGroups are served; absent while unknown.
    pub groups_served: Option<bool>,
    /// The version of PodGroups that is watched.
    pub groups_kind: Option<Kind>,
    /// Looks out for a second full writer.
    pub witnesses: Witnesses,
    /// The time of what is fed.
    now: jiff::Timestamp,
    /// Keys whose creation a quota refused.
    pub quota: QuotaWaits,
    ended: Ended,
    tick: u64,
    pods_of_claim: Links,
    groups_of_claim: Links,
    pods_of_template: Links,
    groups_of_template: Links,
    pods_of_group: Links,
    claims_of_owner: HashMap<Name, Vec<(Arc<str>, Arc<str>)>>,
    /// Claims by the uid of a consumer, owners left out. A consumer need not name the claim.
    claims_of_consumer: Links,
}

impl controller::Index for Index {
    type Key = Key;

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        let stores: [(Kind, &dyn StoreState); 4] = [
            (POD, &self.pods),
            (RESOURCE_CLAIM, &self.claims),
            (RESOURCE_CLAIM_TEMPLATE, &self.templates),
            (POD_GROUPS[0], &self.groups),
        ];
        stores.into_iter()
    }

    fn is_unserved(&self, kind: Kind) -> bool {
        kind.is(POD_GROUPS[0]) && self.groups_served == Some(false)
    }

    fn at(&mut self, now: jiff::Timestamp) {
        self.now = now;
    }

    fn all_keys(&self) -> Vec<Key> {
        let key =
            |subject, ns: &Arc<str>, name: &Arc<str>| Key::new(subject, Arc::clone(ns), Arc::clone(name));
        let claims = self.claims.iter().map(|(ns, name, _)| key(Subject::Claim, ns, name));
        let groups = self.groups.iter().map(|(ns, name, _)| key(Subject::PodGroup, ns, name));
        let waits = |record: &Record<PodFacts>| {
            record.readable().is_some_and(|pod| pod.claims.is_some() && !pod.done())
        };
        let pods = self.pods.iter().filter(|(_, _, record)| waits(record));
        Key::in_order(claims.chain(groups).chain(pods.map(|(ns, name, _)| key(Subject::Pod, ns, name))))
    }

    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (ns, name, record) in self.claims.iter() {
            let reserved = record.readable().map(|claim| &claim.facts.reserved);
            let foreign =
                |consumer: &&ConsumerReference| ReferenceKind::of(consumer) == ReferenceKind::Foreign;
            for consumer in reserved.into_iter().flatten().filter(foreign) {
                let ConsumerReference { api_group, resource, name: consumer, .. } = consumer;
                lines.push(format!("  {ns}/{name} held by {resource}.{api_group} {consumer}"));
            }
        }
        lines.push(format!("podgroups served: {:?}", self.groups_served));
        lines
    }
}

impl Index {
    /// The index's own clock: what is read now is read after everything before.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Records a live read or a refusal that proved the consumer with `uid` to be gone: the index
    /// is stale until the watch says so too.
    pub fn proven_gone(&mut self, uid: &str) {
        self.ended.insert(uid.into(), HowEnded::Orderly);
    }

    /// How the consumer with `uid` ended, if its end was seen.
    pub fn ended(&self, uid: &str) -> Option<HowEnded> {
        self.ended.get(uid)
    }

    /// The claims controlled by the Pod or PodGroup with `uid` in `namespace`.
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

    /// Looks for the proof of a second writer in the names that a consumer publishes and did not
    /// publish before.
    fn look_for_second_writer(
        &mut self,
        namespace: &Arc<str>,
        uid: &str,
        before: Option<&ConsumerClaims>,
        now: &ConsumerClaims,
    ) {
        let before: HashSet<&Published> = before.into_iter().flat_map(|claims| &claims.published).collect();
        let news = now.published.iter().filter(|published| !before.contains(published));
        self.judge_names(namespace, uid, now, news);
    }

    /// Looks for the proof of a second writer in some of the names that a consumer publishes.
    fn judge_names<'a>(
        &mut self,
        namespace: &Arc<str>,
        uid: &str,
        claims: &ConsumerClaims,
        names: impl Iterator<Item = &'a Published>,
    ) {
        // The names of a member of a PodGroup may be the group's claims.
        if claims.group.is_some() {
            return;
        }
        for published in names {
            let Some(claim) = &published.claim else { continue };
            let record = self.claims.get(namespace, claim).and_then(Record::readable);
            if let Some(record) = record {
                let by = NamedBy { namespace, uid, entry: &published.entry };
                self.witnesses.named(by, claim, &record.facts, self.now.as_second());
            }
        }
    }

    /// Every claim that is reserved for such a consumer: a search through all there are.
    fn reserved_for(&self, is_meant: impl Fn(&ConsumerReference) -> bool) -> Vec<Key> {
        let reserved = self.claims.iter().filter(|(_, _, record)| {
            record.readable().is_some_and(|claim| claim.facts.reserved.iter().any(&is_meant))
        });
        reserved.map(|(ns, name, _)| Key::new(Subject::Claim, Arc::clone(ns), Arc::clone(name))).collect()
    }

    /// Every claim a consumer names or owns, or that is reserved for it.
    fn claims_of(&self, namespace: &Arc<str>, claims: Option<&ConsumerClaims>, uid: &str) -> Vec<Key> {
        let named = claims.into_iter().flat_map(ConsumerClaims::named);
        let named = named.map(|claim| Key::new(Subject::Claim, Arc::clone(namespace), claim));
        let owned = self.claims_of_owner.get(uid).into_iter().flatten();
        let owned = owned.map(|(ns, name)| Key::new(Subject::Claim, Arc::clone(ns), Arc::clone(name)));
        let reserved = self.claims_of_consumer.of(namespace, uid);
        let reserved =
            reserved.map(|claim| Key::new(Subject::Claim, Arc::clone(namespace), Arc::clone(claim)));
        Key::in_order(named.chain(owned).chain(reserved))
    }
}
