//! Requests and limits of Pods: defaults, validation, QoS class, and resizing.

use std::collections::BTreeSet;

use dragoman_quantity::{Decimal, Notation, Quantity};
use serde_json::{Value, json};

use crate::api::meta::{self, items};
use crate::api::status::FieldError;
use crate::kinds::Profile;
use crate::schema::NOT_A_QUANTITY;

const PAGES: &str = "hugepages-";
/// The lists of containers with resources.
const LISTS: [&str; 2] = ["containers", "initContainers"];

fn amount(list: &Value, resource: &str) -> Option<Decimal> {
    Some(list.get(resource)?.as_str()?.parse::<Quantity>().ok()?.amount)
}

/// Returns the amount as the API writes it: cpu in decimal units, bytes in binary units.
fn written(resource: &str, amount: Decimal) -> String {
    let notation = if resource == "cpu" { Notation::DecimalSi } else { Notation::BinarySi };
    Quantity { amount, notation }.to_string()
}

/// Returns the sum. One that no number can hold counts as its larger part.
fn plus(one: Decimal, other: Decimal) -> Decimal {
    one.checked_add(other).unwrap_or_else(|_| one.max(other))
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_object().into_iter().flatten().map(|(name, _)| &**name)
}

fn is_pages(resource: &str) -> bool {
    resource.starts_with(PAGES)
}

/// Whether the limit of a resource may exceed its request.
fn overcommits(resource: &str) -> bool {
    !is_pages(resource) && !resource.contains('/')
}

fn at_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || is_pages(resource)
}

fn all_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    LISTS.into_iter().flat_map(|list| items(&pod["spec"][list]))
}

/// Returns the aggregate of `requests` or `limits` over all containers: the sum of containers and sidecars,
/// or of an init container and the sidecars before it, whichever is larger.
pub(crate) fn together(pod: &Value, list: &str, resource: &str) -> Option<Decimal> {
    let of = |container: &Value| amount(&container["resources"][list], resource);
    let named = all_containers(pod).any(|container| of(container).is_some());
    let (mut sidecars, mut most) = (Decimal::default(), Decimal::default());
    for container in items(&pod["spec"]["initContainers"]) {
        let own = of(container).unwrap_or_default();
        if container["restartPolicy"] == "Always" {
            sidecars = plus(sidecars, own);
            most = most.max(sidecars);
        } else {
            most = most.max(plus(sidecars, own));
        }
    }
    let running = items(&pod["spec"]["containers"]).filter_map(of).fold(sidecars, plus);
    named.then(|| most.max(running))
}

/// Returns every list of quantities in a Pod.
fn amounts_mut(pod: &mut Value) -> Vec<&mut Value> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Vec::new() };
    let mut resources = Vec::new();
    for (field, value) in spec {
        match &**field {
            "resources" => resources.push(value),
            field if LISTS.contains(&field) => {
                let containers = value.as_array_mut().into_iter().flatten();
                resources.extend(containers.filter_map(|container| container.get_mut("resources")));
            }
            _ => {}
        }
    }
    let lists = resources.into_iter().filter_map(Value::as_object_mut).flatten();
    lists.filter(|(list, _)| matches!(&***list, "requests" | "limits")).map(|(_, amounts)| amounts).collect()
}

/// Rewrites quantities to their canonical form.
///
/// # Errors
/// A value is not a quantity.
pub(crate) fn decode(kind: &str, object: &mut Value) -> Result<(), String> {
    let lists = match kind {
        "Pod" => amounts_mut(object),
        "ResourceQuota" => object.pointer_mut("/spec/hard").into_iter().collect(),
        _ => Vec::new(),
    };
    for (_, amount) in lists.into_iter().filter_map(Value::as_object_mut).flatten() {
        if amount.is_number() {
            *amount = json!(amount.to_string());
        }
        let quantity = amount.as_str().unwrap_or_default().parse::<Quantity>();
        *amount = json!(quantity.map_err(|_| NOT_A_QUANTITY.to_owned())?);
    }
    Ok(())
}

