//! One pass about a Pod: the steps that were decided on, carried out one after the other. What an answer means for the next
//! look is learnt, not decided here.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use dragoman_accounting::claim::contribution::Generation;
use dragoman_machinery::api::decode;
use dragoman_machinery::controller::{Failure, Next, ObjectKey, Outcome, Pass};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Write, Written};
use dragoman_objects::{Name, Pod};

use super::index::{Gates, KnownClaim};
use super::plan::{Opened, Reason};
use super::writes;
use crate::pod_status::{DROPPED, Inquiry, Publication};

/// A step about a Pod.
#[derive(Debug)]
pub(super) enum Step {
    /// A write whose content is known.
    Send(Purpose, Box<Write>),
    /// Takes the Pod, or its PodGroup, out of the consumers of a claim, as the steps before have left the claim.
    TakeOut(KnownClaim),
    /// Finds out what the API server keeps.
    Ask(Inquiry),
    /// Says something.
    Say(Notice),
}

/// Purpose of a write about a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To give a claim the default allocator.
    Label,
    /// To be sure that the gate is closed still: another leader may see it otherwise, and release the Pod in this moment.
    Confirm,
    /// To take the Pod out of the consumers of the claim of this uid.
    TakeOut(Name),
    /// To record a rejection on the claim of this uid.
    Reject(Name),
    /// To nominate the Pod for a node, or to take its nomination back.
    Nominate(Option<Name>),
    /// To find out whether the API server keeps this generation.
    Ask(Generation),
    /// To publish what the claims take, in this generation.
    Publish(Generation),
    /// To take back what was published.
    Withdraw,
    /// To open the gate.
    Open(Opened, Option<Name>),
    /// To say what the Pod waits for.
    Condition,
    /// To tell the Pod what its devices are now.
    Tell,
    /// To delete the Pod.
    Delete,
}

/// Result of a pass, for people or for the next look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// An Event about the Pod: its reason, its action, its text.
    Warning(Reason, &'static str, String),
    /// The condition is about to be written with this message.
    Condition(String),
    /// The API server refuses the condition, perhaps because of the message beside it.
    MessageRefused,
    /// The Pod is about to be taken out of the claim of this uid at this version.
    TakesOut(Name, Name),
    /// That write was refused.
    NotTakenOut(Name),
    /// The allocation of a claim was refused: its name, the node, the reason.
    Refused(Name, Name, String),
    /// All allocations of the Pod were refused.
    Rejected,
    /// The nomination was written.
    Nominated(Option<Name>),
    /// The API server refuses the nomination, or drops it.
    NotNominated(Option<Name>, String),
    /// The API server keeps this generation, or none.
    Keeps(Option<Generation>),
    /// The API server no longer keeps the generation that was learnt.
    Changed,
    /// The amounts that the claims take are published.
    Published,
    /// The published amounts are taken back.
    Withdrawn,
    /// The gate is open.
    Opened(Opened, Option<Name>),
    /// The Pod was deleted; the text says why.
    Deleted(String),
}

/// The pass.
#[derive(Debug)]
pub(super) struct GatePass {
    key: ObjectKey,
    steps: VecDeque<Step>,
    most: usize,
    inquiry: Option<Inquiry>,
    /// The versions of claims that writes of the pass have made, by uid.
    versions: HashMap<Name, Name>,
    then: Outcome,
    /// Results of the pass, for people and for the next look.
    pub(super) report: Vec<Notice>,
}

impl GatePass {
    /// A pass about a Pod that ends with `then` after all its steps.
    pub(super) fn new(key: &ObjectKey, steps: VecDeque<Step>, then: Outcome) -> Self {
        let most = steps.len() + Inquiry::MOST;
        Self {
            key: key.clone(),
            steps,
            most,
            inquiry: None,
            versions: HashMap::new(),
            then,
            report: Vec::new(),
        }
    }

    /// The pass ends here.
    fn end(&mut self, then: Outcome) {
        self.steps.clear();
        self.inquiry = None;
        self.then = then;
    }

    fn refused(&mut self, refusal: &Refusal) {
        self.end(Outcome::refused(refusal));
    }

    /// The write that takes the Pod out of a claim.
    fn take_out(&mut self, claim: &KnownClaim) -> Option<Write> {
        let version = self.versions.get(&claim.uid).unwrap_or(&claim.facts.version).clone();
        let write = writes::give_back(&self.key.namespace, claim, &version)?;
        // Before it is sent: the answer may be lost.
        self.report.push(Notice::TakesOut(claim.uid.clone(), version));
        Some(write)
    }

