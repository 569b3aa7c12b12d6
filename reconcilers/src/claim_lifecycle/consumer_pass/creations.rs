//! The creations of a pass: one claim after the other, each under a name that is its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::api::decode;
use dragoman_machinery::controller::{Answer, Next, Outcome};
use dragoman_machinery::kind::{Kind, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use dragoman_machinery::refusal::{Refusal, Retry};
use dragoman_machinery::write::{Action, Write, Written};
use dragoman_objects::{self as objects, Name};
use serde::Deserialize;

use super::super::claim_body::{BadTemplate, Birth, ClaimSource, claim_body, dropped_fields};
use super::super::claim_name::{Generation, claim_name};
use super::super::facts::{ClaimFacts, PodFacts, TemplateFacts};
use super::super::key::Subject;
use super::super::plan_consumer::{Creation, Trouble};
use super::super::quota::{CreationOutcome, Try};
use super::super::report::Notice;
use super::super::snapshot::{ConsumerSnapshot, TemplateState};
use super::{Course, Purpose, found};

/// Names tried before giving up. A computed name belongs to another claim once in 27^5 by chance;
/// eight in a row only if a client creates claims under those names in advance.
pub(super) const SALTS: u32 = 8;

/// The most claims that one pass creates: a worker is free again after some seconds at most, however
/// many entries a Pod has.
const PORTION: usize = 64;

/// The creations that may fail for a while in one pass.
const FAILURES: usize = 3;

/// Claims to be created; the first one is in work.
#[derive(Debug)]
pub(super) struct Creations {
    left: VecDeque<Creating>,
    /// The consumer was read, and may have claims in place of lost ones.
    has_live_consumer: bool,
    /// Creations that failed for a while.
    failures: usize,
    /// There are more claims to create than this pass does.
    is_portion: bool,
    /// For the keys that wait for quotas; nothing where this key keeps its turn among them.
    outcome: Option<CreationOutcome>,
}

/// Question to be answered before the next creation is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Whether the consumer itself is there, and may still use a claim.
    Consumer,
    /// The claim of the first creation, whose outcome is in doubt.
    Claim,
    /// The template of the first creation, whose payload is not kept.
    Template,
}

/// A claim that is being created.
#[derive(Debug)]
struct Creating {
    entry: Name,
    template: Name,
    /// The payload of the template, once it is known.
    payload: Option<Arc<TemplateFacts>>,
    is_successor: bool,
    predecessor: Option<String>,
    salt: u32,
    /// Answer to the creation, if it leaves open whether the claim exists.
    in_doubt: Option<Refusal>,
}

impl Creations {
    /// Takes over the creations of the plan.
    pub(super) fn new(course: &mut Course, tries: &BTreeMap<Name, Try>) -> Self {
        let consumer = course.consumer().map(|(_, consumer)| consumer);
        let creating = |Creation { entry, is_successor, predecessor }: &Creation| {
            let entry = consumer?.entries.get(*entry)?;
            let TemplateState::Present(payload) = &entry.template else { return None };
            Some(Creating {
                entry: entry.entry.name.clone(),
                template: entry.template_name()?.clone(),
                payload: payload.clone(),
                is_successor: *is_successor,
                predecessor: predecessor.as_deref().map(str::to_owned),
                salt: 0,
                in_doubt: None,
            })
        };
        let wanted: Vec<Creating> = course.plan.create.iter().filter_map(creating).collect();
        let mut creations = Self {
            left: VecDeque::new(),
            has_live_consumer: false,
            failures: 0,
            is_portion: wanted.len() > PORTION,
            outcome: Some(CreationOutcome::default()),
        };
        for creating in wanted.into_iter().take(PORTION) {
            creations.put_if_quota_may_have_room(creating, tries, course);
        }
        creations
    }

