//! The strategy of each kind: defaults, fields that the server sets or resets, and validation.

use serde_json::{Value, json};

use super::{Occasion, Resource, claims, definitions, namespaces, pods, resources, slices};
use crate::api::meta;
use crate::api::status::FieldError;
use crate::schema;

/// The kinds whose generation counts changes of `spec`.
const COUNTED: [&str; 7] = [
    "CustomResourceDefinition",
    "Deployment",
    "DeviceClass",
    "NetworkPolicy",
    "Pod",
    "PodDisruptionBudget",
    "ResourceSlice",
];

/// Members that are maps. An empty map is left out.
const MAPS: [&str; 12] = [
    "annotations",
    "attributes",
    "binaryData",
    "capacity",
    "consumedCapacity",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "requests",
    "stringData",
];

/// Times that are kept as null.
const TIMES: [&str; 4] = ["lastProbeTime", "lastHeartbeatTime", "lastTransitionTime", "creationTimestamp"];

/// Whether the resource is built in, judged by its group.
pub(crate) fn is_built_in(resource: &Resource) -> bool {
    resource.group.is_empty()
        || resource.group.ends_with("k8s.io")
        || matches!(&*resource.group, "apps" | "policy")
}

/// Returns an empty object of a kind, with the parts that its serialized Go type always has. The first owner
/// of a new object owns the difference to it.
pub(crate) fn nothing(resource: &Resource) -> Value {
    match &*resource.kind {
        "ResourceClaim" => json!({"metadata": {}, "spec": {"devices": {}}, "status": {}}),
        "ResourceClaimTemplate" => json!({"metadata": {}, "spec": {"metadata": {}, "spec": {"devices": {}}}}),
        "ResourceSlice" => json!({"metadata": {}, "spec": {"pool": {}}}),
        "CustomResourceDefinition" => json!({"metadata": {}, "spec": {"names": {}}, "status": {}}),
        "Pod" => json!({"metadata": {}, "spec": {"containers": null}, "status": {}}),
        "Deployment" => {
            json!({"metadata": {}, "spec": {"strategy": {}, "template": {"metadata": {}, "spec": {}}}, "status": {}})
        }
        _ if is_built_in(resource) => json!({"metadata": {}, "spec": {}, "status": {}}),
        _ => json!({"metadata": {}}),
    }
}

/// Drops what the Go types of built-in kinds omit: nulls, and empty lists and maps.
pub(crate) fn tidy(resource: &Resource, object: &mut Value) {
    if is_built_in(resource) {
        tidy_value(object);
    }
    // These fields are serialized even if they are null.
    let (list, always): (&str, &[&str]) = match &*resource.kind {
        "Pod" => ("/status/conditions", &["lastProbeTime", "lastTransitionTime"]),
        "Node" => ("/status/conditions", &["lastHeartbeatTime", "lastTransitionTime"]),
        "ResourceClaim" => ("/status/devices", &["conditions"]),
        _ => return,
    };
    let elements = object.pointer_mut(list).and_then(Value::as_array_mut);
    for element in elements.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in always {
            element.entry(*field).or_insert(Value::Null);
        }
    }
}

fn tidy_value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy_value);
            fields.retain(|name, value| match value {
                Value::Null => TIMES.contains(&&**name),
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty() || !MAPS.contains(&&**name),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_value),
        _ => {}
    }
}

/// Sets defaults, and drops a status that a client cannot set on creation.
pub(crate) fn default(of: &Occasion<'_>, object: &mut Value) {
    tidy(of.resource, object);
    let keeps_status = matches!(&*of.resource.kind, "Node" | "CustomResourceDefinition");
    if of.resource.has_status() && !keeps_status {
        meta::put(object, &["status"], Value::Null);
    }
    match &*of.resource.kind {
        "Pod" => pods::default(of, object),
        "ResourceClaim" | "ResourceClaimTemplate" => claims::default(of, object),
        "Namespace" => namespaces::default(object),
        "CustomResourceDefinition" => definitions::default(object),
        _ => {}
    }
}

