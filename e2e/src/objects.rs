//! The objects that scenarios create.

use std::sync::atomic::{AtomicU32, Ordering};

use dragoman_simcluster::{HOLD, REAP};
use serde_json::{Value, json};

use crate::control_plane::Release;

/// The driver of all simulated devices.
pub const DRIVER: &str = "device.e2e.dragoman.dev";

/// A node that is ready.
pub fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "1000"},
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "1000"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "E2E", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

/// The slice of a node with `devices` devices.
pub fn slice(node: &str, devices: usize) -> Value {
    let devices: Vec<Value> = (0..devices).map(|i| json!({"name": format!("dev-{i}")})).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
        "spec": {"driver": DRIVER, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices},
    })
}

/// The class of all devices of the driver.
pub fn class() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "e2e"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
    })
}

/// The spec of a claim for one device.
pub fn claim_spec() -> Value {
    json!({"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": "e2e"}}]}})
}

/// A template for claims of one device.
pub fn template(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": claim_spec()},
    })
}

/// A claim for one device.
pub fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": claim_spec(),
    })
}

/// A builder of Pods.
#[derive(Clone)]
pub struct Pod(Value);

impl Pod {
    /// A Pod with one container and no claims. It runs and succeeds at once.
    pub fn new(name: &str) -> Self {
        Self(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "none", "resources": {"claims": []}}],
                "resourceClaims": [],
            },
        }))
    }

    fn entry(mut self, name: &str, reference: &str, target: &str) -> Self {
        self.push("/spec/resourceClaims", json!({"name": name, reference: target}));
        self.push("/spec/containers/0/resources/claims", json!({"name": name}));
        self
    }

    fn push(&mut self, pointer: &str, value: Value) {
        if let Some(list) = self.0.pointer_mut(pointer).and_then(Value::as_array_mut) {
            list.push(value);
        }
    }

    fn set(mut self, pointer: &str, field: &str, value: Value) -> Self {
        if let Some(map) = self.0.pointer_mut(pointer).and_then(Value::as_object_mut) {
            map.insert(field.to_owned(), value);
        }
        self
    }

    /// Adds an entry with a claim from a template.
    pub fn with_template(self, entry: &str, template: &str) -> Self {
        self.entry(entry, "resourceClaimTemplateName", template)
    }

    /// Adds an entry with an existing claim.
    pub fn with_claim(self, entry: &str, claim: &str) -> Self {
        self.entry(entry, "resourceClaimName", claim)
    }

    /// Keeps the Pod running until it is told to end.
    pub fn held(self) -> Self {
        self.set("/metadata/annotations", HOLD, "true".into())
    }

    /// Has the Pod deleted as soon as it is done.
    pub fn reaped(self) -> Self {
        self.set("/metadata/annotations", REAP, "true".into())
    }

    /// Adds a scheduling gate, so that the Pod is never scheduled.
    pub fn gated(self) -> Self {
        self.behind("e2e.dragoman.dev/gate")
    }

    /// Adds a scheduling gate of this name.
    pub fn behind(self, gate: &str) -> Self {
        self.set("/spec", "schedulingGates", json!([{"name": gate}]))
    }

    /// Puts the Pod on a node from the start, without the scheduler.
    pub fn on(self, node: &str) -> Self {
        self.set("/spec", "nodeName", node.into())
    }

    /// Confines the Pod to a node: a scheduler brings it there.
    pub fn only_on(self, node: &str) -> Self {
        self.set("/spec", "nodeSelector", json!({"kubernetes.io/hostname": node}))
    }

    /// Asks for one of an extended resource.
    pub fn limited(self, resource: &str) -> Self {
        self.set("/spec/containers/0/resources", "limits", json!({resource: "1"}))
    }

    /// Makes the Pod a member of a PodGroup.
    pub fn in_group(self, group: &str) -> Self {
        self.set("/spec", "schedulingGroup", json!({"podGroupName": group}))
    }

    /// The object.
    pub fn object(&self) -> &Value {
        &self.0
    }
}

/// A PodGroup whose claim for `entry` comes from `template`.
pub fn pod_group(release: Release, name: &str, entry: &str, template: &str) -> Value {
    json!({
        "apiVersion": format!("scheduling.k8s.io/{}", release.pod_groups()), "kind": "PodGroup", "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"basic": {}},
            "resourceClaims": [{"name": entry, "resourceClaimTemplateName": template}],
        },
    })
}

/// A merge patch that allocates a claim the way a foreign allocator would: a device that no slice
/// publishes and no other claim has, on `node`, reserved for `consumers`. It has its time, so that kube-scheduler can add Pods.
pub fn foreign_allocation(node: &str, consumers: &[Value]) -> Value {
    static DEVICES: AtomicU32 = AtomicU32::new(0);
    foreign_device(&format!("d-{}", DEVICES.fetch_add(1, Ordering::Relaxed)), node, consumers)
}

/// As [`foreign_allocation`], of this device.
pub fn foreign_device(device: &str, node: &str, consumers: &[Value]) -> Value {
    let selector = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    json!({"status": {
        "allocation": {
            "devices": {"results": [{"request": "device", "driver": "foreign.dragoman.dev", "pool": node, "device": device}]},
            "nodeSelector": selector,
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": consumers,
    }})
}

/// A consumer that is a Pod.
pub fn pod_consumer(pod: &Value) -> Value {
    json!({"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]})
}

/// A consumer of a kind that Dragoman does not know.
pub fn unknown_consumer(number: usize) -> Value {
    json!({"apiGroup": "example.com", "resource": "jobs", "name": format!("job-{number}"), "uid": format!("uid-{number}")})
}
