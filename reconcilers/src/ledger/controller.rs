//! The controller: its part of the kit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_accounting::Uid;
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, ObjectKey, Outcome, Reconcile, Running, regarding,
};
use dragoman_machinery::kind::{DEVICE_FOOTPRINT, Kind, NODE, POD};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::refusal::Refusal;
use dragoman_objects::{DeviceId, Name, Node, Pod, ResourceClaim, ResourceSlice};
use tokio::time::Instant;

use super::content::NodeReport;
use super::metrics::LedgerMetrics;
use super::plan::{Plan, Snapshot, Written, coalesced, plan};
use super::pod_devices::AttributeLabel;
use super::rights;
use crate::cluster::Cluster;
use crate::holders;
use crate::indexes::Indexes;

/// Options of the ledger controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Publish the ledger of every node, also of those without claims.
    pub all_nodes: bool,
    /// Serve the amounts of every node as metrics.
    pub metrics_per_node: bool,
    /// Serve a metric for each device of each Pod on a node, with these attributes of the device as labels.
    pub pod_devices: Option<Vec<AttributeLabel>>,
}

/// Returns the row of the ledger controller in the table of controllers. Its index is that of the cluster.
pub fn spec(options: Options) -> ControllerSpec {
    let start = move |assembly: &mut Assembly<'_>| Ledger::start(assembly, options.clone());
    ControllerSpec {
        // It works in every mode: what it writes is its own.
        rights: |mode| match mode {
            Mode::Observe => rights::OBSERVE,
            Mode::Assist | Mode::Own => &[],
        },
        settings: crate::settings::declared::<super::Settings>,
        ..ControllerSpec::new(NAME, Box::new(start))
    }
}

/// The name of the controller.
pub const NAME: &str = "ledger";

/// The controller.
struct Ledger {
    kit: Arc<Controller<Cluster>>,
    options: Options,
    metrics: LedgerMetrics,
    pace: Mutex<HashMap<Arc<str>, NodeTimers>>,
    /// The Pods that were told that another claim has a device of theirs.
    told: Mutex<BTreeSet<Twice>>,
}

/// A device that is promised twice, and a Pod that has it: namespace, name and uid.
type Twice = (DeviceId, [Name; 3]);

/// The times of a node.
#[derive(Debug, Clone, Copy, Default)]
struct NodeTimers {
    /// The last write of its object.
    written: Option<Written>,
    /// The last time that this process created it.
    created: Option<Written>,
    /// Something that has changed is not published since then.
    unpublished: Option<Instant>,
    /// The node has been without claims since then.
    claimless: Option<Instant>,
}

impl Ledger {
    fn start(assembly: &mut Assembly<'_>, options: Options) -> Arc<dyn Running> {
        let metrics = LedgerMetrics::register(assembly.registry);
        let kit = assembly.controller::<Cluster>(NAME, NAME);
        kit.update(|index| index.accounts.namespace = Arc::clone(&assembly.context.namespace));
        let watches = &mut assembly.watches;
        kit.watch::<Node>(watches);
        kit.watch::<Pod>(watches);
        kit.watch::<ResourceClaim>(watches);
        kit.watch::<ResourceSlice>(watches);
        kit.watch::<DeviceFootprint>(watches);
        kit.watch::<NodeAllocatableDRAClaimState>(watches);
        Arc::new(Self { kit, options, metrics, pace: Mutex::default(), told: Mutex::default() })
    }

    fn paces(&self) -> MutexGuard<'_, HashMap<Arc<str>, NodeTimers>> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The times of a node, after it was looked at.
    fn pace(&self, node: &Arc<str>, has_claims: bool, now: Instant) -> NodeTimers {
        let mut paces = self.paces();
        let pace = paces.entry(Arc::clone(node)).or_default();
        pace.claimless = if has_claims { None } else { pace.claimless.or(Some(now)) };
        *pace
    }

    fn note_unpublished(&self, node: &Arc<str>, plan: &Plan, now: Instant) {
        let waits = matches!(plan, Plan::Later(_) | Plan::Create(_) | Plan::Publish { .. });
        let mut paces = self.paces();
        if waits {
            paces.entry(Arc::clone(node)).or_default().unpublished.get_or_insert(now);
        } else if let Some(pace) = paces.get_mut(node) {
            pace.unpublished = None;
        }
    }

    fn note_written(&self, node: &Arc<str>, content: u64, now: Instant) {
        let mut paces = self.paces();
        let pace = paces.entry(Arc::clone(node)).or_default();
        let written = Written::next(pace.written, content, now);
        (pace.written, pace.unpublished) = (Some(written), None);
        drop(paces);
        if written.is_disputed() {
            tracing::warn!(%node, "another writer changes the published ledger of the node each time");
        }
    }

    fn plan(&self, node: &Arc<str>, now: Instant) -> Plan {
        self.kit.read_all(|Indexes { cluster, holders, assumed, .. }| {
            if !cluster.publishes() {
                return Plan::Rest;
            }
            let is_known = cluster.nodes.get("", node).is_some() || cluster.published.get("", node).is_some();
            if !is_known {
                return Plan::Rest;
            }
            // What is taken from the node is computed when it may be written.
            let written = self.paces().get(node).and_then(|pace| pace.written);
            if let Some(wait) = coalesced(written, now) {
                return Plan::Later(wait);
            }
            let content = NodeReport::of(cluster.ledger(), node);
            let NodeTimers { written, created, claimless, .. } =
                self.pace(node, content.as_ref().is_some_and(|content| content.has_claims), now);
            let snapshot = Snapshot {
                node,
                uid: cluster.nodes.get("", node).map(|record| &*record.uid),
                content,
                published: cluster.published.get("", node).and_then(|record| record.readable()).map(|p| &**p),
                // The holder Pod of a node belongs to its object, and comes before the Pod with the claim.
                all: self.options.all_nodes || (holders.is_on() && assumed.has(node)),
                written,
                created,
                claimless,
                time: clock::now(),
            };
            plan(snapshot, now)
        })
    }