/// Adds the fields that admission and the API server set on creation.
pub(crate) fn prepare_create(of: &Occasion<'_>, object: &mut Value) {
    if COUNTED.contains(&&*of.resource.kind) || !is_built_in(of.resource) {
        meta::set(object, "generation", json!(1));
    }
    match &*of.resource.kind {
        "Pod" => pods::prepare_create(of, object),
        "ResourceClaim" | "ResourceQuota" => meta::put(object, &["status"], json!({})),
        "ResourceSlice" => slices::prepare(of, object, None),
        "Namespace" => namespaces::prepare_create(object),
        _ => {}
    }
}

/// Resets the fields that a write to this resource or subresource cannot change.
pub(crate) fn reset(of: &Occasion<'_>, before: &Value, object: &mut Value) {
    if of.subresource == "status" {
        // A status write changes only the status.
        for field in before.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if !matches!(&**field, "status" | "metadata") {
                meta::put(object, &[field], before[field].clone());
            }
        }
        // Metadata changes together with the status only for Pods and Nodes, and never the owners.
        let free = matches!(&*of.resource.kind, "Pod" | "Node");
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            if !free || field == "ownerReferences" {
                meta::set(object, field, before["metadata"][field].clone());
            }
        }
    } else if of.subresource == "resize" {
        resources::keep_resources(before, object);
    } else if of.resource.has_status() && of.subresource.is_empty() {
        meta::put(object, &["status"], before["status"].clone());
    }
}

/// Sets the fields that the API server changes on update.
pub(crate) fn prepare_update(of: &Occasion<'_>, before: &Value, object: &mut Value) {
    match &*of.resource.kind {
        "Pod" => pods::prepare_update(of, before, object),
        "ResourceClaim" => claims::prepare_update(of, before, object),
        "ResourceSlice" => slices::prepare(of, object, Some(before)),
        _ => {}
    }
    let generation = before["metadata"]["generation"].as_i64();
    if let Some(generation) = generation {
        let changed =
            before["spec"] != object["spec"] || meta::is_deleting(before) != meta::is_deleting(object);
        meta::set(object, "generation", json!(generation.saturating_add(i64::from(changed))));
    }
}

pub(crate) fn validate_create(of: &Occasion<'_>, object: &Value) -> Vec<FieldError> {
    match &*of.resource.kind {
        "Pod" => pods::validate_create(object),
        "ResourceClaim" => claims::validate_spec(&object["spec"], "spec"),
        "ResourceClaimTemplate" => claims::validate_spec(&object["spec"]["spec"], "spec.spec"),
        "ResourceSlice" => slices::validate(object),
        "DeviceClass" => slices::validate_class(object),
        "CustomResourceDefinition" => schema::beyond(object),
        "ClusterRoleBinding" if object["roleRef"]["kind"] == "Role" => {
            let kind = &object["roleRef"]["kind"];
            vec![FieldError::unsupported("roleRef.kind", kind, [json!("ClusterRole")].iter())]
        }
        "ClusterRoleBinding" => {
            let subjects = meta::items(&object["subjects"]).enumerate();
            let homeless = subjects.filter(|(_, subject)| {
                subject["kind"] == "ServiceAccount"
                    && subject["namespace"].as_str().unwrap_or_default().is_empty()
            });
            homeless
                .map(|(number, _)| FieldError::required(format!("subjects[{number}].namespace"), ""))
                .collect()
        }
        _ => Vec::new(),
    }
}

pub(crate) fn validate_update(of: &Occasion<'_>, before: &Value, object: &Value) -> Vec<FieldError> {
    match (&*of.resource.kind, of.subresource) {
        ("Pod", "") => pods::validate_update(before, object),
        ("Pod", "status") => pods::validate_status(before, object),
        ("Pod", "resize") => resources::validate_resize(of.profile, before, object),
        ("ResourceClaim", "") => claims::validate_update(before, object),
        ("ResourceClaim", "status") => claims::validate_status(before, object),
        ("ResourceClaimTemplate", "") if before["spec"] != object["spec"] => {
            vec![FieldError::immutable("spec", &object["spec"])]
        }
        ("ResourceSlice", "") => slices::validate_update(before, object),
        ("CustomResourceDefinition", "") => schema::beyond(object),
        ("RoleBinding" | "ClusterRoleBinding", "") if before["roleRef"] != object["roleRef"] => {
            vec![FieldError::invalid("roleRef", &object["roleRef"], "cannot change roleRef")]
        }
        _ => Vec::new(),
    }
}
