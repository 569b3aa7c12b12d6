//! Pods.

use serde_json::{Value, json};

use super::{Occasion, resources};
use crate::api::meta::{self, items};
use crate::api::status::FieldError;

pub(crate) fn default(of: &Occasion<'_>, pod: &mut Value) {
    for (path, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
    ] {
        meta::default(pod, &["spec", path], value);
    }
    let containers = ["containers", "initContainers"];
    for list in containers {
        let list = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            meta::default(container, &["resources"], json!({}));
            meta::default(container, &["terminationMessagePath"], json!("/dev/termination-log"));
            meta::default(container, &["terminationMessagePolicy"], json!("File"));
            let latest = container["image"]
                .as_str()
                .is_some_and(|image| !image.contains(':') || image.ends_with(":latest"));
            meta::default(
                container,
                &["imagePullPolicy"],
                json!(if latest { "Always" } else { "IfNotPresent" }),
            );
        }
    }
    resources::default(pod, of.profile.minor);
}

/// Adds the fields that admission and the API server set.
pub(crate) fn prepare_create(of: &Occasion<'_>, pod: &mut Value) {
    meta::default(pod, &["spec", "preemptionPolicy"], json!("PreemptLowerPriority"));
    meta::default(pod, &["spec", "priority"], json!(0));
    tolerate(pod);
    let qos = resources::quality(pod);
    meta::put(pod, &["status"], json!({"phase": "Pending", "qosClass": qos}));
    if items(&pod["spec"]["schedulingGates"]).next().is_some() {
        let waits = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": of.now,
        }]);
        meta::put(pod, &["status", "conditions"], waits);
    }
}

