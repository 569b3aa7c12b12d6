//! One pass about a Pod or PodGroup: its claims are created, named in its status, and reserved.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use dragoman_crds::wire::{self, Name};
use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::controller::{Answer, LiveRead, Next, Pass, Verdict};
use dragoman_machinery::kind::{Kind, POD, RESOURCE_CLAIM};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Action, Write, Written};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::claim_body::{BadTemplate, ClaimSource, claim_body, dropped_fields};
use super::claim_name::{Generation, claim_name};
use super::facts::{ClaimFacts, PodFacts, TemplateFacts};
use super::index::{Index, WatchedKind};
use super::key::{Key, Subject};
use super::plan_consumer::{
    ConsumerPlan, Creation, Note, Reservation, plan_consumer, publication, reservation,
};
use super::report::{Report, Said, refused};
use super::snapshot::{ConsumerKind, ConsumerSnapshot, TemplateState};

/// Names tried before giving up. A computed name belongs to another claim once in 27^5 by chance;
/// eight in a row only if a client creates claims under those names in advance.
const SALTS: u32 = 8;

/// What writes of the pass are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The first of the claims to be created.
    Create,
    /// The claim names in the status.
    Publish,
    /// The first of the claims to be reserved.
    Reserve,
}

/// What the answers to the reads under way are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Claims that the status names and the index lacks.
    Confirm,
    /// Whether the consumer itself is there.
    Lives,
    /// The claim of the first creation, whose outcome is in doubt.
    InDoubt,
    /// The Pod, before claims are reserved for it.
    LivePod,
    /// The first claim to be reserved.
    LiveClaim,
}

/// A claim that is being created.
#[derive(Debug)]
struct Creating {
    entry: Name,
    template: TemplateState,
    predecessor: Option<String>,
    salt: u32,
    /// What was answered to the creation, where that does not tell whether the claim is there.
    in_doubt: Option<Refusal>,
}

/// A pass about one consumer.
#[derive(Debug)]
pub struct ConsumerPass {
    key: Key,
    born_protected: bool,
    kind: Option<Kind>,
    consumer: Option<ConsumerSnapshot>,
    plan: ConsumerPlan,
    gone: BTreeSet<Name>,
    found: BTreeSet<Name>,
    question: Question,
    /// The plan rests on no claim in doubt any more; it is carried out as it is.
    settled: bool,
    lives: Option<bool>,
    creations: VecDeque<Creating>,
    published: bool,
    may_reserve: Option<bool>,
    /// The live claim to be reserved next, once it was read.
    reserve_now: Option<Box<Write>>,
    reservations: VecDeque<Reservation>,
    expected: Option<(WatchedKind, String)>,
    /// A question without an answer: the pass ends.
    failed: bool,
    quota_refused: bool,
    verdict: Verdict,
    /// What the pass has to tell.
    pub report: Report,
}

impl ConsumerPass {
    /// A pass about the Pod or PodGroup of `key`.
    pub fn new(key: &Key, born_protected: bool) -> Self {
        Self {
            key: key.clone(),
            born_protected,
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
            may_reserve: None,
            reserve_now: None,
            reservations: VecDeque::new(),
            expected: None,
            failed: false,
            quota_refused: false,
            verdict: Verdict::Done,
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
    ) -> Next<WatchedKind, Purpose> {
        self.question = question;
        let namespace = &self.key.namespace;
        let read = |name| LiveRead { kind, namespace: namespace.to_string(), name };
        Next::Read(names.into_iter().map(read).collect())
    }

    fn urge(&mut self, verdict: Verdict) {
        self.verdict = self.verdict.clone().most_urgent(verdict);
    }

    fn refused(&mut self, what: &str, refusal: &Refusal) {
        let verdict = refused(what, refusal, &mut self.report);
        self.urge(verdict);
    }

    /// Tells the author of the consumer what is wrong with an entry.
    fn warn_author(&mut self, entry: &str, trouble: &str) {
        const REASON: &str = "FailedResourceClaimCreation";
        self.report.push(Said::Trouble(REASON));
        let note = format!("{} {entry}: {trouble}", self.prefix());
        self.report.push(Said::Warning { reason: REASON, action: "CreateClaim", note });
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
            self.warn_author(&entry, &trouble.to_string());
        }
        let Some(consumer) = &self.consumer else { return };
        let creating = |Creation { entry, predecessor }: &Creation| {
            let entry = consumer.entries.get(*entry)?;
            Some(Creating {
                entry: entry.entry.name.clone(),
                template: entry.template.clone(),
                predecessor: predecessor.as_deref().map(str::to_owned),
                salt: 0,
                in_doubt: None,
            })
        };
        self.creations = self.plan.create.iter().filter_map(creating).collect();
        self.reservations = std::mem::take(&mut self.plan.reserve).into();
    }

