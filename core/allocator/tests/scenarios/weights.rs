//! Judges of solutions that need no node: every device has a weight.

use dragoman_allocator::checker::Choice;
use dragoman_objects::{Allocation, Name};

/// The most that all devices of a solution may weigh together.
const MOST: u64 = 7;

/// The weight of a device, from zero to three, computed from its name.
pub(crate) fn weight(device: &str) -> u64 {
    device.bytes().map(u64::from).sum::<u64>() % 4
}

/// Refuses sums that are too heavy, and some lighter ones.
fn passes(sum: u64) -> bool {
    sum <= MOST && sum % 3 != 1
}

/// Whether the weights of these devices pass.
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
