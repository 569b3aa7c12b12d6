//! The same question put in another way has the same answer.

use std::sync::Arc;

use dragoman_allocator::input::Claim;
use dragoman_allocator::{Options, Outcome, Overlay, PodClaims, allocate};
use dragoman_objects::{CelSelector, Name, Selector};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use crate::answer::{Answer, Question, answer};
use crate::drawn::{Scenarios, holds};

/// The claims of the Pod once more, for another Pod.
fn once_more(question: &Question) -> PodClaims {
    let again = |claim: Arc<Claim>| {
        let uid = format!("{}-again", claim.uid).into();
        Arc::new(Claim { uid, allocation: None, ..Claim::clone(&claim) })
    };
    let claims = question.wanted_claims().into_iter().map(again);
    PodClaims::new(&question.snapshot, claims.collect(), question.gates)
}

#[test]
fn an_assumed_allocation_counts_like_one_of_the_api_once() {
    holds(Scenarios::Any, 1_500, |scenario| {
        let Some(question) = Question::read(scenario) else { return Ok(()) };
        for node in &question.nodes {
            let first = question.answer(node, Options::default());
            let Answer::Solution(allocations) = &first else { continue };
            let (base, again) = (&question.snapshot, once_more(&question));
            let mut overlay = Overlay::default();
            overlay.savepoint();
            let mut observed = base.clone();
            for (uid, allocation) in allocations {
                // An answer in between leaves a merged snapshot behind, which the next one is added to.
                drop(answer(base, &overlay, node, &again));
                overlay.assume(uid.clone(), allocation.clone());
                let claim = Claim::clone(base.claim(uid).unwrap());
                observed = observed.with_claim(Claim { allocation: Some(allocation.clone()), ..claim });
            }
            for other in &question.nodes {
                let expected = answer(&observed, &Overlay::default(), other, &again);
                prop_assert_eq!(&answer(base, &overlay, other, &again), &expected, "assumed");
                prop_assert_eq!(&answer(&observed, &overlay, other, &again), &expected, "both");
            }
            overlay.savepoint();
            let second = answer(base, &overlay, node, &again);
            let mut observed = base.clone();
            for (uid, allocation) in second.allocations() {
                overlay.assume(uid.clone(), allocation.clone());
                let allocation = Some(allocation.clone());
                observed = observed.with_claim(Claim { uid: uid.clone(), allocation, ..Claim::default() });
            }
            for (uid, _) in allocations {
                overlay.forget(uid);
            }
            let expected = answer(&observed, &Overlay::default(), node, &question.claims);
            prop_assert_eq!(&answer(base, &overlay, node, &question.claims), &expected, "forgotten");
            overlay.keep();
            overlay.roll_back();
            prop_assert_eq!(&answer(base, &overlay, node, &question.claims), &first, "rolled back");
        }
        Ok(())
    });
}

#[test]
fn a_search_that_is_paused_gives_the_answer_of_one_that_is_not() {
    holds(Scenarios::Any, 1_000, |scenario| {
        let Some(question) = Question::read(scenario) else { return Ok(()) };
        for node in &question.nodes {
            let expected = question.answer(node, Options::default());
            if expected == Answer::Unknown {
                continue;
            }
            let options = Options { budget: Some(3), ..Options::default() };
            let (snapshot, claims) = (&question.snapshot, &question.claims);
            let mut outcome = allocate(snapshot, &Overlay::default(), node, claims, options);
            while let Outcome::BudgetSpent(paused) = outcome {
                outcome = paused.resume(options);
            }
            prop_assert_eq!(Answer::from(outcome), expected);
        }
        Ok(())
    });
}

/// Whether a search that prunes gives the answer of one that walks through every branch. A branch with an
/// error may be one that is pruned.
fn pruned_is_same(scenario: &Value) -> Result<(), TestCaseError> {
    let Some(question) = Question::read(scenario) else { return Ok(()) };
    for node in &question.nodes {
        let pruned = question.answer(node, Options::default());
        let every = question.answer(node, Options { every_branch: true, ..Options::default() });
        let unknown = |answer: &Answer| matches!(answer, Answer::Unknown);
        if !unknown(&every) && !unknown(&pruned) && !matches!(every, Answer::PodError(_)) {
            prop_assert_eq!(pruned, every);
        }
    }
    Ok(())
}

#[test]
fn pruning_changes_no_answer_but_for_errors_of_branches_without_a_solution() {
    holds(Scenarios::Any, 1_000, pruned_is_same);
}

#[test]
fn pruning_changes_no_answer_of_a_crowded_node() {
    holds(Scenarios::Crowded, 2_000, pruned_is_same);
}

/// Puts in front of every selector of a request that the class selects the device.
fn guarded(question: &Question) -> Vec<Arc<Claim>> {
    let text = |selector: &Selector| selector.cel.as_ref().map(|cel| cel.expression.to_string());
    let class_of = |name: &Name| {
        let class = question.cluster.classes.iter().find(|class| class.name == *name);
        let selectors = class.into_iter().flat_map(|class| &class.selectors);
        let all: Vec<String> = selectors.filter_map(text).map(|text| format!("({text})")).collect();
        if all.is_empty() { "true".to_owned() } else { all.join(" && ") }
    };
    let guard = |class: &Name, selectors: &mut Vec<Selector>| {
        for selector in selectors {
            let Some(cel) = &selector.cel else { continue };
            let expression = format!("!({}) || ({})", class_of(class), cel.expression).into();
            selector.cel = Some(CelSelector { expression });
        }
    };
    let claims = question.wanted_claims().into_iter().map(|claim| {
        let mut claim = Claim::clone(&claim);
        for request in &mut claim.devices.requests {
            let exactly = request.exactly.iter_mut().map(|exactly| &mut exactly.asked);
            for asked in exactly.chain(&mut request.first_available) {
                guard(&asked.device_class_name.clone(), &mut asked.selectors);
            }
        }
        Arc::new(claim)
    });
    claims.collect()
}

#[test]
fn selectors_of_a_request_see_only_devices_of_its_class() {
    holds(Scenarios::Any, 1_500, |scenario| {
        let mut scenario = scenario.clone();
        // Most devices of the other class lack what these selectors read.
        for selector in
            scenario["resourceClaims"].as_array_mut().into_iter().flatten().filter_map(first_selector)
        {
            *selector = json!("device.attributes['gpu.example.com'].numa < 2");
        }
        let Some(question) = Question::read(&scenario) else { return Ok(()) };
        let guarded = PodClaims::new(&question.snapshot, guarded(&question), question.gates);
        for node in &question.nodes {
            let plain = question.answer(node, Options::default());
            let guarded = answer(&question.snapshot, &Overlay::default(), node, &guarded);
            match (plain, guarded) {
                (Answer::PodError(_), Answer::PodError(_)) => {}
                (plain, guarded) => prop_assert_eq!(plain, guarded),
            }
        }
        Ok(())
    });
}

/// The expression of the first selector of a claim's first request.
fn first_selector(claim: &mut Value) -> Option<&mut Value> {
    claim.pointer_mut("/spec/devices/requests/0/exactly/selectors/0/cel/expression")
}
