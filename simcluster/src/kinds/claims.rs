//! ResourceClaims and their templates.

use serde_json::{Value, json};

use super::Occasion;
use crate::api::meta::{self, items};
use crate::api::status::FieldError;

/// The maximum number of consumers of a claim.
const MOST_CONSUMERS: usize = 256;
/// The maximum number of requests of a claim.
const MOST_REQUESTS: usize = 32;

/// Returns the requests of a claim or a template.
fn requests_mut(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let path = if object["spec"].get("spec").is_some() {
        "/spec/spec/devices/requests"
    } else {
        "/spec/devices/requests"
    };
    object.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns the `exactly` part and the sub-requests of a request.
fn each_mut(request: &mut Value) -> Vec<&mut Value> {
    let Some(fields) = request.as_object_mut() else { return Vec::new() };
    let mut each = Vec::new();
    for (name, field) in fields.iter_mut() {
        match &**name {
            "firstAvailable" => each.extend(field.as_array_mut().into_iter().flatten()),
            "exactly" => each.push(field),
            _ => {}
        }
    }
    each
}

pub(crate) fn default(of: &Occasion<'_>, object: &mut Value) {
    if object["kind"] == "ResourceClaimTemplate" {
        meta::default(object, &["spec", "metadata"], json!({}));
    }
    for request in requests_mut(object) {
        for one in each_mut(request) {
            if one["adminAccess"].is_boolean() && !of.profile.has("DRAAdminAccess") {
                meta::put(one, &["adminAccess"], Value::Null);
            }
            if !of.profile.has("DRAConsumableCapacity") {
                meta::put(one, &["capacity"], Value::Null);
            }
            if one.is_object() {
                meta::default(one, &["allocationMode"], json!("ExactCount"));
                if one["allocationMode"] == "ExactCount" {
                    meta::default(one, &["count"], json!(1));
                }
            }
        }
    }
}

/// Drops the device status of a claim that is deallocated.
pub(crate) fn prepare_update(of: &Occasion<'_>, before: &Value, object: &mut Value) {
    if of.subresource == "status"
        && !before["status"]["allocation"].is_null()
        && object["status"]["allocation"].is_null()
    {
        meta::put(object, &["status", "devices"], Value::Null);
    }
}

pub(crate) fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let requests: Vec<&Value> = items(&spec["devices"]["requests"]).collect();
    let field = format!("{path}.devices.requests");
    if requests.len() > MOST_REQUESTS {
        errors.push(FieldError::too_many(&field, requests.len(), MOST_REQUESTS));
    }
    let mut names = Vec::new();
    for (number, request) in requests.into_iter().enumerate() {
        let field = format!("{field}[{number}]");
        let name = &request["name"];
        if name.as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else if names.contains(name) {
            errors.push(FieldError::duplicate(field.clone(), name));
        }
        names.push(name.clone());
        match (request.get("exactly"), request.get("firstAvailable")) {
            (Some(exactly), None) => errors.extend(validate_request(exactly, &format!("{field}.exactly"))),
            (None, Some(subs)) => {
                for (number, sub) in items(subs).enumerate() {
                    errors.extend(validate_request(sub, &format!("{field}.firstAvailable[{number}]")));
                }
            }
            (None, None) => {
                errors.push(FieldError::required(
                    field,
                    "exactly one of `exactly` or `firstAvailable` is required",
                ));
            }
            (Some(_), Some(_)) => {
                let why =
                    "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                errors.push(FieldError::invalid(field, &Value::Null, why));
            }
        }
    }
    errors
}

fn validate_request(request: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if request["deviceClassName"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(format!("{field}.deviceClassName"), ""));
    }
    for (number, selector) in items(&request["selectors"]).enumerate() {
        let expression = selector["cel"]["expression"].as_str().unwrap_or_default();
        if let Err(why) = cel::Program::compile(expression) {
            let field = format!("{field}.selectors[{number}].cel.expression");
            errors.push(FieldError::invalid(field, &json!(expression), &why.to_string()));
        }
    }
    match request["allocationMode"].as_str() {
        Some("ExactCount") if request["count"].as_i64().unwrap_or_default() <= 0 => {
            errors.push(FieldError::invalid(
                format!("{field}.count"),
                &request["count"],
                "must be greater than zero",
            ));
        }
        Some("All") if !request["count"].is_null() => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(format!("{field}.count"), &request["count"], why));
        }
        Some("ExactCount" | "All") => {}
        other => {
            let message = format!(
                "Unsupported value: {:?}: supported values: \"All\", \"ExactCount\"",
                other.unwrap_or_default()
            );
            let field = format!("{field}.allocationMode");
            errors.push(FieldError { reason: "FieldValueNotSupported", field, message });
        }
    }
    errors
}

pub(crate) fn validate_update(before: &Value, object: &Value) -> Vec<FieldError> {
    if before["spec"] == object["spec"] {
        Vec::new()
    } else {
        vec![FieldError::immutable("spec", &object["spec"])]
    }
}

pub(crate) fn validate_status(before: &Value, object: &Value) -> Vec<FieldError> {
    let (was, is) = (&before["status"], &object["status"]);
    let mut errors = Vec::new();
    let consumers: Vec<&Value> = items(&is["reservedFor"]).collect();
    if consumers.len() > MOST_CONSUMERS {
        errors.push(FieldError::too_many("status.reservedFor", consumers.len(), MOST_CONSUMERS));
    }
    for (number, consumer) in consumers.iter().enumerate() {
        let field = format!("status.reservedFor[{number}]");
        for part in ["resource", "name", "uid"] {
            if consumer[part].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("{field}.{part}"), ""));
            }
        }
        if consumers.iter().take(number).any(|other| other["uid"] == consumer["uid"]) {
            errors.push(FieldError::duplicate(field, &json!({"uid": consumer["uid"]})));
        }
    }
    if !consumers.is_empty() {
        let field = "status.reservedFor";
        if is["allocation"].is_null() {
            errors.push(FieldError::forbidden(field, "may not be specified when `allocated` is not set"));
        } else if meta::is_deleting(object)
            && consumers
                .iter()
                .any(|consumer| items(&was["reservedFor"]).all(|other| other["uid"] != consumer["uid"]))
        {
            let why =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(FieldError::forbidden(field, why));
        }
    }
    if !was["allocation"].is_null() && !is["allocation"].is_null() && was["allocation"] != is["allocation"] {
        errors.push(FieldError::immutable("status.allocation", &is["allocation"]));
    } else if was["allocation"].is_null() {
        errors.extend(validate_allocation(object));
    }
    errors
}

fn validate_allocation(object: &Value) -> Vec<FieldError> {
    let requests: Vec<&Value> = items(&object["spec"]["devices"]["requests"]).collect();
    let is_known = |name: &str| {
        let (main, sub) = name.split_once('/').map_or((name, None), |(main, sub)| (main, Some(sub)));
        requests.iter().any(|request| {
            request["name"] == main
                && match sub {
                    None => request.get("exactly").is_some(),
                    Some(sub) => items(&request["firstAvailable"]).any(|known| known["name"] == sub),
                }
        })
    };
    let mut errors = Vec::new();
    let results = items(&object["status"]["allocation"]["devices"]["results"]);
    for (number, result) in results.enumerate() {
        let field = format!("status.allocation.devices.results[{number}]");
        let name = result["request"].as_str().unwrap_or_default();
        if !is_known(name) {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            errors.push(FieldError::invalid(format!("{field}.request"), &json!(name), why));
        }
        for part in ["driver", "pool", "device"] {
            if result[part].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("{field}.{part}"), ""));
            }
        }
    }
    errors
}
