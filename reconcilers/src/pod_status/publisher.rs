//! The write itself, and which generation of the field the API server keeps: shared by all controllers
//! that publish what claims take.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dragoman_accounting::claim::contribution::{Contribution, Generation};
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::api::decode;
use dragoman_machinery::controller::{Controller, Index, ObjectKey};
use dragoman_machinery::refusal::Refusal;

use super::shape::{GENERATIONS, is_kept, write};

/// How long it is taken for granted that the API server keeps no generation of the field, in
/// milliseconds. A control plane that is upgraded, or whose gate is switched on, is found by then.
const KEEPS_NOTHING: i64 = 600_000;

/// Publishes what the claims of Pods take in their status.
#[derive(Debug, Default)]
pub struct Publisher {
    /// The generation that the API server keeps, and when it was found out; absent while unknown.
    kept: Mutex<Option<(Option<Generation>, i64)>>,
}

/// The outcome of a publication.
#[derive(Debug)]
pub enum Published {
    /// The entries are in the status; the Pod as it is now.
    Kept(Box<Pod>),
    /// The API server keeps no generation of the field; it is asked again after this time.
    KeepsNothing(Duration),
    /// The API server has dropped the field, which it kept before.
    Dropped,
    /// The amounts do not fit into the generation; the text is for people.
    Inexpressible(String),
}

impl Publisher {
    /// Writes the contributions of claims into the status of a Pod at `now`, in milliseconds since the
    /// epoch.
    ///
    /// # Errors
    /// The API server refuses a write.
    pub async fn publish<I: Index<Key = ObjectKey>>(
        &self,
        kit: &Controller<I>,
        key: &ObjectKey,
        uid: &Name,
        contributions: &[Contribution],
        now: i64,
    ) -> Result<Published, Refusal> {
        let Scheduler::Aware(generation) = self.kept(kit, key, uid, contributions, now).await? else {
            return Ok(Published::KeepsNothing(self.asked_again(now)));
        };
        let write = match write(&key.namespace, &key.name, uid, contributions, generation) {
            Ok(write) => write,
            Err(why) => return Ok(Published::Inexpressible(why)),
        };
        match kit.send(key, &write).await {
            Ok(answer) => {
                let pod = decode::<Pod>(&answer.body)?;
                if is_kept(&pod, generation) {
                    return Ok(Published::Kept(Box::new(pod)));
                }
                self.forget();
                Ok(Published::Dropped)
            }
            Err(refusal) => {
                if matches!(&refusal, Refusal::Invalid(why) if is_undeclared(why)) {
                    self.forget();
                }
                Err(refusal)
            }
        }
    }

    /// What a kube-scheduler can read: the generation that the API server keeps. What is not known is asked with a Pod that
    /// has such contributions, and nothing is written.
    ///
    /// # Errors
    /// The API server refuses what is asked.
    pub(crate) async fn kept<I: Index<Key = ObjectKey>>(
        &self,
        kit: &Controller<I>,
        key: &ObjectKey,
        uid: &Name,
        contributions: &[Contribution],
        now: i64,
    ) -> Result<Scheduler, Refusal> {
        if let Some(known) = self.known(now) {
            return Ok(known);
        }
        let kept = probe(kit, key, uid, contributions).await?;
        tracing::info!(?kept, "generation of node-allocatable claim statuses that is kept");
        self.learnt(kept, now);
        Ok(kept.map_or(Scheduler::Unaware, Scheduler::Aware))
    }

    /// Takes what was published of a Pod back: its claims are not allocated any more, or are others. Returns
    /// whether it was written: nothing is while it is not known which generation is kept.
    ///
    /// # Errors
    /// The API server refuses the write.
    pub(crate) async fn withdraw<I: Index<Key = ObjectKey>>(
        &self,
        kit: &Controller<I>,
        key: &ObjectKey,
        uid: &Name,
        now: i64,
    ) -> Result<bool, Refusal> {
        let Some(Scheduler::Aware(generation)) = self.known(now) else { return Ok(false) };
        let Ok(write) = write(&key.namespace, &key.name, uid, &[], generation) else { return Ok(false) };
        kit.send(key, &write).await.map(|_| true)
    }

    /// What a kube-scheduler can read, as far as it is known what the API server keeps.
    pub(crate) fn known(&self, now: i64) -> Option<Scheduler> {
        match *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((None, at)) if !(at..at + KEEPS_NOTHING).contains(&now) => None,
            known => known.map(|(kept, _)| kept.map_or(Scheduler::Unaware, Scheduler::Aware)),
        }
    }

    /// The wait until an API server that keeps no generation is asked again.
    fn asked_again(&self, now: i64) -> Duration {
        let known = *self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.map_or(now, |(_, at)| at);
        Duration::from_millis((at + KEEPS_NOTHING - now).clamp(0, KEEPS_NOTHING).unsigned_abs())
    }

    /// Takes in what a Pod's dry runs found; another Pod's may have found a generation meanwhile.
    fn learnt(&self, kept: Option<Generation>, now: i64) {
        let mut known = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_some() || !matches!(*known, Some((Some(_), _))) {
            *known = Some((kept, now));
        }
    }

    /// The API server has changed: it is asked again.
    fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Finds out by dry runs which generation is kept.
async fn probe<I: Index<Key = ObjectKey>>(
    kit: &Controller<I>,
    key: &ObjectKey,
    uid: &Name,
    contributions: &[Contribution],
) -> Result<Option<Generation>, Refusal> {
    let mut refused = None;
    for generation in GENERATIONS {
        let Ok(question) = write(&key.namespace, &key.name, uid, contributions, generation) else {
            continue;
        };
        match kit.send(key, &question.dry()).await {
            Ok(answer) if is_kept(&decode::<Pod>(&answer.body)?, generation) => {
                return Ok(Some(generation));
            }
            // It drops the field, or does not know it.
            Ok(_) => {}
            Err(Refusal::Invalid(why)) if is_undeclared(&why) => {}
            // That is about this Pod, and says nothing about the others.
            Err(refusal @ Refusal::Invalid(_)) => refused = Some(refusal),
            Err(other) => return Err(other),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Whether the API server does not have the field at all.
fn is_undeclared(why: &str) -> bool {
    why.contains("field not declared in schema")
}