/// Sets default requests and limits. In each container a missing request defaults to the limit. At the pod
/// level, hugepages limits default to the aggregate of the containers, and, if there are limits (since 1.37
/// also without), missing requests default to the aggregate of the containers or else (and always for
/// hugepages) to the limit.
pub(super) fn default(pod: &mut Value, minor: u8) {
    for list in LISTS {
        let list = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            let limits = container["resources"]["limits"].clone();
            for (resource, limit) in limits.as_object().into_iter().flatten() {
                meta::default(container, &["resources", "requests", resource], limit.clone());
            }
        }
    }
    if !pod["spec"]["resources"].is_object() {
        return;
    }
    let mentioned: BTreeSet<String> = all_containers(pod)
        .map(|container| &container["resources"])
        .chain([&pod["spec"]["resources"]])
        .flat_map(|resources| names(&resources["requests"]).chain(names(&resources["limits"])))
        .filter(|resource| at_pod_level(resource))
        .map(str::to_owned)
        .collect();
    for resource in mentioned.iter().filter(|resource| is_pages(resource)) {
        if let Some(inside) = together(pod, "limits", resource) {
            meta::default(pod, &["spec", "resources", "limits", resource], json!(written(resource, inside)));
        }
    }
    let is_empty = |pod: &Value, list: &str| names(&pod["spec"]["resources"][list]).next().is_none();
    let has_requests = !is_empty(pod, "requests");
    if minor >= 37 {
        default_limits(pod);
    }
    if is_empty(pod, "limits") && !(minor >= 37 && has_requests) {
        return;
    }
    for resource in &mentioned {
        let inside = together(pod, "requests", resource).filter(|_| !is_pages(resource));
        let limit = pod["spec"]["resources"]["limits"].get(resource).cloned();
        if let Some(request) = inside.map(|inside| json!(written(resource, inside))).or(limit) {
            meta::default(pod, &["spec", "resources", "requests", resource], request);
        }
    }
}

/// Sets missing Pod-level limits of cpu and memory where every container has one: their aggregate, at
/// least the Pod-level request (since 1.37).
fn default_limits(pod: &mut Value) {
    for resource in ["cpu", "memory"] {
        let limited = |container: &Value| amount(&container["resources"]["limits"], resource).is_some();
        if !all_containers(pod).all(limited) {
            continue;
        }
        let request = amount(&pod["spec"]["resources"]["requests"], resource).unwrap_or_default();
        if let Some(inside) = together(pod, "limits", resource) {
            let limit = json!(written(resource, inside.max(request)));
            meta::default(pod, &["spec", "resources", "limits", resource], limit);
        }
    }
}

pub(super) fn validate(pod: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in LISTS {
        for (number, container) in items(&pod["spec"][list]).enumerate() {
            let field = format!("spec.{list}[{number}].resources");
            errors.extend(validate_one(&container["resources"], &field));
        }
    }
    let level = &pod["spec"]["resources"];
    if level.is_object() {
        errors.extend(validate_one(level, "spec.resources"));
        errors.extend(validate_level(pod, level));
    }
    errors
}

/// Validates the requests and limits of a container or of the pod level.
fn validate_one(resources: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (requests, limits) = (&resources["requests"], &resources["limits"]);
    let (mut pages, mut others) = (false, false);
    for (list, amounts) in [("limits", limits), ("requests", requests)] {
        for resource in names(amounts) {
            let field = format!("{field}.{list}[{resource}]");
            let value = &amounts[resource];
            let Some(of) = amount(amounts, resource) else { continue };
            if of.is_negative() {
                errors.push(FieldError::invalid(&field, value, "must be greater than or equal to 0"));
            }
            if resource.contains('/') && of.exponent() < 0 {
                errors.push(FieldError::invalid(&field, value, "must be an integer"));
            }
            pages |= is_pages(resource);
            others |= matches!(resource, "cpu" | "memory");
        }
    }
    for resource in names(requests) {
        let (Some(request), limit) = (amount(requests, resource), amount(limits, resource)) else { continue };
        let said = |why: String| FieldError::invalid(format!("{field}.requests"), &requests[resource], &why);
        let most = limits[resource].as_str().unwrap_or_default();
        match limit {
            Some(limit) if !overcommits(resource) && request != limit => {
                errors.push(said(format!("must be equal to {resource} limit of {most}")));
            }
            Some(limit) if request > limit => {
                errors.push(said(format!("must be less than or equal to {resource} limit of {most}")));
            }
            None if !overcommits(resource) => {
                let why = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{field}.limits"), why));
            }
            _ => {}
        }
    }
    if pages && !others {
        errors.push(FieldError::forbidden(field, "HugePages require cpu or memory"));
    }
    errors
}

