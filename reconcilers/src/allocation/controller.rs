//! The controller: its part of the kit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_allocator::input::{self, Allocation as Devices};
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::wire::Name;
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, Index as _, ObjectKey, Reconcile, Running, Verdict, regarding,
};
use dragoman_machinery::kind::POD;
use dragoman_machinery::refusal::Refusal;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::decide::{Decision, Question, Tried, decide};
use super::decided::Decided;
use super::index::{Allocation, Named, PodFacts};
use super::whole::{WholeClaim, WholeClass, WholeNode, WholePod, WholeRule, WholeSlice};
use super::{rights, writes};
use crate::protocol::{self, shown};

/// What can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of the allocator: it allocates the claims whose label names it.
    pub name: Box<str>,
}

impl Default for Options {
    fn default() -> Self {
        Self { name: "dragoman".into() }
    }
}

/// Its row in the table of the process `dragoman allocator`.
pub fn spec(options: Options) -> ControllerSpec {
    ControllerSpec {
        name: NAME,
        works: |_| true,
        rights: |mode| match mode {
            dragoman_machinery::mode::Mode::Observe => rights::ALL,
            _ => &[],
        },
        start: Box::new(move |assembly| Allocator::start(assembly, options.clone())),
    }
}

const NAME: &str = "allocation";
/// The reason of verdicts and Events: no node takes the Pod.
const NO_NODE: &str = "NoNode";
/// How soon a Pod is looked at again whose claim was just decided on for another Pod that shares it.
const SHARED: Duration = Duration::from_millis(200);
/// A verdict is written anew after so many seconds at the earliest.
const VERDICT_STAYS: i64 = 30;
/// How long a node is left out that the operator refused: doubled each time, up to the longest.
const REFUSED: (i64, i64) = (10, 300);

/// The controller.
struct Allocator {
    kit: Arc<Controller<Allocation>>,
    options: Options,
    /// Decisions that the index does not show yet. A decision is made under the lock, so that nothing is
    /// given twice.
    decided: Mutex<Decided>,
    outcomes: Outcomes,
    waiting: Gauge,
}

