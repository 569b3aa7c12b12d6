//! Claims: their state, devices and consumers.

use std::collections::BTreeSet;

use dragoman_objects::{ResourceClaim, Tolerated};
use dragoman_reconcilers::protocol::ALLOCATOR;
use jiff::Timestamp;

use super::{Cell, Column, Table, Type, column};
use crate::facts::Facts;

/// Fields of a claim.
pub(crate) const COLUMNS: &[Column] = &[
    column("NAMESPACE", "namespace", Type::Text, "Namespace of the claim."),
    column("NAME", "name", Type::Text, "Name of the claim."),
    column(
        "STATE",
        "state",
        Type::Text,
        "Pending, Reserved, InUse, Idle, Deleting or Unreadable, by `status` of the claim.",
    ),
    column("DEVICES", "devices", Type::Devices, "Devices that are allocated to the claim."),
    column("CONSUMERS", "consumers", Type::Consumers, "`status.reservedFor` of the claim."),
    column("AGE", "creationTimestamp", Type::Time, "Time at which the claim was created."),
    column("CLASSES", "classes", Type::Texts, "DeviceClasses that the requests of the claim name."),
    column("ALLOCATOR", "allocator", Type::Text, "Allocator that the label `dragoman.dev/allocator` names."),
];

/// Lists claims.
pub fn claims(facts: &Facts, now: Timestamp) -> Table {
    let rows = facts.claims.iter().map(|((namespace, name), claim)| {
        let results = claim.allocation().map_or(&[][..], |allocation| allocation.devices.results.as_slice());
        let allocator = claim.metadata.labels.get(ALLOCATOR);
        vec![
            Cell::text(namespace),
            Cell::text(name),
            Cell::text(state(claim)),
            Cell::devices(results),
            Cell::consumers([claim]),
            Cell::time(claim.metadata.creation_timestamp.as_deref(), now),
            Cell::texts(classes(claim)),
            Cell::text(allocator.map(ToString::to_string).unwrap_or_default()),
        ]
    });
    Table::of(COLUMNS, 2, rows.collect(), facts)
}

/// The classes that the requests name, each once.
fn classes(claim: &ResourceClaim) -> Vec<String> {
    let named = claim.spec.devices.requests.iter().flat_map(|request| {
        let subs = request.first_available.iter().map(|sub| &*sub.device_class_name);
        request.class().map(AsRef::as_ref).into_iter().chain(subs)
    });
    let named: BTreeSet<&str> = named.filter(|class| !class.is_empty()).collect();
    named.into_iter().map(str::to_owned).collect()
}

/// The state of a claim in a word.
fn state(claim: &ResourceClaim) -> &'static str {
    match (&claim.status.allocation, claim.status.reserved_for.is_empty()) {
        _ if claim.metadata.deleting => "Deleting",
        (None, true) => "Pending",
        (None, false) => "Reserved",
        (Some(Tolerated::Unreadable(_)), _) => "Unreadable",
        (Some(_), true) => "Idle",
        (Some(_), false) => "InUse",
    }
}
