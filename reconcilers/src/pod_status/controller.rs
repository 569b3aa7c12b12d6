//! The controller: its part of the kit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dragoman_accounting::claim::contribution::{Contribution, Generation};
use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::api::decode;
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, ObjectKey, Reconcile, Running, Verdict, regarding,
};
use dragoman_machinery::kind::POD;
use dragoman_machinery::mode::Mode;
use dragoman_machinery::refusal::Refusal;
use prometheus_client::metrics::counter::Counter;

use super::index::{PodStatuses, recorded};
use super::plan::{Conflict, Mine, Plan, plan};
use super::rights;
use super::shape::{GENERATIONS, is_kept, write};
use crate::cluster::SharedCluster;

/// Its row in the table of controllers; `cluster` is filled by that of the ledger, which comes before.
pub fn spec(cluster: SharedCluster) -> ControllerSpec {
    ControllerSpec {
        name: NAME,
        works: |mode| mode >= Mode::Assist,
        rights: |mode| match mode {
            Mode::Observe => rights::OBSERVE,
            Mode::Assist => rights::ASSIST,
            Mode::Own => &[],
        },
        start: Box::new(move |assembly| PodStatus::start(assembly, Arc::clone(&cluster))),
    }
}

const NAME: &str = "pod_status";
/// How long it is taken for granted that the API server keeps no generation of the field, in
/// milliseconds. A control plane that is upgraded, or whose gate is switched on, is found by then.
const KEEPS_NOTHING: i64 = 600_000;

/// The controller.
struct PodStatus {
    kit: Arc<Controller<PodStatuses>>,
    cluster: SharedCluster,
    /// The generation that the API server keeps, and when it was found out; absent while unknown.
    kept: Mutex<Option<(Option<Generation>, i64)>>,
    written: Counter,
}

impl PodStatus {
    fn start(assembly: &mut Assembly<'_>, cluster: SharedCluster) -> Arc<dyn Running> {
        let written = Counter::default();
        assembly.registry.register(
            "dragoman_pod_status_written",
            "Pods whose status was given what their claims take from the node",
            written.clone(),
        );
        let kit = assembly.controller::<PodStatuses>(NAME, NAME);
        kit.watch::<Pod>(&mut assembly.watches);
        Arc::new(Self { kit, cluster, kept: Mutex::default(), written })
    }

    fn plan(&self, key: &ObjectKey, now: i64) -> Option<(Name, Plan)> {
        let (uid, recorded, mine) = self.kit.read(|index| {
            let (uid, recorded) = index.pod(key)?;
            Some((uid.clone(), recorded, index.mine.get(uid).copied()))
        })?;
        let claims = self.cluster.get()?.read(|cluster| cluster.ledger().claims_of_pod(&uid));
        Some((uid, plan(recorded, claims, mine.as_ref(), now)))
    }

    /// The generation that is known to be kept. `Err`: none is.
    fn known(&self, now: i64) -> Option<Result<Generation, i64>> {
        match *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((Some(generation), _)) => Some(Ok(generation)),
            Some((None, at)) if (at..at + KEEPS_NOTHING).contains(&now) => {
                Some(Err(at + KEEPS_NOTHING - now))
            }
            Some((None, _)) | None => None,
        }
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

    /// Finds out by dry runs which generation is kept.
    async fn probe(
        &self,
        key: &ObjectKey,
        uid: &Name,
        contributions: &[Contribution],
    ) -> Result<Option<Generation>, Refusal> {
        let mut refused = None;
        for generation in GENERATIONS {
            let Ok(question) = write(&key.namespace, &key.name, uid, contributions, generation) else {
                continue;
            };
            match self.kit.send(key, &question.dry()).await {
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

    async fn publish(
        &self,
        key: &ObjectKey,
        uid: &Name,
        contributions: &[Contribution],
        now: i64,
    ) -> Verdict {
        let generation = match self.known(now) {
            Some(Ok(generation)) => generation,
            Some(Err(wait)) => return Verdict::After(Duration::from_millis(wait.unsigned_abs())),
            None => match self.probe(key, uid, contributions).await {
                Ok(kept) => {
                    tracing::info!(?kept, "generation of node-allocatable claim statuses that is kept");
                    self.learnt(kept, now);
                    let Some(generation) = kept else { return Verdict::After(Duration::from_secs(600)) };
                    generation
                }
                Err(refusal) => return self.refused(key, uid, refusal, now),
            },
        };
        let write = match write(&key.namespace, &key.name, uid, contributions, generation) {
            Ok(write) => write,
            Err(why) => return Verdict::Failed(why),
        };
        match self.kit.send(key, &write).await {
            Ok(answer) => match decode::<Pod>(&answer.body) {
                Ok(pod) if is_kept(&pod, generation) => {
                    self.written.inc();
                    self.kit.note(|index| {
                        if index.pod(key).is_none_or(|(known, _)| known != uid) {
                            return;
                        }
                        let mine = index.mine.entry(uid.clone()).or_default();
                        let (recorded, times) = (recorded(&pod), mine.times + 1);
                        *mine = Mine { recorded, times, at: now, ..Mine::default() };
                    });
                    Verdict::Done
                }
                Ok(_) => {
                    self.forget();
                    Verdict::Failed("the API server has dropped the field since it was asked".to_owned())
                }
                Err(refusal) => self.refused(key, uid, refusal, now),
            },
            Err(refusal) => {
                if matches!(&refusal, Refusal::Invalid(why) if is_undeclared(why)) {
                    self.forget();
                }
                self.refused(key, uid, refusal, now)
            }
        }
    }

    /// What a refusal means. An apply without force conflicts with the manager that owns the field: its
    /// entries may be on their way to the index.
    fn refused(&self, key: &ObjectKey, uid: &Name, refusal: Refusal, now: i64) -> Verdict {
        match refusal {
            // The Pod is gone: its watch says so soon.
            Refusal::NotFound | Refusal::Replaced => Verdict::Done,
            Refusal::OwnedByAnother(_) => {
                self.kit.note(|index| {
                    if index.pod(key).is_some_and(|(known, _)| known == uid) {
                        let mine = index.mine.entry(uid.clone()).or_default();
                        *mine = Mine { times: mine.times + 1, at: now, owned: true, ..*mine };
                    }
                });
                Verdict::Failed(refusal.to_string())
            }
            other => Verdict::Failed(other.to_string()),
        }
    }

    fn stop(&self, key: &ObjectKey, uid: &Name, conflict: Conflict) {
        self.kit.note(|index| index.mine.entry(uid.clone()).or_default().stopped = true);
        let about = regarding(POD, &key.namespace, &key.name, uid);
        self.kit.warn(about, conflict.reason(), "Publish", conflict.note().to_owned());
    }
}

/// Whether the API server does not have the field at all.
fn is_undeclared(why: &str) -> bool {
    why.contains("field not declared in schema")
}

impl Reconcile for PodStatus {
    type Index = PodStatuses;

    fn controller(&self) -> &Arc<Controller<PodStatuses>> {
        &self.kit
    }

    async fn reconcile(&self, key: &ObjectKey) -> Verdict {
        let now = clock::now().as_millisecond();
        match self.plan(key, now) {
            None | Some((_, Plan::Rest)) => Verdict::Done,
            Some((_, Plan::Wait(wait))) => Verdict::After(Duration::from_millis(wait.unsigned_abs())),
            Some((uid, Plan::Write(contributions))) => self.publish(key, &uid, &contributions, now).await,
            Some((uid, Plan::Stop(conflict))) => {
                self.stop(key, &uid, conflict);
                Verdict::Done
            }
        }
    }
}
