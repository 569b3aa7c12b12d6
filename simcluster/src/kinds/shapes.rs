//! The known fields of the types of dynamic resource allocation, and of their parts in a Pod. Other fields of
//! these types are unknown. Other kinds are accepted with any field.

use serde_json::{Value, json};

use super::Resource;

/// Members beyond the named ones: `OTHERS` allows any, `EACH` gives the shape of all.
const OTHERS: &str = "...";
const EACH: &str = "*";

/// Drops unknown fields and returns their paths.
pub(crate) fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    if let Some(shape) = of(resource) {
        drop_unknown(&shape, object, "", &mut dropped);
    }
    dropped
}

fn drop_unknown(shape: &Value, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match (shape, value) {
        (Value::Object(shapes), Value::Object(fields)) => fields.retain(|name, value| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match shapes.get(name).or_else(|| shapes.get(EACH)) {
                Some(shape) => drop_unknown(shape, value, &path, dropped),
                None if shapes.contains_key(OTHERS) => {}
                None => {
                    dropped.push(path);
                    return false;
                }
            }
            true
        }),
        (Value::Array(shapes), Value::Array(elements)) => {
            let Some(shape) = shapes.first() else { return };
            for (number, element) in elements.iter_mut().enumerate() {
                drop_unknown(shape, element, &format!("{path}[{number}]"), dropped);
            }
        }
        _ => {}
    }
}

/// Returns the shape of a whole object: the common fields and its own.
fn whole(own: Value) -> Value {
    let mut shape = json!({"apiVersion": null, "kind": null, "metadata": null});
    if let (Value::Object(shape), Value::Object(own)) = (&mut shape, own) {
        shape.extend(own);
    }
    shape
}

fn of(resource: &Resource) -> Option<Value> {
    Some(match (&*resource.group, &*resource.kind) {
        ("resource.k8s.io", "ResourceClaim") => {
            whole(json!({"spec": claim_spec(), "status": claim_status()}))
        }
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            whole(json!({"spec": {"metadata": null, "spec": claim_spec()}}))
        }
        ("resource.k8s.io", "DeviceClass") => whole(json!({"spec": {
            "selectors": selectors(), "config": [{"opaque": {"driver": null, "parameters": null}}],
            "extendedResourceName": null, "managesNativeResources": null,
        }})),
        ("resource.k8s.io", "ResourceSlice") => whole(json!({"spec": slice_spec()})),
        ("", "Pod") => pod(),
        _ => return None,
    })
}

fn selectors() -> Value {
    json!([{"cel": {"expression": null}}])
}

fn tolerations() -> Value {
    json!([{"key": null, "operator": null, "value": null, "effect": null, "tolerationSeconds": null}])
}

/// The shape of a sub-request in `firstAvailable`.
fn alternative() -> Value {
    json!({
        "name": null, "deviceClassName": null, "selectors": selectors(), "allocationMode": null, "count": null,
        "tolerations": tolerations(), "capacity": {"requests": null}, "derivedAttributes": null,
    })
}

/// The shape of an `exactly` request.
fn exactly() -> Value {
    json!({
        "deviceClassName": null, "selectors": selectors(), "allocationMode": null, "count": null,
        "adminAccess": null, "tolerations": tolerations(), "capacity": {"requests": null},
        "derivedAttributes": null,
    })
}

fn claim_spec() -> Value {
    json!({"devices": {
        "requests": [{"name": null, "exactly": exactly(), "firstAvailable": [alternative()]}],
        "constraints": [{"requests": null, "matchAttribute": null, "distinctAttribute": null, "matchExpression": null}],
        "config": [{"requests": null, "opaque": {"driver": null, "parameters": null}}],
    }})
}

