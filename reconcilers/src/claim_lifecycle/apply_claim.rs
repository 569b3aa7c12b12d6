//! Executes plans about claims.

use dragoman_crds::wire::{self, ConsumerReference};
use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::kind::{POD, RESOURCE_CLAIM};
use dragoman_machinery::refusal::{Refusal, Retry};
use dragoman_machinery::work::Verdict;
use serde::Deserialize;

use super::controller::ClaimLifecycle;
use super::ended::HowEnded;
use super::evidence::{self, ConsumerKind, Presence};
use super::facts::{ClaimFacts, PodFacts};
use super::index::Kept;
use super::key::Key;
use super::plan_claim::{ClaimPlan, ClaimSnapshot, ClaimStep, Confirmed, plan_claim};

/// Longest chain: confirm, release, unprotect, delete; twice that is a bug.
const STEPS: usize = 8;

impl ClaimLifecycle {
    /// Takes a claim as far as it can go in one go: each answer is the state that
    /// the next step is planned on, no watch in between.
    pub(super) async fn reconcile_claim(&self, key: &Key) -> Verdict {
        let (namespace, name) = (&*key.namespace, &*key.name);
        let Some(mut claim) = self.read(|index| ClaimSnapshot::take(index, namespace, name)) else {
            return Verdict::Done;
        };
        let mut confirmed = Confirmed::new();
        let mut last = None;
        for _ in 0..STEPS {
            match plan_claim(&claim, &confirmed, last) {
                ClaimPlan::Rest => return Verdict::Done,
                ClaimPlan::Confirm(positions) => {
                    for consumer in positions.iter().filter_map(|i| claim.facts.reserved.get(*i)) {
                        match self.confirm(namespace, consumer).await {
                            Ok(presence) => confirmed.insert(consumer.uid.to_string(), presence),
                            Err(refusal) => {
                                return Verdict::Failed(format!(
                                    "cannot confirm {}: {refusal}",
                                    consumer.name
                                ));
                            }
                        };
                    }
                }
                ClaimPlan::Send { step, write, abrupt } => {
                    let written = match self.send(key, Kept::Claims, &write).await {
                        Ok(written) => written,
                        Err(refusal) => return self.claim_refused(step, &refusal),
                    };
                    self.ground.metrics.step(step);
                    tracing::debug!(namespace, claim = name, ?step, "claim");
                    self.say_abrupt(&claim, &abrupt);
                    if step == ClaimStep::Delete {
                        return Verdict::Done;
                    }
                    match decode::<wire::ResourceClaim>(&written.body) {
                        Ok(newer) => claim = self.renewed(&claim, &newer.into()),
                        // Then the watch brings it, readable or not.
                        Err(_) => return Verdict::Done,
                    }
                    last = Some(step);
                }
            }
        }
        Verdict::Failed("the plan for the claim does not come to an end".to_owned())
    }

    fn renewed(&self, claim: &ClaimSnapshot, facts: &ClaimFacts) -> ClaimSnapshot {
        let ClaimSnapshot { namespace, name, uid, .. } = claim;
        self.read(|index| ClaimSnapshot::of(index, namespace, name, uid, facts, index.now()))
    }

    fn claim_refused(&self, step: ClaimStep, refusal: &Refusal) -> Verdict {
        self.ground.metrics.trouble(refusal.reason());
        match refusal.retry() {
            Retry::Never => Verdict::Done,
            // The watch brings what changed; the backoff is for when it does not.
            Retry::Conflict | Retry::Backoff | Retry::Change => {
                Verdict::Failed(format!("{step:?}: {refusal}"))
            }
        }
    }

    /// Asks the API server about a consumer.
    async fn confirm(&self, namespace: &str, consumer: &ConsumerReference) -> Result<Presence, Refusal> {
        #[derive(Deserialize)]
        struct Existing {
            metadata: wire::Meta,
        }
        // What is missing now was not seen to end: nothing can be said about how.
        let gone = Presence::Gone(HowEnded::Orderly);
        let api = &self.ground.api;
        match ConsumerKind::of(consumer) {
            ConsumerKind::Pod => {
                self.ground.machinery.live_get(POD.kind);
                match api.get::<wire::Pod>(POD, namespace, &consumer.name).await? {
                    Live::NotFound => Ok(gone),
                    Live::Found(pod) if pod.metadata.uid != consumer.uid => Ok(gone),
                    Live::Found(pod) => Ok(evidence::pod(&PodFacts::from(*pod))),
                }
            }
            ConsumerKind::PodGroup => {
                let Some(kind) = self.read(|index| index.groups_kind) else { return Ok(Presence::Foreign) };
                self.ground.machinery.live_get(kind.kind);
                match api.get::<Existing>(kind, namespace, &consumer.name).await {
                    Ok(Live::NotFound) => Ok(gone),
                    Ok(Live::Found(group)) if group.metadata.uid != consumer.uid => Ok(gone),
                    Ok(Live::Found(_)) => Ok(Presence::Alive),
                    Err(refusal) => {
                        if matches!(refusal, Refusal::Unserved(_)) {
                            self.ground.discovery.invalidate();
                        }
                        Err(refusal)
                    }
                }
            }
            ConsumerKind::Foreign => Ok(Presence::Foreign),
        }
    }

    /// Says which consumers vanished from under a running claim: the node may
    /// still hold the device (kubernetes/kubernetes#141471).
    fn say_abrupt(&self, claim: &ClaimSnapshot, positions: &[usize]) {
        for consumer in positions.iter().filter_map(|i| claim.facts.reserved.get(*i)) {
            self.ground.metrics.abrupt.inc();
            let note = format!(
                "released for {} {} (uid {}), which was removed while it may have been running: its \
                 node may still hold the device",
                consumer.resource, consumer.name, consumer.uid
            );
            let regarding = Self::regarding(RESOURCE_CLAIM, &claim.namespace, &claim.name, &claim.uid);
            self.event(regarding, "ConsumerVanished", "Release", note);
        }
    }
}
