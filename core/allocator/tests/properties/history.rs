//! A snapshot answers by the objects that it has, whatever it had before.

use dragoman_allocator::input::{Claim, Node};
use dragoman_allocator::{Explanation, Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use dragoman_objects::{Class, Name, Slice, TaintRule};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::answer::{Answer, Question};
use crate::drawn::{Scenarios, holds};

/// The most devices that the search looks at on one node.
const BUDGET: u64 = 5_000;

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

    fn added_to(&self, snapshot: &Snapshot) -> Snapshot {
        match self.clone() {
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

    /// The kind and the name.
    fn id(&self) -> (u8, &Name) {
        match self {
            Self::Node(node) => (0, &node.name),
            Self::Class(class) => (1, &class.name),
            Self::Rule(rule) => (2, &rule.name),
            Self::Slice(slice) => (3, &slice.name),
            Self::Claim(claim) => (4, &claim.uid),
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
            (Self::Slice(slice), Self::Slice(other)) if rng.bool() => {
                Self::Slice(Slice { name: slice.name, ..other })
            }
            (Self::Slice(slice), Self::Slice(other)) => {
                // A slice of another node in the same pool.
                let mut pool = other.pool;
                pool.generation += rng.i64(-1..=1);
                Self::Slice(Slice { driver: other.driver, pool, ..slice })
            }
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

/// A snapshot that was derived step by step, and the objects that it has.
struct History {
    snapshot: Snapshot,
    objects: Vec<Object>,
    /// Claims that were prepared with the first snapshot.
    claims: PodClaims,
}

impl History {
    fn add(&mut self, object: Object) {
        self.snapshot = object.added_to(&self.snapshot);
        self.objects.retain(|other| other.id() != object.id());
        self.objects.push(object);
    }

    fn remove(&mut self, object: &Object) {
        self.snapshot = object.removed_from(&self.snapshot);
        self.objects.retain(|other| other.id() != object.id());
    }

    /// Whether the snapshot answers like a new one with the same objects.
    fn answers_like_new(&self, question: &Question) -> Result<(), TestCaseError> {
        let new = self.objects.iter().fold(Question::nothing(), |new, object| object.added_to(&new));
        let claims = PodClaims::new(&new, question.wanted_claims(), question.gates);
        for node in &question.nodes {
            let (expected, said) = (told(&new, node, &claims), told(&self.snapshot, node, &self.claims));
            prop_assert_eq!(said, expected);
        }
        Ok(())
    }
}

/// The answer for a node, with the explanation if there is no solution.
fn told(snapshot: &Snapshot, node: &str, claims: &PodClaims) -> (Answer, Option<Explanation>) {
    let options = Options { budget: Some(BUDGET), ..Options::default() };
    let outcome = allocate(snapshot, &Overlay::default(), node, claims, options);
    let explanation = match &outcome {
        Outcome::Unsatisfiable(unsatisfiable) => Some(unsatisfiable.explain()),
        _ => None,
    };
    (outcome.into(), explanation)
}

#[test]
fn a_snapshot_with_any_history_answers_like_a_new_one() {
    holds(Scenarios::Any, 300, |scenario| {
        let Some(question) = Question::read(scenario) else { return Ok(()) };
        // The text decides the history, so that a scenario that is played again has the same one.
        let mut rng = Rng::with_seed(scenario.to_string().len() as u64);
        let all = Object::all(&question);
        let snapshot = Question::nothing();
        let claims = PodClaims::new(&snapshot, question.wanted_claims(), question.gates);
        let mut history = History { snapshot, objects: Vec::new(), claims };
        for _ in 0..2 {
            let mut order = all.clone();
            rng.shuffle(&mut order);
            for (number, object) in order.into_iter().enumerate() {
                match rng.u8(0..4) {
                    0 => history.remove(&object),
                    1 => history.add(object.before(&mut rng, &all)),
                    _ => history.add(object),
                }
                if number % 4 == 0 {
                    history.answers_like_new(&question)?;
                }
            }
        }
        for object in all {
            history.add(object);
        }
        history.answers_like_new(&question)
    });
}
