//! Quotas of namespaces: numbers of objects, and devices that claims ask for, by DeviceClass.

use dragoman_quantity::Quantity;
use serde_json::{Map, Value, json};

use super::status::Status;
use super::{State, meta};
use crate::kinds::Resource;

/// The end of the name that counts the devices of a DeviceClass; the name of the class stands before it.
const BY_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// A request for all devices counts as the most that a claim can be given.
const ALL_DEVICES: u64 = 32;

/// Checks the quotas of the namespace for a new object.
///
/// # Errors
/// A quota is exhausted: names what the object would use of it, what is used, and the limit.
pub(super) fn admit(state: &State, resource: &Resource, object: &Value) -> Result<(), Status> {
    let namespace = meta::text(object, "namespace");
    for (_, quota) in state.store.list("resourcequotas", Some(namespace)).filter(|_| resource.namespaced) {
        let exceeded = quota["spec"]["hard"].as_object().into_iter().flatten().filter_map(|(name, limit)| {
            let limit = limit.as_str()?.parse::<Quantity>().ok()?.amount;
            let limit = u64::try_from(limit.rounded_down(0).ok()?).ok()?;
            let asked = charge(resource, object, name);
            let used = || used(state, resource, namespace, name);
            (asked > 0 && used().saturating_add(asked) > limit)
                .then(|| [asked, used(), limit].map(|amount| format!("{name}={amount}")))
        });
        let exceeded: Vec<[String; 3]> = exceeded.collect();
        if exceeded.is_empty() {
            continue;
        }
        let column =
            |index: usize| exceeded.iter().map(|row| row[index].as_str()).collect::<Vec<_>>().join(",");
        let why = format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            meta::text(quota, "name"),
            column(0),
            column(1),
            column(2)
        );
        return Err(Status::forbidden(resource, meta::text(object, "name"), &why));
    }
    Ok(())
}

/// The status of a quota: the limits, and what the objects of its namespace use of each.
pub(super) fn status(state: &State, quota: &Value) -> Value {
    let namespace = meta::text(quota, "namespace");
    let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
    let counted = |name: &String| {
        let resources = state.resources.iter().filter(|resource| resource.namespaced);
        let used: u64 = resources.map(|resource| used(state, resource, namespace, name)).sum();
        (name.clone(), json!(used.to_string()))
    };
    let used: Map<String, Value> = hard.keys().map(counted).collect();
    json!({"hard": hard, "used": used})
}

/// Returns the part of a limit that the objects of a kind use in a namespace.
fn used(state: &State, resource: &Resource, namespace: &str, name: &str) -> u64 {
    if !counts(resource, name) {
        return 0;
    }
    let objects = state.store.list(&resource.stored_as(), Some(namespace));
    objects.map(|(_, object)| charge(resource, object, name)).fold(0, u64::saturating_add)
}

/// Whether a limit is about a kind.
fn counts(resource: &Resource, name: &str) -> bool {
    name == resource.plural
        || name.strip_prefix("count/") == Some(&resource.qualified())
        || resource.kind == "ResourceClaim" && name.ends_with(BY_CLASS)
}

/// Returns the part of a limit that an object uses.
fn charge(resource: &Resource, object: &Value, name: &str) -> u64 {
    if !counts(resource, name) {
        return 0;
    }
    let Some(class) = name.strip_suffix(BY_CLASS) else { return 1 };
    let requests = object["spec"]["devices"]["requests"].as_array().into_iter().flatten();
    let of_request = |request: &Value| match request["firstAvailable"].as_array() {
        // Of the alternatives the one that asks for most counts.
        Some(alternatives) => alternatives.iter().map(|of| devices(of, class)).max().unwrap_or_default(),
        None => devices(&request["exactly"], class),
    };
    requests.map(of_request).fold(0, u64::saturating_add)
}

/// The number of devices of a class that a request, or an alternative of one, asks for.
fn devices(request: &Value, class: &str) -> u64 {
    match request["allocationMode"].as_str() {
        _ if request["deviceClassName"] != class => 0,
        Some("All") => ALL_DEVICES,
        _ => request["count"].as_u64().unwrap_or(1),
    }
}
