//! The controller: its part of the kit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_accounting::ledger::fit::Candidate;
use dragoman_crds::wire::{Name, Node, Pod, ResourceClaim};
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, ObjectKey, Reconcile, Running, Verdict, regarding,
};
use dragoman_machinery::kind::{Kind, POD};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::watch::Record;
use dragoman_machinery::write::Write;

use super::assumed::Assumed;
use super::facts::PodFacts;
use super::index::{Gates, NamedClaim};
use super::metrics::{ClosedGates, GateMetrics};
use super::nominate::Nominated;
use super::plan::{self, Account, Claims, Opened, Ready, Reason, Wait, account};
use super::reject::Taking;
use super::{attributes, rights, writes};
use crate::cluster::{Cluster, SharedCluster};
use crate::holders::SharedHolders;
use crate::pod_status::Publisher;
use crate::protocol::LaterGates;

/// What can be chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The allocator of claims of gated Pods that name none.
    pub default_allocator: Option<Box<str>>,
    /// The age at which a Pod that no allocator has found a node for is let go; absent: never. An
    /// autoscaler sees only Pods without gates.
    pub let_go_after: Option<Duration>,
    /// How long a Pod whose gate is open may wait for a node that cannot take it until it is deleted, if it is
    /// made again; absent: for ever.
    pub delete_unbound_after: Option<Duration>,
    /// The gates of other controllers that are opened after ours.
    pub later_gates: LaterGates,
}

/// Its row in the table of controllers; `cluster` is filled by that of the ledger, which comes before, and
/// `holders` by that of holder Pods.
pub fn spec(
    options: Options,
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
        asked: if options.delete_unbound_after.is_some() { rights::DELETE_UNBOUND } else { &[] },
        start: Box::new(move |assembly| {
            let (cluster, publisher) = (Arc::clone(&cluster), Arc::clone(&publisher));
            GateKeeper::start(assembly, options.clone(), cluster, publisher, Arc::clone(&holders))
        }),
    }
}

const NAME: &str = "gates";
/// How soon a Pod is looked at again for which no event will come: what is not known of its node.
const AGAIN: Duration = Duration::from_secs(5);
/// How soon a Pod is looked at again while a watch catches up.
const CATCHES_UP: Duration = Duration::from_millis(250);

/// The controller.
pub(super) struct GateKeeper {
    pub(super) kit: Arc<Controller<Gates>>,
    pub(super) options: Options,
    pub(super) cluster: SharedCluster,
    pub(super) publisher: Arc<Publisher>,
    pub(super) metrics: GateMetrics,
    /// Decisions that the index of the cluster does not show yet, and the holder Pods that carry them.
    pub(super) holders: Arc<SharedHolders>,
    pub(super) closed: Mutex<ClosedGates>,
    pub(super) taking: Mutex<Taking>,
    pub(super) nominated: Mutex<Nominated>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A Pod that is worked on.
pub(super) struct Work<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) uid: Name,
    pub(super) pod: Arc<PodFacts>,
    pub(super) now: i64,
    /// Whether the facts are those of now, and not of the moment in which a watch was cut off.
    pub(super) is_current: bool,
}

/// A Pod on a node, as it is accounted for.
enum Placed {
    /// The node.
    On(Name),
    /// The Pod fits on none of the nodes; the last one, and why.
    Nowhere(Name, String),
}

