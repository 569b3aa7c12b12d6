//! Which generation of the field the API server keeps. The schema does not tell: it lists the field also where a feature gate
//! drops it. So the write itself is tried, as a dry run, newest generation first.

use std::collections::VecDeque;

use dragoman_accounting::claim::contribution::{Contribution, Generation, Line};
use dragoman_accounting::resource::Resource;
use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Write, Written};
use dragoman_objects::Name;

use super::shape::{GENERATIONS, Publication, write};

/// The dry runs that are still to be sent, and what the answers said.
#[derive(Debug)]
pub(crate) struct Inquiry {
    questions: VecDeque<(Generation, Write)>,
    refused: Option<Refusal>,
}

impl Inquiry {
    /// The most dry runs of an inquiry.
    pub(crate) const MOST: usize = GENERATIONS.len();

    /// Asks with an entry of one cpu for the claim of this contribution; nothing is stored. What its devices take, a generation may not
    /// have a place for.
    ///
    /// # Errors
    /// No generation has a place for it; the text is for people.
    pub(crate) fn new(key: &ObjectKey, uid: &Name, of: &Contribution) -> Result<Self, String> {
        let (mut questions, mut unrepresentable) = (VecDeque::new(), String::new());
        let lines = vec![Line::mapping(Resource::Cpu, 1.into())];
        let probe = [Contribution { lines, ..of.clone() }];
        for generation in GENERATIONS {
            match write(&key.namespace, &key.name, uid, &probe, generation) {
                Ok(write) => questions.push_back((generation, write.dry())),
                Err(why) => unrepresentable = why,
            }
        }
        if questions.is_empty() { Err(unrepresentable) } else { Ok(Self { questions, refused: None }) }
    }

    /// The next dry run.
    pub(crate) fn next(&mut self) -> Option<(Generation, Write)> {
        self.questions.pop_front()
    }

    /// Takes in the answer to the dry run of a generation. Returns how the inquiry ended, once it has: with the generation that is
    /// kept, if any is, or with a refusal that says nothing about generations.
    pub(crate) fn answered(
        &mut self,
        generation: Generation,
        outcome: Result<Written, Refusal>,
    ) -> Option<Result<Option<Generation>, Refusal>> {
        match Publication::of(generation, outcome) {
            Publication::Kept(_) => return Some(Ok(Some(generation))),
            Publication::Dropped | Publication::Undeclared(_) => {}
            // That is about this Pod, and says nothing about the others.
            Publication::Refused(refusal @ Refusal::Invalid(_)) => self.refused = Some(refusal),
            Publication::Refused(other) => return Some(Err(other)),
        }
        self.questions.is_empty().then(|| self.refused.take().map_or(Ok(None), Err))
    }
}