    /// A creation that a quota refused for another key is not tried before its turn.
    fn put_if_quota_may_have_room(
        &mut self,
        creating: Creating,
        tries: &BTreeMap<Name, Try>,
        course: &mut Course,
    ) {
        match tries.get(&creating.template) {
            None | Some(Try::Now) => self.left.push_back(creating),
            Some(Try::After(wait)) => {
                // It keeps its turn.
                self.outcome = None;
                course.urge(Outcome::After(*wait));
            }
            Some(Try::Wait(why)) => {
                let refusal = Refusal::Quota(why.to_string());
                course.trouble(&creating.entry, refusal.reason(), &refusal.to_string());
                self.waits_for_quota(creating.template, None);
            }
        }
    }

    /// Claims of the template wait, for this reason if one was refused just now.
    fn waits_for_quota(&mut self, template: Name, refusal: Option<String>) {
        if let Some(outcome) = &mut self.outcome {
            let known = outcome.waits.entry(template).or_default();
            *known = known.take().or(refusal);
        }
    }

    /// Whether the pass ends here because the rest of the claims is created by the next one. The
    /// names are published once, when all claims are there.
    pub(super) fn goes_on(&self, course: &mut Course) -> bool {
        let created = self.outcome.as_ref().is_some_and(|outcome| outcome.created == PORTION);
        let goes_on = self.is_portion && created && course.then == Outcome::Done;
        if goes_on {
            // Keys of others come between.
            course.urge(Outcome::After(Duration::ZERO));
        }
        goes_on
    }

    /// Outcome of all of them, if the keys that wait for quotas are to know it.
    pub(super) fn into_outcome(self) -> Option<CreationOutcome> {
        self.outcome
    }

    /// The question to be answered before the next creation is sent.
    fn question(&self) -> Option<Question> {
        let creating = self.left.front()?;
        // A claim was lost. If that is because its consumer is gone or has ended, and only the index
        // does not know yet, a new one would be lost the same way, and so on.
        if !self.has_live_consumer && self.left.iter().any(|creating| creating.is_successor) {
            Some(Question::Consumer)
        } else if creating.in_doubt.is_some() {
            Some(Question::Claim)
        } else {
            creating.payload.is_none().then_some(Question::Template)
        }
    }

    /// The next step; none once all are done.
    pub(super) fn next(&mut self, course: &mut Course, birth: &Birth) -> Option<Next<Purpose>> {
        loop {
            let (kind, consumer) = course.consumer()?;
            let creating = self.left.front()?;
            match self.question() {
                Some(Question::Consumer) => return Some(course.ask(kind, [course.key.name.to_string()])),
                _ if creating.salt >= SALTS => {
                    self.refused(Refusal::Conflict, course);
                    continue;
                }
                Some(Question::Claim) => {
                    return Some(course.ask(RESOURCE_CLAIM, [creating.name(consumer)]));
                }
                Some(Question::Template) => {
                    return Some(course.ask(RESOURCE_CLAIM_TEMPLATE, [creating.template.to_string()]));
                }
                None => {}
            }
            match creating.write(kind, consumer, creating.name(consumer), birth) {
                Ok(write) => {
                    let (write, purpose) = (Box::new(write), Purpose::Create);
                    return Some(Next::Send { write, purpose });
                }
                Err(bad) => {
                    // Unusable until the template changes, which wakes the consumer.
                    let entry = creating.entry.clone();
                    self.left.pop_front();
                    course.trouble(&entry, "TemplateUnusable", &bad.to_string());
                }
            }
        }
    }

    /// The answer to the question that was asked. Returns whether the pass goes on.
    pub(super) fn read(&mut self, answer: Answer, course: &mut Course) -> bool {
        match self.question() {
            Some(Question::Consumer) => return self.consumer_read(answer, course),
            Some(Question::Claim) => self.claim_read(answer, course),
            Some(Question::Template) => self.template_read(answer, course),
            None => {}
        }
        true
    }