    /// Another party may refuse a nomination, or drop it from every write: the Pod is released all the same.
    fn nominated(&mut self, node: Option<Name>, outcome: Result<Written, Refusal>) {
        let said = match outcome {
            Ok(answer) => {
                self.report.push(Notice::Nominated(node.clone()));
                match decode::<Pod>(&answer.body) {
                    Ok(pod) if node.as_ref().is_none_or(|node| pod.status.nominated_node_name == *node) => {
                        None
                    }
                    Ok(_) => Some("the API server does not keep it".to_owned()),
                    Err(refusal) => return self.refused(&refusal),
                }
            }
            Err(refusal @ (Refusal::Invalid(_) | Refusal::Rbac(_))) => Some(refusal.to_string()),
            Err(refusal) => return self.refused(&refusal),
        };
        self.report.extend(said.map(|why| Notice::NotNominated(node, why)));
        self.end(Outcome::After(Duration::ZERO));
    }

    fn asked(&mut self, generation: Generation, outcome: Result<Written, Refusal>) {
        match self.inquiry.as_mut().and_then(|inquiry| inquiry.answered(generation, outcome)) {
            None => {}
            Some(Ok(kept)) => {
                self.report.push(Notice::Keeps(kept));
                self.end(Outcome::After(Duration::ZERO));
            }
            Some(Err(refusal)) => self.refused(&refusal),
        }
    }

    fn published(&mut self, generation: Generation, outcome: Result<Written, Refusal>) {
        match Publication::of(generation, outcome) {
            Publication::Kept(_) => {
                self.report.push(Notice::Published);
                // The release is decided on the Pod as it is now.
                self.end(Outcome::After(Duration::ZERO));
            }
            Publication::Dropped => {
                self.report.push(Notice::Changed);
                self.end(Outcome::Failed(Failure::Other(DROPPED.to_owned())));
            }
            Publication::Undeclared(refusal) => {
                self.report.push(Notice::Changed);
                self.refused(&refusal);
            }
            Publication::Refused(refusal) => {
                if let Refusal::Invalid(why) = &refusal {
                    let text = format!(
                        "the API server refuses what the claims take in the status of the Pod: {why}"
                    );
                    self.report.push(Notice::Warning(Reason::NotPublished, "Publish", text));
                }
                self.refused(&refusal);
            }
        }
    }

    fn done(&mut self, purpose: Purpose, written: Written) {
        match purpose {
            Purpose::Reject(claim) => {
                self.versions.insert(claim, written.meta.resource_version);
            }
            Purpose::Withdraw => self.report.push(Notice::Withdrawn),
            Purpose::Open(why, pin) => self.report.push(Notice::Opened(why, pin)),
            _ => {}
        }
    }
}

impl Pass<Gates> for GatePass {
    type Purpose = Purpose;

    fn most_steps(&self) -> usize {
        self.most
    }

    fn next(&mut self) -> Next<Purpose> {
        loop {
            if let Some((generation, write)) = self.inquiry.as_mut().and_then(Inquiry::next) {
                return Next::Send { write: Box::new(write), purpose: Purpose::Ask(generation) };
            }
            match self.steps.pop_front() {
                None => return Next::Rest(self.then.clone()),
                Some(Step::Say(said)) => self.report.push(said),
                Some(Step::Ask(inquiry)) => self.inquiry = Some(inquiry),
                Some(Step::Send(purpose, write)) => return Next::Send { write, purpose },
                Some(Step::TakeOut(claim)) => {
                    if let Some(write) = self.take_out(&claim) {
                        return Next::Send { write: Box::new(write), purpose: Purpose::TakeOut(claim.uid) };
                    }
                }
            }
        }
    }

    fn sent(&mut self, purpose: Purpose, outcome: Result<Written, Refusal>) {
        match (purpose, outcome) {
            (Purpose::Nominate(node), outcome) => self.nominated(node, outcome),
            (Purpose::Ask(generation), outcome) => self.asked(generation, outcome),
            (Purpose::Publish(generation), outcome) => self.published(generation, outcome),
            (purpose, Ok(written)) => self.done(purpose, written),
            // What a Pod waits for does not depend on whether it was said.
            (Purpose::Condition, Err(Refusal::NotFound | Refusal::Replaced)) => {}
            (Purpose::Condition, Err(refusal @ Refusal::Invalid(_))) => {
                self.report.push(Notice::MessageRefused);
                self.refused(&refusal);
            }
            (Purpose::TakeOut(claim), Err(refusal)) => {
                if refusal.is_without_effect() {
                    self.report.push(Notice::NotTakenOut(claim));
                }
                self.refused(&refusal);
            }
            (_, Err(refusal)) => self.refused(&refusal),
        }
    }
}
