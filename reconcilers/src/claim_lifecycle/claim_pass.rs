//! One pass about a claim. It takes the claim as far as it can go: each answer is the state that the
//! next step is planned on, without a watch in between.

use std::collections::VecDeque;

use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::controller::{Answer, Failure, LiveRead, Next, Outcome, Pass, ReadBy};
use dragoman_machinery::expectations::PATIENCE;
use dragoman_machinery::kind::{Kind, POD};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::Written;
use dragoman_objects::{self as objects, ConsumerReference};
use jiff::Timestamp;
use serde::Deserialize;

use super::ended::HowEnded;
use super::evidence::{self, Presence};
use super::facts::{ClaimFacts, PodFacts, ReferenceKind};
use super::key::Key;
use super::plan_claim::{ClaimPlan, ClaimStep, Confirmed, plan_claim};
use super::reclaim::At;
use super::report::{Notice, Report, refused};
use super::snapshot::{ClaimSnapshot, ReadAt};
use super::state::State;

/// A pass about one claim.
#[derive(Debug)]
pub struct ClaimPass {
    key: Key,
    begun: bool,
    claim: Option<ClaimSnapshot>,
    /// Content that is newer than the index: the answer to the last write.
    newer: Option<ClaimFacts>,
    groups_kind: Option<Kind>,
    confirmed: Confirmed,
    /// The uids of consumers whose answers are to come, in the order of the questions.
    asked: VecDeque<String>,
    last: Option<ClaimStep>,
    at: At,
    /// Set once the pass is over.
    over: bool,
    then: Outcome,
    /// Whether a node may still hold the devices; absent where the pass ended before that was decided.
    pub is_held: Option<bool>,
    /// Results of the pass, in order.
    pub report: Report,
}

impl ClaimPass {
    /// A pass about the claim of `key` at a time.
    pub fn new(key: &Key, at: At) -> Self {
        Self {
            key: key.clone(),
            begun: false,
            claim: None,
            newer: None,
            groups_kind: None,
            confirmed: Confirmed::new(),
            asked: VecDeque::new(),
            last: None,
            at,
            is_held: None,
            over: false,
            then: Outcome::Done,
            report: Report::new(),
        }
    }

    /// The uid of the claim, once the index was looked at.
    pub fn uid(&self) -> &str {
        self.claim.as_ref().map_or("", |claim| &claim.uid)
    }

    /// Returns the live reads about these consumers. Notes those of kinds that cannot be read as foreign.
    fn questions(&mut self, positions: &[usize]) -> Vec<LiveRead> {
        let Some(claim) = &self.claim else { return Vec::new() };
        let mut reads = Vec::new();
        for consumer in positions.iter().filter_map(|i| claim.facts.reserved.get(*i)) {
            let kind = match ReferenceKind::of(consumer) {
                ReferenceKind::Pod => Some(POD),
                ReferenceKind::PodGroup => self.groups_kind,
                ReferenceKind::Foreign => None,
            };
            let Some(kind) = kind else {
                self.confirmed.insert(consumer.uid.to_string(), Presence::Foreign);
                continue;
            };
            self.asked.push_back(consumer.uid.to_string());
            let (namespace, name) = (self.key.namespace.to_string(), consumer.name.to_string());
            reads.push(LiveRead { kind, namespace, name, by: ReadBy::Get });
        }
        reads
    }

    /// The outcome that the claim is looked at again at `then`.
    fn later(&self, then: Timestamp) -> Outcome {
        self.then.clone().most_urgent(Outcome::After(self.at.until(then)))
    }

    fn sent_step(&mut self, step: ClaimStep, abrupt: Vec<ConsumerReference>, written: &Written) {
        self.report.push(Notice::Step(step));
        self.report.extend(abrupt.into_iter().map(Notice::Vanished));
        self.last = Some(step);
        match decode::<objects::ResourceClaim>(&written.body) {
            Ok(newer) if step != ClaimStep::Delete => self.newer = Some(ClaimFacts::from(&newer)),
            // Deleted; or the watch brings it, readable or not.
            Ok(_) | Err(_) => self.over = true,
        }
    }
}

impl Pass<State> for ClaimPass {
    /// The step, and the consumers that it takes out although they may have been running.
    type Purpose = (ClaimStep, Vec<ConsumerReference>);

    /// The longest chain is: confirm, release, unprotect, delete, rest. Twice that is a bug.
    fn most_steps(&self) -> usize {
        10
    }