    /// The next step of the creations; none once all are done.
    fn next_creation(&mut self) -> Option<Next<WatchedKind, Purpose>> {
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
            match creating.write(kind, consumer, name, self.born_protected) {
                Ok(write) => {
                    let (write, purpose) = (Box::new(write), Purpose::Create);
                    return Some(Next::Send { write, watched: WatchedKind::Claims, purpose });
                }
                Err(bad) => {
                    // Unusable until the template changes, which wakes the consumer.
                    let entry = creating.entry.clone();
                    self.creations.pop_front();
                    self.warn_author(&entry, &bad.to_string());
                }
            }
        }
    }

    fn creation_sent(&mut self, outcome: Result<Written, Refusal>) {
        let Some(consumer) = &self.consumer else { return };
        let Some(creating) = self.creations.front_mut() else { return };
        let claim = creating.name(consumer);
        let failed = |creating: &Creating| Said::Created {
            claim: claim.clone(),
            success: false,
            admin_access: creating.admin_access(),
        };
        match outcome {
            Ok(written) => {
                let facts = decode::<wire::ResourceClaim>(&written.body);
                let admin_access = facts.is_ok_and(|claim| claim.admin_access());
                let (entry, template) = (creating.entry.clone(), creating.template.clone());
                self.report.push(Said::Created { claim: claim.clone(), success: true, admin_access });
                self.created(claim);
                self.say_dropped(&entry, &template, &written.body);
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

    /// The claim of a creation in doubt was read: a lost reply, an index that is late, or a
    /// coincidence.
    fn creation_read(&mut self, answer: Answer) {
        let live = found::<wire::ResourceClaim>(answer);
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
                    (creating.predecessor, creating.salt) = (Some(name), 0);
                } else {
                    self.expected = Some((WatchedKind::Claims, facts.version.to_string()));
                    self.created(name);
                }
            }
        }
    }

    /// The first creation is done: its entry has this claim.
    fn created(&mut self, claim: String) {
        if let Some(creating) = self.creations.pop_front() {
            self.plan.settled.insert(creating.entry, claim.into());
        }
    }

    /// The first creation is given up in this pass. The others go on.
    fn creation_refused(&mut self, refusal: Refusal) {
        let Some(creating) = self.creations.pop_front() else { return };
        match refusal {
            Refusal::Quota(_) | Refusal::AdminAccess(_) => {
                self.warn_author(&creating.entry, &refusal.to_string());
                self.quota_refused = true;
                self.report.push(Said::QuotaRefused);
            }
            Refusal::Invalid(_) => {
                self.warn_author(&creating.entry, &refusal.to_string());
                // A change of the template wakes the Pod; admission may change its
                // mind without one.
                self.urge(Verdict::After(Duration::from_mins(5)));
            }
            Refusal::Rbac(_) => {
                self.warn_author(&creating.entry, &refusal.to_string());
                self.refused("create the claim", &refusal);
            }
            other => self.refused("create the claim", &other),
        }
    }

    fn say_dropped(&mut self, entry: &str, template: &TemplateState, answer: &[u8]) {
        let TemplateState::Present(template) = template else { return };
        let dropped = dropped_fields(template, answer);
        if !dropped.is_empty() {
            self.report.push(Said::Trouble("FieldsDropped"));
            let note = format!(
                "{} {entry}: the API server did not keep these fields of the template: {}",
                self.prefix(),
                dropped.join(", ")
            );
            let (reason, action) = ("ResourceClaimFieldsDropped", "CreateClaim");
            self.report.push(Said::Warning { reason, action, note });
        }
    }

    /// The status write, once.
    fn next_publication(&mut self) -> Option<Next<WatchedKind, Purpose>> {
        if std::mem::replace(&mut self.published, true) {
            return None;
        }
        if self.verdict == Verdict::Done && !self.quota_refused {
            self.report.push(Said::QuotaPassed);
        }
        let consumer = self.consumer.as_ref()?;
        let write = Box::new(publication(self.kind?, consumer, &self.plan.settled)?);
        let watched = match consumer.kind {
            ConsumerKind::Pod => WatchedKind::Pods,
            ConsumerKind::PodGroup => WatchedKind::Groups,
        };
        Some(Next::Send { write, watched, purpose: Purpose::Publish })
    }

    /// The next step of the reservations. Both sides are read live first: the index of claims may
    /// lag behind kube-scheduler, which reserves by itself, and a Pod that is gone gets none.
    fn next_reservation(&mut self) -> Option<Next<WatchedKind, Purpose>> {
        let claim = self.reservations.front()?.claim.to_string();
        match (self.may_reserve, self.reserve_now.take()) {
            (None, _) => Some(self.ask(Question::LivePod, POD, [self.key.name.to_string()])),
            (Some(false), _) => None,
            (Some(true), None) => Some(self.ask(Question::LiveClaim, RESOURCE_CLAIM, [claim])),
            (Some(true), Some(write)) => {
                Some(Next::Send { write, watched: WatchedKind::Claims, purpose: Purpose::Reserve })
            }
        }
    }

    fn pod_read(&mut self, answer: Answer) {
        let pod = found::<wire::Pod>(answer);
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
        let claim = found::<wire::ResourceClaim>(answer);
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
            Ok(_) => self.report.push(Said::Reserved { claim: claim.to_string() }),
            Err(refusal) => {
                if matches!(refusal, Refusal::Invalid(_)) {
                    self.warn_author(&entry, &refusal.to_string());
                }
                self.refused("reserve the claim", &refusal);
            }
        }
    }

    /// Whether the consumer itself was found.
    fn consumer_read(&mut self, answer: Answer) {
        #[derive(Deserialize)]
        struct Existing {
            metadata: wire::Meta,
        }
        let Some(uid) = self.consumer.as_ref().map(|consumer| consumer.uid.clone()) else { return };
        let lives = found::<Existing>(answer).map(|there| there.is_some_and(|it| it.metadata.uid == uid));
        match lives {
            Ok(lives) => {
                self.lives = Some(lives);
                if !lives {
                    self.report.push(Said::Gone(uid.to_string()));
                }
            }
            Err(refusal) => {
                self.refused("confirm the consumer", &refusal);
                // Successors wait for the next pass; first claims of an entry are still created.
                self.creations.retain(|creating| creating.predecessor.is_none());
            }
        }
    }
}

