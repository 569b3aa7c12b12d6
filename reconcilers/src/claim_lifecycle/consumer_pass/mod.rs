//! One pass about a Pod or PodGroup: its claims are created, named in its status, and reserved.
//!
//! A pass is in one [`Stage`] at a time. A stage holds what is known in it and in no other; what all stages share is the [`Course`].

mod creations;
mod reservations;

use std::collections::{BTreeMap, BTreeSet};

use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::controller::{Answer, Failure, LiveRead, Next, Outcome, Pass, ReadBy};
use dragoman_machinery::expectations::PATIENCE;
use dragoman_machinery::kind::{Kind, POD, RESOURCE_CLAIM};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::Written;
use dragoman_objects::Name;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use self::creations::{Creations, SALTS};
use self::reservations::Reservations;
use super::claim_body::Birth;
use super::claim_name::is_ours;
use super::key::{Key, Subject};
use super::plan_consumer::{ConsumerPlan, Note, plan_consumer, publication};
use super::quota::{CreationOutcome, Try};
use super::report::{Notice, Report, refused};
use super::snapshot::ConsumerSnapshot;
use super::state::State;

/// Purpose of a write of the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The first of the claims to be created.
    Create,
    /// The claim names in the status.
    Publish,
    /// The first of the claims to be reserved.
    Reserve,
}

/// A pass about one consumer.
#[derive(Debug)]
pub struct ConsumerPass {
    birth: Birth,
    now: Instant,
    stage: Stage,
    course: Course,
}

/// Stage of a pass. A pass takes them in this order, and may leave some out.
#[derive(Debug)]
enum Stage {
    /// The plan is made anew from the index before each step, until it rests on no claim in doubt.
    Planning(Planning),
    /// Claims are created, one after the other. From here on the plan is carried out as it is.
    Creating(Creations),
    /// The names of the claims are published with one write.
    Publishing,
    /// Claims are reserved, one after the other.
    Reserving(Reservations),
    /// Nothing follows.
    Over,
}

/// Answers about the claims that the status names and the index lacks.
#[derive(Debug, Default)]
struct Planning {
    gone: BTreeSet<Name>,
    found: BTreeSet<Name>,
    /// Whether a claim of each template to be created may be tried.
    tries: BTreeMap<Name, Try>,
}

/// The consumer and its plan, and how the pass will end.
#[derive(Debug)]
struct Course {
    key: Key,
    /// With the kind by which it is served.
    consumer: Option<(Kind, ConsumerSnapshot)>,
    plan: ConsumerPlan,
    expected: Option<(Kind, String)>,
    then: Outcome,
    /// Results of the pass, in order.
    report: Report,
}

impl ConsumerPass {
    /// A pass about the Pod or PodGroup of `key`, at `now`.
    pub fn new(key: &Key, birth: &Birth, now: Instant) -> Self {
        let course = Course {
            key: key.clone(),
            consumer: None,
            plan: ConsumerPlan::default(),
            expected: None,
            then: Outcome::Done,
            report: Report::new(),
        };
        Self { birth: birth.clone(), now, stage: Stage::Planning(Planning::default()), course }
    }

    /// The consumer with the kind by which it is served, once the index was looked at.
    pub fn consumer(&self) -> Option<(Kind, &ConsumerSnapshot)> {
        self.course.consumer()
    }

    /// Results of the pass since they were taken last, in order.
    pub fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.course.report)
    }

    /// The next step of the stage; none once the stage is done.
    fn step(&mut self) -> Option<Next<Purpose>> {
        match &mut self.stage {
            Stage::Planning(_) => self.course.confirmation(),
            Stage::Creating(creations) => creations.next(&mut self.course, &self.birth),
            Stage::Publishing => None,
            Stage::Reserving(reservations) => reservations.next(&self.course),
            Stage::Over => Some(Next::Rest(self.course.then.clone())),
        }
    }

    /// The stage is done: goes on to the one after it. Returns the write that lies between them, if there is one.
    fn advance(&mut self) -> Option<Next<Purpose>> {
        let course = &mut self.course;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Planning(planning) => Stage::Creating(course.settle(&planning.tries)),
            Stage::Creating(creations) if creations.goes_on(course) => course.reserving(),
            Stage::Creating(creations) => {
                course.report.extend(creations.into_outcome().map(Notice::Quota));
                Stage::Publishing
            }
            Stage::Publishing => {
                self.stage = course.reserving();
                return course.publication();
            }
            Stage::Reserving(_) | Stage::Over => Stage::Over,
        };
        None
    }
}