impl GateKeeper {
    fn start(
        assembly: &mut Assembly<'_>,
        options: Options,
        cluster: SharedCluster,
        publisher: Arc<Publisher>,
        holders: Arc<SharedHolders>,
    ) -> Arc<dyn Running> {
        let metrics = GateMetrics::register(assembly.registry);
        let kit = assembly.controller::<Gates>(NAME, NAME);
        kit.note(|index| index.later.clone_from(&options.later_gates));
        kit.watch::<Pod>(&mut assembly.watches);
        kit.watch::<ResourceClaim>(&mut assembly.watches);
        kit.watch::<Node>(&mut assembly.watches);
        let woken = Arc::clone(&kit);
        holders.wakes_gates(Box::new(move |pods| woken.enqueue(pods)));
        let (closed, taking, nominated) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { kit, options, cluster, publisher, metrics, holders, closed, taking, nominated })
    }

    /// What a Pod would take on a node.
    fn candidate(&self, pod: &PodFacts, node: &str) -> Option<Candidate> {
        Some(self.cluster.get()?.read(|cluster| cluster.ledger().candidate(&pod.accounted, node)))
    }

    /// Accounts for a Pod on the first of the nodes on which it fits, and charges it there.
    ///
    /// # Errors
    /// Something about the Pod or about a node is not known.
    fn place(&self, work: &Work<'_>, nodes: &[Name]) -> Result<Placed, Wait> {
        let unknown = |message: String| Wait::new(Reason::Unaccounted, message);
        let Some(cluster) = self.cluster.get() else {
            return Err(unknown("the ledger is off".to_owned()));
        };
        let mut assumed = self.holders.assumed();
        // A node that was chosen before stays chosen while the Pod fits there.
        let before = assumed.node_of(work.key).cloned();
        let (first, others): (Vec<&Name>, Vec<&Name>) =
            nodes.iter().partition(|node| Some(*node) == before.as_ref());
        let mut refused = None;
        for node in first.into_iter().chain(others) {
            if let Some(pod) = self.kit.read(|index| index.uncounted_on(node).cloned()) {
                // Of no business of the tenant that waits.
                tracing::warn!(%node, namespace = %pod.namespace, pod = %pod.name, "its status does not name all claims that are reserved for it");
                let why = "a Pod has devices there that its status does not name";
                return Err(unknown(format!("node {node}: {why}")));
            }
            let found = cluster.read(|cluster| {
                let ledger = cluster.ledger();
                let candidate = ledger.candidate(&work.pod.accounted, node);
                let account = account(&assumed.over(ledger.node(node)?, node, Some(work.key)), &candidate);
                Some((account, candidate))
            });
            match found {
                None => refused = Some((node.clone(), "there is no such node".to_owned())),
                Some((Account::Fits, candidate)) => {
                    assumed.put(work.key, node, candidate.pod);
                    return Ok(Placed::On(node.clone()));
                }
                Some((Account::Refused(why), _)) => refused = Some((node.clone(), why)),
                Some((Account::Unknown(why), _)) => return Err(unknown(format!("node {node}: {why}"))),
            }
        }
        assumed.remove(work.key);
        refused
            .map(|(node, why)| Placed::Nowhere(node, why))
            .ok_or_else(|| unknown("there is no node".to_owned()))
    }

    /// Assumes a Pod that has no gate of the protocol any more and is not bound yet: its claims say where
    /// it goes. A Pod that is assumed stays so while its claims are allocated: where a write of a binding fails,
    /// kube-scheduler takes the reservations back, keeps the allocations, and tries again.
    fn assume(&self, key: &ObjectKey, uid: &str, pod: &PodFacts, claims: &[NamedClaim]) {
        let is_known = self.holders.assumed().node_of(key).is_some();
        let found = claims.iter().map(|claim| match (&claim.name, &claim.found) {
            (Some(name), Some(Ok((of, facts)))) if plan::keeps(facts, uid, is_known) => {
                Some((name, of, facts))
            }
            _ => None,
        });
        let found: Option<Vec<Ready<'_>>> = found.collect();
        let node = found.filter(|claims| !claims.is_empty()).and_then(|claims| {
            self.kit.read(|index| {
                let nodes =
                    index.nodes.iter().filter_map(|(_, _, record)| Some(&record.readable()?.selected));
                plan::goes_to(&claims, nodes, pod.affinity.node())
            })
        });
        let mut assumed = self.holders.assumed();
        match node.and_then(|node| Some((self.candidate(pod, &node)?, node))) {
            Some((candidate, node)) => assumed.put(key, &node, candidate.pod),
            None if assumed.node_of(key).is_none() => {}
            // A Pod that was pinned to its node stays charged there while it has its claims.
            None => {
                let holds = |claim: &NamedClaim| matches!(&claim.found, Some(Ok((_, facts))) if plan::keeps(facts, uid, true));
                if !claims.iter().all(holds) {
                    assumed.remove(key);
                }
            }
        }
    }

    async fn gated(&self, work: &Work<'_>, claims: &[NamedClaim]) -> Result<Verdict, Blocked> {
        let default = self.options.default_allocator.as_deref();
        let ready = match plan::claims((&work.uid, work.pod.earlier_gate.as_ref()), claims, default) {
            Claims::Wait(wait) => {
                self.holders.forget(work.key);
                self.give_back(work, claims).await?;
                self.nominate(work, None).await?;
                self.withdraw(work).await?;
                return self.unallocated(work, claims, wait).await;
            }
            Claims::Label(names) => return self.label(work, claims, &names).await,
            Claims::NoAllocator => {
                return self.release(work, None, Opened::NoAllocator, &BTreeMap::new()).await;
            }
            Claims::Ready(ready) => ready,
        };
        if self.takes_again(work, &ready).await? {
            return Ok(Verdict::Done);
        }
        if let Some(why) = self.promised_twice(work, &ready) {
            return self.reject(work, &ready, "", Reason::PromisedTwice, &why).await;
        }
        let nodes = self.kit.read(|index| {
            let nodes = index.nodes.iter().filter_map(|(_, _, record)| Some(&**record.readable()?));
            let mut sorted: Vec<_> = nodes.collect();
            sorted.sort_by(|a, b| a.selected.name.cmp(&b.selected.name));
            plan::nodes_for(&work.pod, &ready, &sorted)
        });
        let node = match nodes {
            Ok(nodes) => match self.place(work, &nodes)? {
                Placed::On(node) => node,
                Placed::Nowhere(node, why) => {
                    return self.reject(work, &ready, &node, Reason::DoesNotFit, &why).await;
                }
            },
            Err(Wait { reason: Reason::NoCommonNode, message, .. }) => {
                return self.reject(work, &ready, "", Reason::NoCommonNode, &message).await;
            }
            Err(wait) => return Err(wait.into()),
        };
        if let Err(wait) = plan::release_gates(&ready) {
            self.nominate(work, None).await?;
            return Err(wait.into());
        }
        // Not before: while a release gate is closed, the node may be on its way.
        if let Some(why) = self.unsuitable(work, &node) {
            self.holders.forget(work.key);
            return self.reject(work, &ready, &node, Reason::NodeUnsuitable, &why).await;
        }
        let attributes = match self.attributes(work) {
            Ok(attributes) => attributes,
            Err(wait) => return self.lacks_attribute(work, &ready, &node, wait).await,
        };
        self.nominate(work, Some(&node)).await?;
        self.publish(work, &node).await?;
        if let Some(left) = locked(&self.nominated).settles(work.key, &node, work.now) {
            return Ok(Verdict::After(left));
        }
        let is_confined = ready.iter().any(|(_, _, facts)| plan::confines(facts));
        self.release(work, (!is_confined).then_some(&*node), Opened::Released, &attributes).await
    }

    fn unsuitable(&self, work: &Work<'_>, node: &str) -> Option<String> {
        self.kit.read(|index| {
            plan::unsuitable(&work.pod, index.nodes.get("", node).and_then(Record::readable).map(|of| &**of))
        })
    }

    async fn label(
        &self,
        work: &Work<'_>,
        claims: &[NamedClaim],
        names: &[&Name],
    ) -> Result<Verdict, Blocked> {
        let allocator = self.options.default_allocator.as_deref().unwrap_or_default();
        for claim in claims {
            let (Some(name), Some(Ok((uid, facts)))) = (&claim.name, &claim.found) else { continue };
            if names.contains(&name) {
                let write = writes::label(&work.key.namespace, name, uid, facts, allocator);
                self.kit.send(work.key, &write).await?;
            }
        }
        Ok(Verdict::Done)
    }

    /// What the Pod asks about its devices; nothing where it asks nothing.
    fn attributes(&self, work: &Work<'_>) -> Result<BTreeMap<String, String>, Wait> {
        let Some(cluster) = self.cluster.get().filter(|_| work.pod.asked.is_some()) else {
            return Ok(BTreeMap::new());
        };
        let answers = cluster.read(|cluster| attributes::of(&work.pod, cluster.ledger()));
        if let Err(wait) = &answers {
            let is_said =
                work.pod.condition.as_ref().is_some_and(|(_, reason)| **reason == *wait.reason.word());
            if !is_said {
                let about = regarding(POD, &work.key.namespace, &work.key.name, &work.uid);
                self.kit.warn(about, wait.reason.word(), "Release", wait.message.clone());
            }
        }
        answers
    }

    /// A driver may publish the attribute in a moment; for longer than that the devices are not kept from others.
    async fn lacks_attribute(
        &self,
        work: &Work<'_>,
        claims: &[Ready<'_>],
        node: &str,
        wait: Wait,
    ) -> Result<Verdict, Blocked> {
        let since = locked(&self.closed).closed(work.key, wait.reason, work.now);
        if work.now - since < plan::WITHOUT_ATTRIBUTE {
            return Err(wait.into());
        }
        self.holders.forget(work.key);
        self.reject(work, claims, node, wait.reason, &wait.message).await
    }

    /// Follows a new allocation of a Pod that waits for its node: kube-scheduler may allocate anew. Once the Pod has a node
    /// nothing changes, because a container may have read it.
    async fn tell(&self, work: &Work<'_>, claims: &[NamedClaim]) -> Result<(), Blocked> {
        if work.pod.asked.is_none() || !plan::is_allocated_for(&work.uid, claims) {
            return Ok(());
        }
        let Some(cluster) = self.cluster.get() else { return Ok(()) };
        let answers = cluster.read(|cluster| attributes::of(&work.pod, cluster.ledger()))?;
        if !attributes::are_given(&work.pod, &answers) {
            self.kit.send(work.key, &writes::tell(work.key, &work.uid, &work.pod, &answers)).await?;
        }
        Ok(())
    }

    /// A Pod that an allocator finds no node for is let go at the age that was chosen. Until then it waits.
    async fn unallocated(
        &self,
        work: &Work<'_>,
        claims: &[NamedClaim],
        wait: Wait,
    ) -> Result<Verdict, Blocked> {
        let may_go = wait.reason == Reason::NotAllocated && plan::may_be_let_go(claims);
        let after = self.options.let_go_after.filter(|_| may_go);
        let Some(after) = after else { return Err(wait.into()) };
        let (due, now) = (plan::let_go_due(&work.pod.created, after), clock::now().as_millisecond());
        if now >= due {
            return self.release(work, None, Opened::LetGo, &BTreeMap::new()).await;
        }
        let left = Duration::from_millis((due - now).unsigned_abs());
        Ok(self.waits(work, &wait).await.most_urgent(Verdict::After(left)))
    }

    async fn release(
        &self,
        work: &Work<'_>,
        pin: Option<&str>,
        why: Opened,
        attributes: &BTreeMap<String, String>,
    ) -> Result<Verdict, Blocked> {
        let Work { key, uid, pod, .. } = work;
        // kube-scheduler may have bound Pods on the node meanwhile, and may not know it itself if the answer was lost.
        if why == Opened::Released && !work.is_current {
            let wait =
                Wait::new(Reason::Unaccounted, "a watch catches up with what it has missed".to_owned());
            return Ok(self.waits(work, &wait).await.most_urgent(Verdict::After(CATCHES_UP)));
        }
        let Some(write) = writes::release(key, uid, pod, pin, attributes) else { return Ok(Verdict::Done) };
        self.kit.send(key, &write).await?;
        self.metrics.released.inc();
        locked(&self.closed).opened(key);
        tracing::info!(namespace = %key.namespace, pod = %key.name, why = why.word(), pin, "gate opened");
        if pod.condition.is_some() || why == Opened::LetGo {
            self.waits_no_more(work, why).await?;
        }
        Ok(Verdict::Done)
    }

    /// Says that a Pod waits for nothing of ours any more.
    async fn waits_no_more(&self, work: &Work<'_>, why: Opened) -> Result<(), Refusal> {
        let now = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = writes::condition(work.key, &work.uid, &work.pod, Err(why), &now);
        self.kit.send(work.key, &condition).await.map(drop)
    }

    /// What is next for a Pod.
    async fn look(&self, work: &Work<'_>, claims: &[NamedClaim]) -> Result<Verdict, Blocked> {
        let Work { key, uid, pod, .. } = work;
        if pod.gate.is_some() {
            return self.gated(work, claims).await;
        }
        if pod.is_bound {
            self.leave(key);
            self.waits_no_more(work, Opened::Bound).await?;
            return Ok(Verdict::Done);
        }
        self.assume(key, uid, pod, claims);
        match self.tell(work, claims).await {
            // What cannot be told any more holds nothing up: the node may be gone, and the devices with it.
            Ok(()) | Err(Blocked::Wait(_)) => {}
            Err(blocked) => return Err(blocked),
        }
        self.unbound(work, claims).await
    }

    /// Forgets a Pod.
    fn leave(&self, key: &ObjectKey) {
        self.holders.forget(key);
        locked(&self.closed).opened(key);
        locked(&self.taking).forget(key);
        locked(&self.nominated).forget(key);
    }

    /// Says what a Pod waits for, once it has waited a moment.
    pub(super) async fn waits(&self, work: &Work<'_>, wait: &Wait) -> Verdict {
        let (since, said) = {
            let mut closed = locked(&self.closed);
            (closed.closed(work.key, wait.reason, work.now), closed.said(work.key))
        };
        let again = match wait.reason {
            // Facts about nodes make no key of a Pod dirty.
            Reason::Unaccounted | Reason::AttributeMissing => Verdict::After(AGAIN),
            _ => Verdict::Done,
        };
        let is_said = work.pod.condition.as_ref().is_some_and(|(_, reason)| **reason == *wait.reason.word());
        let due = match &said {
            // A message of another process stays: it may be as good.
            None if is_said => return again,
            Some((_, message)) if is_said && *message == wait.message => return again,
            Some((at, _)) if is_said => at + plan::REWORDED,
            _ => plan::condition_due(since + wait.patience, said.as_ref().map(|(at, _)| *at)),
        };
        if work.now < due {
            let left = Duration::from_millis((due - work.now).unsigned_abs());
            return again.most_urgent(Verdict::After(left));
        }
        locked(&self.closed).says(work.key, work.now, &wait.message);
        let write: Write = writes::condition(work.key, &work.uid, &work.pod, Ok(wait), "");
        match self.kit.send(work.key, &write).await {
            Ok(_) | Err(Refusal::NotFound | Refusal::Replaced) => again,
            Err(refusal) => Verdict::Failed(refusal.to_string()),
        }
    }
}