    /// Says which DeviceFootprints were refused, each once.
    fn say_refused(&self) {
        if self.kit.read(|cluster| cluster.refused.is_empty()) {
            return;
        }
        for (name, refused) in self.kit.update(|cluster| std::mem::take(&mut cluster.refused)) {
            let note = format!("{}: what the devices of its driver cost is not known", refused.why);
            let about = regarding(DEVICE_FOOTPRINT, "", &name, &refused.uid);
            self.kit.warn(about, "InvalidFootprint", "Account", note);
        }
    }

    /// Tells each bound Pod that another claim has a device of its claims, once.
    fn say_promised_twice(&self) {
        let twice: BTreeMap<Twice, String> = self.kit.read(|cluster| {
            let ledger = cluster.ledger();
            let overdrawn = ledger.overdrawn().into_iter();
            let pods = overdrawn.flat_map(|overdrawn| {
                let pods = overdrawn.claims.iter();
                let pods = pods.flat_map(|claim| ledger.pods_of(claim).map(texts).collect::<Vec<_>>());
                pods.map(|pod| ((overdrawn.device.clone(), pod), overdrawn.to_string())).collect::<Vec<_>>()
            });
            pods.collect()
        });
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for ((_, [namespace, name, uid]), what) in twice.iter().filter(|(twice, _)| !told.contains(*twice)) {
            self.kit.warn(regarding(POD, namespace, name, uid), "PromisedTwice", "Account", what.clone());
        }
        *told = twice.into_keys().collect();
    }

    fn say_overcommitted(&self, node: &str, message: String) {
        tracing::warn!(node, message, "node overcommitted");
        let uid = self.kit.read(|cluster| cluster.nodes.get("", node).map(|record| record.uid.to_string()));
        // kube-scheduler and the kubelet report Nodes under their names, as kubectl looks them up.
        let about = regarding(NODE, "", node, &uid.unwrap_or_default());
        self.kit.alarm(about, "NodeOvercommitted", "Account", message);
    }
}

impl Reconcile for Ledger {
    type Index = Cluster;

    fn controller(&self) -> &Arc<Controller<Cluster>> {
        &self.kit
    }

    fn missing_kind(&self) -> Option<Kind> {
        self.kit.read(Cluster::missing_kind)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        self.say_refused();
        self.kit.wake(holders::NAME, key.clone());
        let now = Instant::now();
        let plan = self.plan(&key.name, now);
        self.note_unpublished(&key.name, &plan, now);
        match plan {
            Plan::Rest => {
                if self.kit.read(|cluster| cluster.nodes.get("", &key.name).is_none()) {
                    self.paces().remove(&key.name);
                }
                Outcome::Done
            }
            Plan::Wait(wait) | Plan::Later(wait) => Outcome::After(wait),
            Plan::Create(write) => match self.kit.send(key, &write).await {
                created @ (Ok(_) | Err(Refusal::AlreadyExists)) => {
                    let mut paces = self.paces();
                    let pace = paces.entry(Arc::clone(&key.name)).or_default();
                    pace.created = Some(Written::next(pace.created, 0, now));
                    // Where it is there already, the watch has not brought it yet.
                    if created.is_ok() { Outcome::Done } else { Outcome::After(Duration::from_secs(1)) }
                }
                Err(refusal) => outcome_of(Err(refusal)),
            },
            Plan::Delete(write) => match self.kit.send(key, &write).await {
                Err(Refusal::NotFound) => Outcome::Done,
                outcome => outcome_of(outcome.map(drop)),
            },
            Plan::Publish { write, content, overcommitted } => {
                let outcome = self.kit.send(key, &write).await;
                if outcome.is_ok() {
                    self.note_written(&key.name, content, now);
                    self.metrics.published.inc();
                    if let Some(message) = overcommitted {
                        self.say_overcommitted(&key.name, message);
                    }
                }
                outcome_of(outcome.map(drop))
            }
        }
    }

    /// Times of an earlier term say nothing: another process may have published since.
    fn on_elected(&self) {
        self.paces().clear();
    }

    fn measure(&self) {
        self.kit.read(|cluster| self.metrics.measure(cluster, self.options.metrics_per_node));
        if self.kit.works() {
            self.say_promised_twice();
        }
        if let Some(labels) = self.options.pod_devices.as_deref().filter(|_| self.kit.works()) {
            self.kit.read(|cluster| self.metrics.pod_devices.measure(cluster.ledger(), labels));
        } else {
            self.metrics.pod_devices.clear();
        }
        let oldest = self.paces().values().filter_map(|pace| pace.unpublished).min();
        let oldest = oldest.filter(|_| self.kit.works());
        let age = oldest.map_or(0, |since| since.elapsed().as_secs());
        self.metrics.oldest_unpublished.set(i64::try_from(age).unwrap_or(i64::MAX));
    }
}

fn texts((namespace, name, uid): (&str, &str, &Uid)) -> [Name; 3] {
    [namespace.into(), name.into(), (**uid).into()]
}

fn outcome_of(outcome: Result<(), Refusal>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::Done,
        Err(refusal) => Outcome::Failed(refusal.into()),
    }
}
