//! Checks the allocator where solutions are refused, which the published allocator does not have. Brute force is the
//! judge: the solution must be the first that passes.

use anyhow::{Context as _, bail, ensure};
use dragoman_allocator::checker::{CannotCheck, Checker, Expressions, Tried};
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
use dragoman_objects::Name;
use serde_json::Value;

use super::scenario::weights::{choices, pass, weight};

/// The most devices that the checker tries.
const LIMIT: u64 = 2_000;
/// The most devices that the search looks at on one node. With weights it can prune less.
const BUDGET: u64 = 100_000;

#[derive(Default)]
pub(super) struct Fitting {
    expressions: Expressions,
    first: usize,
    /// Solutions that would differ if everything fitted.
    other: usize,
    none: usize,
}

impl Fitting {
    /// Checks the answer for every candidate node.
    ///
    /// # Errors
    /// The solution is not the first that passes, or a solution exists and was not found.
    pub(super) fn check(&mut self, like: &Snapshot, scenario: &Value) -> anyhow::Result<()> {
        let scenario: Scenario = serde_json::from_value(scenario.clone())?;
        let (cluster, gates) = (scenario.cluster(), scenario.gates()?);
        let snapshot = scenario.snapshot(like)?;
        let claims = scenario.claims(&snapshot)?;
        for node in &scenario.candidates {
            let checker = Checker::new(&cluster, node, &scenario.wanted(), gates, &self.expressions);
            let checker = match checker {
                Ok(checker) => checker,
                Err(CannotCheck::BadSelector(_)) => continue,
                Err(why) => bail!(why),
            };
            let options = Options { budget: Some(BUDGET), ..Options::default() };
            let mut outcome = allocate(&snapshot, &Overlay::default(), node, &claims, options);
            let found = loop {
                let Outcome::Solution(solution) = outcome else {
                    break matches!(outcome, Outcome::Unsatisfiable(_)).then_some(Tried::None);
                };
                let found = choices(&solution.allocations(&mut Name::default).context("allocations")?);
                if pass(&found) {
                    break Some(Tried::First(found));
                }
                outcome = solution.refused(&|_, _, device| Some(weight(device)), options);
            };
            let Some(found) = found else { continue };
            let tried = checker.first(LIMIT, &pass);
            if tried == Tried::TooMuch {
                continue;
            }
            ensure!(found == tried, "on {node} with weights:\n  ours  {found:?}\n  first {tried:?}");
            self.none += usize::from(tried == Tried::None);
            if let Tried::First(_) = tried {
                self.first += 1;
                self.other += usize::from(checker.first(LIMIT, &|_| true) != tried);
            }
        }
        Ok(())
    }

    pub(super) fn print(&self) {
        println!(
            "        with weights {} solutions are the first ({} only for them), and {} nodes have none",
            self.first, self.other, self.none
        );
    }
}