/// Validates the resources of the pod level against those of the containers.
fn validate_level(pod: &Value, level: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (requests, limits) = (&level["requests"], &level["limits"]);
    for resource in names(requests).filter(|resource| at_pod_level(resource)) {
        let inside = together(pod, "requests", resource);
        if let Some(inside) =
            inside.filter(|inside| amount(requests, resource).is_some_and(|most| *inside > most))
        {
            let why = format!(
                "must be greater than or equal to aggregate container requests of {}",
                written(resource, inside)
            );
            let field = format!("spec.resources.requests[{resource}]");
            errors.push(FieldError::invalid(field, &requests[resource], &why));
        }
    }
    for resource in names(limits) {
        let Some(most) = amount(limits, resource) else { continue };
        if let Some(inside) =
            together(pod, "limits", resource).filter(|inside| is_pages(resource) && *inside > most)
        {
            let why = format!(
                "must be greater than or equal to aggregate container limits of {}",
                written(resource, inside)
            );
            let field = format!("spec.resources.limits[{resource}]");
            errors.push(FieldError::invalid(field, &limits[resource], &why));
        }
        for list in LISTS.into_iter().filter(|_| matches!(resource, "cpu" | "memory")) {
            for (number, container) in items(&pod["spec"][list]).enumerate() {
                let own = &container["resources"]["limits"];
                if amount(own, resource).is_some_and(|own| own > most) {
                    let field = format!("spec.resources.{list}[{number}][{resource}].limits");
                    let why = format!(
                        "must be less than or equal to pod limits of {}",
                        limits[resource].as_str().unwrap_or_default()
                    );
                    errors.push(FieldError::invalid(field, &own[resource], &why));
                }
            }
        }
    }
    errors
}

/// Returns the QoS class of a Pod.
pub(super) fn quality(pod: &Value) -> &'static str {
    let zero = Decimal::default();
    let of = |resources: &Value, list: &str, resource: &str| {
        amount(&resources[list], resource).unwrap_or_default()
    };
    let wanted = ["cpu", "memory"];
    let named = |resources: &Value| {
        wanted.iter().any(|one| of(resources, "requests", one) > zero || of(resources, "limits", one) > zero)
    };
    let guaranteed = |resources: &Value| {
        wanted.iter().all(|one| {
            let limit = of(resources, "limits", one);
            limit > zero && of(resources, "requests", one) == limit
        })
    };
    let level = &pod["spec"]["resources"];
    // Resources at the pod level take precedence over those of the containers.
    if named(level) {
        return if guaranteed(level) { "Guaranteed" } else { "Burstable" };
    }
    if !all_containers(pod).any(|container| named(&container["resources"])) {
        "BestEffort"
    } else if all_containers(pod).all(|container| guaranteed(&container["resources"])) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Returns a spec without the fields that a resize may change.
fn fixed(spec: &Value) -> Value {
    let mut fixed = spec.clone();
    let without = |resources: &mut Value| {
        for list in ["requests", "limits"] {
            for resource in ["cpu", "memory"] {
                meta::put(resources, &[list, resource], Value::Null);
            }
            if names(&resources[list]).next().is_none() {
                meta::put(resources, &[list], Value::Null);
            }
        }
    };
    for list in LISTS {
        let containers = fixed.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        containers.filter_map(|container| container.get_mut("resources")).for_each(without);
    }
    fixed.get_mut("resources").into_iter().for_each(without);
    if fixed["resources"] == json!({}) {
        meta::put(&mut fixed, &["resources"], Value::Null);
    }
    fixed
}

/// Restores everything except the resources and resize policies.
pub(super) fn keep_resources(before: &Value, pod: &mut Value) {
    let mut kept = before.clone();
    meta::put(&mut kept, &["spec", "resources"], pod["spec"]["resources"].clone());
    for list in LISTS {
        let containers = kept["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mut wanted = items(&pod["spec"][list]).filter(|wanted| wanted["name"] == container["name"]);
            if let Some(wanted) = wanted.next() {
                meta::put(container, &["resources"], wanted["resources"].clone());
                meta::put(container, &["resizePolicy"], wanted["resizePolicy"].clone());
            }
        }
    }
    // The preconditions of the client are kept.
    for field in ["uid", "resourceVersion"] {
        meta::set(&mut kept, field, pod["metadata"][field].clone());
    }
    *pod = kept;
}

/// Validates a resize: only cpu and memory may change, and not the QoS class.
pub(super) fn validate_resize(profile: &Profile, before: &Value, pod: &Value) -> Vec<FieldError> {
    let mut errors = validate(pod);
    let claims = |container: &Value| items(&container["resources"]["claims"]).next().is_some();
    // Kubernetes 1.36 refuses a resize of a Pod with claims with the same message as an immutable
    // field; 1.37 allows it.
    let has_claims = profile.minor < 37 && all_containers(before).any(claims);
    if has_claims || fixed(&before["spec"]) != fixed(&pod["spec"]) {
        errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable"));
    }
    let (was, is) = (quality(before), quality(pod));
    if was != is {
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", &was.into(), why));
    }
    errors
}
