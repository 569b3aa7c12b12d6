//! Claims that hold devices for nothing, each with the evidence.

use dragoman_objects::{ResourceClaim, Tolerated};
use jiff::Timestamp;

use super::{Cell, Column, Table, Type, column};
use crate::explain::age;
use crate::explain::claim::departed;
use crate::facts::Facts;

/// Fields of a claim that holds devices for nothing.
pub(crate) const COLUMNS: &[Column] = &[
    column("NAMESPACE", "namespace", Type::Text, "Namespace of the claim."),
    column("NAME", "name", Type::Text, "Name of the claim."),
    column(
        "KIND",
        "kind",
        Type::Text,
        "ConsumersGone, Idle (no consumer for long), or Unprotected (the same, without the finalizer of allocated claims).",
    ),
    column("DEVICES", "devices", Type::Devices, "Devices that the claim holds."),
    column("EVIDENCE", "evidence", Type::Text, "A sentence that says what shows it."),
];

/// Lists such claims. One without a consumer counts `idle_for` seconds after it was created.
pub fn zombies(facts: &Facts, now: Timestamp, idle_for: i64) -> Table {
    let rows = facts.claims.iter().filter_map(|((namespace, name), claim)| {
        let (kind, evidence) = zombie(facts, claim, now, idle_for)?;
        let results = claim.allocation().map_or(&[][..], |of| of.devices.results.as_slice());
        let devices = Cell::devices(results).shown_as(results.len().to_string());
        Some(vec![Cell::text(namespace), Cell::text(name), Cell::text(kind), devices, Cell::text(evidence)])
    });
    Table::of(COLUMNS, 0, rows.collect(), facts)
}

/// Whether a claim holds devices for nothing. Pods of all namespaces of the claims have been read before.
fn zombie(
    facts: &Facts,
    claim: &ResourceClaim,
    now: Timestamp,
    idle_for: i64,
) -> Option<(&'static str, String)> {
    if !matches!(claim.status.allocation, Some(Tolerated::Read(_))) {
        return None;
    }
    let meta = &claim.metadata;
    let created = meta.creation_timestamp.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    let old = created.is_some_and(|created| now.as_second() - created.as_second() >= idle_for);
    let since = age(meta.creation_timestamp.as_deref(), now);
    if claim.status.reserved_for.is_empty() {
        let is_protected =
            meta.finalizers.iter().any(|of| **of == *"resource.kubernetes.io/delete-protection");
        let kind = if is_protected { "Idle" } else { "Unprotected" };
        let by = if is_protected {
            ""
        } else {
            ", allocated without the finalizer: the built-in controller never releases it"
        };
        return old.then(|| (kind, format!("allocated, reserved for no consumer, {since} old{by}")));
    }
    let gone = departed(facts, claim)?;
    Some(("ConsumersGone", format!("reserved for consumers that are not there: {}", gone.join(", "))))
}