/// Adds the default tolerations: five minutes for a node that is not ready or unreachable.
fn tolerate(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let said = items(&pod["spec"]["tolerations"]).any(|known| {
            (known["key"] == key || known["key"].is_null())
                && (known["effect"] == "NoExecute" || known["effect"].is_null())
        });
        if said {
            continue;
        }
        meta::default(pod, &["spec", "tolerations"], json!([]));
        if let Some(tolerations) = pod.pointer_mut("/spec/tolerations").and_then(Value::as_array_mut) {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

pub(crate) fn prepare_update(of: &Occasion<'_>, before: &Value, pod: &mut Value) {
    if of.subresource == "status" {
        // A status write without the QoS class keeps it.
        meta::default(pod, &["status", "qosClass"], before["status"]["qosClass"].clone());
        if !of.profile.has("DRANodeAllocatableResources") {
            meta::put(pod, &["status", "nodeAllocatableResourceClaimStatuses"], Value::Null);
        }
        drop_other_generation(of.profile.minor, pod);
    }
}

/// Drops what the entries of another release have: 1.36 has `resources`, later ones have the others.
fn drop_other_generation(minor: u8, pod: &mut Value) {
    let unknown: &[&str] = if minor <= 36 { &["mapping", "overhead"] } else { &["resources"] };
    let entries =
        pod.pointer_mut("/status/nodeAllocatableResourceClaimStatuses").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.retain(|field, _| !unknown.contains(&&**field));
    }
}

pub(crate) fn validate_create(pod: &Value) -> Vec<FieldError> {
    let mut errors = resources::validate(pod);
    if items(&pod["spec"]["containers"]).next().is_none() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut entries = Vec::new();
    for (number, entry) in items(&pod["spec"]["resourceClaims"]).enumerate() {
        let field = format!("spec.resourceClaims[{number}]");
        if entries.contains(&&entry["name"]) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &entry["name"]));
        }
        entries.push(&entry["name"]);
        let named = ["resourceClaimName", "resourceClaimTemplateName"].map(|name| entry.get(name).is_some());
        match named {
            [true, true] => {
                let why =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.push(FieldError::invalid(field, entry, why));
            }
            [false, false] => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.push(FieldError::required(field, why));
            }
            _ => {}
        }
    }
    if items(&pod["spec"]["schedulingGates"]).next().is_some() && pod["spec"]["nodeName"].is_string() {
        errors.push(FieldError::forbidden(
            "spec.nodeName",
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
    for (number, container) in items(&pod["spec"]["containers"]).enumerate() {
        for (claim, reference) in items(&container["resources"]["claims"]).enumerate() {
            if !entries.contains(&&reference["name"]) {
                let field = format!("spec.containers[{number}].resources.claims[{claim}]");
                let names: Vec<&str> = entries.iter().filter_map(|name| name.as_str()).collect();
                let message = format!(
                    "Not found: {}: must be one of the names in pod.spec.resourceClaims: {}",
                    reference["name"],
                    names.join(",")
                );
                errors.push(FieldError { reason: "FieldValueNotFound", field, message });
            }
        }
    }
    errors
}

/// Checks an update of a Pod. Scheduling gates may be removed but not added. While there is one, the node
/// selector and the affinity may change too; that they only narrow is not checked.
pub(crate) fn validate_update(before: &Value, pod: &Value) -> Vec<FieldError> {
    let gates = |pod: &Value| items(&pod["spec"]["schedulingGates"]).cloned().collect::<Vec<_>>();
    let (was, is) = (gates(before), gates(pod));
    let mut errors = Vec::new();
    if let Some((number, new)) = is.iter().enumerate().find(|(_, gate)| !was.contains(gate)) {
        let name = new["name"].as_str().unwrap_or_default();
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        errors.push(FieldError::forbidden(format!("spec.schedulingGates[{number}].name"), &why));
    }
    let mut comparable = [before["spec"].clone(), pod["spec"].clone()];
    for spec in &mut comparable {
        for field in
            ["schedulingGates", "activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"]
        {
            meta::put(spec, &[field], Value::Null);
        }
        if !was.is_empty() {
            meta::put(spec, &["nodeSelector"], Value::Null);
            meta::put(spec, &["affinity"], Value::Null);
        }
        for list in ["containers", "initContainers"] {
            let list = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in list.into_iter().flatten() {
                meta::put(container, &["image"], Value::Null);
            }
        }
    }
    let [was, is] = comparable;
    if was != is {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                   `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                   `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

pub(crate) fn validate_status(before: &Value, pod: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if before["spec"]["nodeName"] != pod["spec"]["nodeName"] {
        errors.push(FieldError::forbidden("status.nominatedNodeName", "node name may not change"));
    }
    let entries: Vec<&Value> = items(&pod["spec"]["resourceClaims"]).map(|entry| &entry["name"]).collect();
    for (number, status) in items(&pod["status"]["resourceClaimStatuses"]).enumerate() {
        if !entries.contains(&&status["name"]) {
            let field = format!("status.resourceClaimStatuses[{number}].name");
            errors.push(FieldError::invalid(
                field,
                &status["name"],
                "must match the name of an entry in `spec.resourceClaims`",
            ));
        }
    }
    errors.extend(validate_amounts(pod));
    errors
}

/// The entries about what claims take: 1.37.2 takes them for claims that an entry of the spec stands for, and for cpu, memory and huge pages.
fn validate_amounts(pod: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let by_entry = items(&pod["spec"]["resourceClaims"]);
    let made = items(&pod["status"]["resourceClaimStatuses"]);
    let names: Vec<&Value> = by_entry.chain(made).map(|of| &of["resourceClaimName"]).collect();
    let field = "status.nodeAllocatableResourceClaimStatuses";
    for (number, entry) in items(&pod["status"]["nodeAllocatableResourceClaimStatuses"]).enumerate() {
        let claim = &entry["resourceClaimName"];
        if !names.contains(&claim) {
            let field = format!("{field}[{number}].resourceClaimName");
            errors.push(FieldError::invalid(field, claim, "no mapping found in pod reference"));
        }
        for list in ["mapping", "overhead"] {
            for (place, amount) in items(&entry[list]).enumerate() {
                if amount["name"] == "ephemeral-storage" {
                    let field = format!("{field}[{number}].{list}[{place}].name");
                    let why = "must be a node allocatable resource name";
                    errors.push(FieldError::invalid(field, &amount["name"], why));
                }
            }
        }
    }
    errors
}
