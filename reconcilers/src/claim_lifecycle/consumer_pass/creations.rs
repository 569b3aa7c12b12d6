//! The creations of a pass: one claim after the other, each under a name that is its own.

use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::api::decode;
use dragoman_machinery::controller::{Answer, Next, Outcome};
use dragoman_machinery::kind::{Kind, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use dragoman_machinery::refusal::{Refusal, Retry};
use dragoman_machinery::write::{Action, Write, Written};
use dragoman_objects::{self as objects, Name};

use super::super::claim_body::{BadTemplate, Birth, ClaimSource, claim_body, dropped_fields};
use super::super::claim_name::{Generation, claim_name};
use super::super::facts::{ClaimFacts, TemplateFacts};
use super::super::plan_consumer::{Creation, Trouble};
use super::super::quota::Try;
use super::super::report::Notice;
use super::super::snapshot::{ConsumerSnapshot, TemplateState};
use super::{ConsumerPass, Purpose, Question, found};

/// Names tried before giving up. A computed name belongs to another claim once in 27^5 by chance;
/// eight in a row only if a client creates claims under those names in advance.
pub(super) const SALTS: u32 = 8;

/// The most claims that one pass creates: a worker is free again after some seconds at most, however
/// many entries a Pod has.
const PORTION: usize = 64;

/// The creations that may fail for a while in one pass.
const FAILURES: usize = 3;

/// A claim that is being created.
#[derive(Debug)]
pub(super) struct Creating {
    entry: Name,
    template: Name,
    /// The payload of the template, once it is known.
    payload: Option<Arc<TemplateFacts>>,
    pub(super) is_successor: bool,
    predecessor: Option<String>,
    salt: u32,
    /// Answer to the creation, if it leaves open whether the claim exists.
    in_doubt: Option<Refusal>,
}

impl ConsumerPass {
    /// Takes over the creations of the plan.
    pub(super) fn plan_creations(&mut self) {
        let Some(consumer) = &self.consumer else { return };
        let creating = |Creation { entry, is_successor, predecessor }: &Creation| {
            let entry = consumer.entries.get(*entry)?;
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
        let wanted: Vec<Creating> = self.plan.create.iter().filter_map(creating).collect();
        self.is_portion = wanted.len() > PORTION;
        for creating in wanted.into_iter().take(PORTION) {
            self.try_if_quota_may_have_room(creating);
        }
    }

    /// Whether the pass ends here because the rest of the claims is created by the next one. The
    /// names are published once, when all claims are there.
    pub(super) fn goes_on(&mut self) -> bool {
        let created = self.outcome.as_ref().is_some_and(|outcome| outcome.created == PORTION);
        let goes_on = self.is_portion && created && self.then == Outcome::Done;
        if goes_on {
            // Keys of others come between.
            self.urge(Outcome::After(Duration::ZERO));
        }
        goes_on
    }

    /// A creation that a quota refused for another key is not tried before its turn.
    fn try_if_quota_may_have_room(&mut self, creating: Creating) {
        match self.tries.get(&creating.template) {
            None | Some(Try::Now) => self.creations.push_back(creating),
            Some(Try::After(wait)) => {
                // It keeps its turn.
                self.outcome = None;
                self.urge(Outcome::After(*wait));
            }
            Some(Try::Wait(why)) => {
                let refusal = Refusal::Quota(why.to_string());
                self.trouble(&creating.entry, refusal.reason(), &refusal.to_string());
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

    /// The next step of the creations; none once all are done.
    pub(super) fn next_creation(&mut self) -> Option<Next<Purpose>> {
        loop {
            let (kind, consumer) = (self.kind?, self.consumer.as_ref()?);
            let creating = self.creations.front()?;
            if creating.salt >= SALTS {
                self.creation_refused(Refusal::Conflict);
                continue;
            }
            let name = creating.name(consumer);
            if creating.in_doubt.is_some() {
                return Some(self.ask(Question::InDoubt, RESOURCE_CLAIM, [name]));
            }
            if creating.payload.is_none() {
                let template = creating.template.to_string();
                return Some(self.ask(Question::Template, RESOURCE_CLAIM_TEMPLATE, [template]));
            }
            match creating.write(kind, consumer, name, &self.birth) {
                Ok(write) => {
                    let (write, purpose) = (Box::new(write), Purpose::Create);
                    return Some(Next::Send { write, purpose });
                }
                Err(bad) => {
                    // Unusable until the template changes, which wakes the consumer.
                    let entry = creating.entry.clone();
                    self.creations.pop_front();
                    self.trouble(&entry, "TemplateUnusable", &bad.to_string());
                }
            }
        }
    }

    pub(super) fn creation_sent(&mut self, outcome: Result<Written, Refusal>) {
        let Some(consumer) = &self.consumer else { return };
        let Some(creating) = self.creations.front_mut() else { return };
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
                self.report.push(Notice::Created { claim: claim.clone(), success: true, admin_access });
                self.created(claim);
                self.say_dropped(&entry, payload.as_deref(), &written.body);
            }
            Err(Refusal::AlreadyExists) => creating.in_doubt = Some(Refusal::Conflict),
            // What may have happened is looked at at once: the next plan may know less, and give the
            // claim another name.
            Err(refusal @ Refusal::Transient(_)) => {
                self.report.push(failed(creating));
                creating.in_doubt = Some(refusal);
            }
            Err(refusal) => {
                self.report.push(failed(creating));
                self.creation_refused(refusal);
            }
        }
    }

    /// The template of the first creation was read.
    pub(super) fn template_read(&mut self, answer: Answer) {
        let Some(creating) = self.creations.front() else { return };
        let name = creating.template.clone();
        match found::<objects::ResourceClaimTemplate>(answer) {
            Ok(Some(template)) => {
                let payload = Arc::new(TemplateFacts::from(&template));
                let of_it = self.creations.iter_mut().filter(|creating| creating.template == name);
                of_it.for_each(|creating| creating.payload = Some(Arc::clone(&payload)));
            }
            Ok(None) => {
                // The watch will bring that it is gone.
                let entry = creating.entry.clone();
                self.creations.retain(|creating| creating.template != name);
                let trouble = Trouble::NoTemplate(name);
                self.trouble(&entry, trouble.word(), &trouble.to_string());
            }
            Err(refusal) => self.creation_refused(refusal),
        }
    }

    /// The claim of a creation in doubt was read: a lost reply, an index that is late, or a
    /// coincidence.
    pub(super) fn creation_read(&mut self, answer: Answer) {
        let live = found::<objects::ResourceClaim>(answer);
        let Some(consumer) = &self.consumer else { return };
        let Some(creating) = self.creations.front_mut() else { return };
        let name = creating.name(consumer);
        let doubt = creating.in_doubt.take();
        match live {
            Err(refusal) => self.creation_refused(refusal),
            Ok(None) => self.creation_refused(doubt.unwrap_or(Refusal::Conflict)),
            Ok(Some(claim)) => {
                let facts = ClaimFacts::from(&claim);
                if !facts.owned_by(consumer.owner_kind(), &consumer.uid) {
                    creating.salt += 1;
                } else if facts.deleting {
                    // Never adopted; its name decides that of its successor.
                    (creating.is_successor, creating.predecessor, creating.salt) = (true, Some(name), 0);
                } else {
                    self.expected = Some((RESOURCE_CLAIM, facts.version.to_string()));
                    self.created(name);
                }
            }
        }
    }

    /// The first creation is done: its entry has this claim.
    fn created(&mut self, claim: String) {
        if let Some(creating) = self.creations.pop_front() {
            self.plan.settled.insert(creating.entry, claim.into());
            self.outcome.iter_mut().for_each(|outcome| outcome.created += 1);
        }
    }

    /// The first creation is given up in this pass. The others go on.
    fn creation_refused(&mut self, refusal: Refusal) {
        let Some(creating) = self.creations.pop_front() else { return };
        if refusal.retry() == Retry::Backoff {
            // The API server is in trouble: a Pod with many entries would send it a request for each.
            // One template alone may fail for ever, so that the first failure is no proof.
            self.failures += 1;
            if self.failures == FAILURES {
                self.creations.clear();
            }
        }
        match refusal {
            Refusal::Quota(ref why) => {
                let template = creating.template;
                self.trouble(&creating.entry, refusal.reason(), &refusal.to_string());
                // The quota refuses the others of this template as well.
                self.creations.retain(|other| other.template != template);
                self.waits_for_quota(template, Some(why.clone()));
            }
            Refusal::Invalid(_) | Refusal::AdminAccess(_) => {
                self.trouble(&creating.entry, refusal.reason(), &refusal.to_string());
                // A change of the template wakes the Pod; admission may change its mind without
                // one, and so may the author of the namespace's labels.
                self.urge(Outcome::After(Duration::from_mins(5)));
            }
            Refusal::Rbac(_) => {
                self.warn_author(&creating.entry, &refusal.to_string());
                self.refused("create the claim", &refusal);
            }
            other => self.refused("create the claim", &other),
        }
    }

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
