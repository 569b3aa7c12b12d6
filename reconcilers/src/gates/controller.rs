//! The controller: its part of the kit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, Index as _, ObjectKey, Outcome, Reconcile, Running, regarding,
};
use dragoman_machinery::kind::{DEVICE_CLASS, Kind, POD};
use dragoman_machinery::mode::Mode;
use dragoman_objects::{DeviceClass, Name, Node, Pod, ResourceClaim};
use tokio::time::Instant;

use super::decide::{Decided, Look, decide};
use super::index::Gates;
use super::memory::{Memory, Nominated};
use super::metrics::GateMetrics;
use super::pass::{GatePass, Notice};
use super::released::assume;
use super::rights;
use crate::cluster::Assumed;
use crate::indexes::Indexes;
use crate::pod_status::Publisher;
use crate::settings::{DefaultAllocator, declared};
use dragoman_crds::protocol::LaterGates;

/// Options of the gate controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The allocator of claims of gated Pods that name none.
    pub default_allocator: Option<Box<str>>,
    /// The age at which a Pod that no allocator has found a node for is let go; absent: never. An
    /// autoscaler sees only Pods without gates.
    pub let_go_after: Option<Duration>,
    /// Time after which a Pod whose gate is open and whose node cannot take it is deleted, if it is made
    /// again; absent: never.
    pub delete_unbound_after: Option<Duration>,
    /// The gates of other controllers that are opened after ours.
    pub later_gates: LaterGates,
}

/// Returns the row of the gate controller in the table of controllers.
pub fn spec(options: Options, publisher: Arc<Publisher>) -> ControllerSpec {
    let asked = if options.delete_unbound_after.is_some() { rights::DELETE_UNBOUND } else { &[] };
    let start = move |assembly: &mut Assembly<'_>| {
        GateKeeper::start(assembly, options.clone(), Arc::clone(&publisher))
    };
    ControllerSpec {
        works: |mode| mode >= Mode::Assist,
        rights: |mode| match mode {
            Mode::Observe => rights::OBSERVE,
            Mode::Assist => rights::ASSIST,
            Mode::Own => &[],
        },
        asked,
        needs: &["ledger"],
        // The right to patch every Pod is for those who use it.
        on_by_default: false,
        settings: || [declared::<super::Settings>(), declared::<DefaultAllocator>()].concat(),
        ..ControllerSpec::new(NAME, Box::new(start))
    }
}

/// The name of the controller.
pub const NAME: &str = "gates";

/// The controller.
struct GateKeeper {
    kit: Arc<Controller<Gates>>,
    options: Options,
    publisher: Arc<Publisher>,
    metrics: GateMetrics,
    memory: Mutex<Memory>,
}

/// A Pod that is worked on: its uid, and the time of the look.
struct Work<'a> {
    key: &'a ObjectKey,
    uid: Name,
    now: Instant,
}

impl GateKeeper {
    fn start(assembly: &mut Assembly<'_>, options: Options, publisher: Arc<Publisher>) -> Arc<dyn Running> {
        let metrics = GateMetrics::register(assembly.registry);
        let kit = assembly.controller::<Gates>(NAME, NAME);
        kit.update(|index| index.later.clone_from(&options.later_gates));
        kit.watch::<Pod>(&mut assembly.watches);
        kit.watch::<ResourceClaim>(&mut assembly.watches);
        kit.watch::<Node>(&mut assembly.watches);
        kit.watch::<DeviceClass>(&mut assembly.watches);
        Arc::new(Self { kit, options, publisher, metrics, memory: Mutex::default() })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a Pod; nothing where the Pod is gone, has ended, is being deleted, or is bound and its condition does not say
    /// otherwise: the ledger of the cluster has it, or nothing does.
    fn decide<'a>(&self, key: &'a ObjectKey) -> Option<(Work<'a>, GatePass)> {
        let now = Instant::now();
        let scheduler = self.publisher.known(now);
        // Before the facts are read.
        let is_current = self.kit.context.journal.has_caught_up();
        self.kit.update_all(|Indexes { gates: index, cluster, holders, assumed, .. }| {
            let mut memory = self.memory();
            let Some((uid, pod)) = index.pod(key).filter(|(_, pod)| !pod.deleting) else {
                holders.forget(assumed, key);
                index.waits_for(None, key);
                memory.forget(key);
                return None;
            };
            let look = Look {
                key,
                uid: uid.clone(),
                claims: index.claims_of(&key.namespace, &uid, &pod),
                pod,
                is_current,
                now,
                time: clock::now(),
                options: &self.options,
                index,
                cluster,
                scheduler,
            };
            let Decided { steps, then, waits_for } = decide(&look, assumed, holders, &mut memory);
            index.waits_for(waits_for.as_ref(), key);
            let pass = GatePass::new(key, steps, then);
            Some((Work { key, uid, now }, pass))
        })
    }

