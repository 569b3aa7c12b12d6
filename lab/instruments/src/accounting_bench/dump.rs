//! `dragoman account` on the dump of a large cluster: the peak of its memory, and its time.

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use dragoman_e2e::usage::Usage;

const NODES: usize = 5_000;
/// On each node.
const PODS: usize = 10;
/// An object of a cluster has as much again in fields that no account reads.
const BALLAST: usize = 5_500;

/// The figures of one run.
pub(super) struct Figures {
    /// The size of the file, in MB.
    pub(super) size: u64,
    /// The peak of the resident memory, in MiB.
    pub(super) peak: u64,
    pub(super) took: Duration,
}

/// Writes the dump into `output`, if it is not there yet, and accounts for it with `binary`.
pub(super) async fn measure(binary: &Path, output: &Path) -> anyhow::Result<Figures> {
    let path = output.join("dump.json");
    write(&path).context("dump")?;
    let size = std::fs::metadata(&path).context("dump")?.len() / 1_000_000;
    let began = Instant::now();
    let mut child = Command::new(binary)
        .args(["account", "--overcommitted", "-f"])
        .arg(&path)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("dragoman account")?;
    let pid = child.id().context("pid")?;
    let mut peak = 0;
    // The peak of a process can only be read while it lives.
    let status = loop {
        peak = Usage::of(pid).map_or(peak, |usage| usage.peak.max(peak));
        if let Ok(status) = tokio::time::timeout(Duration::from_millis(5), child.wait()).await {
            break status.context("dragoman account")?;
        }
    };
    let took = began.elapsed();
    let said = child.wait_with_output().await.context("output")?;
    let said = String::from_utf8_lossy(&said.stdout);
    ensure!(status.code() == Some(0), "dragoman account: {status}: {said}");
    std::fs::remove_file(&path).context("dump")?;
    ensure!(said.contains("no node is to be shown"), "a node is overcommitted: {said}");
    Ok(Figures { size, peak: peak / 1024, took })
}

/// Writes what `kubectl get nodes,pods,resourceclaims,resourceslices -A -o json` prints.
fn write(path: &Path) -> anyhow::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    write!(file, "{{\n    \"apiVersion\": \"v1\",\n    \"items\": [")?;
    let mut separator = "\n";
    for object in objects() {
        write!(file, "{separator}{}", serde_json::to_string_pretty(&object)?)?;
        separator = ",\n";
    }
    write!(file, "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {{\"resourceVersion\": \"\"}}\n}}\n")?;
    Ok(file.flush()?)
}

fn objects() -> impl Iterator<Item = Value> {
    let nodes = (0..NODES).map(node);
    let slices = (0..NODES).map(slice);
    let pods = (0..NODES).flat_map(|node| (0..PODS).map(move |number| pod(node, number)));
    nodes.chain(slices).chain((0..NODES).map(claim)).chain(pods)
}

fn metadata(namespace: Option<&str>, name: &str) -> Value {
    let fields: Vec<Value> = (0..BALLAST / 60).map(|n| json!({format!("f:field-number-{n}"): {}})).collect();
    json!({"name": name, "namespace": namespace, "uid": format!("uid-of-{name}"), "resourceVersion": "12345",
        "labels": {"app": "training", "kubernetes.io/hostname": name},
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": fields}]})
}

fn node(number: usize) -> Value {
    let images: Vec<Value> = (0..50)
        .map(|n| json!({"names": [format!("example.com/image-{n}:1")], "sizeBytes": 123_456_789}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata(None, &format!("node-{number}")), "spec": {},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "250"}, "images": images}})
}

fn slice(number: usize) -> Value {
    let device = |n: usize| {
        json!({"name": format!("gpu-{n}"), "attributes": {"model": {"string": "a100"}, "index": {"int": n}},
            "capacity": {"memory": {"value": "80Gi"}},
            "nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi"}}}})
    };
    let node = format!("node-{number}");
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": metadata(None, &format!("slice-{number}")),
        "spec": {"driver": "gpu.example.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": (0..8).map(device).collect::<Vec<_>>()}})
}

fn claim(number: usize) -> Value {
    let (name, pod) = (format!("claim-{number}"), format!("pod-{number}-0"));
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata(Some("ns"), &name),
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}]}},
        "status": {"reservedFor": [{"resource": "pods", "name": pod, "uid": format!("uid-of-{pod}")}],
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com",
                "pool": format!("node-{number}"), "device": "gpu-0"}]}}}})
}

/// Every tenth Pod has a claim.
fn pod(node: usize, number: usize) -> Value {
    let container = |name: &str, claims: Value| {
        let env: Vec<Value> = (0..40)
            .map(|n| json!({"name": format!("SETTING_{n}"), "value": "a value of some length"}))
            .collect();
        json!({"name": name, "image": "example.com/training:1", "env": env, "resources": {
            "requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}, "claims": claims}})
    };
    let (claims, entries) = if number == 0 {
        let entry = json!([{"name": "gpu", "resourceClaimName": format!("claim-{node}")}]);
        (json!([{"name": "gpu"}]), entry)
    } else {
        (Value::Null, Value::Null)
    };
    let name = format!("pod-{node}-{number}");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(Some("ns"), &name),
        "spec": {"nodeName": format!("node-{node}"), "resourceClaims": entries,
            "containers": [container("main", claims), container("side", Value::Null)],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
        "status": {"phase": "Running"}})
}
