//! The write with which a claim gives up its consumers, and its devices with the last of them. The gates refuse an allocation with
//! it, and the allocator takes one back.

use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects::Name;
use serde_json::json;

/// Takes a Pod that cannot run, because its gate is closed, out of the consumers of a claim of this version,
/// and the allocation away if no consumer is left. `consumers`: their uids. `None` if the Pod is no consumer.
pub(crate) fn give_back<'a>(
    namespace: &str,
    name: &str,
    guard: Guard,
    mut consumers: impl ExactSizeIterator<Item = &'a Name>,
    pod: &str,
) -> Option<Write> {
    let all = consumers.len();
    let at = consumers.position(|uid| **uid == *pod)?;
    let path = format!("/status/reservedFor/{at}");
    let mut operations = vec![
        json!({"op": "test", "path": format!("{path}/uid"), "value": pod}),
        json!({"op": "remove", "path": path}),
    ];
    if all == 1 {
        operations.push(json!({"op": "remove", "path": "/status/allocation"}));
    }
    let action = Action::Patch { subresource: Some("status"), guard, operations };
    Some(Write::new(RESOURCE_CLAIM, namespace, name, action))
}
