//! Claims: their state, devices and consumers.

use std::collections::BTreeSet;

use dragoman_crds::protocol::ALLOCATOR;
use dragoman_objects::{ResourceClaim, Tolerated};
use jiff::Timestamp;

use super::{Cell, Column, Table, Type, column};
use crate::explain::claim::departed;
use crate::facts::Facts;

/// Fields of a claim.
pub(crate) const COLUMNS: &[Column] = &[
    column("NAMESPACE", "namespace", Type::Text, "Namespace of the claim."),
    column("NAME", "name", Type::Text, "Name of the claim."),
    column(
        "STATE",
        "state",
        Type::Text,
        "Pending, Reserved, InUse, ConsumersGone, Idle, Deleting or Unreadable, by `status` of the claim and the Pods that it is \
         reserved for. Where Pods are not known, one that is reserved is InUse.",
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
            Cell::text(state(facts, claim)),
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
fn state(facts: &Facts, claim: &ResourceClaim) -> &'static str {
    match (&claim.status.allocation, claim.status.reserved_for.is_empty()) {
        _ if claim.metadata.deleting => "Deleting",
        (None, true) => "Pending",
        (None, false) => "Reserved",
        (Some(Tolerated::Unreadable(_)), _) => "Unreadable",
        (Some(_), true) => "Idle",
        (Some(_), false) if departed(facts, claim).is_some() => "ConsumersGone",
        (Some(_), false) => "InUse",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    /// The state of a claim that is reserved for Pod `train`, as the list shows it, where these Pods were read.
    fn listed(pods: &[Value]) -> String {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "a"});
        let claim = json!({"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "ns", "uid": "c"},
            "status": {"allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": "train", "uid": "u"}]}});
        let items: Vec<Value> = std::iter::once(claim).chain(pods.iter().cloned()).collect();
        let mut facts = Facts::default();
        let list = json!({"kind": "List", "items": items});
        facts.take_file(Path::new("f"), &list.to_string()).expect("objects");
        let table = claims(&facts, Timestamp::UNIX_EPOCH);
        let row = table.rows.first().expect("a claim");
        table.cell(row, "state").expect("a cell").shown.clone()
    }

    #[test]
    fn a_claim_whose_consumers_are_gone_is_not_in_use() {
        let pod = |name: &str, uid: &str, phase: &str| {
            json!({"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": uid},
                "spec": {"containers": []}, "status": {"phase": phase}})
        };
        assert_eq!(listed(&[pod("train", "u", "Running")]), "InUse");
        assert_eq!(listed(&[pod("other", "o", "Running")]), "ConsumersGone");
        assert_eq!(listed(&[pod("train", "anew", "Running")]), "ConsumersGone", "a namesake");
        assert_eq!(listed(&[pod("train", "u", "Succeeded")]), "ConsumersGone", "it has ended");
        assert_eq!(listed(&[]), "InUse", "nothing is known of Pods");
    }
}
