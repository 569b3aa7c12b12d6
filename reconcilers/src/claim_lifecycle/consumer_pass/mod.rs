//! One pass about a Pod or PodGroup: its claims are created, named in its status, and reserved.

mod creations;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::controller::{Answer, Failure, LiveRead, Next, Outcome, Pass, ReadBy};
use dragoman_machinery::expectations::PATIENCE;
use dragoman_machinery::kind::{Kind, POD, RESOURCE_CLAIM};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Write, Written};
use dragoman_objects::{self as objects, Name};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use self::creations::{Creating, SALTS};
use super::claim_body::Birth;
use super::claim_name::is_ours;
use super::facts::{ClaimFacts, PodFacts};
use super::key::{Key, Subject};
use super::plan_consumer::{ConsumerPlan, Note, Reservation, plan_consumer, publication, reservation};
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

/// Question that the reads under way answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Claims that the status names and the index lacks.
    Confirm,
    /// Whether the consumer itself is there, and may still use a claim.
    Lives,
    /// The template of the first creation, whose payload is not kept.
    Template,
    /// The claim of the first creation, whose outcome is in doubt.
    InDoubt,
    /// The Pod, before claims are reserved for it.
    LivePod,
    /// The first claim to be reserved.
    LiveClaim,
}

/// A pass about one consumer.
#[derive(Debug)]
pub struct ConsumerPass {
    key: Key,
    birth: Birth,
    now: Instant,
    kind: Option<Kind>,
    consumer: Option<ConsumerSnapshot>,
    plan: ConsumerPlan,
    /// Whether a claim of each template to be created may be tried.
    tries: BTreeMap<Name, Try>,
    gone: BTreeSet<Name>,
    found: BTreeSet<Name>,
    question: Question,
    /// The plan rests on no claim in doubt any more; it is carried out as it is.
    settled: bool,
    lives: Option<bool>,
    creations: VecDeque<Creating>,
    published: bool,
    /// Creations that failed for a while.
    failures: usize,
    /// There are more claims to create than this pass does.
    is_portion: bool,
    may_reserve: Option<bool>,
    /// The live claim to be reserved next, once it was read.
    reserve_now: Option<Box<Write>>,
    reservations: VecDeque<Reservation>,
    expected: Option<(Kind, String)>,
    /// A question without an answer: the pass ends.
    failed: bool,
    /// Outcome of the creations, until it is reported.
    outcome: Option<CreationOutcome>,
    then: Outcome,
    /// Results of the pass, in order.
    pub report: Report,
}

impl ConsumerPass {
    /// A pass about the Pod or PodGroup of `key`, at `now`.
    pub fn new(key: &Key, birth: &Birth, now: Instant) -> Self {
        Self {
            key: key.clone(),
            birth: birth.clone(),
            now,
            tries: BTreeMap::new(),
            kind: None,
            consumer: None,
            plan: ConsumerPlan::default(),
            gone: BTreeSet::new(),
            found: BTreeSet::new(),
            question: Question::Confirm,
            settled: false,
            lives: None,
            creations: VecDeque::new(),
            published: false,
            failures: 0,
            is_portion: false,
            may_reserve: None,
            reserve_now: None,
            reservations: VecDeque::new(),
            expected: None,
            failed: false,
            outcome: Some(CreationOutcome::default()),
            then: Outcome::Done,
            report: Report::new(),
        }
    }

    /// The consumer with the kind by which it is served, once the index was looked at.
    pub fn consumer(&self) -> Option<(Kind, &ConsumerSnapshot)> {
        Some((self.kind?, self.consumer.as_ref()?))
    }

