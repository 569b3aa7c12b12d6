//! The reservations of a pass: one claim after the other, each on the version that was read live.

use std::collections::VecDeque;

use dragoman_machinery::controller::{Answer, Next};
use dragoman_machinery::kind::{POD, RESOURCE_CLAIM};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Write, Written};
use dragoman_objects as objects;

use super::super::facts::{ClaimFacts, PodFacts};
use super::super::plan_consumer::{Reservation, reservation};
use super::super::report::Notice;
use super::{Course, Purpose, found};

/// Claims to be reserved. Both sides are read live first: the index of claims may lag behind kube-scheduler, which reserves by
/// itself, and a Pod that is gone gets none.
#[derive(Debug)]
pub(super) struct Reservations {
    left: VecDeque<Reservation>,
    /// The Pod was read, and may use claims.
    may_reserve: bool,
    /// The write for the first claim, once the claim was read.
    write: Option<Box<Write>>,
}

impl Reservations {
    pub(super) fn new(planned: Vec<Reservation>) -> Self {
        Self { left: planned.into(), may_reserve: false, write: None }
    }

    /// The next step; none once all are done.
    pub(super) fn next(&mut self, course: &Course) -> Option<Next<Purpose>> {
        let claim = self.left.front()?.claim.to_string();
        if let Some(write) = self.write.take() {
            return Some(Next::Send { write, purpose: Purpose::Reserve });
        }
        Some(if self.may_reserve {
            course.ask(RESOURCE_CLAIM, [claim])
        } else {
            course.ask(POD, [course.key.name.to_string()])
        })
    }

    /// The Pod was read, or the first claim. Returns whether the pass goes on.
    pub(super) fn read(&mut self, answer: Answer, course: &mut Course) -> bool {
        if self.may_reserve {
            self.claim_read(answer, course);
        } else {
            self.may_reserve = is_live(answer, course);
        }
        self.may_reserve
    }

    fn claim_read(&mut self, answer: Answer, course: &mut Course) {
        let Some(Reservation { claim: name, reference, .. }) = self.left.front() else { return };
        match found::<objects::ResourceClaim>(answer) {
            Ok(Some(claim)) => {
                let (namespace, facts) = (&course.key.namespace, ClaimFacts::from(&claim));
                let write = reservation(namespace, name, &claim.metadata.uid, &facts, reference);
                self.write = write.map(Box::new);
            }
            Ok(None) => {}
            Err(refusal) => course.refused("read the claim before reserving", &refusal),
        }
        if self.write.is_none() {
            self.left.pop_front();
        }
    }

    /// The first claim was sent.
    pub(super) fn sent(&mut self, outcome: Result<Written, Refusal>, course: &mut Course) {
        let Some(Reservation { entry, claim, .. }) = self.left.pop_front() else { return };
        match outcome {
            Ok(_) => course.report.push(Notice::Reserved { claim: claim.to_string() }),
            Err(refusal) => {
                if matches!(refusal, Refusal::Invalid(_)) {
                    course.warn_author(&entry, &refusal.to_string());
                }
                course.refused("reserve the claim", &refusal);
            }
        }
    }
}

/// Whether the Pod that was read is that of the pass, and may use claims.
fn is_live(answer: Answer, course: &mut Course) -> bool {
    match found::<objects::Pod>(answer) {
        Ok(Some(pod)) if Some(&pod.metadata.uid) == course.uid() => {
            let pod = PodFacts::from(&pod);
            pod.scheduled && !pod.deleting && !pod.done()
        }
        Ok(_) => false,
        Err(refusal) => {
            course.refused("read the Pod before reserving", &refusal);
            false
        }
    }
}
