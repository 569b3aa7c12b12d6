//! The same question put in another way has the same answer.

use std::sync::Arc;

use dragoman_allocator::input::{CelSelector, Claim, Class, Name, Node, Selector, Slice, TaintRule};
use dragoman_allocator::{Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use crate::answer::{Answer, Question, answer};
use crate::drawn::{Scenarios, holds};

/// An object of the cluster.
#[derive(Clone)]
enum Object {
    Node(Node),
    Class(Class),
    Rule(TaintRule),
    Slice(Slice),
    Claim(Claim),
}

impl Object {
    fn all(question: &Question) -> Vec<Self> {
        let cluster = question.cluster.clone();
        let nodes = cluster.nodes.into_iter().map(Self::Node);
        let classes = cluster.classes.into_iter().map(Self::Class);
        let rules = cluster.taint_rules.into_iter().map(Self::Rule);
        let slices = cluster.slices.into_iter().map(Self::Slice);
        let claims = cluster.claims.into_iter().map(Self::Claim);
        nodes.chain(classes).chain(rules).chain(slices).chain(claims).collect()
    }

    fn added_to(self, snapshot: &Snapshot) -> Snapshot {
        match self {
            Self::Node(node) => snapshot.with_node(node),
            Self::Class(class) => snapshot.with_class(class),
            Self::Rule(rule) => snapshot.with_taint_rule(rule),
            Self::Slice(slice) => snapshot.with_slice(slice),
            Self::Claim(claim) => snapshot.with_claim(claim),
        }
    }

    fn removed_from(&self, snapshot: &Snapshot) -> Snapshot {
        match self {
            Self::Node(node) => snapshot.without_node(&node.name),
            Self::Class(class) => snapshot.without_class(&class.name),
            Self::Rule(rule) => snapshot.without_taint_rule(&rule.name),
            Self::Slice(slice) => snapshot.without_slice(&slice.name),
            Self::Claim(claim) => snapshot.without_claim(&claim.uid),
        }
    }

    /// An earlier state of the object, with the content of another of its kind.
    fn before(&self, rng: &mut Rng, all: &[Self]) -> Self {
        let other = rng.choice(all).unwrap_or(self);
        match (self.clone(), other.clone()) {
            (Self::Node(node), Self::Node(other)) => Self::Node(Node { name: node.name, ..other }),
            (Self::Node(node), _) => Self::Node(Node { name: node.name, ..Node::default() }),
            (Self::Class(class), Self::Class(other)) => Self::Class(Class { name: class.name, ..other }),
            (Self::Class(class), _) => Self::Class(Class { name: class.name, ..Class::default() }),
            (Self::Rule(rule), _) => Self::Rule(TaintRule { selector: None, ..rule }),
            (Self::Slice(slice), Self::Slice(other)) => Self::Slice(Slice { name: slice.name, ..other }),
            (Self::Slice(mut slice), _) => {
                slice.pool.generation += rng.i64(-1..=1);
                slice.devices.truncate(1);
                Self::Slice(slice)
            }
            (Self::Claim(claim), Self::Claim(other)) => {
                Self::Claim(Claim { allocation: other.allocation, ..claim })
            }
            (Self::Claim(claim), _) => Self::Claim(Claim { allocation: None, ..claim }),
        }
    }
}

#[test]
fn a_snapshot_with_any_history_answers_like_a_new_one() {
    holds(Scenarios::Any, 700, |scenario| {
        let Some(question) = Question::read(scenario) else { return Ok(()) };
        // The text decides the history, so that a scenario that is played again has the same one.
        let mut rng = Rng::with_seed(scenario.to_string().len() as u64);
        let all = Object::all(&question);
        let mut order = all.clone();
        rng.shuffle(&mut order);
        let mut snapshot = Question::nothing();
        let early = PodClaims::new(&snapshot, question.wanted_claims(), question.gates);
        for (number, object) in order.iter().enumerate() {
            if rng.bool() {
                snapshot = object.before(&mut rng, &all).added_to(&snapshot);
            }
            // An answer in between leaves the views of the nodes behind.
            if number % 4 == 0
                && let Some(node) = rng.choice(&question.nodes)
            {
                drop(answer(&snapshot, &Overlay::default(), node, &early));
            }
            if rng.u8(0..4) == 0 {
                snapshot = object.removed_from(&snapshot);
            }
        }
        for object in order {
            snapshot = object.added_to(&snapshot);
        }
        for node in &question.nodes {
            let expected = question.answer(node, Options::default());
            prop_assert_eq!(&answer(&snapshot, &Overlay::default(), node, &question.claims), &expected);
            prop_assert_eq!(&answer(&snapshot, &Overlay::default(), node, &early), &expected, "early claims");
        }
        Ok(())
    });
}

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
            for (uid, _) in allocations {
                overlay.forget(uid);
            }
            prop_assert_eq!(&answer(base, &overlay, node, &question.claims), &first, "forgotten");
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
