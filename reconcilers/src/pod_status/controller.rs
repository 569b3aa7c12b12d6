//! The controller: its part of the kit.

use std::sync::Arc;
use std::time::Duration;

use dragoman_accounting::claim::contribution::Contribution;
use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, ObjectKey, Reconcile, Running, Verdict, regarding,
};
use dragoman_machinery::kind::{Kind, POD};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::refusal::Refusal;
use prometheus_client::metrics::counter::Counter;

use super::index::{PodStatuses, recorded};
use super::plan::{Conflict, Mine, Plan, plan};
use super::publisher::{Published, Publisher};
use super::rights;
use crate::cluster::{Cluster, SharedCluster};
use crate::holders::SharedHolders;

/// Its row in the table of controllers; `cluster` is filled by that of the ledger, which comes before, and `holders` by that
/// of holder Pods.
pub fn spec(
    cluster: SharedCluster,
    publisher: Arc<Publisher>,
    holders: Arc<SharedHolders>,
) -> ControllerSpec {
    ControllerSpec {
        name: NAME,
        works: |mode| mode >= Mode::Assist,
        rights: |mode| match mode {
            Mode::Observe => rights::OBSERVE,
            Mode::Assist => rights::ASSIST,
            Mode::Own => &[],
        },
        asked: &[],
        start: Box::new(move |assembly| {
            let (cluster, holders) = (Arc::clone(&cluster), Arc::clone(&holders));
            PodStatus::start(assembly, cluster, Arc::clone(&publisher), holders)
        }),
    }
}

const NAME: &str = "pod_status";

/// The controller.
struct PodStatus {
    kit: Arc<Controller<PodStatuses>>,
    cluster: SharedCluster,
    publisher: Arc<Publisher>,
    holders: Arc<SharedHolders>,
    written: Counter,
}

impl PodStatus {
    fn start(
        assembly: &mut Assembly<'_>,
        cluster: SharedCluster,
        publisher: Arc<Publisher>,
        holders: Arc<SharedHolders>,
    ) -> Arc<dyn Running> {
        let written = Counter::default();
        assembly.registry.register(
            "dragoman_pod_status_written",
            "Pods whose status was given what their claims take from the node",
            written.clone(),
        );
        let kit = assembly.controller::<PodStatuses>(NAME, NAME);
        kit.watch::<Pod>(&mut assembly.watches);
        Arc::new(Self { kit, cluster, publisher, holders, written })
    }

    fn plan(&self, key: &ObjectKey, now: i64) -> Option<(Name, Plan)> {
        let (uid, recorded, mine) = self.kit.read(|index| {
            let (uid, recorded) = index.pod(key)?;
            Some((uid.clone(), recorded, index.mine.get(uid).copied()))
        })?;
        let claims = self.cluster.get()?.read(|cluster| cluster.ledger().claims_of_pod(&uid));
        Some((uid, plan(recorded, claims, mine.as_ref(), now)))
    }

    async fn publish(
        &self,
        key: &ObjectKey,
        uid: &Name,
        contributions: &[Contribution],
        now: i64,
    ) -> Verdict {
        match self.publisher.publish(&self.kit, key, uid, contributions, now).await {
            Ok(Published::Kept(pod)) => {
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
            Ok(Published::KeepsNothing(wait)) => Verdict::After(wait),
            Ok(Published::Dropped) => {
                Verdict::Failed("the API server has dropped the field since it was asked".to_owned())
            }
            Ok(Published::Inexpressible(why)) => Verdict::Failed(why),
            Err(refusal) => self.refused(key, uid, refusal, now),
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
        // What the status has no place for, a holder Pod holds.
        if conflict == Conflict::Inexpressible && self.holders.is_on() {
            return;
        }
        let about = regarding(POD, &key.namespace, &key.name, uid);
        let held = if self.holders.is_on() && conflict != Conflict::Replaced {
            "; a holder Pod holds their cpu and memory on the node"
        } else {
            ""
        };
        self.kit.warn(about, conflict.reason(), "Publish", format!("{}{held}", conflict.note()));
    }
}

impl Reconcile for PodStatus {
    type Index = PodStatuses;

    fn controller(&self) -> &Arc<Controller<PodStatuses>> {
        &self.kit
    }

    fn lacks(&self) -> Option<Kind> {
        self.cluster.get()?.read(Cluster::lacks)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Verdict {
        let now = clock::steady().as_millisecond();
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
