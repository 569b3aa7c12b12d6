//! The controller: its part of the kit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_accounting::per_resource::Units;
use dragoman_crds::wire::{Node, Pod};
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, ObjectKey, Reconcile, Running, Verdict,
};
use dragoman_machinery::kind::{Kind, NODE_ALLOCATABLE_DRA_CLAIM_STATE as STATE};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::refusal::Refusal;
use prometheus_client::metrics::gauge::Gauge;

use super::index::Holders;
use super::plan::{Owner, Plan, Snapshot, carries_too_much, create, delete, plan, resize};
use super::shared::SharedHolders;
use crate::cluster::{Cluster, SharedCluster};
use crate::pod_status::Publisher;

/// The image of a holder that is not chosen: it does nothing, and is on nearly every node already.
pub const IMAGE: &str = "registry.k8s.io/pause:3.10.1";

/// What can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The image of holder Pods.
    pub image: Box<str>,
}

impl Default for Options {
    fn default() -> Self {
        Self { image: IMAGE.into() }
    }
}

/// Its row in the table of controllers, after that of the ledger and before that of gates.
pub fn spec(
    options: Options,
    cluster: SharedCluster,
    publisher: Arc<Publisher>,
    shared: Arc<SharedHolders>,
) -> ControllerSpec {
    ControllerSpec {
        name: NAME,
        works: |mode| mode >= Mode::Assist,
        // It sees what the ledger sees. What it writes is in its own namespace: `RIGHTS`.
        rights: |_| &[],
        asked: &[],
        start: Box::new(move |assembly| {
            let (cluster, publisher) = (Arc::clone(&cluster), Arc::clone(&publisher));
            HolderPods::start(assembly, options.clone(), cluster, publisher, Arc::clone(&shared))
        }),
    }
}

const NAME: &str = "holders";
/// How soon it is looked again for the object that a holder belongs to.
const OWNER: Duration = Duration::from_secs(1);

/// The controller.
struct HolderPods {
    kit: Arc<Controller<Holders>>,
    options: Options,
    cluster: SharedCluster,
    publisher: Arc<Publisher>,
    shared: Arc<SharedHolders>,
    namespace: Arc<str>,
    paces: Mutex<HashMap<Arc<str>, Pace>>,
    pods: Gauge,
}

/// The times of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// Since when its holder carries too much, in milliseconds since the epoch.
    idle: Option<i64>,
    /// When the last holder was made, and how many in a row.
    made: Option<(i64, u32)>,
}

/// How soon it is looked again while it is not known what the API server keeps.
const UNKNOWN: Duration = Duration::from_secs(5);
/// A holder that stayed so long was made for good, in milliseconds.
const STAYED: i64 = 120_000;

impl HolderPods {
    fn start(
        assembly: &mut Assembly<'_>,
        options: Options,
        cluster: SharedCluster,
        publisher: Arc<Publisher>,
        shared: Arc<SharedHolders>,
    ) -> Arc<dyn Running> {
        let pods = Gauge::default();
        assembly.registry.register("dragoman_holder_pods", "Nodes that have a holder Pod", pods.clone());
        let namespace = Arc::clone(&assembly.context.namespace);
        let kit = assembly.controller::<Holders>(NAME, NAME);
        kit.note(|index| index.namespace = Arc::clone(&namespace));
        kit.watch::<Pod>(&mut assembly.watches);
        kit.watch::<Node>(&mut assembly.watches);
        // A table is put together once; one that is put together again keeps its first index.
        shared.kit.get_or_init(|| Arc::clone(&kit));
        let paces = Mutex::default();
        Arc::new(Self { kit, options, cluster, publisher, shared, namespace, paces, pods })
    }

    fn paces(&self) -> MutexGuard<'_, HashMap<Arc<str>, Pace>> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the holder of a node has to carry; absent while claims take something, and it is not known whether the
    /// API server keeps that in the status of Pods.
    fn wants(&self, node: &str, now: i64) -> Option<Units> {
        let wants = self.shared.wants(self.cluster.get()?, node);
        // Nothing has to be carried, whatever the API server keeps.
        if wants.is_empty() {
            return Some(wants);
        }
        Some(if self.publisher.is_kept(now)? { Units::default() } else { wants })
    }

