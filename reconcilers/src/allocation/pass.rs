//! One pass about a Pod: the steps that were decided on, carried out one after the other.

use std::collections::{HashMap, VecDeque};

use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::controller::{Answer, LiveRead, Next, ObjectKey, Outcome, Pass, ReadBy};
use dragoman_machinery::kind::POD;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Write, Written};
use dragoman_objects::Allocation as Devices;
use dragoman_objects::{ConsumerReference, Name, Pod};

use super::index::{Allocation, NamedClaim};
use super::verdicts::{REFUSED, Words};
use super::writes;
use dragoman_crds::protocol::GATE;

/// A step about a Pod.
#[derive(Debug)]
pub(super) enum Step {
    /// A write whose content is known.
    Send(Purpose, Box<Write>),
    /// The allocation of a claim, if it has none, and the reservation for the Pod, on the version that the steps before have
    /// left.
    Allocate(Box<Assignment>),
    /// Asks the API server whether the gates of these Pods, with their uids, are closed still: the watch may be late, and a Pod may
    /// run (P4 in docs/protocol.md). If one is not, no step follows.
    Confirm(Vec<(ObjectKey, Name)>),
    /// Says something.
    Say(Notice),
}

/// Devices and reservations that a claim is to get.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) claim: NamedClaim,
    /// Devices to allocate; `None` if the claim has an allocation.
    pub(super) devices: Option<Devices>,
    /// The node of the devices.
    pub(super) node: Name,
    /// The Pods that are reserved in the same write.
    pub(super) along: Vec<ConsumerReference>,
}

/// Purpose of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To give the claim of this uid the finalizer.
    Protect(Name),
    /// To allocate and reserve the claim of this uid: its name, and the node.
    Allocate(Name, Name, Name),
    /// To take a reservation back.
    GiveBack,
    /// To say why a claim is not allocated.
    Verdict,
}

/// Result of a pass, for people or for the next look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// An Event about the Pod: its reason and its text.
    Warning(&'static str, String),
    /// The allocation of the claim of this uid is about to be written on this version.
    Writes(Name, Name),
    /// The API server refuses it.
    NotWritten(Name),
    /// The API server would refuse the same write again: the Pod rests.
    NotStored,
    /// The claim of this name was allocated on this node.
    Allocated(Name, Name),
    /// Everything that was decided is written.
    AllAllocated,
    /// No node takes the Pod.
    NoNode,
    /// The devices of the Pod are given back.
    GaveBack,
}

/// The pass.
#[derive(Debug)]
pub(super) struct AllocationPass {
    key: ObjectKey,
    uid: Name,
    steps: VecDeque<Step>,
    most: usize,
    /// The versions of claims that writes of the pass have made, by uid.
    versions: HashMap<Name, Name>,
    words: Words,
    then: Outcome,
    /// The Pods that are asked about, with their uids.
    confirmed: Vec<(ObjectKey, Name)>,
    /// Results of the pass, for people and for the next look.
    pub(super) report: Vec<Notice>,
}

impl AllocationPass {
    /// A pass about the Pod of this uid that ends with `then` after all its steps.
    pub(super) fn new(key: &ObjectKey, uid: &Name, words: Words, steps: Vec<Step>, then: Outcome) -> Self {
        // What the API server refuses is said with one more write.
        let most = steps.len() + 1;
        let (steps, versions) = (steps.into(), HashMap::new());
        let (confirmed, report) = (Vec::new(), Vec::new());
        Self { key: key.clone(), uid: uid.clone(), steps, most, versions, words, then, confirmed, report }
    }

    fn refused(&mut self, refusal: &Refusal) {
        self.steps.clear();
        self.then = Outcome::refused(refusal);
    }

    /// Ends the pass with a refusal. A refusal to store the allocation is also said in an Event and a
    /// verdict, like that of a Pod that no node takes.
    fn not_stored(&mut self, refusal: &Refusal) {
        self.refused(refusal);
        if let Refusal::Invalid(why) | Refusal::Rbac(why) | Refusal::AdminAccess(why) = refusal {
            self.report.push(Notice::NotStored);
            let message = format!("the API server refuses the allocation: {why}");
            self.steps.extend(self.words.verdict(REFUSED, &message, None));
        }
    }
}

impl Pass<Allocation> for AllocationPass {
    type Purpose = Purpose;

    fn most_steps(&self) -> usize {
        self.most
    }

    fn next(&mut self) -> Next<Purpose> {
        loop {
            match self.steps.pop_front() {
                None => return Next::Rest(self.then.clone()),
                Some(Step::Say(said)) => self.report.push(said),
                Some(Step::Send(purpose, write)) => return Next::Send { write, purpose },
                Some(Step::Allocate(assignment)) => {
                    let Assignment { claim, devices, node, along } = *assignment;
                    let version = self.versions.get(&claim.uid).unwrap_or(&claim.facts.version).clone();
                    let (devices, time) = (devices.as_ref(), self.words.time());
                    let write =
                        writes::allocate(&self.key, &self.uid, &claim, &version, devices, &time, &along);
                    // Before it is sent: the answer may be lost.
                    self.report.push(Notice::Writes(claim.uid.clone(), version));
                    let purpose = Purpose::Allocate(claim.uid, claim.name, node);
                    return Next::Send { write: Box::new(write), purpose };
                }
                Some(Step::Confirm(pods)) => {
                    let read = |(key, _): &(ObjectKey, Name)| {
                        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
                        LiveRead { kind: POD, namespace, name, by: ReadBy::List }
                    };
                    let reads = pods.iter().map(read).collect();
                    self.confirmed = pods;
                    return Next::Read(reads);
                }
            }
        }
    }

    fn read(&mut self, read: &LiveRead, answer: Answer) {
        let uid = self.confirmed.iter().find(|(key, _)| *key.name == *read.name).map(|(_, uid)| uid);
        let found = answer.and_then(|live| match live {
            Live::NotFound => Ok(false),
            Live::Found(body) => decode::<Pod>(&body).map(|pod| {
                let has_gate = pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE);
                Some(&pod.metadata.uid) == uid && has_gate
            }),
        });
        match found {
            Ok(true) => {}
            Ok(false) => self.steps.clear(),
            Err(refusal) => self.refused(&refusal),
        }
    }

    fn sent(&mut self, purpose: Purpose, outcome: Result<Written, Refusal>) {
        match (purpose, outcome) {
            (Purpose::Protect(claim), Ok(written)) => {
                self.versions.insert(claim, written.meta.resource_version);
            }
            (Purpose::Allocate(_, name, node), Ok(_)) => self.report.push(Notice::Allocated(name, node)),
            (Purpose::GiveBack | Purpose::Verdict, Ok(_)) => {}
            (Purpose::Allocate(uid, ..), Err(refusal)) => {
                if refusal.is_without_effect() {
                    self.report.push(Notice::NotWritten(uid));
                }
                self.not_stored(&refusal);
            }
            (Purpose::Protect(_), Err(refusal)) => self.not_stored(&refusal),
            // The failure that it was about counts.
            (Purpose::Verdict, Err(_)) if matches!(self.then, Outcome::Failed(_)) => self.steps.clear(),
            (Purpose::GiveBack | Purpose::Verdict, Err(refusal)) => self.refused(&refusal),
        }
    }
}
