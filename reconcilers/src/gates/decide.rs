//! Next steps of a Pod: a pure function of what is known of the cluster and of what this process remembers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_machinery::controller::{ObjectKey, Outcome};
use dragoman_machinery::watch::Record;
use dragoman_machinery::write::Write;
use dragoman_objects::Name;
use tokio::time::Instant;

use super::controller::Options;
use super::facts::PodFacts;
use super::index::{Gates, KnownClaim, NamedClaim};
use super::memory::Memory;
use super::pass::{Notice, Purpose, Step};
use super::plan::{self, Claims, Opened, Reason, Wait};
use super::{attributes, writes};
use crate::cluster::{Assumed, Cluster};
use crate::holders::Holders;
use dragoman_cluster::{Account, account};

/// Wait before another look at a Pod that waits for something that brings no event: a fact about its devices, a Node that is
/// missing, or another Pod of its PodGroup.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// Wait before another look at a Pod while a watch catches up.
const CATCHES_UP: Duration = Duration::from_millis(250);

/// Facts that a decision about a Pod is made on.
pub(super) struct Look<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) uid: Name,
    pub(super) pod: Arc<PodFacts>,
    pub(super) claims: Vec<NamedClaim>,
    /// Whether the facts are those of now, and not of the moment in which a watch was cut off.
    pub(super) is_current: bool,
    /// The time of the look.
    pub(super) now: Instant,
    /// The time that people read.
    pub(super) time: jiff::Timestamp,
    pub(super) options: &'a Options,
    pub(super) index: &'a Gates,
    pub(super) cluster: &'a Cluster,
    /// Entries of Pod status that kube-scheduler can read; absent while that is not known.
    pub(super) scheduler: Option<Scheduler>,
}

/// A decision that is being made.
pub(super) struct Decision<'a> {
    pub(super) look: &'a Look<'a>,
    /// Decisions that the index of the cluster does not show yet.
    pub(super) assumed: &'a mut Assumed,
    pub(super) holders: &'a mut Holders,
    pub(super) memory: &'a mut Memory,
    pub(super) steps: VecDeque<Step>,
    waits_for: Option<Name>,
}

/// Next steps of a Pod.
pub(super) struct Decided {
    pub(super) steps: VecDeque<Step>,
    /// When it is looked at again after them.
    pub(super) then: Outcome,
    /// The node of which it is not known what is left.
    pub(super) waits_for: Option<Name>,
}

/// Why a gate is not opened now.
#[derive(Debug)]
pub(super) enum Stop {
    /// The Pod waits.
    Wait(Wait),
    /// The Pod is looked at again after the steps, or another party is at work.
    Then(Outcome),
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Self {
        Self::Wait(wait)
    }
}

/// After a write whose result the next look has to see: the kit brings the key back once the index has it.
pub(super) const NEXT_LOOK: Stop = Stop::Then(Outcome::After(Duration::ZERO));

/// A Pod on a node, as it is accounted for.
enum Placed {
    /// The node.
    On(Name),
    /// The Pod fits on none of the nodes; the last one, and why.
    Nowhere(Name, String),
    /// The claims of the Pod have no node in common; the text names the claims.
    NoCommonNode(String),
    /// Claims and containers of the Pod take more than its Pod-level resources; the text says of which.
    OverBudget(String),
}

/// Decides what is next for a Pod.
pub(super) fn decide(
    look: &Look<'_>,
    assumed: &mut Assumed,
    holders: &mut Holders,
    memory: &mut Memory,
) -> Decided {
    memory.together.ends(look.key);
    memory.stubborn.looks_again(look.key);
    let mut decision = Decision { look, assumed, holders, memory, steps: VecDeque::new(), waits_for: None };
    let decided = if look.pod.gate.is_some() { decision.gated() } else { Ok(decision.released()) };
    let then = match decided {
        Ok(verdict) | Err(Stop::Then(verdict)) => verdict,
        Err(Stop::Wait(wait)) => decision.waits(&wait),
    };
    Decided { steps: decision.steps, then, waits_for: decision.waits_for }
}