    fn ask(
        &mut self,
        question: Question,
        kind: Kind,
        names: impl IntoIterator<Item = String>,
    ) -> Next<Purpose> {
        self.question = question;
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

    /// From here on the plan is carried out as it is.
    fn settle(&mut self) {
        self.settled = true;
        for Note { entry, trouble } in std::mem::take(&mut self.plan.notes) {
            self.trouble(&entry, trouble.word(), &trouble.to_string());
        }
        self.plan_creations();
        self.reservations = std::mem::take(&mut self.plan.reserve).into();
    }

    /// The status write, once.
    fn next_publication(&mut self) -> Option<Next<Purpose>> {
        if std::mem::replace(&mut self.published, true) {
            return None;
        }
        if self.goes_on() {
            return None;
        }
        self.report.extend(self.outcome.take().map(Notice::Quota));
        let consumer = self.consumer.as_ref()?;
        let write = Box::new(publication(self.kind?, consumer, &self.plan.settled)?);
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

    /// The next step of the reservations. Both sides are read live first: the index of claims may
    /// lag behind kube-scheduler, which reserves by itself, and a Pod that is gone gets none.
    fn next_reservation(&mut self) -> Option<Next<Purpose>> {
        let claim = self.reservations.front()?.claim.to_string();
        match (self.may_reserve, self.reserve_now.take()) {
            (None, _) => Some(self.ask(Question::LivePod, POD, [self.key.name.to_string()])),
            (Some(false), _) => None,
            (Some(true), None) => Some(self.ask(Question::LiveClaim, RESOURCE_CLAIM, [claim])),
            (Some(true), Some(write)) => Some(Next::Send { write, purpose: Purpose::Reserve }),
        }
    }

    fn pod_read(&mut self, answer: Answer) {
        let pod = found::<objects::Pod>(answer);
        let uid = self.consumer.as_ref().map(|consumer| &consumer.uid);
        let may = match pod {
            Ok(Some(pod)) if Some(&pod.metadata.uid) == uid => {
                let pod = PodFacts::from(&pod);
                pod.scheduled && !pod.deleting && !pod.done()
            }
            Ok(_) => false,
            Err(refusal) => {
                self.refused("read the Pod before reserving", &refusal);
                false
            }
        };
        self.may_reserve = Some(may);
    }

    fn claim_read(&mut self, answer: Answer) {
        let claim = found::<objects::ResourceClaim>(answer);
        let Some(Reservation { claim: name, reference, .. }) = self.reservations.front() else { return };
        match claim {
            Ok(Some(claim)) => {
                let (namespace, facts) = (&self.key.namespace, ClaimFacts::from(&claim));
                let write = reservation(namespace, name, &claim.metadata.uid, &facts, reference);
                self.reserve_now = write.map(Box::new);
            }
            Ok(None) => {}
            Err(refusal) => self.refused("read the claim before reserving", &refusal),
        }
        if self.reserve_now.is_none() {
            self.reservations.pop_front();
        }
    }

    fn reservation_sent(&mut self, outcome: Result<Written, Refusal>) {
        let Some(Reservation { entry, claim, .. }) = self.reservations.pop_front() else { return };
        match outcome {
            Ok(_) => self.report.push(Notice::Reserved { claim: claim.to_string() }),
            Err(refusal) => {
                if matches!(refusal, Refusal::Invalid(_)) {
                    self.warn_author(&entry, &refusal.to_string());
                }
                self.refused("reserve the claim", &refusal);
            }
        }
    }

    /// The consumer itself was read: whether it is there, and may still use a claim.
    fn consumer_read(&mut self, answer: Answer) {
        #[derive(Deserialize)]
        struct Group {
            metadata: objects::Meta,
        }
        let Some(uid) = self.consumer.as_ref().map(|consumer| consumer.uid.clone()) else { return };
        let there = match self.key.subject {
            Subject::PodGroup => found::<Group>(answer).map(|group| group.map(|it| (it.metadata, false))),
            Subject::Pod | Subject::Claim => found::<objects::Pod>(answer).map(|pod| {
                let ended = |pod: &objects::Pod| PodFacts::from(pod).done();
                pod.map(|pod| (ended(&pod), pod)).map(|(ended, pod)| (pod.metadata, ended))
            }),
        };
        match there.map(|it| it.filter(|(meta, _)| meta.uid == uid)) {
            Ok(there) => {
                if there.is_none() {
                    self.report.push(Notice::Gone(uid.to_string()));
                }
                self.lives = Some(there.is_some_and(|(meta, ended)| !meta.deleting && !ended));
            }
            Err(refusal) => {
                self.refused("confirm the consumer", &refusal);
                // Successors wait for the next pass; first claims of an entry are still created.
                self.creations.retain(|creating| !creating.is_successor);
            }
        }
    }
}

impl Pass<State> for ConsumerPass {
    type Purpose = Purpose;

    /// A creation costs at most a write and a read for each name and a read of its template, a
    /// reservation a read and a write; beside them the pass confirms twice, publishes and reads the Pod.
    fn most_steps(&self) -> usize {
        let entries = self.consumer.as_ref().map_or(0, |consumer| consumer.entries.len());
        16 + entries * (4 * SALTS as usize + 5)
    }

    fn observe(&mut self, state: &State) {
        if self.settled {
            return;
        }
        let (namespace, name) = (&*self.key.namespace, &*self.key.name);
        (self.kind, self.consumer) = match self.key.subject {
            Subject::PodGroup => {
                (state.index.groups_kind, ConsumerSnapshot::of_group(state, namespace, name))
            }
            Subject::Pod | Subject::Claim => (Some(POD), ConsumerSnapshot::of_pod(state, namespace, name)),
        };
        self.plan = match &self.consumer {
            Some(consumer) => plan_consumer(consumer, &self.gone, &self.found),
            None => ConsumerPlan::default(),
        };
        let entries = self.consumer.iter().flat_map(|consumer| &consumer.entries);
        let templates: BTreeSet<Name> = entries.filter_map(|entry| entry.template_name().cloned()).collect();
        let may_try = |template: Name| {
            let may = state.quota.may_try(&self.key, &template, self.now);
            (template, may)
        };
        self.tries = templates.into_iter().map(may_try).collect();
    }

    fn next(&mut self) -> Next<Purpose> {
        if self.consumer().is_none() && !self.settled {
            self.report.push(Notice::Quota(CreationOutcome::default()));
            return Next::Rest(Outcome::Done);
        }
        if self.failed {
            return Next::Rest(self.then.clone());
        }
        if !self.settled {
            if !self.plan.confirm.is_empty() {
                let doubtful: Vec<String> = self.plan.confirm.iter().map(ToString::to_string).collect();
                return self.ask(Question::Confirm, RESOURCE_CLAIM, doubtful);
            }
            self.settle();
        }
        // A claim was lost. If that is because its consumer is gone or has ended, and only the index
        // does not know yet, a new one would be lost the same way, and so on.
        let successor = self.creations.iter().any(|creating| creating.is_successor);
        match (self.lives, self.kind) {
            (None, Some(kind)) if successor => {
                return self.ask(Question::Lives, kind, [self.key.name.to_string()]);
            }
            (Some(false), _) => {
                self.report.push(Notice::Quota(CreationOutcome::default()));
                return Next::Rest(self.then.clone());
            }
            _ => {}
        }
        let next = self.next_creation();
        let next = next.or_else(|| self.next_publication()).or_else(|| self.next_reservation());
        next.unwrap_or_else(|| Next::Rest(self.then.clone()))
    }

    fn read(&mut self, read: &LiveRead, answer: Answer) {
        match self.question {
            Question::Confirm => match answer {
                Ok(Live::NotFound) => {
                    self.gone.insert(read.name.as_str().into());
                }
                // The watch will bring it and this key with it, unless it goes while the watch is cut.
                Ok(Live::Found(_)) => {
                    self.found.insert(read.name.as_str().into());
                    self.urge(Outcome::After(PATIENCE));
                }
                Err(refusal) => {
                    let what = format!("cannot confirm claim {}", read.name);
                    self.urge(Outcome::Failed(Failure::RefusedAbout(what, refusal)));
                    self.failed = true;
                }
            },
            Question::Lives => self.consumer_read(answer),
            Question::Template => self.template_read(answer),
            Question::InDoubt => self.creation_read(answer),
            Question::LivePod => self.pod_read(answer),
            Question::LiveClaim => self.claim_read(answer),
        }
    }

    fn sent(&mut self, purpose: Purpose, outcome: Result<Written, Refusal>) {
        match (purpose, outcome) {
            (Purpose::Create, outcome) => self.creation_sent(outcome),
            (Purpose::Reserve, outcome) => self.reservation_sent(outcome),
            (Purpose::Publish, Ok(_)) => {}
            (Purpose::Publish, Err(refusal)) => {
                if matches!(refusal, Refusal::NotFound | Refusal::Replaced) {
                    let uid = self.consumer.as_ref().map(|consumer| consumer.uid.to_string());
                    self.report.extend(uid.map(Notice::Gone));
                }
                self.refused("publish claim names", &refusal);
            }
        }
    }

    fn expected(&mut self) -> Option<(Kind, String)> {
        self.expected.take()
    }
}

/// The object of an answer, if there is one.
fn found<T: DeserializeOwned>(answer: Answer) -> Result<Option<T>, Refusal> {
    match answer? {
        Live::Found(body) => decode(&body).map(Some),
        Live::NotFound => Ok(None),
    }
}
