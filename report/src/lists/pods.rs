//! Pods that wait with claims.

use dragoman_crds::protocol::CLAIMS_READY;
use dragoman_objects::Pod;
use jiff::Timestamp;

use super::{Cell, Column, Table, Type, column};
use crate::facts::Facts;

/// Fields of a Pod that waits.
pub(crate) const COLUMNS: &[Column] = &[
    column("NAMESPACE", "namespace", Type::Text, "Namespace of the Pod."),
    column("POD", "pod", Type::Text, "Name of the Pod."),
    column("AGE", "creationTimestamp", Type::Time, "Time at which the Pod was created."),
    column("WAITS", "waits", Type::Text, "The reason that the conditions of the Pod carry."),
];

/// Whether a Pod waits with claims.
pub(crate) fn waits(pod: &Pod) -> bool {
    &*pod.status.phase == "Pending" && !pod.spec.resource_claims.is_empty()
}

/// Lists the Pods that wait with claims, the oldest first.
pub fn waiting(facts: &Facts, now: Timestamp) -> Table {
    let mut pods: Vec<&Pod> = facts.pods.values().filter(|pod| waits(pod)).collect();
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_deref());
    let rows = pods.into_iter().map(|pod| {
        vec![
            Cell::text(&*pod.metadata.namespace),
            Cell::text(&*pod.metadata.name),
            Cell::time(pod.metadata.creation_timestamp.as_deref(), now),
            Cell::text(reason(pod)),
        ]
    });
    Table::of(COLUMNS, 0, rows.collect(), facts)
}

/// The reason for which a Pod waits, by its conditions.
fn reason(pod: &Pod) -> String {
    let is_false = |of: &str| {
        let mut conditions = pod.status.conditions.iter();
        conditions.find(|condition| &*condition.r#type == of && &*condition.status == "False")
    };
    match is_false(CLAIMS_READY).or_else(|| is_false("PodScheduled")) {
        Some(condition) => condition.reason.to_string(),
        None if pod.spec.node_name.is_empty() => "no scheduler has said anything".to_owned(),
        None => format!("starting on {}", pod.spec.node_name),
    }
}