impl Decision<'_> {
    pub(super) fn send(&mut self, purpose: Purpose, write: Write) {
        self.steps.push_back(Step::Send(purpose, Box::new(write)));
    }

    pub(super) fn say(&mut self, said: Notice) {
        self.steps.push_back(Step::Say(said));
    }

    fn gated(&mut self) -> Result<Outcome, Stop> {
        let look = self.look;
        let default = look.options.default_allocator.as_deref();
        let too_many = plan::too_many(look.pod.accounted.left_out);
        let claims = || plan::claims(look.pod.earlier_gate.as_ref(), &look.claims, default);
        let ready = match too_many.map_or_else(claims, Claims::Wait) {
            Claims::Wait(wait) => {
                self.memory.stubborn.has_lost(look.key);
                self.charges_nothing();
                self.give_back();
                self.nominate(None)?;
                self.withdraw();
                return self.unallocated(wait);
            }
            Claims::Label(claims) => {
                self.label(&claims, default.unwrap_or_default());
                return Ok(Outcome::Done);
            }
            Claims::NoAllocator => return Ok(self.release(None, Opened::NoAllocator, &BTreeMap::new())),
            Claims::Ready(ready) => ready,
        };
        let takes_out = self.takes_out_again(&ready);
        if takes_out && !self.steps.is_empty() {
            return Ok(Outcome::Done);
        }
        let is_taken = |claim: &&&KnownClaim| self.memory.together.is_anothers(look.key, &claim.uid);
        if takes_out || ready.iter().any(|claim| is_taken(&claim)) {
            let message = "a claim is being taken back from the PodGroup".to_owned();
            let said = self.waits(&Wait::on_its_way(Reason::NotReserved, message));
            return Ok(said.most_urgent(Outcome::After(AGAIN)));
        }
        if let Some(why) = self.promised_twice(&ready) {
            return Ok(self.reject(&ready, "", Reason::PromisedTwice, &why));
        }
        if let Some((claim, why)) = self.wrongly_given(&ready) {
            return Ok(self.reject(&[claim], "", Reason::WrongDevices, &why));
        }
        match self.node(&ready)? {
            Placed::On(node) => self.placed(&ready, &node),
            Placed::Nowhere(node, why) => Ok(self.reject(&ready, &node, Reason::DoesNotFit, &why)),
            Placed::NoCommonNode(why) => Ok(self.reject(&ready, "", Reason::NoCommonNode, &why)),
            Placed::OverBudget(why) => Ok(self.reject(&ready, "", Reason::OverBudget, &why)),
        }
    }

    /// A Pod that is accounted for on its node: what is left until its gate is opened.
    fn placed(&mut self, ready: &[&KnownClaim], node: &Name) -> Result<Outcome, Stop> {
        let look = self.look;
        if let Err(wait) = plan::release_gates(ready) {
            self.nominate(None)?;
            return Err(wait.into());
        }
        // Not before: while a release gate is closed, the node may be on its way.
        let facts = look.index.nodes.get("", node).and_then(Record::readable);
        if let Some(why) =
            plan::unsuitable(&look.pod, facts.map(|facts| &**facts), &|name| look.index.is_backed(name))
        {
            self.charges_nothing();
            return Ok(self.reject(ready, node, Reason::NodeUnsuitable, &why));
        }
        let attributes = match self.attributes() {
            Ok(attributes) => attributes,
            Err(wait) => return self.lacks_attribute(ready, node, wait),
        };
        self.nominate(Some(node))?;
        self.publish(node)?;
        if let Some(left) = self.memory.nominated.settles(look.key, node, look.now) {
            return Ok(Outcome::After(left));
        }
        let is_confined = ready.iter().any(|claim| plan::confines(&claim.facts));
        let verdict = self.release((!is_confined).then_some(node), Opened::Released, &attributes);
        if self.steps.iter().any(|step| matches!(step, Step::Send(Purpose::Open(..), _))) {
            self.say_uncounted(node);
        }
        Ok(verdict)
    }

    /// The node of a Pod whose claims are ready.
    ///
    /// # Errors
    /// As [`Self::place`]; or an allocation does not decode.
    fn node(&mut self, ready: &[&KnownClaim]) -> Result<Placed, Wait> {
        let look = self.look;
        let backed = look.pod.placement.as_ref().map(|of| of.backed(|name| look.index.is_backed(name)));
        let is_backed = |name: &str| backed.as_ref().is_some_and(|backed| backed.contains(name));
        match plan::nodes_for(&look.pod, ready, &look.index.nodes_of(ready), &is_backed) {
            Ok(nodes) => self.place(&nodes),
            Err(Wait { reason: Reason::NoCommonNode, message, .. }) => Ok(Placed::NoCommonNode(message)),
            Err(wait) => Err(wait),
        }
    }

    /// Accounts for a Pod on the first of the nodes on which it fits, and charges it there.
    ///
    /// # Errors
    /// Something about the Pod or about a node is not known.
    fn place(&mut self, nodes: &[Name]) -> Result<Placed, Wait> {
        let unknown = |message: String| Wait::new(Reason::Unaccounted, message);
        let Look { key, pod, cluster, index, .. } = self.look;
        let ledger = cluster.ledger();
        // A node that was chosen before stays chosen while the Pod fits there.
        let before = self.assumed.node_of(key).cloned();
        let (first, others): (Vec<&Name>, Vec<&Name>) =
            nodes.iter().partition(|node| Some(*node) == before.as_ref());
        let mut refused = None;
        for node in first.into_iter().chain(others) {
            if let Some(pod) = index.uncounted_on(node) {
                // Of no business of the tenant that waits.
                tracing::warn!(%node, namespace = %pod.namespace, pod = %pod.name, "its status does not name all claims that are reserved for it");
                let why = "a Pod has devices there that its status does not name";
                return Err(unknown(format!("node {node}: {why}")));
            }
            let Some(on_node) = ledger.node(node) else {
                refused = Some((node, "there is no such node".to_owned()));
                continue;
            };
            let candidate = ledger.candidate(&pod.accounted, node);
            match account(&self.assumed.over(on_node, node, Some(key)), &candidate) {
                Account::Fits => {
                    self.assumed.put(key, node, candidate.pod);
                    return Ok(Placed::On(node.clone()));
                }
                Account::Refused(why) => refused = Some((node, why)),
                Account::OverBudget(why) => {
                    self.assumed.remove(key);
                    return Ok(Placed::OverBudget(why));
                }
                Account::Unknown(why) => {
                    self.waits_for = Some(node.clone());
                    return Err(unknown(format!("node {node}: {why}")));
                }
            }
        }
        self.assumed.remove(key);
        refused
            .map(|(node, why)| Placed::Nowhere(node.clone(), why))
            .ok_or_else(|| unknown("there is no node".to_owned()))
    }

    /// Nothing is assumed of the Pod any more; its node has to hold less.
    pub(super) fn charges_nothing(&mut self) {
        self.holders.forget(self.assumed, self.look.key);
    }

    fn label(&mut self, claims: &[&KnownClaim], allocator: &str) {
        for claim in claims {
            self.send(Purpose::Label, writes::label(&self.look.key.namespace, claim, allocator));
        }
    }

    /// Returns the answers to what the Pod asks about its devices, by annotation; empty where it asks
    /// nothing. Warns the author of the Pod if there is no answer, unless the condition of the Pod already
    /// gives that reason.
    fn attributes(&mut self) -> Result<BTreeMap<String, String>, Wait> {
        let Look { pod, cluster, .. } = self.look;
        if pod.asked.is_none() {
            return Ok(BTreeMap::new());
        }
        let answers = attributes::of(pod, cluster.ledger());
        if let Err(wait) = &answers
            && !self.is_said(wait)
        {
            self.say(Notice::Warning(wait.reason, "Release", wait.message.clone()));
        }
        answers
    }

    /// A driver may publish the attribute in a moment; for longer than that the devices are not kept from others.
    fn lacks_attribute(&mut self, claims: &[&KnownClaim], node: &str, wait: Wait) -> Result<Outcome, Stop> {
        let Look { key, now, .. } = *self.look;
        let since = self.memory.closed.closed(key, wait.reason, now);
        if now - since < plan::WITHOUT_ATTRIBUTE {
            return Err(wait.into());
        }
        self.charges_nothing();
        Ok(self.reject(claims, node, wait.reason, &wait.message))
    }

    /// A Pod that an allocator finds no node for is let go at the age that was chosen. Until then it waits.
    fn unallocated(&mut self, wait: Wait) -> Result<Outcome, Stop> {
        let Look { pod, claims, options, time, .. } = self.look;
        let may_go = wait.reason == Reason::NotAllocated && plan::may_be_let_go(claims);
        let Some(after) = options.let_go_after.filter(|_| may_go) else { return Err(wait.into()) };
        let Some(left) = plan::let_go_after(&pod.created, after, *time) else { return Err(wait.into()) };
        if left.is_zero() {
            return Ok(self.release(None, Opened::LetGo, &BTreeMap::new()));
        }
        Ok(self.waits(&wait).most_urgent(Outcome::After(left)))
    }

    fn release(&mut self, pin: Option<&Name>, why: Opened, attributes: &BTreeMap<String, String>) -> Outcome {
        let Look { key, uid, pod, is_current, .. } = self.look;
        // kube-scheduler may have bound Pods on the node meanwhile, and may not know it itself if the answer was lost.
        if why == Opened::Released && !is_current {
            let wait =
                Wait::new(Reason::Unaccounted, "a watch catches up with what it has missed".to_owned());
            return self.waits(&wait).most_urgent(Outcome::After(CATCHES_UP));
        }
        if let Some(write) = writes::release(key, uid, pod, why, pin.map(|node| &**node), attributes) {
            self.send(Purpose::Open(why, pin.cloned()), write);
            // Of a released Pod the annotation says it already.
            if pod.condition.is_some() || why != Opened::Released {
                self.waits_no_more(why);
            }
        }
        Outcome::Done
    }

    /// Says that a Pod waits for nothing of ours any more.
    pub(super) fn waits_no_more(&mut self, why: Opened) {
        let Look { key, uid, pod, .. } = self.look;
        let condition = writes::condition(key, uid, pod, Err(why), &self.time(), false);
        self.send(Purpose::Condition, condition);
    }

    /// The time as objects of Kubernetes have it.
    pub(super) fn time(&self) -> String {
        self.look.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Whether the condition of the Pod has the reason of a wait.
    pub(super) fn is_said(&self, wait: &Wait) -> bool {
        self.look.pod.condition.as_ref().is_some_and(|(_, reason)| **reason == *wait.reason.word())
    }

    /// Says what a Pod waits for, once it has waited a moment.
    pub(super) fn waits(&mut self, wait: &Wait) -> Outcome {
        let Look { key, uid, pod, now, .. } = self.look;
        let since = self.memory.closed.closed(key, wait.reason, *now);
        let said = self.memory.closed.said(key);
        let again = match wait.reason {
            // The account of a node wakes the Pod; a Node or an attribute that is missing does not.
            Reason::Unaccounted | Reason::AttributeMissing => Outcome::After(AGAIN),
            _ => Outcome::Done,
        };
        let is_said = self.is_said(wait);
        let due = match &said {
            // A message of another process stays: it may be as good.
            None if is_said && !pod.lacks_message => return again,
            Some((_, message)) if is_said && *message == wait.message => return again,
            Some((at, _)) if is_said => *at + plan::REWORDED,
            _ => plan::condition_due(since + wait.patience, said.as_ref().map(|(at, _)| *at)),
        };
        if *now < due {
            return again.most_urgent(Outcome::After(due - *now));
        }
        self.say(Notice::Condition(wait.message.clone()));
        let has_message = pod.is_message_free && !self.memory.message_refused.contains(key);
        self.send(Purpose::Condition, writes::condition(key, uid, pod, Ok(wait), "", has_message));
        again
    }
}
