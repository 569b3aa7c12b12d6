//! The controller: its part of the kit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_accounting::per_resource::Units;
use dragoman_accounting::resource::Resource;
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, ObjectKey, Outcome, Reconcile, Running,
};
use dragoman_machinery::kind::{Kind, NODE_ALLOCATABLE_DRA_CLAIM_STATE as STATE};
use dragoman_machinery::lease::Lease;
use dragoman_machinery::metrics::Declare as _;
use dragoman_machinery::mode::Mode;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::Scope;
use dragoman_machinery::watch::Selectors;
use dragoman_machinery::write::Write;
use dragoman_objects::{Node, Pod};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::index::{HolderFacts, Holders, SCHEDULER};
use super::plan::{Owner, Plan, Snapshot, create, delete, nominate, plan, raise, surplus};
use super::{rights, room};
use crate::cluster::Charged;
use crate::indexes::Indexes;
use crate::ledger;
use crate::pod_status::Publisher;

/// Returns the row of the holder controller in the table of controllers.
pub fn spec(publisher: Arc<Publisher>) -> ControllerSpec {
    let start = move |assembly: &mut Assembly<'_>| HolderPods::start(assembly, Arc::clone(&publisher));
    ControllerSpec {
        works: |mode| mode >= Mode::Assist,
        // It sees what the ledger sees.
        confined: |namespace| {
            let own = Scope { namespace: Some(namespace.to_owned()), name: None };
            let lease = Scope { namespace: None, name: Some(SCHEDULER.1) };
            vec![(own, rights::RIGHTS), (lease, rights::OF_THE_SCHEDULER)]
        },
        needs: &["ledger"],
        on_by_default: false,
        ..ControllerSpec::new(NAME, Box::new(start))
    }
}

/// The name of the controller.
pub const NAME: &str = "holders";
/// Wait before another look at a node whose holder was nominated or misses the object that it belongs to, or
/// whose last write the watch has not brought yet.
const AGAIN: Duration = Duration::from_secs(1);

/// The controller.
struct HolderPods {
    kit: Arc<Controller<Holders>>,
    publisher: Arc<Publisher>,
    namespace: Arc<str>,
    paces: Mutex<HashMap<Arc<str>, NodeTimers>>,
    pods: Gauge,
}

/// The times of a node.
#[derive(Debug, Clone, Copy, Default)]
struct NodeTimers {
    /// Since when its holders hold too much.
    idle: Option<Instant>,
    /// Since when one of them is seen as it is being deleted.
    leaving: Option<Instant>,
    /// When the last holder was made, and how many in a row.
    made: Option<(Instant, u32)>,
    /// When the ledger was last asked for the object that a holder belongs to. It looks at holders each time it is asked.
    asked: Option<Instant>,
}

/// Wait before another look while it is not known what the API server keeps.
const UNKNOWN: Duration = Duration::from_secs(5);
/// A holder that stayed so long was made for good.
const STAYED: Duration = Duration::from_mins(2);

impl HolderPods {
    fn start(assembly: &mut Assembly<'_>, publisher: Arc<Publisher>) -> Arc<dyn Running> {
        let pods = assembly.registry.declare("dragoman_holder_pods", "Nodes that have a holder Pod");
        let namespace = Arc::clone(&assembly.context.namespace);
        let kit = assembly.controller::<Holders>(NAME, NAME);
        kit.update(|index| (index.namespace, index.is_on) = (Arc::clone(&namespace), true));
        kit.watch::<Pod>(&mut assembly.watches);
        kit.watch::<Node>(&mut assembly.watches);
        let (_, lease) = SCHEDULER;
        let selectors = Selectors { fields: format!("metadata.name={lease}"), ..Selectors::default() };
        kit.watch_selected::<Lease>(&mut assembly.watches, selectors);
        let paces = Mutex::default();
        Arc::new(Self { kit, publisher, namespace, paces, pods })
    }