    /// The first creation was sent.
    pub(super) fn sent(&mut self, outcome: Result<Written, Refusal>, course: &mut Course) {
        let Some((_, consumer)) = course.consumer() else { return };
        let Some(creating) = self.left.front_mut() else { return };
        let claim = creating.name(consumer);
        let failed = |creating: &Creating| Notice::Created {
            claim: claim.clone(),
            success: false,
            admin_access: creating.admin_access(),
        };
        match outcome {
            Ok(written) => {
                let facts = decode::<objects::ResourceClaim>(&written.body);
                let admin_access = facts.is_ok_and(|claim| claim.admin_access());
                let (entry, payload) = (creating.entry.clone(), creating.payload.clone());
                course.report.push(Notice::Created { claim: claim.clone(), success: true, admin_access });
                self.created(claim, course);
                course.say_dropped(&entry, payload.as_deref(), &written.body);
            }
            Err(Refusal::AlreadyExists) => creating.in_doubt = Some(Refusal::Conflict),
            // What may have happened is looked at at once: the next plan may know less, and give the
            // claim another name.
            Err(refusal @ Refusal::Transient(_)) => {
                course.report.push(failed(creating));
                creating.in_doubt = Some(refusal);
            }
            Err(refusal) => {
                course.report.push(failed(creating));
                self.refused(refusal, course);
            }
        }
    }

    /// The consumer itself was read: whether it is there, and may still use a claim. Returns whether the pass goes on.
    fn consumer_read(&mut self, answer: Answer, course: &mut Course) -> bool {
        #[derive(Deserialize)]
        struct Group {
            metadata: objects::Meta,
        }
        let Some(uid) = course.uid().cloned() else { return false };
        let there = match course.key.subject {
            Subject::PodGroup => found::<Group>(answer).map(|group| group.map(|it| (it.metadata, false))),
            Subject::Pod | Subject::Claim => found::<objects::Pod>(answer).map(|pod| {
                let ended = |pod: &objects::Pod| PodFacts::from(pod).done();
                pod.map(|pod| (ended(&pod), pod)).map(|(ended, pod)| (pod.metadata, ended))
            }),
        };
        match there.map(|it| it.filter(|(meta, _)| meta.uid == uid)) {
            Ok(there) => {
                if there.is_none() {
                    course.report.push(Notice::Gone(uid.to_string()));
                }
                self.has_live_consumer = there.is_some_and(|(meta, ended)| !meta.deleting && !ended);
                if !self.has_live_consumer {
                    course.waits_for_nothing();
                }
                self.has_live_consumer
            }
            Err(refusal) => {
                course.refused("confirm the consumer", &refusal);
                // Successors wait for the next pass; first claims of an entry are still created.
                self.left.retain(|creating| !creating.is_successor);
                true
            }
        }
    }

    /// The template of the first creation was read.
    fn template_read(&mut self, answer: Answer, course: &mut Course) {
        let Some(creating) = self.left.front() else { return };
        let name = creating.template.clone();
        match found::<objects::ResourceClaimTemplate>(answer) {
            Ok(Some(template)) => {
                let payload = Arc::new(TemplateFacts::from(&template));
                let of_it = self.left.iter_mut().filter(|creating| creating.template == name);
                of_it.for_each(|creating| creating.payload = Some(Arc::clone(&payload)));
            }
            Ok(None) => {
                // The watch will bring that it is gone.
                let entry = creating.entry.clone();
                self.left.retain(|creating| creating.template != name);
                let trouble = Trouble::NoTemplate(name);
                course.trouble(&entry, trouble.word(), &trouble.to_string());
            }
            Err(refusal) => self.refused(refusal, course),
        }
    }

    /// The claim of a creation in doubt was read: a lost reply, an index that is late, or a
    /// coincidence.
    fn claim_read(&mut self, answer: Answer, course: &mut Course) {
        let live = found::<objects::ResourceClaim>(answer);
        let Some((_, consumer)) = course.consumer() else { return };
        let Some(creating) = self.left.front_mut() else { return };
        let name = creating.name(consumer);
        let doubt = creating.in_doubt.take();
        match live {
            Err(refusal) => self.refused(refusal, course),
            Ok(None) => self.refused(doubt.unwrap_or(Refusal::Conflict), course),
            Ok(Some(claim)) => {
                let facts = ClaimFacts::from(&claim);
                if !facts.owned_by(consumer.owner_kind(), &consumer.uid) {
                    creating.salt += 1;
                } else if facts.deleting {
                    // Never adopted; its name decides that of its successor.
                    (creating.is_successor, creating.predecessor, creating.salt) = (true, Some(name), 0);
                } else {
                    course.expected = Some((RESOURCE_CLAIM, facts.version.to_string()));
                    self.created(name, course);
                }
            }
        }
    }

