//! Amounts and holdings of a ledger in words.

use dragoman_quantity::{Decimal, QuantityText};

use super::NodeLedger;
use crate::amounts::written;
use crate::resource::Resource;

/// Returns a number of units of `resource` as Kubernetes spells quantities.
pub fn quantity(resource: Resource, count: i128) -> QuantityText {
    let amount = Decimal::new(count.abs(), resource.unit()).unwrap_or_default();
    let QuantityText(text) = written(resource, amount);
    QuantityText(if count < 0 { format!("-{text}").into() } else { text })
}

/// Returns the largest `shown` holdings of a resource, each as `CAUSE: AMOUNT`.
pub fn holders(ledger: &NodeLedger, resource: Resource, shown: usize) -> Vec<String> {
    let holding = ledger.who_has(resource).into_iter().take(shown);
    holding.map(|held| format!("{}: {}", held.cause, quantity(resource, held.amount.into()).0)).collect()
}

/// Returns what is taken beyond what the node has: a sentence for each resource, with its `shown` largest
/// holdings.
pub fn shortages(ledger: &NodeLedger, shown: usize) -> Vec<String> {
    let short = ledger.resources().into_iter();
    let short = short.filter_map(|resource| Some((resource, ledger.short_by(resource)?)));
    let short = short.map(|(resource, missing)| {
        let missing = quantity(resource, missing).0;
        let holders = holders(ledger, resource, shown).join(", ");
        format!("{missing} of {resource} more is taken than the node has ({holders})")
    });
    short.collect()
}
