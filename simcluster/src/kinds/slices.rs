//! ResourceSlices and device classes.

use serde_json::{Value, json};

use super::Occasion;
use crate::api::meta::{self, items};
use crate::api::status::FieldError;

/// Fields of devices that are dropped while their feature gate is off, unless the object used them before.
const GATED: [(&str, &str); 8] = [
    ("DRAPartitionableDevices", "consumesCounters"),
    ("DRADeviceTaints", "taints"),
    ("DRAConsumableCapacity", "allowMultipleAllocations"),
    ("DRADeviceBindingConditions", "bindsToNode"),
    ("DRADeviceBindingConditions", "bindingConditions"),
    ("DRADeviceBindingConditions", "bindingFailureConditions"),
    ("DRANodeAllocatableResources", "nodeAllocatableResourceMappings"),
    ("DRANodeAllocatableResources", "nodeAllocatableResources"),
];

/// Fields of devices, with the minor versions that have them.
const RENAMED: [(&str, std::ops::RangeInclusive<u8>); 2] =
    [("nodeAllocatableResourceMappings", 0..=36), ("nodeAllocatableResources", 37..=u8::MAX)];

/// Drops the fields whose feature gate is off.
pub(crate) fn prepare(of: &Occasion<'_>, object: &mut Value, before: Option<&Value>) {
    let foreign = RENAMED.into_iter().filter(|(_, minors)| !minors.contains(&of.profile.minor));
    foreign.for_each(|(field, _)| drop_from_devices(object, field));
    for (gate, field) in GATED {
        let used =
            |object: &Value| items(&object["spec"]["devices"]).any(|device| device.get(field).is_some());
        if of.profile.has(gate) || before.is_some_and(used) {
            continue;
        }
        drop_from_devices(object, field);
    }
    if !of.profile.has("DRAPartitionableDevices") && before.is_none() {
        meta::put(object, &["spec", "sharedCounters"], Value::Null);
    }
}

fn drop_from_devices(slice: &mut Value, field: &str) {
    let devices = slice.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten().filter_map(Value::as_object_mut) {
        device.remove(field);
    }
}

pub(crate) fn validate(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if spec["driver"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("spec.driver", ""));
    }
    if spec["pool"]["name"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("spec.pool.name", ""));
    }
    if spec["pool"]["resourceSliceCount"].as_i64().unwrap_or_default() <= 0 {
        let count = spec["pool"].get("resourceSliceCount").cloned().unwrap_or_else(|| json!(0));
        errors.push(FieldError::invalid("spec.pool.resourceSliceCount", &count, "must be greater than zero"));
    }
    let said = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"]
        .into_iter()
        .filter(|field| !matches!(spec.get(field), None | Some(Value::Null | Value::Bool(false))))
        .count();
    if said != 1 {
        let fields =
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
        errors.push(if said == 0 {
            FieldError::required("spec", fields)
        } else {
            FieldError::invalid("spec", &json!("{`allNodes`}"), fields)
        });
    }
    errors
}

pub(crate) fn validate_update(before: &Value, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (field, pointer) in [
        ("spec.driver", "/spec/driver"),
        ("spec.pool.name", "/spec/pool/name"),
        ("spec.nodeName", "/spec/nodeName"),
    ] {
        if before.pointer(pointer) != object.pointer(pointer) {
            errors.push(FieldError::immutable(field, object.pointer(pointer).unwrap_or(&Value::Null)));
        }
    }
    errors.extend(validate(object));
    errors
}

pub(crate) fn validate_class(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (number, selector) in items(&object["spec"]["selectors"]).enumerate() {
        let field = format!("spec.selectors[{number}].cel.expression");
        match selector["cel"]["expression"].as_str() {
            None | Some("") => errors.push(FieldError::required(field, "")),
            Some(expression) => {
                if let Err(why) = cel::Program::compile(expression) {
                    let message = why.to_string();
                    errors.push(FieldError::invalid(field, &json!(expression), &message));
                }
            }
        }
    }
    errors
}