    /// The first creation is done: its entry has this claim.
    fn created(&mut self, claim: String, course: &mut Course) {
        if let Some(creating) = self.left.pop_front() {
            course.plan.settled.insert(creating.entry, claim.into());
            self.outcome.iter_mut().for_each(|outcome| outcome.created += 1);
        }
    }

    /// The first creation is given up in this pass. The others go on.
    fn refused(&mut self, refusal: Refusal, course: &mut Course) {
        let Some(creating) = self.left.pop_front() else { return };
        if refusal.retry() == Retry::Backoff {
            // The API server is in trouble: a Pod with many entries would send it a request for each.
            // One template alone may fail for ever, so that the first failure is no proof.
            self.failures += 1;
            if self.failures == FAILURES {
                self.left.clear();
            }
        }
        match refusal {
            Refusal::Quota(ref why) => {
                let template = creating.template;
                course.trouble(&creating.entry, refusal.reason(), &refusal.to_string());
                // The quota refuses the others of this template as well.
                self.left.retain(|other| other.template != template);
                self.waits_for_quota(template, Some(why.clone()));
            }
            Refusal::Invalid(_) | Refusal::AdminAccess(_) => {
                course.trouble(&creating.entry, refusal.reason(), &refusal.to_string());
                // A change of the template wakes the Pod; admission may change its mind without
                // one, and so may the author of the namespace's labels.
                course.urge(Outcome::After(Duration::from_mins(5)));
            }
            Refusal::Rbac(_) => {
                course.warn_author(&creating.entry, &refusal.to_string());
                course.refused("create the claim", &refusal);
            }
            other => course.refused("create the claim", &other),
        }
    }
}

impl Course {
    /// Tells the author of the consumer which fields of a template the API server did not keep.
    fn say_dropped(&mut self, entry: &str, payload: Option<&TemplateFacts>, answer: &[u8]) {
        let dropped = payload.map(|payload| dropped_fields(payload, answer)).unwrap_or_default();
        if !dropped.is_empty() {
            self.report.push(Notice::Trouble("FieldsDropped"));
            let note = format!(
                "{} {entry}: the API server did not keep these fields of the template: {}",
                self.prefix(),
                dropped.join(", ")
            );
            let (reason, action) = ("ResourceClaimFieldsDropped", "CreateClaim");
            self.report.push(Notice::Warning { reason, action, note });
        }
    }
}

impl Creating {
    fn name(&self, consumer: &ConsumerSnapshot) -> String {
        let generation = Generation { predecessor: self.predecessor.as_deref(), salt: self.salt };
        claim_name(&consumer.name, &consumer.uid, &self.entry, generation)
    }

    fn write(
        &self,
        kind: Kind,
        consumer: &ConsumerSnapshot,
        name: String,
        birth: &Birth,
    ) -> Result<Write, BadTemplate> {
        let template = self.payload.as_deref().ok_or(BadTemplate::NoSpec)?;
        let source = ClaimSource {
            kind,
            name: &consumer.name,
            uid: &consumer.uid,
            entry: &self.entry,
            gated: consumer.gated,
        };
        let body = claim_body(template, &consumer.namespace, &name, source, birth)?;
        Ok(Write::new(RESOURCE_CLAIM, &*consumer.namespace, name, Action::Create { body }))
    }

    /// Whether the template asks for admin access, for the label of a failed creation.
    fn admin_access(&self) -> bool {
        let Some(TemplateFacts { spec: Some(spec), .. }) = self.payload.as_deref() else { return false };
        let claim = serde_json::from_str::<objects::ResourceClaim>(&format!(r#"{{"spec":{}}}"#, spec.get()));
        claim.is_ok_and(|claim| claim.admin_access())
    }
}
