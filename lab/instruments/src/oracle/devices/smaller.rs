//! Smaller questions for scenarios that the judge does not answer in time and that are too large for the
//! checker: one node instead of all, and fewer requests and constraints. If the smaller question has no
//! solution, the scenario has none.

use anyhow::{Context as _, ensure};
use dragoman_allocator::Snapshot;
use dragoman_allocator::checker::{Checker, Expressions, Tried};
use dragoman_allocator::scenario::Scenario;
use serde_json::{Value, json};

use super::{Judge, Said, declared, normalize, ours, same};

/// The most devices that the checker tries.
const LIMIT: u64 = 1_000_000;

/// A question that is not decided yet.
pub(super) struct Open {
    pub(super) scenario: Value,
    pub(super) found: Found,
}

/// The answer of Dragoman to an open question.
pub(super) enum Found {
    /// No solution on this node.
    Nothing(String),
    /// This answer for this node.
    Something(String, Said),
    /// No answer within the budget.
    Unknown,
}

/// A question for the judge, and Dragoman's own answer.
struct Question {
    scenario: Value,
    ours: Said,
}

/// Returns how many questions remain undecided, even in the smaller form that would decide them. A
/// disagreement of the judge is an error.
pub(super) fn undecided(judge: &Judge, like: &Snapshot, open: Vec<Open>) -> anyhow::Result<usize> {
    let (mut questions, mut undecided) = (Vec::new(), 0);
    for open in open {
        let nothing = matches!(open.found, Found::Nothing(_));
        let question = open.question(like)?;
        if !nothing || !is_nothing(&question.scenario)? {
            questions.push(question);
        }
    }
    // Questions that are still too large shrink until both sides have an answer. Both sides then at least
    // agree on a similar question.
    while !questions.is_empty() {
        let lines: Vec<String> = questions.iter().map(|question| question.scenario.to_string()).collect();
        let mut left = Vec::new();
        for (question, answer) in questions.into_iter().zip(judge.answer(&lines)?) {
            let mut theirs: Said = serde_json::from_str(&answer).context("answer")?;
            normalize(&mut theirs);
            if theirs.outcome == "timeout" || question.ours.outcome == "timeout" {
                left.push(question);
            } else if declared(&question.scenario, &question.ours, &theirs)?.is_none() {
                same(&question.ours, &theirs).with_context(|| {
                    format!("{}\n ours {:?}\n theirs {answer}", question.scenario, question.ours)
                })?;
            }
        }
        undecided = undecided.max(left.len());
        questions = left
            .into_iter()
            .filter_map(|question| question.smaller(like).transpose())
            .collect::<Result<_, _>>()?;
    }
    Ok(undecided)
}

impl Question {
    /// The question without one of its claims, or without one request of its only claim. `None` if nothing
    /// more can be removed.
    fn smaller(&self, like: &Snapshot) -> anyhow::Result<Option<Self>> {
        let mut scenario = self.scenario.clone();
        if scenario["allocate"].as_array().map_or(0, Vec::len) > 1 {
            scenario = without_claim(&scenario, 0);
        } else {
            let Some(devices) = devices(&mut scenario, 0) else { return Ok(None) };
            let requests = devices["requests"].as_array().map_or(0, Vec::len);
            if requests < 2 {
                return Ok(None);
            }
            remove(devices, "requests", requests - 1);
        }
        let ours = ours(like, &scenario.to_string(), false)?;
        Ok(Some(Self { scenario, ours }))
    }
}

/// Whether the checker has tried everything and found no solution.
fn is_nothing(question: &Value) -> anyhow::Result<bool> {
    let scenario: Scenario = serde_json::from_value(question.clone())?;
    let (cluster, wanted, gates) = (scenario.cluster(), scenario.wanted(), scenario.gates()?);
    let expressions = Expressions::default();
    let node = scenario.candidates.first().context("candidate")?;
    let tried = Checker::new(&cluster, node, &wanted, gates, &expressions)?.first_by_counting(LIMIT);
    ensure!(!matches!(tried, Tried::First(_)), "on {node} there is a solution: {tried:?} for {question}");
    Ok(tried == Tried::None)
}

impl Open {
    fn question(self, like: &Snapshot) -> anyhow::Result<Question> {
        let mut scenario = self.scenario;
        match self.found {
            Found::Nothing(node) => {
                scenario["candidates"] = json!([node]);
                let ours = Said { outcome: "none".to_owned(), ..Said::default() };
                Ok(Question { scenario: least(like, scenario)?, ours })
            }
            Found::Something(node, ours) => {
                scenario["candidates"] = json!([node]);
                Ok(Question { scenario, ours })
            }
            Found::Unknown => {
                let mut said = ours(like, &scenario.to_string(), false)?;
                while said.outcome == "timeout" {
                    scenario = without_claim(&scenario, 0);
                    said = ours(like, &scenario.to_string(), false)?;
                }
                Ok(Question { scenario, ours: said })
            }
        }
    }
}

/// Removes claims, constraints and requests, as long as the question has no solution.
fn least(like: &Snapshot, mut question: Value) -> anyhow::Result<Value> {
    let still_nothing = |question: &Value| -> anyhow::Result<bool> {
        let said = ours(like, &question.to_string(), false)?;
        Ok(said.outcome == "none" && said.node_errors.is_empty())
    };
    let claims = question["allocate"].as_array().map_or(0, Vec::len);
    for claim in (0..claims).rev() {
        let without = without_claim(&question, claim);
        if still_nothing(&without)? {
            question = without;
            continue;
        }
        for part in ["constraints", "requests"] {
            let parts = devices(&mut question, claim).and_then(|devices| devices[part].as_array());
            for number in (0..parts.map_or(0, Vec::len)).rev() {
                let mut without = question.clone();
                let Some(devices) = devices(&mut without, claim) else { continue };
                remove(devices, part, number);
                if still_nothing(&without)? {
                    question = without;
                }
            }
        }
    }
    Ok(question)
}

fn without_claim(scenario: &Value, claim: usize) -> Value {
    let mut without = scenario.clone();
    if let Some(allocate) = without["allocate"].as_array_mut()
        && claim < allocate.len()
    {
        allocate.remove(claim);
    }
    without
}

/// `spec.devices` of a claim that is to be allocated.
fn devices(scenario: &mut Value, claim: usize) -> Option<&mut Value> {
    let name = scenario["allocate"][claim].as_str()?.to_owned();
    let is_it = |claim: &&mut Value| {
        let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
        format!("{}/{}", text("namespace"), text("name")) == name
    };
    let claim = scenario["resourceClaims"].as_array_mut()?.iter_mut().find(is_it)?;
    Some(&mut claim["spec"]["devices"])
}

/// Removes a constraint, or a request and every mention of it.
fn remove(devices: &mut Value, part: &str, number: usize) {
    let Some(parts) = devices[part].as_array_mut() else { return };
    let removed = parts.remove(number);
    let (Some(name), true) = (removed["name"].as_str(), part == "requests") else { return };
    let about_it = |mention: &Value| {
        let mention = mention.as_str().unwrap_or_default();
        mention == name || mention.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
    };
    for part in ["constraints", "config"] {
        let Some(parts) = devices[part].as_array_mut() else { continue };
        parts.retain_mut(|part| match part["requests"].as_array_mut() {
            Some(mentions) if !mentions.is_empty() => {
                mentions.retain(|mention| !about_it(mention));
                // An empty list would apply to all requests.
                !mentions.is_empty()
            }
            _ => true,
        });
    }
}
