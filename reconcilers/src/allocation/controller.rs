//! The controller: its part of the kit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_allocator::input::{self, Allocation as Devices};
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::wire::{Name, PodGroup};
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, Index as _, ObjectKey, Reconcile, Running, Verdict, regarding,
};
use dragoman_machinery::kind::{Kind, POD};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::user_of;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Semaphore;

use super::allowance::Allowances;
use super::decide::{Decision, Question, left_out};
use super::decided::Decided;
use super::gangs::{Gang, Member, gang};
use super::index::{Allocation, ClaimFacts, Named, PodFacts};
use super::rank::Order;
use super::stance::{Stance, is_for, stance};
use super::turns::Looked;
use super::whole::{Owned, WholeClaim, WholeClass, WholeNode, WholePod, WholeRule, WholeSlice};
use super::{rights, writes};
use crate::protocol::{self, LaterGates, shown};

/// What can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of the allocator: it allocates the claims whose label names it.
    pub name: Box<str>,
    /// The order of nodes that a Pod likes equally.
    pub order: Order,
    /// The gates of other controllers that are opened after that of the protocol.
    pub later_gates: LaterGates,
}

impl Default for Options {
    fn default() -> Self {
        Self { name: "dragoman".into(), order: Order::default(), later_gates: LaterGates::new() }
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
        asked: &[],
        start: Box::new(move |assembly| Allocator::start(assembly, options.clone())),
    }
}

const NAME: &str = "allocation";
/// The reason of verdicts and Events: no node takes the Pod.
const NO_NODE: &str = "NoNode";
/// What a Pod waits for that is not the first of its shape.
const BEHIND: &str = "a Pod that asks for the same comes first";
/// The reason of verdicts and Events: the Pods of the PodGroup are not all there.
const GANG: &str = "GangIncomplete";
/// The reason of verdicts and Events: the search for devices takes too long, and goes on later.
pub(super) const TOO_LONG: &str = "TooLong";
/// The reason of verdicts and Events: the API server does not store what was decided.
const REFUSED: &str = "Refused";
/// How soon a Pod is looked at again whose claim was just decided on for another Pod that shares it, or whose search waits for
/// that of another Pod.
const SHARED: Duration = Duration::from_millis(200);
/// The longest rest of a Pod that another leader has put to rest: a minute, and as much by chance.
const LONGEST_REST: Duration = Duration::from_mins(2);
/// A verdict is written anew after so many seconds at the earliest.
const VERDICT_STAYS: i64 = 30;

/// The controller.
pub(super) struct Allocator {
    pub(super) kit: Arc<Controller<Allocation>>,
    pub(super) options: Options,
    /// Decisions that the index does not show yet. A decision is made under the lock, so that nothing is
    /// given twice.
    pub(super) decided: Mutex<Decided>,
    /// What long searches may still take.
    pub(super) allowances: Mutex<Allowances>,
    /// One long search runs at a time.
    pub(super) aside: Semaphore,
    outcomes: Outcomes,
    waiting: Gauge,
}

