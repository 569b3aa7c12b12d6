//! The objects of the cluster with their links, and what a change means and makes dirty: a file for
//! each kind.
//!
//! The watches write here, the snapshots read here.

mod claims;
mod groups;
mod nodes;
mod pods;
mod templates;

use std::collections::HashMap;
use std::sync::Arc;

use dragoman_machinery::controller::Links;
use dragoman_machinery::kind::{Kind, NODE, POD, POD_GROUPS, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use dragoman_machinery::watch::{Record, Store, StoreState};
use dragoman_objects::{ConsumerReference, Name};

pub(super) use self::claims::ClaimRecord;
use super::facts::{ConsumerClaims, GroupFacts, PodFacts, TemplateRecord};
use super::key::{Key, Subject};

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
    /// Whether each node is out of service, where that is watched.
    pub nodes: Store<bool>,
    /// Whether nodes are watched.
    pub watches_nodes: bool,
    /// The bytes of the payloads of templates that are kept.
    payloads: usize,
    /// Whether PodGroups are served; absent while unknown.
    pub groups_served: Option<bool>,
    /// The version of PodGroups that is watched.
    pub groups_kind: Option<Kind>,
    pods_of_claim: Links,
    groups_of_claim: Links,
    pods_of_template: Links,
    groups_of_template: Links,
    pods_of_group: Links,
    claims_of_owner: HashMap<Name, Vec<(Arc<str>, Arc<str>)>>,
    /// Claims by the uid of a consumer, owners left out. A consumer need not name the claim.
    claims_of_consumer: Links,
}

impl Index {
    /// The store of each kind, in its newest version.
    pub(super) fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        let stores: [(Kind, &dyn StoreState); 5] = [
            (POD, &self.pods),
            (RESOURCE_CLAIM, &self.claims),
            (RESOURCE_CLAIM_TEMPLATE, &self.templates),
            (POD_GROUPS[0], &self.groups),
            (NODE, &self.nodes),
        ];
        stores.into_iter().filter(|(kind, _)| self.watches_nodes || !kind.is(NODE))
    }

    /// Whether the API server does not serve the kind.
    pub(super) fn is_unserved(&self, kind: Kind) -> bool {
        kind.is(POD_GROUPS[0]) && self.groups_served == Some(false)
    }

    /// Every claim and PodGroup, and every Pod that waits for claims, in order.
    pub(super) fn all_keys(&self) -> Vec<Key> {
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
