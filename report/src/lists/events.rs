//! Events about claims.

use jiff::Timestamp;

use super::{Cell, Column, Table, Type, column};
use crate::facts::{Event, Facts};

/// Fields of an Event.
pub(crate) const COLUMNS: &[Column] = &[
    column("AGE", "time", Type::Time, "Time at which the Event was last seen."),
    column("NAMESPACE", "namespace", Type::Text, "Namespace of the object."),
    column("OBJECT", "object", Type::Text, "KIND/NAME of the object."),
    column("REASON", "reason", Type::Text, "Reason of the Event."),
    column("MESSAGE", "message", Type::Text, "Message of the Event, in one line."),
    column("REPORTER", "reporter", Type::Text, "Component that wrote the Event."),
];

/// Lists Events about claims, and those about Pods that speak of claims, the newest last.
pub fn events(facts: &Facts, now: Timestamp) -> Table {
    const WORDS: [&str; 3] = ["claim", "Claim", "DynamicResources"];
    let is_about = |event: &&Event| {
        event.involved_object.kind == "ResourceClaim"
            || WORDS.iter().any(|word| event.reason.contains(word) || event.message.contains(word))
    };
    let mut events: Vec<&Event> = facts.events.iter().filter(is_about).collect();
    events.sort_by_key(|event| event.time());
    let rows = events.into_iter().map(|event| {
        let of = &event.involved_object;
        vec![
            Cell::time(event.at(), now),
            Cell::text(&of.namespace),
            Cell::text(format!("{}/{}", of.kind, of.name)),
            Cell::text(&event.reason),
            Cell::text(event.message.lines().collect::<Vec<_>>().join(" ")),
            Cell::text(event.reporter()),
        ]
    });
    Table::of(COLUMNS, 1, rows.collect(), facts)
}
