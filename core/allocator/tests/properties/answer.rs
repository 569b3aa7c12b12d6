//! The answers of the allocator to a scenario, in a form that can be compared.

use std::sync::Arc;

use dragoman_allocator::input::{Claim, Cluster};
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{
    Gates, NodeError, Options, Outcome, Overlay, PodClaims, PodError, Snapshot, allocate,
};
use dragoman_objects::{Allocation, Name};
use serde_json::Value;

/// The most devices that the search looks at on one node.
const BUDGET: u64 = 50_000;

pub(crate) type Allocations = Vec<(Name, Allocation)>;

/// The answer for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Solution(Allocations),
    None,
    NodeError(NodeError),
    PodError(PodError),
    /// The budget was spent.
    Unknown,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Solution(solution) => {
                let mut share = 0;
                let mut ids = || {
                    share += 1;
                    Name::from(format!("new-{share}"))
                };
                Self::Solution(solution.allocations(&mut ids).unwrap())
            }
            Outcome::Unsatisfiable(_) => Self::None,
            Outcome::NodeError(error) => Self::NodeError(error),
            Outcome::PodError(error) => Self::PodError(error),
            Outcome::BudgetSpent(_) => Self::Unknown,
            Outcome::Cancelled => panic!("nothing cancels"),
        }
    }
}

impl Answer {
    /// The allocations of a solution.
    pub(crate) fn allocations(&self) -> &[(Name, Allocation)] {
        match self {
            Self::Solution(allocations) => allocations,
            _ => &[],
        }
    }
}

/// A scenario, read.
pub(crate) struct Question {
    pub(crate) cluster: Cluster,
    pub(crate) nodes: Vec<Name>,
    pub(crate) wanted: Vec<Name>,
    pub(crate) gates: Gates,
    pub(crate) snapshot: Snapshot,
    pub(crate) claims: PodClaims,
}

thread_local! {
    /// Keeps the compiled selectors from one scenario to the next.
    static LIKE: Snapshot = Snapshot::default();
}

impl Question {
    /// Reads a scenario. Nothing if it does not hold together.
    pub(crate) fn read(scenario: &Value) -> Option<Self> {
        let scenario: Scenario = serde_json::from_value(scenario.clone()).ok()?;
        let snapshot = LIKE.with(|like| scenario.snapshot(like)).ok()?;
        Some(Self {
            cluster: scenario.cluster(),
            nodes: scenario.candidates.clone(),
            wanted: scenario.wanted(),
            gates: scenario.gates().ok()?,
            claims: scenario.claims(&snapshot).ok()?,
            snapshot,
        })
    }

    /// Returns an empty snapshot that shares compiled selectors with this one.
    pub(crate) fn nothing() -> Snapshot {
        LIKE.with(Snapshot::emptied)
    }

    /// The answer for a node.
    pub(crate) fn answer(&self, node: &str, options: Options<'_>) -> Answer {
        self.outcome(node, options).into()
    }

    /// The first answer for a node that passes. The judge does not tell devices of one weight apart.
    pub(crate) fn judged(
        &self,
        node: &str,
        passes: &dyn Fn(&[(Name, Allocation)]) -> bool,
        weight: &dyn Fn(&str) -> Option<u64>,
    ) -> Answer {
        let mut outcome = self.outcome(node, Options::default());
        while let Outcome::Solution(solution) = outcome {
            if passes(&solution.allocations(&mut || "share".into()).unwrap()) {
                return Outcome::Solution(solution).into();
            }
            let options = Options { budget: Some(BUDGET), ..Options::default() };
            outcome = solution.refused(&|_, _, device| weight(device), options);
        }
        outcome.into()
    }

    /// The outcome for a node. The search has a budget.
    pub(crate) fn outcome(&self, node: &str, options: Options<'_>) -> Outcome {
        let options = Options { budget: Some(BUDGET), ..options };
        allocate(&self.snapshot, &Overlay::default(), node, &self.claims, options)
    }

    /// The claims to allocate.
    pub(crate) fn wanted_claims(&self) -> Vec<Arc<Claim>> {
        let claim = |uid: &Name| self.cluster.claims.iter().find(|claim| claim.uid == *uid).cloned();
        self.wanted.iter().filter_map(claim).map(Arc::new).collect()
    }
}

/// Returns the answer of a snapshot and an overlay for a node.
pub(crate) fn answer(snapshot: &Snapshot, overlay: &Overlay, node: &str, claims: &PodClaims) -> Answer {
    let options = Options { budget: Some(BUDGET), ..Options::default() };
    allocate(snapshot, overlay, node, claims, options).into()
}