/// Why a gate is not opened now.
pub(super) enum Blocked {
    Wait(Wait),
    Refused(Refusal),
    /// Something was written that the next look has to see.
    Again(Name),
    /// Another party is at work.
    Later(Duration),
    Failed(String),
}

impl From<Wait> for Blocked {
    fn from(wait: Wait) -> Self {
        Self::Wait(wait)
    }
}

impl From<Refusal> for Blocked {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Reconcile for GateKeeper {
    type Index = Gates;

    fn controller(&self) -> &Arc<Controller<Gates>> {
        &self.kit
    }

    fn lacks(&self) -> Option<Kind> {
        self.cluster.get()?.read(Cluster::lacks)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Verdict {
        // Before the facts are read.
        let is_current = self.kit.context.journal.has_caught_up();
        let found = self.kit.read(|index| {
            let (uid, pod) = index.pod(key)?;
            let claims = index.claims_of(&key.namespace, &pod);
            Some((uid, pod, claims))
        });
        let Some((uid, pod, claims)) = found.filter(|(_, pod, _)| !pod.deleting) else {
            // Bound, ended, being deleted, or gone: the ledger of the cluster has it, or nothing does.
            self.leave(key);
            return Verdict::Done;
        };
        let work = Work { key, uid, pod, now: clock::steady().as_millisecond(), is_current };
        match self.look(&work, &claims).await {
            Ok(verdict) => verdict,
            Err(Blocked::Wait(wait)) => self.waits(&work, &wait).await,
            // The expectation of the kit brings the key back once the index has the write.
            Err(Blocked::Again(version)) => {
                self.kit.expect(key, POD, &version);
                Verdict::After(Duration::ZERO)
            }
            // The watch says so soon.
            Err(Blocked::Refused(Refusal::NotFound | Refusal::Replaced)) => Verdict::Done,
            Err(Blocked::Later(left)) => Verdict::After(left),
            Err(Blocked::Refused(refusal)) => Verdict::Failed(refusal.to_string()),
            Err(Blocked::Failed(why)) => Verdict::Failed(why),
        }
    }

    /// Before the first gate is opened, every Pod that was released and is not bound yet is charged.
    fn leads_since(&self, _now: i64) {
        *self.holders.assumed() = Assumed::default();
        *locked(&self.nominated) = Nominated::default();
        let released = self.kit.read(|index| {
            let pods = dragoman_machinery::controller::Index::all_keys(index).into_iter();
            let pods = pods.filter_map(|key| {
                let (uid, pod) = index.pod(&key)?;
                let claims = index.claims_of(&key.namespace, &pod);
                (pod.gate.is_none() && !pod.is_bound).then_some((key, uid, pod, claims))
            });
            pods.collect::<Vec<_>>()
        });
        for (key, uid, pod, claims) in released {
            self.assume(&key, &uid, &pod, &claims);
        }
    }

    fn measure(&self, _now: i64) {
        let now = clock::steady().as_millisecond();
        let assumed = self.holders.assumed().len();
        self.metrics.measure(&locked(&self.closed), assumed, now);
    }
}