type Outcomes = Family<Vec<(&'static str, &'static str)>, Counter>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocator {
    fn start(assembly: &mut Assembly<'_>, options: Options) -> Arc<dyn Running> {
        let (outcomes, waiting) = (Family::default(), Gauge::default());
        for outcome in ["allocated", "refused", "given_back"] {
            drop(Outcomes::get_or_create(&outcomes, &vec![("outcome", outcome)]));
        }
        assembly.registry.register(
            "dragoman_allocator_decisions",
            "Decisions about gated Pods, by outcome",
            outcomes.clone(),
        );
        assembly.registry.register(
            "dragoman_allocator_waiting_pods",
            "Gated Pods that no node takes now",
            waiting.clone(),
        );
        let kit = assembly.controller::<Allocation>(NAME, NAME);
        let watches = &mut assembly.watches;
        kit.watch::<WholeNode>(watches);
        kit.watch::<WholeSlice>(watches);
        kit.watch::<WholeClass>(watches);
        kit.watch::<WholeRule>(watches);
        kit.watch::<DeviceFootprint>(watches);
        kit.watch::<WholeClaim>(watches);
        kit.watch::<WholePod>(watches);
        Arc::new(Self { kit, options, decided: Mutex::default(), outcomes, waiting })
    }

    fn is_ours(&self, (_, _, facts): &Named) -> bool {
        facts.allocator.as_deref() == Some(&*self.options.name)
    }

    fn count(&self, outcome: &'static str) {
        self.outcomes.get_or_create(&vec![("outcome", outcome)]).inc();
    }

    /// A Pod is of no concern any more.
    fn forget(&self, key: &ObjectKey) {
        let node = {
            let mut decided = locked(&self.decided);
            decided.is_rested(key);
            decided.forget(key)
        };
        self.reopen(node.as_ref());
        self.leave(key);
    }

    /// A node has room again that the index does not tell of. What was refused for want of it is tried
    /// again.
    fn reopen(&self, node: Option<&Name>) {
        let Some(node) = node else { return };
        let woken = self.kit.note(|index| index.changed_at(Some(node)));
        self.kit.enqueue(woken);
    }

    /// A Pod does not wait any more; the next of its shape is looked at.
    fn leave(&self, key: &ObjectKey) {
        let next = self.kit.note(|index| index.shapes.leave(key));
        self.kit.enqueue(next.into_iter().collect());
    }

    /// Charges a Pod that has its devices to the node where they are, until it is bound.
    fn assume(&self, key: &ObjectKey, pod: &PodFacts, claims: &[Named]) {
        let mut decided = locked(&self.decided);
        let charge = self.kit.read(|index| {
            let mut nodes =
                claims.iter().filter_map(|(_, _, facts)| Allocation::node_of(facts.selector.as_ref()));
            let node = Name::from(nodes.next()?);
            Some((index.ledger.candidate(&pod.accounted, &node).pod, node))
        });
        if let Some((charge, node)) = charge {
            decided.assumed.put(key, &node, charge);
        }
    }

    /// Decides about a Pod, a portion of the nodes at a time. Returns `None` while one of its claims is
    /// decided on for another Pod.
    async fn decide(
        &self,
        key: &ObjectKey,
        (uid, pod): (&Name, &PodFacts),
        claims: &[Named],
        refused: &BTreeSet<Name>,
    ) -> Result<Option<Decision>, Vec<String>> {
        let mut tried = Tried::default();
        loop {
            {
                let mut decided = locked(&self.decided);
                // Both would write, and only one allocation counts.
                if claims.iter().any(|(_, uid, _)| decided.is_for_another(key, uid)) {
                    return Ok(None);
                }
                let outcome = self.kit.note(|index| {
                    let of = claims.iter().filter_map(|(_, uid, _)| index.snapshot.claim(uid).cloned());
                    let question = Question { key, pod, claims: of.collect() };
                    decide(&question, index, &decided, refused, &mut tried, &mut share_id)
                });
                match outcome {
                    Some(Ok(decision)) => {
                        decided.put(key, uid, claims, &decision);
                        return Ok(Some(decision));
                    }
                    Some(Err(why)) => return Err(why),
                    None => {}
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Writes what was decided, claim by claim. What was written, or may have been, stays decided if a
    /// write fails: the next look goes on from there.
    async fn write(
        &self,
        key: &ObjectKey,
        uid: &str,
        claims: &[Named],
        decision: &Decision,
    ) -> Result<(), Refusal> {
        for (name, claim_uid, facts) in claims.iter().filter(|claim| self.is_ours(claim)) {
            let of_claim = decision.allocations.iter().find(|(of, _)| of == claim_uid);
            let devices: Option<&Devices> = of_claim.map(|(_, devices)| devices);
            if devices.is_none() && (facts.is_reserved_for(uid) || !facts.is_allocated) {
                continue;
            }
            let mut version = facts.version.clone();
            let protect = devices.and_then(|_| writes::protect(&key.namespace, name, claim_uid, facts));
            if let Some(protect) = protect {
                version = self.kit.send(key, &protect).await?.meta.resource_version;
            }
            let write = writes::allocate(key, uid, (name, claim_uid, &version), facts, devices);
            locked(&self.decided).writes_on(key, claim_uid, &version);
            if let Err(refusal) = self.kit.send(key, &write).await {
                if refusal.is_without_effect() {
                    locked(&self.decided).refused(key, claim_uid);
                }
                return Err(refusal);
            }
            tracing::info!(
                namespace = %key.namespace, pod = %key.name, claim = %name, node = %decision.node, "claim allocated"
            );
        }
        Ok(())
    }

    /// Devices that do not lead to a release are given back: others may need them.
    async fn give_back(&self, key: &ObjectKey, uid: &str, claims: &[Named]) -> Result<bool, Refusal> {
        let mut is_given = false;
        for (name, claim_uid, facts) in claims {
            if let Some(write) = writes::give_back(&key.namespace, name, claim_uid, facts, uid) {
                self.kit.send(key, &write).await?;
                is_given = true;
            }
        }
        Ok(is_given)
    }

    /// Says why a Pod is refused: in an Event, and on its first claim without devices.
    async fn say(
        &self,
        key: &ObjectKey,
        pod: &Name,
        claims: &[Named],
        why: &[String],
    ) -> Result<(), Refusal> {
        let Some((name, uid, facts)) = claims.iter().find(|(_, _, facts)| !facts.is_allocated) else {
            return Ok(());
        };
        let nodes = self.kit.read(|index| index.node_names().len());
        let nodes_in_words = if nodes == 1 {
            "the only node does not take".to_owned()
        } else {
            format!("none of {nodes} nodes takes")
        };
        let reasons =
            if why.is_empty() { "all were refused a short while ago".to_owned() } else { why.join("; ") };
        let message = shown(&format!("{nodes_in_words} the Pod: {reasons}"));
        let about = regarding(POD, &key.namespace, &key.name, pod);
        self.kit.warn(about, NO_NODE, "Allocate", message.to_string());
        let now = clock::now();
        if let Some(known) = &facts.verdict {
            let since = known.time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
            if known.message == *message || now.as_second() - since < VERDICT_STAYS {
                return Ok(());
            }
        }
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let verdict = protocol::Verdict { reason: NO_NODE.to_owned(), message: message.into(), nodes, time };
        let write = writes::verdict(&key.namespace, name, uid, facts, &verdict);
        if let Some(write) = write {
            self.kit.send(key, &write).await?;
        }
        Ok(())
    }

    async fn gated(
        &self,
        key: &ObjectKey,
        uid: &Name,
        pod: &PodFacts,
        claims: &[Named],
    ) -> Result<Verdict, Refusal> {
        let now = clock::now();
        // A write whose answer was lost is repeated as it was: the guard refuses it if it has been done.
        let standing = locked(&self.decided).standing(key);
        if let Some(decision) = standing {
            self.write(key, uid, claims, &decision).await?;
            return Ok(Verdict::Done);
        }
        let rests = locked(&self.decided).rests(key, now.as_millisecond());
        if let Some(milliseconds) = rests {
            return Ok(Verdict::After(Duration::from_millis(milliseconds)));
        }
        let (refused, again) = left_out(claims, now.as_second());
        let again = again.map_or(Verdict::Done, |seconds| Verdict::After(Duration::from_secs(seconds)));
        let place = self.kit.read(|index| {
            let of = claims.iter().filter_map(|(_, uid, _)| index.snapshot.claim(uid).cloned());
            let shape = Question { key, pod, claims: of.collect() }.shape()?;
            let before = index.shapes.before(shape, &pod.turn(key)).cloned();
            Some((shape, before))
        });
        if let Some((shape, Some(before))) = &place {
            self.kit.note(|index| index.shapes.wait(*shape, pod.turn(key)));
            self.kit.enqueue(vec![before.clone()]);
            return Ok(again);
        }
        match self.decide(key, (uid, pod), claims, &refused).await {
            Ok(None) => Ok(Verdict::After(SHARED)),
            Ok(Some(decision)) => {
                self.leave(key);
                self.write(key, uid, claims, &decision).await?;
                self.count("allocated");
                Ok(Verdict::Done)
            }
            Err(why) => {
                self.count("refused");
                if let Some((shape, _)) = place {
                    self.kit.note(|index| index.shapes.wait(shape, pod.turn(key)));
                }
                let kept = self.refused(key, uid, claims, &why, now.as_millisecond()).await?;
                Ok(kept.unwrap_or(again))
            }
        }
    }

    /// No node takes a Pod: what it has of its devices is given back after a while, or it is said why it has
    /// none. Returns when the Pod is looked at again, if not for another reason.
    async fn refused(
        &self,
        key: &ObjectKey,
        uid: &Name,
        claims: &[Named],
        why: &[String],
        now: i64,
    ) -> Result<Option<Verdict>, Refusal> {
        let node = locked(&self.decided).forget(key);
        self.reopen(node.as_ref());
        let own = claims.iter().filter(|claim| {
            let (_, _, facts) = claim;
            self.is_ours(claim) && facts.is_allocated && facts.is_reserved_for(uid)
        });
        let own: Vec<Named> = own.cloned().collect();
        if own.is_empty() {
            self.say(key, uid, claims, why).await?;
            return Ok(None);
        }
        let keeps = locked(&self.decided).keeps_part(key, now);
        if let Some(milliseconds) = keeps {
            return Ok(Some(Verdict::After(Duration::from_millis(milliseconds))));
        }
        if self.give_back(key, uid, &own).await? {
            self.count("given_back");
            locked(&self.decided).gave_back(key, now, fastrand::f64());
        }
        Ok(None)
    }
}

/// The nodes that the operator refused for one of the claims a short while ago, and the seconds until the
/// first of them is tried again.
fn left_out(claims: &[Named], now: i64) -> (BTreeSet<Name>, Option<u64>) {
    let (mut nodes, mut soonest) = (BTreeSet::new(), None);
    for (_, _, facts) in claims {
        for (number, last) in facts.rejections.iter().enumerate() {
            let before = facts.rejections.iter().take(number).filter(|of| of.node == last.node).count();
            let wait = (REFUSED.0 << before.min(10)).min(REFUSED.1);
            let since = last.time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
            let until = since.min(now).saturating_add(wait);
            if until > now {
                nodes.insert(Name::from(&*last.node));
                let left = (until - now).unsigned_abs();
                soonest = Some(soonest.map_or(left, |soonest: u64| soonest.min(left)));
            }
        }
    }
    (nodes, soonest)
}

/// A share of a device has an id of its own: a random UUID (RFC 9562, version 4).
fn share_id() -> input::Name {
    let random = fastrand::u128(..);
    let version = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{version:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-").into()
}

impl Reconcile for Allocator {
    type Index = Allocation;

    fn controller(&self) -> &Arc<Controller<Allocation>> {
        &self.kit
    }

    async fn reconcile(&self, key: &ObjectKey) -> Verdict {
        let found = self.kit.read(|index| {
            let (uid, pod) = index.pod(key)?;
            let claims = index.claims_of(&key.namespace, &pod);
            Some((uid, pod, claims))
        });
        let Some((uid, pod, claims)) = found.filter(|(_, pod, _)| !pod.deleting) else {
            self.forget(key);
            return Verdict::Done;
        };
        if locked(&self.decided).is_of_namesake(key, &uid) {
            self.forget(key);
        }
        // An event will come once every claim is there.
        let Some(claims) = claims else { return Verdict::Done };
        let is_settled = |(_, _, facts): &Named| facts.is_allocated && facts.is_reserved_for(&uid);
        locked(&self.decided).compare(key, &claims);
        let is_ours = |claim: &Named| self.is_ours(claim);
        let ours: Vec<Named> = claims.iter().filter(|claim| is_ours(claim)).cloned().collect();
        if claims.iter().all(is_settled) || (!ours.is_empty() && ours.iter().all(is_settled)) {
            self.assume(key, &pod, &claims);
            locked(&self.decided).is_rested(key);
            self.leave(key);
            return Verdict::Done;
        }
        // A Pod that was released and has lost a claim since, and no other Pod without the gate.
        let is_released = !pod.is_gated && ours.iter().any(|(_, _, facts)| facts.is_reserved_for(&uid));
        if ours.is_empty() || !(pod.is_gated || is_released) {
            self.forget(key);
            return Verdict::Done;
        }
        // Claims of other allocators come in the order of the Pod, so that no two wait for each other.
        let first = claims.iter().position(is_ours).unwrap_or_default();
        let is_open = |(_, _, facts): &Named| !facts.is_allocated;
        if claims.iter().take(first).any(is_open) {
            self.forget(key);
            return Verdict::Done;
        }
        // An event comes when a gate opens.
        if ours.iter().any(|(_, _, facts)| facts.is_held_back && !facts.is_allocated || facts.deleting) {
            self.forget(key);
            return Verdict::Done;
        }
        // The devices of others confine the Pod; what others allocate later is not known yet.
        let (known, later): (Vec<Named>, Vec<Named>) =
            claims.into_iter().partition(|claim| is_ours(claim) || claim.2.is_allocated);
        let pod = if later.is_empty() { pod } else { Arc::new(pod.without(&later)) };
        match self.gated(key, &uid, &pod, &known).await {
            Ok(verdict) => verdict,
            Err(Refusal::NotFound | Refusal::Replaced) => Verdict::Done,
            Err(refusal) => Verdict::Failed(refusal.to_string()),
        }
    }

    /// Before the first decision, every Pod that has its devices and no node yet is charged.
    fn leads_since(&self, _now: i64) {
        *locked(&self.decided) = Decided::default();
        let settled = self.kit.read(|index| {
            let pods = index.all_keys().into_iter().filter_map(|key| {
                let (uid, pod) = index.pod(&key)?;
                let claims = index.claims_of(&key.namespace, &pod)?;
                let all = claims.iter().all(|(_, _, facts)| facts.is_reserved_for(&uid));
                all.then_some((key, pod, claims))
            });
            pods.collect::<Vec<_>>()
        });
        settled.iter().for_each(|(key, pod, claims)| self.assume(key, pod, claims));
    }

    fn measure(&self, _now: i64) {
        let waiting = self.kit.read(|index| index.shapes.waiting());
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}
