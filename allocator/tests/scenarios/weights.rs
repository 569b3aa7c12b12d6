//! A check of node resources that needs no node: every device has a weight.

use std::sync::Arc;

use dragoman_allocator::checker::Choice;
use dragoman_allocator::input::{Allocation, Claim, Name, Node};
use dragoman_allocator::{Fit, FitSession, Misfit, Taken};
use dragoman_quantity::Decimal;

/// The most that all devices of a solution may weigh together.
const MOST: i64 = 7;

/// The weight of a device, from zero to three, computed from its name.
fn weight(device: &str) -> i64 {
    device.bytes().map(i64::from).sum::<i64>() % 4
}

/// Refuses a sum that is too heavy at once, and some lighter sums only at the end.
pub(crate) struct Weights;

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

/// Whether the weights of these devices pass, with nothing refused before the end.
pub(crate) fn pass(choices: &[Choice]) -> bool {
    passes(choices.iter().map(|choice| weight(&choice.device)).sum())
}

/// Returns the devices of allocations, in order.
pub(crate) fn choices(allocations: &[(Name, Allocation)]) -> Vec<Choice> {
    let results = allocations.iter().flat_map(|(claim, allocation)| {
        allocation.devices.results.iter().map(move |result| Choice {
            claim: claim.clone(),
            request: result.request.clone(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
        })
    });
    results.collect()
}