fn claim_status() -> Value {
    json!({
        "allocation": {
            "devices": {
                "results": [{
                    "request": null, "driver": null, "pool": null, "device": null, "adminAccess": null,
                    "tolerations": tolerations(), "bindingConditions": null, "bindingFailureConditions": null,
                    "shareID": null, "consumedCapacity": null, "skipNodeOperations": null,
                    "nodeAllocatableResources": null,
                }],
                "config": [{"source": null, "requests": null, "opaque": {"driver": null, "parameters": null}}],
            },
            "nodeSelector": null, "allocationTimestamp": null,
        },
        "reservedFor": [{"apiGroup": null, "resource": null, "name": null, "uid": null}],
        "devices": [{
            "driver": null, "pool": null, "device": null, "shareID": null, "data": null,
            "conditions": [{
                "type": null, "status": null, "reason": null, "message": null, "lastTransitionTime": null,
                "observedGeneration": null,
            }],
            "networkData": {"interfaceName": null, "ips": null, "hardwareAddress": null},
        }],
    })
}

fn slice_spec() -> Value {
    json!({
        "driver": null, "pool": {"name": null, "generation": null, "resourceSliceCount": null}, "nodeName": null,
        "nodeSelector": null, "allNodes": null, "perDeviceNodeSelection": null, "skipNodeOperations": null,
        "sharedCounters": [{"name": null, "counters": {EACH: {"value": null}}}],
        "devices": [{
            "name": null,
            "attributes": {EACH: {
                "int": null, "bool": null, "string": null, "version": null, "ints": null, "bools": null,
                "strings": null, "versions": null,
            }},
            "capacity": {EACH: {"value": null, "requestPolicy": {
                "default": null, "validValues": null, "validRange": {"min": null, "max": null, "step": null},
            }}},
            "consumesCounters": [{
                "counterSet": null, "counters": {EACH: {"value": null}}, "compatibilityGroups": null,
            }],
            "nodeName": null, "nodeSelector": null, "allNodes": null,
            "taints": [{"key": null, "value": null, "effect": null, "timeAdded": null}],
            "bindsToNode": null, "bindingConditions": null, "bindingFailureConditions": null,
            "allowMultipleAllocations": null,
            "nodeAllocatableResourceMappings": {EACH: {"capacityKey": null, "allocationMultiplier": null}},
            "nodeAllocatableResources": null,
        }],
    })
}

fn pod() -> Value {
    json!({
        OTHERS: null,
        "spec": {
            OTHERS: null,
            "resourceClaims": [{"name": null, "resourceClaimName": null, "resourceClaimTemplateName": null}],
            "schedulingGates": [{"name": null}],
        },
        "status": {
            "allocatedResources": null, "conditions": null, "containerStatuses": null,
            "ephemeralContainerStatuses": null, "hostIP": null, "hostIPs": null, "initContainerStatuses": null,
            "message": null, "nominatedNodeName": null, "observedGeneration": null, "phase": null,
            "podIP": null, "podIPs": null, "qosClass": null, "reason": null, "resize": null, "resources": null,
            "startTime": null,
            "resourceClaimStatuses": [{"name": null, "resourceClaimName": null}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": null,
                "requestMappings": [{"containerName": null, "resourceName": null, "requestName": null}],
            },
            // `resources` in 1.36, `mapping` and `overhead` since 1.37.
            "nodeAllocatableResourceClaimStatuses": [{
                "resourceClaimName": null, "containers": null, "resources": null, "mapping": null,
                "overhead": null,
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{Profile, built_in};

    #[test]
    fn typos_are_found_where_they_are() {
        let kinds = built_in(&Profile::default());
        let claim = kinds.iter().find(|kind| kind.kind == "ResourceClaim").expect("claims");
        let request = json!({"name": "a", "exactly": {"deviceClassName": "b", "cuont": 2}});
        let mut object =
            json!({"metadata": {"any": 1}, "spec": {"devices": {"requests": [request]}}, "satus": {}});
        assert_eq!(prune(claim, &mut object), ["satus", "spec.devices.requests[0].exactly.cuont"]);
        assert_eq!(object["spec"]["devices"]["requests"][0]["exactly"], json!({"deviceClassName": "b"}));
        let pods = kinds.iter().find(|kind| kind.kind == "Pod").expect("pods");
        let entry = json!({"name": "a", "source": {"resourceClaimName": "b"}});
        let mut pod = json!({"spec": {"any": 1, "resourceClaims": [entry]}});
        assert_eq!(prune(pods, &mut pod), ["spec.resourceClaims[0].source"]);
    }
}
