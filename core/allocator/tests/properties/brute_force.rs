//! The allocator and its checker, which tries everything in order: both give the same answer.

use dragoman_allocator::checker::{Broken, Checker, Expressions, Rule, Tried};
use dragoman_allocator::{Alignment, Choice, NodeError, Options};
use dragoman_objects::{Allocation, Name, Slice};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::Value;

use crate::answer::{Answer, Question};
use crate::drawn::{Scenarios, holds};
use crate::scenarios::weights::{choices, pass, weight};

/// The most devices that the checker tries on one node.
const LIMIT: u64 = 1_000;

/// Checks the answer for a node. Only first fit gives the first of all solutions.
fn judged(checker: &Checker<'_>, answer: &Answer, choice: Choice) -> Result<(), TestCaseError> {
    match answer {
        Answer::Solution(allocations) => {
            let broken = checker.check(allocations, LIMIT);
            let may_be = |broken: &&Broken| choice == Choice::BestFit && broken.rule == Rule::First;
            let said: Vec<String> = broken.iter().filter(|of| !may_be(of)).map(Broken::to_string).collect();
            prop_assert!(said.is_empty(), "{}", said.join("; "));
        }
        // The checker knows of no errors but that a claim has too many devices.
        Answer::PodError(error) if !error.message.contains("exceeds the claim limit") => {}
        // A request for all devices is not tried.
        Answer::NodeError(NodeError::Incomplete { .. } | NodeError::InvalidForAll { .. })
        | Answer::Unknown => {}
        Answer::None | Answer::NodeError(_) | Answer::PodError(_) => {
            let tried = checker.first(LIMIT, &|_| true);
            prop_assert!(!matches!(tried, Tried::First(_)), "{answer:?}, but there is {tried:?}");
            let counted = checker.first_by_counting(LIMIT);
            prop_assert!(tried == Tried::TooMuch || tried == counted, "counted: {counted:?}");
            prop_assert!(!matches!(counted, Tried::First(_)), "{answer:?}, but there is {counted:?}");
        }
    }
    Ok(())
}

/// Whether the answers for all nodes are those of trying everything.
fn is_first(expressions: &Expressions, scenario: &Value) -> Result<(), TestCaseError> {
    let Some(question) = Question::read(scenario) else { return Ok(()) };
    for node in &question.nodes {
        let (cluster, wanted, gates) = (&question.cluster, &question.wanted, question.gates);
        let Ok(checker) = Checker::new(cluster, node, wanted, gates, expressions) else { continue };
        let answer = question.answer(node, Options::default());
        judged(&checker, &answer, Choice::FirstFit)?;
        let choice = Choice::BestFit;
        let best = question.answer(node, Options { choice, ..Options::default() });
        judged(&checker, &best, choice)?;
        let is_solved = |answer: &Answer| matches!(answer, Answer::Solution(_));
        prop_assert!(
            is_solved(&best) || !is_solved(&answer) || best == Answer::Unknown,
            "{best:?}, but first fit has {answer:?}"
        );
        if let Answer::NodeError(NodeError::Incomplete { driver, pool, .. }) = &answer {
            prop_assert!(has_newest(&question, node, (driver, pool)), "{answer:?}");
        }
    }
    Ok(())
}

/// Whether a node may have a slice of the newest generation of a pool. Otherwise the pool does not exist for
/// the node (docs/allocator.md 1.2).
fn has_newest(question: &Question, node: &str, (driver, pool): (&Name, &Name)) -> bool {
    let of_pool = |slice: &&Slice| slice.driver == *driver && slice.pool.name == *pool;
    let slices: Vec<&Slice> = question.cluster.slices.iter().filter(of_pool).collect();
    let newest = slices.iter().map(|slice| slice.pool.generation).max();
    let mut newest = slices.iter().filter(|slice| Some(slice.pool.generation) == newest);
    newest.any(|slice| slice.node_name.as_deref().is_none_or(|name| name == node))
}

#[test]
fn an_answer_is_that_of_trying_everything_in_order() {
    let expressions = Expressions::default();
    holds(Scenarios::Any, 3_000, |scenario| is_first(&expressions, scenario));
}

#[test]
fn an_answer_of_a_crowded_node_is_that_of_trying_everything_in_order() {
    let expressions = Expressions::default();
    holds(Scenarios::Crowded, 1_000, |scenario| is_first(&expressions, scenario));
}

#[test]
fn the_first_solution_that_is_not_refused_is_taken() {
    let expressions = Expressions::default();
    let is_first = |scenario: &Value| {
        let Some(question) = Question::read(scenario) else { return Ok(()) };
        for node in &question.nodes {
            let (cluster, wanted, gates) = (&question.cluster, &question.wanted, question.gates);
            let Ok(checker) = Checker::new(cluster, node, wanted, gates, &expressions) else { continue };
            let judge = |allocations: &[(Name, Allocation)]| pass(&choices(allocations));
            let found = match question.judged(node, &judge, &|device| Some(weight(device))) {
                Answer::Solution(allocations) => Tried::First(choices(&allocations)),
                Answer::None => Tried::None,
                _ => continue,
            };
            let tried = checker.first(LIMIT, &pass);
            prop_assert!(tried == Tried::TooMuch || tried == found, "{found:?}, but the first is {tried:?}");
        }
        Ok(())
    };
    holds(Scenarios::Any, 1_000, is_first);
    // On a crowded node pruning begins before the first solution.
    holds(Scenarios::Crowded, 1_000, is_first);
}

/// Has each device say where it is, by the attributes that it has anyway.
fn placed(scenario: &Value) -> Value {
    let mut scenario = scenario.clone();
    let slices = scenario["resourceSlices"].as_array_mut().into_iter().flatten();
    for device in slices.filter_map(|slice| slice["spec"]["devices"].as_array_mut()).flatten() {
        let Some(attributes) = device["attributes"].as_object_mut() else { continue };
        for (known, place) in [("model", "pcieRoot"), ("numa", "numaNode")] {
            if let Some(value) = attributes.get(known).cloned() {
                attributes.insert(format!("resource.kubernetes.io/{place}"), value);
            }
        }
    }
    scenario
}

#[test]
fn aligned_devices_are_as_legal_as_those_that_come_first() {
    let (expressions, aligned) = (Expressions::default(), std::cell::Cell::new(0));
    holds(Scenarios::Any, 1_500, |scenario| {
        let Some(question) = Question::read(&placed(scenario)) else { return Ok(()) };
        for node in &question.nodes {
            let (cluster, wanted, gates) = (&question.cluster, &question.wanted, question.gates);
            let Ok(checker) = Checker::new(cluster, node, wanted, gates, &expressions) else { continue };
            for choice in [Choice::FirstFit, Choice::BestFit] {
                let plain = question.answer(node, Options { choice, ..Options::default() });
                let align = Alignment::Preferred;
                let close = question.answer(node, Options { choice, align, ..Options::default() });
                if plain == close {
                    continue;
                }
                prop_assert!(
                    matches!((&plain, &close), (Answer::Solution(_), Answer::Solution(_))),
                    "{plain:?} {close:?}"
                );
                // It is not the first one, and that is what it is for.
                judged(&checker, &close, Choice::BestFit)?;
                aligned.set(aligned.get() + 1);
            }
        }
        Ok(())
    });
    assert!(aligned.get() > 10, "{} answers were aligned", aligned.get());
}