impl Course {
    fn consumer(&self) -> Option<(Kind, &ConsumerSnapshot)> {
        self.consumer.as_ref().map(|(kind, consumer)| (*kind, consumer))
    }

    fn uid(&self) -> Option<&Name> {
        self.consumer.as_ref().map(|(_, consumer)| &consumer.uid)
    }

    fn ask(&self, kind: Kind, names: impl IntoIterator<Item = String>) -> Next<Purpose> {
        let namespace = &self.key.namespace;
        let read = |name| LiveRead { kind, namespace: namespace.to_string(), name, by: ReadBy::Get };
        Next::Read(names.into_iter().map(read).collect())
    }

    fn urge(&mut self, then: Outcome) {
        self.then = self.then.clone().most_urgent(then);
    }

    fn refused(&mut self, what: &str, refusal: &Refusal) {
        let then = refused(what, refusal, &mut self.report);
        self.urge(then);
    }

    /// Something stands in the way of an entry: it is counted under `word`, and the author of the
    /// consumer is told.
    fn trouble(&mut self, entry: &str, word: &'static str, trouble: &str) {
        self.report.push(Notice::Trouble(word));
        self.warn_author(entry, trouble);
    }

    /// Tells the author of the consumer what is wrong with an entry.
    fn warn_author(&mut self, entry: &str, trouble: &str) {
        const REASON: &str = "FailedResourceClaimCreation";
        let note = format!("{} {entry}: {trouble}", self.prefix());
        self.report.push(Notice::Warning { reason: REASON, action: "CreateClaim", note });
    }

    fn prefix(&self) -> &'static str {
        match self.key.subject {
            Subject::PodGroup => "PodGroupResourceClaim",
            Subject::Pod | Subject::Claim => "PodResourceClaim",
        }
    }

    /// The consumer waits for no quota: it is gone or has ended.
    fn waits_for_nothing(&mut self) {
        self.report.push(Notice::Quota(CreationOutcome::default()));
    }

    /// Asks about the claims that the plan doubts.
    fn confirmation(&self) -> Option<Next<Purpose>> {
        let doubtful = &self.plan.confirm;
        (!doubtful.is_empty()).then(|| self.ask(RESOURCE_CLAIM, doubtful.iter().map(ToString::to_string)))
    }

    /// From here on the plan is carried out as it is: first its creations.
    fn settle(&mut self, tries: &BTreeMap<Name, Try>) -> Creations {
        for Note { entry, trouble } in std::mem::take(&mut self.plan.notes) {
            self.trouble(&entry, trouble.word(), &trouble.to_string());
        }
        Creations::new(self, tries)
    }

    fn reserving(&mut self) -> Stage {
        Stage::Reserving(Reservations::new(std::mem::take(&mut self.plan.reserve)))
    }

    /// The status write, if it changes anything.
    fn publication(&mut self) -> Option<Next<Purpose>> {
        let (kind, consumer) = self.consumer.as_ref()?;
        let write = Box::new(publication(*kind, consumer, &self.plan.settled)?);
        let publishing = |(entry, claim): (&Name, &Name)| Notice::Publishing {
            uid: consumer.uid.to_string(),
            entry: entry.to_string(),
            claim: claim.to_string(),
        };
        // Names of our own need not be remembered.
        let foreign = |(entry, claim): &(&Name, &Name)| !is_ours(claim, &consumer.uid, entry);
        self.report.extend(self.plan.settled.iter().filter(foreign).map(publishing));
        Some(Next::Send { write, purpose: Purpose::Publish })
    }

    /// The names were sent.
    fn published(&mut self, outcome: Result<Written, Refusal>) {
        let Err(refusal) = outcome else { return };
        if matches!(refusal, Refusal::NotFound | Refusal::Replaced) {
            let uid = self.uid().map(ToString::to_string);
            self.report.extend(uid.map(Notice::Gone));
        }
        self.refused("publish claim names", &refusal);
    }
}