    fn paces(&self) -> MutexGuard<'_, HashMap<Arc<str>, NodeTimers>> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self, node: &Arc<str>, now: Instant) -> Plan {
        let by = self.publisher.known(now);
        self.kit.read_all(|Indexes { holders: index, cluster, assumed, .. }| {
            let charged = Charged { cluster, assumed };
            let required = room::required(charged, node, by);
            let is_uncertain = !room::is_certain(charged, node);
            let holders: Vec<&HolderFacts> = index.of(node).into_iter().map(|of| &**of).collect();
            let mut paces = self.paces();
            let pace = paces.entry(Arc::clone(node)).or_default();
            let more = |required: &Units| {
                let surplus = surplus(&index.counted(node), required);
                [Resource::Cpu, Resource::Memory].into_iter().any(|resource| surplus.get(resource) > 0)
            };
            let is_idle = !is_uncertain && required.as_ref().is_some_and(more);
            pace.idle = if is_idle { pace.idle.or(Some(now)) } else { None };
            let is_leaving = holders.iter().any(|of| of.is_leaving());
            pace.leaving = if is_leaving { pace.leaving.or(Some(now)) } else { None };
            let NodeTimers { idle, leaving, made, .. } = *pace;
            if holders.is_empty() && required.as_ref().is_none_or(Units::is_empty) {
                paces.remove(node);
            }
            let (has_node, is_awaited) = (index.has_node(node), index.is_crowded(node));
            let (scheduler, has_waiting, ours) = (index.scheduler(), index.has_waiting(node), &index.ours);
            let snapshot = Snapshot {
                has_node,
                required,
                is_uncertain,
                holders,
                idle,
                leaving,
                is_awaited,
                has_waiting,
                ours,
                scheduler,
                made,
            };
            plan(node, &snapshot, now)
        })
    }

    /// The published ledger of the node, or nothing while it is not there.
    fn owner(&self, node: &str) -> Option<Owner> {
        let uid =
            self.kit.read_all(|indexes| Some(indexes.cluster.published.get("", node)?.uid.to_string()))?;
        Some(Owner { kind: (STATE.api_version(), STATE.kind), uid })
    }

    /// Wakes the Pods that wait for the holders of a node, if these suit.
    fn wake(&self, node: &Arc<str>, now: Instant) {
        let Some(by) = self.publisher.known(now) else { return };
        self.kit.update_all(|Indexes { holders, cluster, assumed, .. }| {
            holders.wake(Charged { cluster, assumed }, node, by);
        });
    }

    /// Whether claims take something, and it is not known what kube-scheduler sees of that.
    fn is_unknown(&self, node: &str, now: Instant) -> bool {
        let by = self.publisher.known(now);
        self.kit.read_all(|Indexes { cluster, assumed, .. }| {
            room::required(Charged { cluster, assumed }, node, by).is_none()
        })
    }

    /// The write of a plan; `Err`: the object that a new holder belongs to is not there yet.
    fn write(&self, node: &Arc<str>, next: &Plan) -> Result<Option<Write>, ()> {
        let found = |name: &str| {
            self.kit.read(|index| index.of(node).into_iter().find(|of| *of.name == *name).cloned())
        };
        Ok(match next {
            Plan::Rest | Plan::Wait(_) => None,
            Plan::Create(name, units) => {
                let owner = self.owner(node).ok_or(())?;
                Some(create(&self.namespace, node, name.clone(), &owner, units))
            }
            Plan::Nominate(name) => found(name).map(|of| {
                let now = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                nominate(&self.namespace, &of, &self.kit.read(Holders::scheduler), &now)
            }),
            Plan::Raise(name, units) => found(name).map(|of| raise(&self.namespace, &of, units)),
            Plan::Delete(name) => found(name).map(|of| delete(&self.namespace, &of)),
        })
    }

    /// Whether a holder may still be deleted: a gate may have been opened because of it since that was decided. If so, no gate is
    /// opened because of it any more.
    fn gives_up(&self, node: &Arc<str>, name: &str, now: Instant) -> bool {
        let by = self.publisher.known(now);
        self.kit.update_all(|Indexes { holders, cluster, assumed, .. }| {
            let of = holders.of(node).into_iter().find(|of| *of.name == *name);
            let Some(uid) = of.map(|of| of.guard.uid.clone()) else { return true };
            let required = room::required(Charged { cluster, assumed }, node, by);
            holders.give_up(node, &uid, required.as_ref())
        })
    }

    /// Lets the ledger publish the object that a holder belongs to.
    fn ask_for_owner(&self, key: &ObjectKey, now: Instant) {
        let mut paces = self.paces();
        let pace = paces.entry(Arc::clone(&key.name)).or_default();
        if pace.asked.is_some_and(|asked| now < asked + AGAIN) {
            return;
        }
        pace.asked = Some(now);
        self.kit.wake(ledger::NAME, key.clone());
    }

    fn note_made(&self, node: &Arc<str>, now: Instant) {
        let mut paces = self.paces();
        let pace = paces.entry(Arc::clone(node)).or_default();
        let times = pace.made.filter(|(at, _)| now - *at < STAYED).map_or(0, |(_, times)| times + 1);
        pace.made = Some((now, times));
    }
}

impl Reconcile for HolderPods {
    type Index = Holders;

    fn controller(&self) -> &Arc<Controller<Holders>> {
        &self.kit
    }

    fn missing_kind(&self) -> Option<Kind> {
        self.kit.read_all(|indexes| indexes.cluster.missing_kind())
    }

    async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        let now = Instant::now();
        let node = &key.name;
        let next = self.plan(node, now);
        let Ok(write) = self.write(node, &next) else {
            self.ask_for_owner(key, now);
            return Outcome::After(AGAIN);
        };
        if matches!(&next, Plan::Delete(name) if !self.gives_up(node, name, now)) {
            return Outcome::After(AGAIN);
        }
        let Some(write) = write else {
            self.wake(node, now);
            return match next {
                Plan::Wait(wait) => Outcome::After(wait),
                // What the API server keeps is found out with the first Pod that is published.
                Plan::Rest if self.is_unknown(node, now) => Outcome::After(UNKNOWN),
                _ => Outcome::Done,
            };
        };
        match self.kit.send(key, &write).await {
            Ok(done) => {
                if matches!(next, Plan::Create(..)) {
                    self.note_made(node, now);
                }
                // A deletion of an earlier write may have reached it first.
                if !matches!(next, Plan::Delete(_)) && !done.meta.deleting {
                    self.kit.update(|index| index.ours.insert(done.meta.uid.to_string()));
                }
                tracing::info!(%node, ?next, "holder Pod");
                // A nomination that changes nothing brings no event.
                if matches!(next, Plan::Nominate(_)) { Outcome::After(AGAIN) } else { Outcome::Done }
            }
            // The watch has not brought it yet.
            Err(Refusal::AlreadyExists | Refusal::NotFound | Refusal::Replaced) => Outcome::After(AGAIN),
            Err(refusal) => Outcome::Failed(refusal.into()),
        }
    }

    /// Times of an earlier term say nothing.
    fn on_elected(&self) {
        self.paces().clear();
        self.kit.update(|index| index.ours.clear());
    }

    fn measure(&self) {
        let count = self.kit.read(Holders::count);
        self.pods.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
