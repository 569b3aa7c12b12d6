//! The Pods that are sent.

#![expect(clippy::expect_used, reason = "a measurement: whatever fails ends it")]

use std::fmt::Write as _;

use serde_json::{Value, json};

/// A Pod of 4 kB whose `@` and the letter after it stand for what differs between Pods.
fn pod() -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "lastProbeTime": null, "observedGeneration": 1,
            "lastTransitionTime": "2026-11-01T00:00:07Z"})
    };
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": "workload-7d4b9c6f5-@I", "generateName": "workload-7d4b9c6f5-", "namespace": "team-@T",
            "uid": "0b0d0b0d-0000-4000-8000-0000000@I", "resourceVersion": "@V", "generation": 1,
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": {"app": "workload", "pod-template-hash": "7d4b9c6f5", "tier": "training"},
            "annotations": {"kubernetes.io/config.seen": "2026-11-01T00:00:00.123456789Z"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "workload-7d4b9c6f5",
                "uid": "5e75e75e-0000-4000-8000-000000000001", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": managed_fields(&conditions),
        },
        "spec": {
            "nodeName": "node-@N", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "serviceAccountName": "default", "priority": 0,
            "containers": [{"name": "main", "image": "registry.example.com/team/workload:v1.2.3",
                "args": ["--train", "--epochs=10"], "imagePullPolicy": "IfNotPresent",
                "env": [{"name": "RANK", "value": "@I"}],
                "resources": {"limits": {"memory": "16Gi"}, "requests": {"cpu": "4", "memory": "16Gi"},
                    "claims": [{"name": "gpu"}]},
                "volumeMounts": [{"name": "kube-api-access-x7k2p", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "@P", "observedGeneration": 1, "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
            "startTime": "2026-11-01T00:00:05Z", "qosClass": "Burstable",
            "conditions": conditions.map(condition),
            "containerStatuses": [{"name": "main", "ready": true, "started": true, "restartCount": 0,
                "image": "registry.example.com/team/workload:v1.2.3",
                "containerID": "containerd://a3f1c9d2e4b5a3f1c9d2e4b5a3f1c9d2e4b5a3f1c9d2e4b5a3f1c9d2e4b5a3f1",
                "state": {"running": {"startedAt": "2026-11-01T00:00:06Z"}}, "lastState": {},
                "allocatedResources": {"cpu": "4", "memory": "16Gi"},
                "resources": {"limits": {"memory": "16Gi"}, "requests": {"cpu": "4", "memory": "16Gi"}}}],
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "workload-7d4b9c6f5-@I-gpu-x7k2p"}],
        },
    })
}

/// Returns the fields that each writer of the Pod owns: a third of its text.
fn managed_fields(conditions: &[&str]) -> Value {
    let manager = |name: &str, subresource: Option<&str>, fields: Value| {
        json!({"manager": name, "operation": "Update", "apiVersion": "v1", "subresource": subresource,
            "time": "2026-11-01T00:00:07Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let of_type = |kind: &&str| {
        let fields = json!({".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {},
            "f:observedGeneration": {}, "f:status": {}, "f:type": {}});
        (format!("k:{{\"type\":\"{kind}\"}}"), fields)
    };
    let managed_conditions: serde_json::Map<String, Value> = conditions.iter().map(of_type).collect();
    json!([
        manager(
            "kube-controller-manager",
            None,
            json!({"f:metadata": {"f:generateName": {},
                    "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}, "f:tier": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"5e75e75e-0000-4000-8000-000000000001\"}": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:args": {}, "f:env": {".": {},
                    "k:{\"name\":\"RANK\"}": {".": {}, "f:name": {}, "f:value": {}}}, "f:image": {},
                    "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {".": {}, "f:claims": {".": {},
                    "k:{\"name\":\"gpu\"}": {".": {}, "f:name": {}}}, "f:limits": {".": {}, "f:memory": {}},
                    "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}}}}, "f:dnsPolicy": {},
                    "f:resourceClaims": {".": {}, "k:{\"name\":\"gpu\"}": {".": {}, "f:name": {},
                    "f:resourceClaimTemplateName": {}}}, "f:restartPolicy": {}}})
        ),
        manager(
            "dragoman",
            Some("status"),
            json!({"f:status": {"f:resourceClaimStatuses": {".": {},
                    "k:{\"name\":\"gpu\"}": {".": {}, "f:name": {}, "f:resourceClaimName": {}}}}})
        ),
        manager(
            "kubelet",
            Some("status"),
            json!({"f:status": {"f:conditions": managed_conditions,
                    "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:startTime": {}}})
        ),
    ])
}

/// The text of every Pod.
pub(crate) struct Text {
    before: String,
    /// First letter of each part, and the text after it.
    parts: Vec<(char, String)>,
}

impl Text {
    /// The text of the Pod above, cut at its holes.
    pub(crate) fn new() -> Self {
        let text = pod().to_string();
        let mut split = text.split('@');
        let before = split.next().unwrap_or_default().to_owned();
        let part = |part: &str| {
            let mut rest = part.chars();
            (rest.next().expect("a letter after @"), rest.as_str().to_owned())
        };
        Self { before, parts: split.map(part).collect() }
    }

    /// Appends Pod `i` at a version. The phase changes from round to round.
    pub(crate) fn write(&self, out: &mut String, i: usize, version: usize, round: usize) {
        out.push_str(&self.before);
        for (hole, text) in &self.parts {
            let written = match hole {
                'I' => write!(out, "{i:05}"),
                'T' => write!(out, "{}", i % 50),
                'N' => write!(out, "{}", i % 500),
                'V' => write!(out, "{version}"),
                // Bound, and at work.
                _ => write!(out, "{}", if round.is_multiple_of(2) { "Running" } else { "Pending" }),
            };
            written.expect("text");
            out.push_str(text);
        }
    }
}