impl Pass<State> for ConsumerPass {
    type Purpose = Purpose;

    /// A creation costs at most a write and a read for each name and a read of its template, a
    /// reservation a read and a write; beside them the pass confirms twice, publishes and reads the Pod.
    fn most_steps(&self) -> usize {
        let entries = self.consumer().map_or(0, |(_, consumer)| consumer.entries.len());
        16 + entries * (4 * SALTS as usize + 5)
    }

    fn observe(&mut self, state: &State) {
        let Stage::Planning(planning) = &mut self.stage else { return };
        let (key, course) = (self.course.key.clone(), &mut self.course);
        let (namespace, name) = (&*key.namespace, &*key.name);
        let (kind, consumer) = match key.subject {
            Subject::PodGroup => {
                (state.index.groups_kind, ConsumerSnapshot::of_group(state, namespace, name))
            }
            Subject::Pod | Subject::Claim => (Some(POD), ConsumerSnapshot::of_pod(state, namespace, name)),
        };
        course.consumer = kind.zip(consumer);
        let Some((_, consumer)) = &course.consumer else { return };
        course.plan = plan_consumer(consumer, &planning.gone, &planning.found);
        let templates = consumer.entries.iter().filter_map(|entry| entry.template_name().cloned());
        let may_try = |template: Name| {
            let may = state.quota.may_try(&key, &template, self.now);
            (template, may)
        };
        planning.tries = templates.collect::<BTreeSet<Name>>().into_iter().map(may_try).collect();
    }

    fn next(&mut self) -> Next<Purpose> {
        if self.course.consumer.is_none() {
            self.course.waits_for_nothing();
            (self.stage, self.course.then) = (Stage::Over, Outcome::Done);
        }
        loop {
            if let Some(next) = self.step().or_else(|| self.advance()) {
                return next;
            }
        }
    }

    fn read(&mut self, read: &LiveRead, answer: Answer) {
        let goes_on = match &mut self.stage {
            Stage::Planning(planning) => planning.read(&read.name, answer, &mut self.course),
            Stage::Creating(creations) => creations.read(answer, &mut self.course),
            Stage::Reserving(reservations) => reservations.read(answer, &mut self.course),
            // They ask nothing.
            Stage::Publishing | Stage::Over => false,
        };
        if !goes_on {
            self.stage = Stage::Over;
        }
    }

    fn sent(&mut self, purpose: Purpose, outcome: Result<Written, Refusal>) {
        match (&mut self.stage, purpose) {
            (Stage::Creating(creations), Purpose::Create) => creations.sent(outcome, &mut self.course),
            (Stage::Reserving(reservations), Purpose::Reserve) => {
                reservations.sent(outcome, &mut self.course);
            }
            (_, Purpose::Publish) => self.course.published(outcome),
            // The writes of a stage are sent in that stage.
            (_, Purpose::Create | Purpose::Reserve) => {}
        }
    }

    fn expected(&mut self) -> Option<(Kind, String)> {
        self.course.expected.take()
    }
}

impl Planning {
    /// The claim of this name was read. Returns whether the pass goes on.
    fn read(&mut self, name: &str, answer: Answer, course: &mut Course) -> bool {
        match answer {
            Ok(Live::NotFound) => {
                self.gone.insert(name.into());
            }
            // The watch will bring it and this key with it, unless it goes while the watch is cut.
            Ok(Live::Found(_)) => {
                self.found.insert(name.into());
                course.urge(Outcome::After(PATIENCE));
            }
            Err(refusal) => {
                let what = format!("cannot confirm claim {name}");
                course.urge(Outcome::Failed(Failure::RefusedAbout(what, refusal)));
                return false;
            }
        }
        true
    }
}

/// The object of an answer, if there is one.
fn found<T: DeserializeOwned>(answer: Answer) -> Result<Option<T>, Refusal> {
    match answer? {
        Live::Found(body) => decode(&body).map(Some),
        Live::NotFound => Ok(None),
    }
}