impl Pass<Index> for ConsumerPass {
    type Purpose = Purpose;

    /// A creation costs at most a write and a read for each name, a reservation a read and a write;
    /// beside them the pass confirms twice, publishes and reads the Pod.
    fn most_steps(&self) -> usize {
        let entries = self.consumer.as_ref().map_or(0, |consumer| consumer.entries.len());
        16 + entries * (4 * SALTS as usize + 4)
    }

    fn observe(&mut self, index: &Index) {
        if self.settled {
            return;
        }
        let (namespace, name) = (&*self.key.namespace, &*self.key.name);
        (self.kind, self.consumer) = match self.key.subject {
            Subject::PodGroup => (index.groups_kind, ConsumerSnapshot::of_group(index, namespace, name)),
            Subject::Pod | Subject::Claim => (Some(POD), ConsumerSnapshot::of_pod(index, namespace, name)),
        };
        self.plan = match &self.consumer {
            Some(consumer) => plan_consumer(consumer, &self.gone, &self.found),
            None => ConsumerPlan::default(),
        };
    }

    fn next(&mut self) -> Next<WatchedKind, Purpose> {
        if self.consumer().is_none() && !self.settled {
            self.report.push(Said::QuotaPassed);
            return Next::Rest(Verdict::Done);
        }
        if self.failed {
            return Next::Rest(self.verdict.clone());
        }
        if !self.settled {
            if !self.plan.confirm.is_empty() {
                let doubtful: Vec<String> = self.plan.confirm.iter().map(ToString::to_string).collect();
                return self.ask(Question::Confirm, RESOURCE_CLAIM, doubtful);
            }
            self.settle();
        }
        // A claim was lost. If that is because its consumer is gone, and only the index does not
        // know yet, a new one would be lost the same way, and so on.
        let successor = self.creations.iter().any(|creating| creating.predecessor.is_some());
        match (self.lives, self.kind) {
            (None, Some(kind)) if successor => {
                return self.ask(Question::Lives, kind, [self.key.name.to_string()]);
            }
            (Some(false), _) => return Next::Rest(self.verdict.clone()),
            _ => {}
        }
        let next = self.next_creation();
        let next = next.or_else(|| self.next_publication()).or_else(|| self.next_reservation());
        next.unwrap_or_else(|| Next::Rest(self.verdict.clone()))
    }

    fn read(&mut self, read: &LiveRead, answer: Answer) {
        match self.question {
            Question::Confirm => match answer {
                Ok(Live::NotFound) => {
                    self.gone.insert(read.name.as_str().into());
                }
                // The watch will bring it and this key with it.
                Ok(Live::Found(_)) => {
                    self.found.insert(read.name.as_str().into());
                }
                Err(refusal) => {
                    self.urge(Verdict::Failed(format!("cannot confirm claim {}: {refusal}", read.name)));
                    self.failed = true;
                }
            },
            Question::Lives => self.consumer_read(answer),
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
                    self.report.extend(uid.map(Said::Gone));
                }
                self.refused("publish claim names", &refusal);
            }
        }
    }

    fn expected(&mut self) -> Option<(WatchedKind, String)> {
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
        born_protected: bool,
    ) -> Result<Write, BadTemplate> {
        let TemplateState::Present(template) = &self.template else { return Err(BadTemplate::NoSpec) };
        let source = ClaimSource { kind, name: &consumer.name, uid: &consumer.uid, entry: &self.entry };
        let body = claim_body(template, &consumer.namespace, &name, source, born_protected)?;
        Ok(Write::new(RESOURCE_CLAIM, &*consumer.namespace, name, Action::Create { body }))
    }

    /// Whether the template asks for admin access, for the label of a failed creation.
    fn admin_access(&self) -> bool {
        let TemplateState::Present(template) = &self.template else { return false };
        let TemplateFacts { spec: Some(spec), .. } = &**template else { return false };
        let claim = serde_json::from_str::<wire::ResourceClaim>(&format!(r#"{{"spec":{}}}"#, spec.get()));
        claim.is_ok_and(|claim| claim.admin_access())
    }
}