type Outcomes = Family<Vec<(&'static str, &'static str)>, Counter>;

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
        kit.note(|index| {
            index.namespace = Arc::clone(&assembly.context.namespace);
            index.later.clone_from(&options.later_gates);
        });
        let watches = &mut assembly.watches;
        kit.watch::<WholeNode>(watches);
        kit.watch::<WholeSlice>(watches);
        kit.watch::<WholeClass>(watches);
        kit.watch::<WholeRule>(watches);
        kit.watch::<DeviceFootprint>(watches);
        kit.watch::<Owned>(watches);
        kit.watch::<WholeClaim>(watches);
        kit.watch::<PodGroup>(watches);
        kit.watch::<WholePod>(watches);
        Arc::new(Self {
            kit,
            options,
            decided: Mutex::default(),
            allowances: Mutex::default(),
            aside: Semaphore::new(1),
            outcomes,
            waiting,
        })
    }

    pub(super) fn count(&self, outcome: &'static str) {
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
    pub(super) fn reopen(&self, node: Option<&Name>) {
        let Some(node) = node else { return };
        let woken = self.kit.note(|index| index.changed_at(Some(node)));
        self.kit.enqueue(woken);
    }

    /// A Pod does not wait any more; the next of its shape is looked at.
    pub(super) fn leave(&self, key: &ObjectKey) {
        let next = self.kit.note(|index| index.shapes.leave(key));
        self.kit.enqueue(next.into_iter().collect());
    }

    /// Charges a Pod that has its devices to the node where they are, until it is bound.
    fn assume(&self, key: &ObjectKey, pod: &PodFacts, claims: &[Named]) {
        let mut decided = locked(&self.decided);
        let charge = self.kit.read(|index| {
            let mut nodes = claims.iter().filter_map(|(_, _, facts)| facts.node.as_deref());
            let node = Name::from(nodes.next()?);
            Some((index.ledger.candidate(&pod.accounted, &node).pod, node))
        });
        if let Some((charge, node)) = charge {
            decided.assumed.put(key, &node, charge);
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
        for (name, claim_uid, facts) in claims.iter().filter(|claim| is_for(&self.options.name, claim)) {
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
        self.count("allocated");
        Ok(())
    }

    /// Says why no node takes a Pod.
    pub(super) async fn say(
        &self,
        key: &ObjectKey,
        pod: &Name,
        claims: &[Named],
        why: &[String],
    ) -> Result<(), Refusal> {
        let (nodes, left_out) = self.kit.read(|index| (index.node_names().len(), index.left_out()));
        let nodes_in_words = if nodes == 1 {
            "the only node does not take".to_owned()
        } else {
            format!("none of {nodes} nodes takes")
        };
        let reasons =
            if why.is_empty() { "all were refused a short while ago".to_owned() } else { why.join("; ") };
        let left_out = left_out.map(|why| format!("; {why}")).unwrap_or_default();
        let message = format!("{nodes_in_words} the Pod: {reasons}{left_out}");
        self.verdict(key, pod, claims, (NO_NODE, &message, None)).await
    }

    /// Says why a Pod has no devices: in an Event, and on its first claim without devices.
    pub(super) async fn verdict(
        &self,
        key: &ObjectKey,
        pod: &Name,
        claims: &[Named],
        (reason, message, retry_after): (&'static str, &str, Option<u64>),
    ) -> Result<(), Refusal> {
        let Some((name, uid, facts)) = claims.iter().find(|(_, _, facts)| !facts.is_allocated) else {
            return Ok(());
        };
        let message = shown(message);
        let about = regarding(POD, &key.namespace, &key.name, pod);
        self.kit.warn(about, reason, "Allocate", message.to_string());
        let now = clock::now();
        if let Some(known) = &facts.verdict {
            let since = known.time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
            // A time that is still to come is that of a clock that was set back.
            let is_fresh = known.reason == reason && (0..VERDICT_STAYS).contains(&(now.as_second() - since));
            if known.message == *message || is_fresh {
                return Ok(());
            }
        }
        let nodes = self.kit.read(|index| index.node_names().len());
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let reason = reason.to_owned();
        let verdict = protocol::Verdict { reason, message: message.into(), nodes, time, retry_after };
        let write = writes::verdict(&key.namespace, name, uid, facts, &verdict);
        if let Some(write) = write {
            self.kit.send(key, &write).await?;
        }
        Ok(())
    }

    /// Looks for devices. What the API server refuses to store is said as what no node takes is.
    async fn open(
        &self,
        key: &ObjectKey,
        uid: &Name,
        pod: &PodFacts,
        claims: &[Named],
    ) -> Result<Verdict, Refusal> {
        if !self.kit.read(|index| index.owners.know_oneself()) {
            let account = user_of(&self.kit.context.api).await?.as_str().into();
            let woken = self.kit.note(|index| index.is_user(account));
            self.kit.enqueue(woken);
        }
        let outcome = self.gated(key, uid, pod, claims).await;
        if let Err(Refusal::Invalid(why) | Refusal::Rbac(why) | Refusal::AdminAccess(why)) = &outcome {
            let message = format!("the API server refuses the allocation: {why}");
            self.verdict(key, uid, claims, (REFUSED, &message, None)).await?;
        }
        outcome
    }

    async fn gated(
        &self,
        key: &ObjectKey,
        uid: &Name,
        pod: &PodFacts,
        claims: &[Named],
    ) -> Result<Verdict, Refusal> {
        let (now, steady) = (clock::now(), clock::steady().as_millisecond());
        // A write whose answer was lost is repeated as it was: the guard refuses it if it has been done.
        let standing = locked(&self.decided).standing(key);
        if let Some(decision) = standing {
            self.write(key, uid, claims, &decision).await?;
            return Ok(Verdict::Done);
        }
        let (refused, again) = left_out(claims, now.as_second());
        let rests = {
            let mut decided = locked(&self.decided);
            if let Some(before) = claims.iter().find_map(|(_, _, facts)| rests_on(facts, now)) {
                decided.rests_on(key, before, steady);
            }
            if decided.has_lost(key) && refused.is_empty() {
                decided.gave_back(key, steady, fastrand::f64());
            }
            decided.rests(key, steady)
        };
        if let Some(milliseconds) = rests {
            return Ok(Verdict::After(Duration::from_millis(milliseconds)));
        }
        let gang = {
            let decided = locked(&self.decided);
            self.kit.read(|index| gang(index, &decided, &self.options.name, key, pod))
        };
        let members = match gang {
            None => None,
            Some(Gang::Decide(members, needed)) => Some((members, needed)),
            Some(Gang::Behind(first)) => {
                self.leave(key);
                self.kit.enqueue(vec![first]);
                return Ok(Verdict::Done);
            }
            Some(Gang::Waits(why)) => {
                self.leave(key);
                self.verdict(key, uid, claims, (GANG, &why, None)).await?;
                return Ok(Verdict::Done);
            }
        };
        let again = again.map_or(Verdict::Done, |seconds| Verdict::After(Duration::from_secs(seconds)));
        self.take_turn((key, uid), pod, claims, members, (&refused, again)).await
    }

    /// Decides about a Pod, or about its gang, if no other one of its shape comes first. `refused`: the nodes
    /// that are left out, and when the first of them is tried again.
    async fn take_turn(
        &self,
        (key, uid): (&ObjectKey, &Name),
        pod: &PodFacts,
        claims: &[Named],
        gang: Option<(Vec<Member>, usize)>,
        (refused, again): (&BTreeSet<Name>, Verdict),
    ) -> Result<Verdict, Refusal> {
        let (now, steady) = (clock::now().as_second(), clock::steady().as_millisecond());
        let in_gang = gang.is_some();
        let (shape, before) = self.kit.read(|index| {
            let of = claims.iter().filter_map(|(_, uid, _)| index.snapshot.claim(uid).cloned());
            let shape = Question { key, pod, claims: of.collect(), in_gang }.shape();
            (shape, index.shapes.before(shape, &pod.turn(key)).cloned())
        });
        if let Some(before) = before {
            let mut why = self.kit.note(|index| {
                index.shapes.wait(shape, pod.turn(key));
                index.shapes.reasons(shape).iter().map(ToString::to_string).collect::<Vec<_>>()
            });
            self.kit.enqueue(vec![before]);
            why.push(BEHIND.to_owned());
            self.say_once(key, uid, claims, &why).await?;
            return Ok(again);
        }
        let outcome = match gang {
            Some((members, needed)) => self.gang(key, &members, needed, now).await,
            None => self.decide(key, (uid, pod), claims, refused).await,
        };
        match outcome {
            Looked::Decided(decision) => {
                self.leave(key);
                self.write(key, uid, claims, &decision).await?;
                Ok(Verdict::Done)
            }
            Looked::Placed => {
                self.leave(key);
                Ok(Verdict::Done)
            }
            Looked::Waits => Ok(Verdict::After(SHARED)),
            Looked::TooLong => {
                self.count("refused");
                self.kit.note(|index| index.shapes.wait(shape, pod.turn(key)));
                self.rest(key, uid, claims, steady).await
            }
            Looked::Refused(why) => {
                self.count("refused");
                self.kit.note(|index| index.shapes.wait(shape, pod.turn(key)));
                let kept = self.refused(key, uid, claims, &why, steady).await?;
                Ok(kept.unwrap_or(again))
            }
        }
    }

    /// Tells a Pod that another one of its shape comes first, and why every node has refused that one, if any has. It is
    /// said once: whatever becomes of the first one, the others still wait.
    async fn say_once(
        &self,
        key: &ObjectKey,
        uid: &Name,
        claims: &[Named],
        why: &[String],
    ) -> Result<(), Refusal> {
        let is_told =
            |(_, _, facts): &Named| facts.verdict.as_ref().is_some_and(|known| known.reason == NO_NODE);
        match why {
            _ if claims.iter().any(is_told) => Ok(()),
            [only] => self.verdict(key, uid, claims, (NO_NODE, only, None)).await,
            _ => self.say(key, uid, claims, why).await,
        }
    }
}

/// For how long a claim rests because a search took too long, in milliseconds: in all, and from now on. A time that is still to
/// come is that of another clock, or made up.
fn rests_on(facts: &ClaimFacts, now: jiff::Timestamp) -> Option<(i64, i64)> {
    let verdict = facts.verdict.as_ref().filter(|verdict| verdict.reason == TOO_LONG)?;
    let since = verdict.time.parse::<jiff::Timestamp>().ok()?;
    let rest = Duration::from_secs(verdict.retry_after?).min(LONGEST_REST);
    let rest = i64::try_from(rest.as_millis()).unwrap_or(i64::MAX);
    let passed = now.as_millisecond().saturating_sub(since.as_millisecond()).max(0);
    Some((rest, rest.saturating_sub(passed)))
}

/// A share of a device has an id of its own: a random UUID (RFC 9562, version 4).
pub(super) fn share_id() -> input::Name {
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

    fn lacks(&self) -> Option<Kind> {
        self.kit.read(Allocation::lacks)
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
        if let Some(claims) = &claims {
            locked(&self.decided).compare(key, claims);
        }
        let outcome = match stance(&self.options.name, &uid, &pod, claims) {
            Stance::Incomplete => return Verdict::Done,
            Stance::Nothing => {
                self.forget(key);
                return Verdict::Done;
            }
            Stance::Settled(claims) => {
                self.assume(key, &pod, &claims);
                self.leave(key);
                if pod.group.is_some() && !locked(&self.decided).was_settled(key) {
                    // With it the minimum may be there.
                    self.kit.enqueue(self.kit.read(|index| index.groups.beside(key)));
                }
                self.holds(key, &uid, &pod, &claims).await
            }
            Stance::Open(pod, claims) => self.open(key, &uid, &pod, &claims).await,
        };
        match outcome {
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
