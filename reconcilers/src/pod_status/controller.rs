//! The controller: its part of the kit.

use std::sync::Arc;

use dragoman_accounting::claim::contribution::{Contribution, Generation};
use dragoman_accounting::cluster::ClaimsOfPod;
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, Failure, ObjectKey, Outcome, Reconcile, Running, regarding,
};
use dragoman_machinery::kind::{Kind, POD};
use dragoman_machinery::metrics::Declare as _;
use dragoman_machinery::mode::Mode;
use dragoman_objects::{Name, Pod};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::index::PodStatuses;
use super::pass::{Notice, PublishPass};
use super::plan::{Conflict, OwnWrites, Plan, plan};
use super::publisher::Publisher;
use super::rights;
use super::shape::{parted, uncounted};

/// Returns the row of the Pod status controller in the table of controllers.
pub fn spec(publisher: Arc<Publisher>) -> ControllerSpec {
    let start = move |assembly: &mut Assembly<'_>| PodStatus::start(assembly, Arc::clone(&publisher));
    ControllerSpec {
        works: |mode| mode >= Mode::Assist,
        rights: |mode| match mode {
            Mode::Observe => rights::OBSERVE,
            Mode::Assist => rights::ASSIST,
            Mode::Own => &[],
        },
        needs: &["ledger"],
        ..ControllerSpec::new(NAME, Box::new(start))
    }
}

const NAME: &str = "pod_status";

/// The controller.
struct PodStatus {
    kit: Arc<Controller<PodStatuses>>,
    publisher: Arc<Publisher>,
    written: Counter,
}

impl PodStatus {
    fn start(assembly: &mut Assembly<'_>, publisher: Arc<Publisher>) -> Arc<dyn Running> {
        let written = assembly.registry.declare(
            "dragoman_pod_status_written",
            "Pods whose status was given what their claims take from the node",
        );
        let kit = assembly.controller::<PodStatuses>(NAME, NAME);
        kit.watch::<Pod>(&mut assembly.watches);
        Arc::new(Self { kit, publisher, written })
    }

    fn plan(&self, key: &ObjectKey, now: Instant) -> Option<(Name, Plan)> {
        self.kit.read_all(|indexes| {
            let index = &indexes.pod_status;
            let (uid, recorded) = index.pod(key)?;
            let claims = indexes.cluster.ledger().claims_of_pod(uid);
            Some((uid.clone(), plan(recorded, claims, index.mine.get(uid), now)))
        })
    }

    /// Whether holder Pods hold what the status of a Pod has no place for.
    fn has_holders(&self) -> bool {
        self.kit.read_all(|indexes| indexes.holders.is_on())
    }

    /// Gives a Pod the entries for what its claims take, as far as the API server takes them.
    async fn publish(&self, key: &ObjectKey, uid: &Name, claims: ClaimsOfPod, now: Instant) -> Outcome {
        let known = self.publisher.known(now);
        if known == Some(Scheduler::Unaware) {
            return Outcome::After(self.publisher.asked_again(now));
        }
        // Until it is known what is kept, the newest generation takes most.
        let generation =
            if let Some(Scheduler::Aware(generation)) = known { generation } else { Generation::V1_38 };
        let (taken, rest) = parted(&claims.contributions, claims.extended.as_deref(), generation);
        if known.is_some() || taken.is_empty() {
            self.say_uncounted(key, uid, &rest);
        }
        if taken.is_empty() {
            return Outcome::Done;
        }
        let mut pass = match PublishPass::new(key, uid, &taken, known) {
            Ok(pass) => pass,
            Err(why) => return Outcome::Failed(Failure::Other(why)),
        };
        let learn = |pass: &mut PublishPass| {
            let report = std::mem::take(&mut pass.report);
            report.into_iter().for_each(|said| self.learn(key, uid, &said, now));
        };
        self.kit.carry_out(key, &mut pass, learn).await
    }

    /// Says of a Pod, once, what the API server does not take.
    fn say_uncounted(&self, key: &ObjectKey, uid: &Name, rest: &[Contribution]) {
        let Some(text) = uncounted(rest, self.has_holders()) else { return };
        let tell = |mine: &mut OwnWrites| std::mem::replace(&mut mine.told, true);
        let told = self.kit.update(|index| index.remember(key, uid, tell));
        if told == Some(false) {
            let about = regarding(POD, &key.namespace, &key.name, uid);
            self.kit.warn(about, "PodStatusIncomplete", "Publish", text);
        }
    }

    fn learn(&self, key: &ObjectKey, uid: &Name, said: &Notice, now: Instant) {
        let note = |change: &dyn Fn(&mut OwnWrites)| {
            self.kit.update(|index| index.remember(key, uid, change));
        };
        match *said {
            Notice::Keeps(kept) => self.publisher.learnt(kept, now),
            Notice::Changed => self.publisher.forget(),
            Notice::Written(recorded) => {
                self.written.inc();
                note(&|mine| {
                    let (times, told) = (mine.times + 1, mine.told);
                    *mine = OwnWrites { recorded, times, at: Some(now), told, ..OwnWrites::default() };
                });
            }
            Notice::OwnedByAnother => {
                note(&|mine| {
                    *mine = OwnWrites { times: mine.times + 1, at: Some(now), owned: true, ..*mine }
                });
            }
        }
    }

    fn stop(&self, key: &ObjectKey, uid: &Name, conflict: Conflict) {
        self.kit.update(|index| index.remember(key, uid, |mine| mine.stopped = true));
        // What the status has no place for, a holder Pod holds.
        let has_holders = self.has_holders();
        if conflict == Conflict::Unrepresentable && has_holders {
            return;
        }
        let about = regarding(POD, &key.namespace, &key.name, uid);
        let held = if has_holders && conflict != Conflict::Replaced {
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

    fn missing_kind(&self) -> Option<Kind> {
        self.kit.read_all(|indexes| indexes.cluster.missing_kind())
    }

    async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        let now = Instant::now();
        match self.plan(key, now) {
            None | Some((_, Plan::Rest)) => Outcome::Done,
            Some((_, Plan::Wait(wait))) => Outcome::After(wait),
            Some((uid, Plan::Write(claims))) => self.publish(key, &uid, claims, now).await,
            Some((uid, Plan::Stop(conflict))) => {
                self.stop(key, &uid, conflict);
                Outcome::Done
            }
        }
    }
}