    fn observe(&mut self, state: &State) {
        let (namespace, name) = (&*self.key.namespace, &*self.key.name);
        self.groups_kind = state.index.groups_kind;
        if !self.begun {
            self.begun = true;
            self.claim = ClaimSnapshot::take(state, namespace, name);
        } else if let (Some(claim), Some(facts)) = (&self.claim, self.newer.take()) {
            // Only consumers that left are missing in it: what is known of the others holds.
            let read = ReadAt { at: state.evidence.tick(), since: claim.read_since };
            self.claim = Some(ClaimSnapshot::of(state, namespace, name, &claim.uid, &facts, read));
        }
    }

    fn next(&mut self) -> Next<Self::Purpose> {
        loop {
            let Some(claim) = self.claim.as_ref().filter(|_| !self.over) else {
                return Next::Rest(self.then.clone());
            };
            let plan = plan_claim(claim, &self.confirmed, self.last, &self.at);
            if matches!(plan, ClaimPlan::Rest | ClaimPlan::Later(_) | ClaimPlan::Idle(_)) {
                self.is_held = Some(false);
            }
            match plan {
                ClaimPlan::Rest => return Next::Rest(self.then.clone()),
                ClaimPlan::Later(then) => return Next::Rest(self.later(then)),
                ClaimPlan::Idle(since) => {
                    self.report.push(Notice::Idle { since });
                    return Next::Rest(self.then.clone());
                }
                ClaimPlan::Hold { until, consumers } => {
                    let held = |position: usize| {
                        let consumer = claim.facts.reserved.get(position)?.clone();
                        let vanished = claim.vanished.get(position)?.clone();
                        let until = self.at.held_until(&vanished)?;
                        Some(Notice::Held { consumer, vanished, until })
                    };
                    self.report.extend(consumers.into_iter().filter_map(held));
                    self.is_held = Some(true);
                    return Next::Rest(self.later(until));
                }
                ClaimPlan::Confirm(positions) => {
                    let reads = self.questions(&positions);
                    if !reads.is_empty() {
                        return Next::Read(reads);
                    }
                }
                ClaimPlan::Send { step, write, abrupt } => {
                    let abrupt = abrupt.iter().filter_map(|i| claim.facts.reserved.get(*i).cloned());
                    let purpose = (step, abrupt.collect());
                    return Next::Send { write, purpose };
                }
            }
        }
    }

    fn read(&mut self, read: &LiveRead, answer: Answer) {
        let Some(uid) = self.asked.pop_front() else { return };
        let presence = presence(read, &uid, answer).unwrap_or_else(|refusal| {
            // The remaining consumers are not read then: the pass ends undecided.
            self.over |= matches!(refusal, Refusal::Transient(_) | Refusal::Throttled);
            let why = Failure::RefusedAbout(format!("cannot confirm {}", read.name), refusal);
            self.then = self.then.clone().most_urgent(Outcome::Failed(why));
            // Whether it uses the claim is unknown; the other consumers need not wait for it.
            Presence::Unreadable
        });
        if presence == Presence::Alive {
            // The index does not know it, so that its end may wake no key.
            self.then = self.then.clone().most_urgent(Outcome::After(PATIENCE));
        }
        self.confirmed.insert(uid, presence);
    }

    fn sent(&mut self, (step, abrupt): Self::Purpose, outcome: Result<Written, Refusal>) {
        match outcome {
            Ok(written) => self.sent_step(step, abrupt, &written),
            Err(refusal) => {
                let then = refused(&format!("{step:?}"), &refusal, &mut self.report);
                self.then = self.then.clone().most_urgent(then);
                self.over = true;
            }
        }
    }
}

/// Returns the presence of the consumer with `uid` according to the answer to a live read.
fn presence(read: &LiveRead, uid: &str, answer: Answer) -> Result<Presence, Refusal> {
    #[derive(Deserialize)]
    struct Existing {
        metadata: objects::Meta,
    }
    // How what is missing now ended went unseen.
    let gone = Presence::Gone(HowEnded::Unseen);
    let Live::Found(body) = answer? else { return Ok(gone) };
    if read.kind != POD {
        let group: Existing = decode(&body)?;
        return Ok(if *group.metadata.uid == *uid { Presence::Alive } else { gone });
    }
    let pod: objects::Pod = decode(&body)?;
    Ok(if *pod.metadata.uid == *uid { evidence::pod(&PodFacts::from(&pod)) } else { gone })
}
