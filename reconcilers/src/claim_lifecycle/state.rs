//! Everything this controller knows: what the cluster holds, which consumers have ended, which keys
//! wait for a quota, and where another full writer was noticed. Each is a type of its own; what a
//! change of an object means for all four stands in `index`, a file for each kind.

use std::collections::HashSet;
use std::sync::Arc;

use dragoman_machinery::controller;
use dragoman_machinery::kind::Kind;
use dragoman_machinery::watch::{Record, StoreState};
use dragoman_objects::ConsumerReference;

use super::ended::Evidence;
use super::facts::{ConsumerClaims, Published, ReferenceKind};
use super::index::Index;
use super::key::Key;
use super::objectives::{Ends, PodWaits};
use super::quota::QuotaWaits;
use super::reclaim::Held;
use super::second_writer::{NamedBy, Witnesses};
use super::tally::ClaimTally;
use crate::indexes::Indexes;

/// The word for Pods that wait because another full writer was noticed.
pub(super) const SECOND_WRITER: &str = "SecondWriter";

/// Knowledge of the controller.
#[derive(Debug, Default)]
pub struct State {
    /// The objects, and the links between them.
    pub index: Index,
    /// Which consumers have ended, and the order in which things were read.
    pub evidence: Evidence,
    /// Keys whose creation a quota refused.
    pub quota: QuotaWaits,
    /// Looks out for a second full writer.
    pub witnesses: Witnesses,
    /// Counts of claims, for metrics.
    pub tally: ClaimTally,
    /// Pods that wait for their claims, for metrics.
    pub waits: PodWaits,
    /// When consumers ended, for metrics.
    pub ends: Ends,
    /// Claims that are held for consumers that vanished.
    pub held: Held,
    /// The time of what is fed.
    pub(super) now: jiff::Timestamp,
}

impl controller::Index for State {
    type Key = Key;
    type Whole = Indexes;

    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        self.index.stores()
    }

    fn is_unserved(&self, kind: Kind) -> bool {
        self.index.is_unserved(kind)
    }

    fn at(&mut self, now: jiff::Timestamp) {
        self.now = now;
    }

    fn all_keys(&self) -> Vec<Key> {
        self.index.all_keys()
    }

    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (ns, name, record) in self.index.claims.iter() {
            let reserved = record.readable().map(|claim| &claim.facts.reserved);
            let foreign =
                |consumer: &&ConsumerReference| ReferenceKind::of(consumer) == ReferenceKind::Foreign;
            for consumer in reserved.into_iter().flatten().filter(foreign) {
                let ConsumerReference { api_group, resource, name: consumer, .. } = consumer;
                lines.push(format!("  {ns}/{name} held by {resource}.{api_group} {consumer}"));
            }
        }
        lines.push(format!("podgroups served: {:?}", self.index.groups_served));
        lines
    }
}

impl State {
    /// From now on nodes are watched, and claims are held for Pods that vanish from one.
    pub(super) fn guard(&mut self) {
        self.index.watches_nodes = true;
    }

    /// Whether claims are held for Pods that vanish.
    pub(super) fn is_guarded(&self) -> bool {
        self.index.watches_nodes
    }

    /// A Pod is not served because another full writer was noticed.
    pub(super) fn stopped_by_second_writer(&mut self, pod: &Key) {
        let record = self.index.pods.get(&pod.namespace, &pod.name);
        if let Some(uid) = record.map(|record| record.uid.clone()) {
            self.waits.blocked(&uid, SECOND_WRITER);
        }
    }

    /// Looks for the proof of a second writer in the names that a consumer publishes and did not
    /// publish before.
    pub(super) fn look_for_second_writer(
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
    pub(super) fn judge_names<'a>(
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
            let record = self.index.claims.get(namespace, claim).and_then(Record::readable);
            if let Some(record) = record {
                let by = NamedBy { namespace, uid, entry: &published.entry };
                self.witnesses.named(by, claim, &record.facts, self.now);
            }
        }
    }
}