    fn plan(&self, node: &Arc<str>, now: i64) -> Plan {
        let wants = self.wants(node, now);
        self.kit.read(|index| {
            let holder = index.of(node).map(|holder| &**holder);
            let mut paces = self.paces();
            let pace = paces.entry(Arc::clone(node)).or_default();
            let is_idle =
                holder.zip(wants.as_ref()).is_some_and(|(holder, wants)| carries_too_much(holder, wants));
            pace.idle = if is_idle { pace.idle.filter(|since| *since <= now).or(Some(now)) } else { None };
            let Pace { idle, made } = *pace;
            if holder.is_none() && wants.as_ref().is_none_or(Units::is_empty) {
                paces.remove(node);
            }
            plan(&Snapshot { has_node: index.has_node(node), wants, holder, idle, made }, now)
        })
    }

    /// The published ledger of the node, or nothing while it is not there.
    fn owner(&self, node: &str) -> Option<Owner> {
        let uid =
            self.cluster.get()?.read(|cluster| Some(cluster.published.get("", node)?.uid.to_string()))?;
        Some(Owner { kind: (STATE.api_version(), STATE.kind), uid })
    }

    /// Whether what claims take from the node is carried, or nothing has to be.
    fn is_enough(&self, node: &str, now: i64) -> bool {
        self.wants(node, now).is_some_and(|wants| self.kit.read(|index| index.carries(node, &wants)))
    }

    /// Whether claims take something, and it is not known whether a holder has to carry it.
    fn is_unknown(&self, node: &str, now: i64) -> bool {
        let Some(cluster) = self.cluster.get() else { return false };
        self.publisher.is_kept(now).is_none() && !self.shared.wants(cluster, node).is_empty()
    }

    fn note_made(&self, node: &Arc<str>, now: i64) {
        let mut paces = self.paces();
        let pace = paces.entry(Arc::clone(node)).or_default();
        let times = pace.made.filter(|(at, _)| now - at < STAYED).map_or(0, |(_, times)| times + 1);
        pace.made = Some((now, times));
    }
}

impl Reconcile for HolderPods {
    type Index = Holders;

    fn controller(&self) -> &Arc<Controller<Holders>> {
        &self.kit
    }

    fn lacks(&self) -> Option<Kind> {
        self.cluster.get()?.read(Cluster::lacks)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Verdict {
        let now = clock::now().as_millisecond();
        let node = &key.name;
        let next = self.plan(node, now);
        let holder = || self.kit.read(|index| index.of(node).cloned());
        let write = match &next {
            Plan::Rest | Plan::Wait(_) => None,
            Plan::Create(units) => {
                let Some(owner) = self.owner(node) else {
                    self.cluster.get().into_iter().for_each(|ledger| ledger.enqueue(vec![key.clone()]));
                    return Verdict::After(OWNER);
                };
                Some(create(&self.namespace, node, &owner, &self.options.image, units))
            }
            Plan::Resize(units) => holder().map(|holder| resize(&self.namespace, node, &holder, units)),
            Plan::Delete => holder().map(|holder| delete(&self.namespace, node, &holder)),
        };
        let Some(write) = write else {
            if self.is_enough(node, now) {
                self.shared.wake(node);
            }
            return match next {
                Plan::Wait(wait) => Verdict::After(Duration::from_millis(wait.unsigned_abs())),
                // What the API server keeps is found out with the first Pod that is published.
                Plan::Rest if self.is_unknown(node, now) => Verdict::After(UNKNOWN),
                _ => Verdict::Done,
            };
        };
        match self.kit.send(key, &write).await {
            Ok(_) => {
                if matches!(next, Plan::Create(_)) {
                    self.note_made(node, now);
                }
                tracing::info!(%node, ?next, "holder Pod");
                Verdict::Done
            }
            // The watch has not brought it yet.
            Err(Refusal::AlreadyExists | Refusal::NotFound | Refusal::Replaced) => Verdict::After(OWNER),
            Err(refusal) => Verdict::Failed(refusal.to_string()),
        }
    }

    /// Times of an earlier term say nothing.
    fn leads_since(&self, _now: i64) {
        self.paces().clear();
    }

    fn measure(&self, _now: i64) {
        let count = self.kit.read(Holders::count);
        self.pods.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
