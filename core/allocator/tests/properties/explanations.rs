//! An explanation agrees with the answer that it explains.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_allocator::input::Claim;
use dragoman_allocator::{Cause, Explanation, OfRequest, Options, Outcome, PodClaims};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::answer::{Answer, Question, answer};
use crate::drawn::{Scenarios, holds};

/// Whether the causes of a request add up.
fn adds_up(request: &OfRequest) -> Result<(), TestCaseError> {
    let mut causes: BTreeMap<Cause, usize> = BTreeMap::new();
    for pool in &request.pools {
        prop_assert_eq!(pool.causes.values().sum::<usize>(), pool.devices, "{:?}", pool);
        for (cause, count) in &pool.causes {
            *causes.entry(*cause).or_default() += count;
        }
    }
    let of = |cause: Cause| causes.get(&cause).copied().unwrap_or_default();
    let enough = request.suit >= request.wanted.max(1);
    let (suitable, other) =
        if enough { (Cause::Combination, Cause::TooFew) } else { (Cause::TooFew, Cause::Combination) };
    prop_assert_eq!(of(suitable), request.suit, "{:?}", request);
    prop_assert_eq!(of(other), 0, "{:?}", request);
    Ok(())
}

/// The claim with one request alone, for one device. Nothing if the request has alternatives or wants more.
fn alone(question: &Question, request: &OfRequest) -> Option<PodClaims> {
    let wanted = question.wanted_claims();
    let claim =
        wanted.iter().find(|claim| *request.claim == *format!("{}/{}", claim.namespace, claim.name))?;
    let number = claim.devices.requests.iter().position(|known| known.name == request.request)?;
    if request.wanted != 1 {
        return None;
    }
    let mut claim = Claim::clone(claim);
    let only = claim.devices.requests.swap_remove(number);
    claim
        .devices
        .constraints
        .retain(|constraint| constraint.requests.is_empty() || constraint.requests.contains(&only.name));
    claim.devices.requests = vec![only];
    Some(PodClaims::new(&question.snapshot, vec![Arc::new(claim)], question.gates))
}

fn agrees(question: &Question, node: &str, explanation: &Explanation) -> Result<(), TestCaseError> {
    explanation.requests.iter().try_for_each(adds_up)?;
    for request in &explanation.requests {
        let Some(alone) = alone(question, request) else { continue };
        match answer(&question.snapshot, &dragoman_allocator::Overlay::default(), node, &alone) {
            Answer::Solution(_) => prop_assert!(request.suit > 0, "alone it has a device: {request:?}"),
            Answer::None => prop_assert_eq!(request.suit, 0, "alone it has none: {:?}", request),
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn an_explanation_counts_every_device_once_and_says_what_a_request_alone_would_get() {
    holds(Scenarios::Any, 1_500, |scenario| {
        let Some(question) = Question::read(scenario) else { return Ok(()) };
        for node in &question.nodes {
            if let Outcome::Unsatisfiable(unsatisfiable) = question.outcome(node, Options::default()) {
                agrees(&question, node, &unsatisfiable.explain())?;
            }
        }
        Ok(())
    });
}
