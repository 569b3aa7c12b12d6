//! One pass about the status of a Pod: the write of its entries, or the dry runs that come before the first one of a process.

use dragoman_accounting::claim::contribution::{Contribution, Generation};
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_machinery::controller::{Failure, Next, ObjectKey, Outcome, Pass};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Write, Written};
use dragoman_objects::Name;

use super::index::{PodStatuses, Recorded, recorded};
use super::inquiry::Inquiry;
use super::shape::{DROPPED, Publication, write};

/// The pass.
#[derive(Debug)]
pub(super) struct PublishPass {
    next: Option<Step>,
    then: Outcome,
    /// Results of the pass, in order.
    pub(super) report: Vec<Notice>,
}

#[derive(Debug)]
enum Step {
    Ask(Inquiry),
    Publish(Generation, Box<Write>),
}

/// Purpose of a write of the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To find out whether the API server keeps this generation.
    Ask(Generation),
    /// To publish entries of this generation.
    Publish(Generation),
}

/// Result of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// The API server keeps this generation, or none.
    Keeps(Option<Generation>),
    /// The API server no longer keeps the generation that was learnt.
    Changed,
    /// The status of the Pod has the entries.
    Written(Recorded),
    /// Another manager owns the field.
    OwnedByAnother,
}

impl PublishPass {
    /// A pass that gives a Pod the entries for these contributions, as far as it is known what the API server keeps.
    ///
    /// # Errors
    /// The amounts do not fit into what the API server keeps; the text is for people.
    pub(super) fn new(
        key: &ObjectKey,
        uid: &Name,
        contributions: &[Contribution],
        known: Option<Scheduler>,
    ) -> Result<Self, String> {
        let next = match known {
            None => contributions.first().map(|of| Inquiry::new(key, uid, of)).transpose()?.map(Step::Ask),
            Some(Scheduler::Unaware) => None,
            Some(Scheduler::Aware(generation)) => {
                let write = write(&key.namespace, &key.name, uid, contributions, generation)?;
                Some(Step::Publish(generation, Box::new(write)))
            }
        };
        Ok(Self { next, then: Outcome::Done, report: Vec::new() })
    }

    fn failed(&mut self, refusal: &Refusal) {
        self.next = None;
        // Its entries may be on their way to the index.
        if matches!(refusal, Refusal::OwnedByAnother(_)) {
            self.report.push(Notice::OwnedByAnother);
        }
        self.then = Outcome::refused(refusal);
    }

    fn published(&mut self, generation: Generation, outcome: Result<Written, Refusal>) {
        match Publication::of(generation, outcome) {
            Publication::Kept(pod) => self.report.push(Notice::Written(recorded(&pod))),
            Publication::Dropped => {
                self.report.push(Notice::Changed);
                self.then = Outcome::Failed(Failure::Other(DROPPED.to_owned()));
            }
            Publication::Undeclared(refusal) => {
                self.report.push(Notice::Changed);
                self.failed(&refusal);
            }
            Publication::Refused(refusal) => self.failed(&refusal),
        }
    }
}

impl Pass<PodStatuses> for PublishPass {
    type Purpose = Purpose;

    fn most_steps(&self) -> usize {
        Inquiry::MOST + 1
    }

    fn next(&mut self) -> Next<Purpose> {
        match self.next.take() {
            None => Next::Rest(self.then.clone()),
            Some(Step::Publish(generation, write)) => {
                Next::Send { write, purpose: Purpose::Publish(generation) }
            }
            Some(Step::Ask(mut inquiry)) => match inquiry.next() {
                None => Next::Rest(self.then.clone()),
                Some((generation, write)) => {
                    self.next = Some(Step::Ask(inquiry));
                    Next::Send { write: Box::new(write), purpose: Purpose::Ask(generation) }
                }
            },
        }
    }

    fn sent(&mut self, purpose: Purpose, outcome: Result<Written, Refusal>) {
        match (purpose, &mut self.next) {
            (Purpose::Ask(generation), Some(Step::Ask(inquiry))) => {
                match inquiry.answered(generation, outcome) {
                    None => {}
                    Some(Ok(kept)) => {
                        self.next = None;
                        self.report.push(Notice::Keeps(kept));
                        // What follows is decided on what is known then.
                        self.then = Outcome::After(std::time::Duration::ZERO);
                    }
                    Some(Err(refusal)) => self.failed(&refusal),
                }
            }
            (Purpose::Ask(_), _) => {}
            (Purpose::Publish(generation), _) => self.published(generation, outcome),
        }
    }
}
