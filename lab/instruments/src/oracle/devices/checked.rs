//! Checks the answers of both sides with the independent checker, which tries every choice of devices, up
//! to a limit.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use dragoman_allocator::Snapshot;
use dragoman_allocator::checker::{Broken, CannotCheck, Checker, Expressions, Tried};
use dragoman_allocator::scenario::Scenario;
use dragoman_objects::{Allocation, Name};
use serde_json::Value;

use super::smaller::{self, Found, Open};
use super::{Allocations, Judge, Said};

/// The most devices that the checker tries.
const LIMIT: u64 = 2_000;
/// The most devices that the checker tries if the judge has no answer, so that the checker must decide.
const LIMIT_WITHOUT_JUDGE: u64 = 10_000;

#[derive(Default)]
pub(super) struct Checked {
    expressions: Expressions,
    accepted: usize,
    /// Nodes without a solution, and how many of them the checker has confirmed.
    none: usize,
    confirmed: usize,
    /// Questions that the judge did not answer in time, and that are not decided yet.
    open: Vec<Open>,
    timeouts: usize,
    /// The number of questions that remain undecided.
    undecided: usize,
}

impl Checked {
    /// Checks a solution, and that the nodes before it have none. The checked allocations are those of the
    /// judge, if it has the same solution.
    ///
    /// # Errors
    /// The solution breaks a rule, or a node before it has a solution.
    pub(super) fn check(
        &mut self,
        scenario: &Value,
        ours: &Said,
        theirs: Option<&Allocations>,
        timeout: bool,
    ) -> anyhow::Result<()> {
        let verbatim = scenario;
        let scenario: Scenario = serde_json::from_value(scenario.clone())?;
        let (cluster, wanted, gates) = (scenario.cluster(), scenario.wanted(), scenario.gates()?);
        if timeout {
            self.timeouts += 1;
        }
        if ours.outcome == "timeout" {
            self.open.push(Open { scenario: verbatim.clone(), found: Found::Unknown });
            return Ok(());
        }
        let limit = if timeout { LIMIT_WITHOUT_JUDGE } else { LIMIT };
        for node in &scenario.candidates {
            let mut open = |found: Found| {
                if timeout {
                    self.open.push(Open { scenario: verbatim.clone(), found });
                }
            };
            if let Some(said) = answer_on(node, ours) {
                open(Found::Something(node.to_string(), said));
            }
            // A node error does not say whether there is a solution.
            if ours.node_errors.contains_key(&**node) {
                continue;
            }
            let solved = ours.outcome == "solution" && **node == *ours.node;
            if !solved && ours.node == **node {
                break;
            }
            let checker = match Checker::new(&cluster, node, &wanted, gates, &self.expressions) {
                Ok(checker) => checker,
                // Both sides report a selector that cannot be evaluated.
                Err(CannotCheck::BadSelector(_)) => break,
                Err(why) => bail!(why),
            };
            if solved {
                let allocations = in_order(&scenario, &wanted, theirs.unwrap_or(&ours.allocations))?;
                check_solution(&checker, node, &allocations, limit)?;
                self.accepted += 1;
                break;
            }
            self.none += 1;
            if is_confirmed(&checker, node, limit)? {
                self.confirmed += 1;
            } else {
                open(Found::Nothing(node.to_string()));
            }
        }
        Ok(())
    }

    /// Decides the open questions.
    ///
    /// # Errors
    /// The judge disagrees about an open question, or about a smaller one.
    pub(super) fn decide(&mut self, judge: &Judge, like: &Snapshot) -> anyhow::Result<()> {
        self.undecided += smaller::undecided(judge, like, std::mem::take(&mut self.open))?;
        Ok(())
    }

    pub(super) fn print(&self) {
        println!("        the checker accepts {} solutions", self.accepted);
        println!("        by trying everything {} of {} nodes have none", self.confirmed, self.none);
        println!(
            "        {} without an answer of the judge in time; {} of its questions are compared only as something smaller like them",
            self.timeouts, self.undecided
        );
    }
}

/// Returns the answer for this node alone, if the answer for all nodes says it.
fn answer_on(node: &str, ours: &Said) -> Option<Said> {
    if let Some(error) = ours.node_errors.get(node) {
        let node_errors = [(node.to_owned(), error.clone())].into();
        return Some(Said { outcome: "none".to_owned(), node_errors, ..Said::default() });
    }
    (ours.node == node).then(|| Said { node_errors: BTreeMap::new(), ..ours.clone() })
}

/// Checks a solution on a node.
///
/// # Errors
/// The solution breaks a rule.
fn check_solution(
    checker: &Checker<'_>,
    node: &str,
    allocations: &[(Name, Allocation)],
    limit: u64,
) -> anyhow::Result<()> {
    let broken = checker.check(allocations, limit);
    let said: Vec<String> = broken.iter().map(Broken::to_string).collect();
    ensure!(broken.is_empty(), "the checker on {node}: {}", said.join("; "));
    Ok(())
}

/// Whether the checker confirms within the limit that a node has no solution.
///
/// # Errors
/// The node has a solution, or the checker contradicts itself.
fn is_confirmed(checker: &Checker<'_>, node: &str, limit: u64) -> anyhow::Result<bool> {
    let tried = checker.first(limit, &|_| true);
    let counted = checker.first_by_counting(limit);
    ensure!(tried == Tried::TooMuch || tried == counted, "counting on {node}: {counted:?}");
    match counted {
        Tried::None => Ok(true),
        Tried::TooMuch => Ok(false),
        Tried::First(choices) => bail!("on {node} there is a solution: {choices:?}"),
    }
}

/// Returns the allocations of an answer in the order of the claims `wanted`, by uid.
fn in_order(
    scenario: &Scenario,
    wanted: &[Name],
    allocations: &Allocations,
) -> anyhow::Result<Vec<(Name, Allocation)>> {
    let mut in_order = Vec::new();
    for uid in wanted {
        let name = scenario.claim_name(uid).context("claim")?;
        // Claims that were allocated before are not in the answer.
        if let Some(allocation) = allocations.get(&name) {
            in_order.push((uid.clone(), serde_json::from_value(allocation.clone())?));
        }
    }
    Ok(in_order)
}
