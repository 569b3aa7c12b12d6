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
