//! Checks the allocator with a `Fit`, which the published allocator does not have. Brute force is the
//! judge: the solution must be the first that passes.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use dragoman_allocator::checker::{CannotCheck, Checker, Choice, Expressions, Tried};
use dragoman_allocator::input::{Claim, Node};
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{
    Fit, FitSession, Misfit, Options, Outcome, Overlay, Snapshot, Solution, Taken, allocate,
};
use dragoman_quantity::Decimal;
use serde_json::Value;

/// The most devices that the checker tries.
const LIMIT: u64 = 2_000;
/// The most devices that the search looks at on one node. With weights it can prune less.
const BUDGET: u64 = 100_000;
/// The most that all devices of a solution may weigh together.
const MOST: i64 = 7;

/// The weight of a device, from zero to three, computed from its name.
fn weight(device: &str) -> i64 {
    device.bytes().map(i64::from).sum::<i64>() % 4
}

/// Refuses a sum that is too heavy at once, and some lighter sums only at the end.
struct Weights;

struct Weighed(Vec<i64>);

impl Weighed {
    fn sum(&self) -> i64 {
        self.0.iter().sum()
    }
}

fn passes(sum: i64) -> bool {
    sum <= MOST && sum % 3 != 1
}

fn misfit() -> Misfit {
    Misfit { resource: "weight".into(), missing: Decimal::from(1) }
}

impl Fit for Weights {
    fn open(&self, _: &Node, _: &[Arc<Claim>]) -> Box<dyn FitSession> {
        Box::new(Weighed(Vec::new()))
    }
}

impl FitSession for Weighed {
    fn push(&mut self, taken: &Taken<'_>) -> Result<(), Misfit> {
        let weight = weight(&taken.device.name);
        if self.sum() + weight > MOST {
            return Err(misfit());
        }
        self.0.push(weight);
        Ok(())
    }

    fn pop(&mut self) {
        self.0.pop();
    }

    fn finish(&mut self) -> Result<(), Misfit> {
        if passes(self.sum()) { Ok(()) } else { Err(misfit()) }
    }
}

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
            let options = Options { fit: Some(&Weights), budget: Some(BUDGET), ..Options::default() };
            let found = match allocate(&snapshot, &Overlay::default(), node, &claims, options) {
                Outcome::Solution(solution) => Tried::First(choices(&solution)?),
                Outcome::Unsatisfiable(_) => Tried::None,
                _ => continue,
            };
            let accept =
                |choices: &[Choice]| passes(choices.iter().map(|choice| weight(&choice.device)).sum());
            let tried = checker.first(LIMIT, &accept);
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

/// The devices of a solution, in order.
fn choices(solution: &Solution) -> anyhow::Result<Vec<Choice>> {
    let mut share = 0;
    let mut ids = || {
        share += 1;
        format!("share-{share}").into()
    };
    let allocations = solution.allocations(&mut ids).context("allocations")?;
    let results = allocations.iter().flat_map(|(claim, allocation)| {
        allocation.devices.results.iter().map(move |result| Choice {
            claim: claim.clone(),
            request: result.request.clone(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
        })
    });
    Ok(results.collect())
}