    /// Takes in what a pass has to tell, and passes on what is for people.
    fn learn(&self, work: &Work<'_>, said: Notice) {
        let Work { key, uid, now } = work;
        self.memory().learn(key, &said, *now);
        let ObjectKey { namespace, name: pod } = key;
        match said {
            Notice::Warning(reason, action, note) => {
                self.kit.warn(regarding(POD, namespace, pod, uid), reason.word(), action, note);
            }
            Notice::Refused(claim, node, why) => {
                tracing::info!(%namespace, %pod, %claim, %node, why, "allocation refused");
            }
            Notice::Rejected => {
                self.metrics.rejected.inc();
            }
            Notice::NotNominated(_, error) => tracing::warn!(%namespace, %pod, error, "no nomination"),
            Notice::Keeps(kept) => self.publisher.learnt(kept, *now),
            Notice::Changed => self.publisher.forget(),
            Notice::Opened(why, pin) => {
                self.metrics.released.inc();
                tracing::info!(%namespace, %pod, why = why.word(), pin = pin.as_deref(), "gate opened");
            }
            Notice::Deleted(why) => tracing::info!(%namespace, %pod, why, "deleted"),
            Notice::Condition(_)
            | Notice::MessageRefused
            | Notice::TakesOut(..)
            | Notice::NotTakenOut(_)
            | Notice::Nominated(_)
            | Notice::Published
            | Notice::Withdrawn => {}
        }
    }
}

impl Reconcile for GateKeeper {
    type Index = Gates;

    fn controller(&self) -> &Arc<Controller<Gates>> {
        &self.kit
    }

    fn missing_kind(&self) -> Option<Kind> {
        self.kit.read_all(|Indexes { cluster, gates, .. }| {
            cluster.missing_kind().or_else(|| gates.lacks_classes.then_some(DEVICE_CLASS))
        })
    }

    async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        let Some((work, mut pass)) = self.decide(key) else { return Outcome::Done };
        let learn = |pass: &mut GatePass| {
            std::mem::take(&mut pass.report).into_iter().for_each(|said| self.learn(&work, said));
        };
        self.kit.carry_out(key, &mut pass, learn).await
    }

    /// Before the first gate is opened, every Pod that was released and is not bound yet is charged.
    fn on_elected(&self) {
        self.memory().nominated = Nominated::default();
        self.kit.update_all(|Indexes { gates: index, cluster, assumed, .. }| {
            *assumed = Assumed::default();
            for key in index.all_keys() {
                let Some((uid, pod)) = index.pod(&key) else { continue };
                if pod.gate.is_none() && !pod.is_bound {
                    let claims = index.claims_of(&key.namespace, &uid, &pod);
                    assume(index, cluster, assumed, &key, &pod, &claims);
                }
            }
        });
    }

    fn measure(&self) {
        let (assumed, bypassed) = self.kit.read_all(|indexes| {
            (indexes.assumed.len(), indexes.cluster.bypassed(indexes.gates.gated_namespaces()))
        });
        self.metrics.measure(&self.memory().closed, assumed, bypassed, Instant::now());
    }
}
