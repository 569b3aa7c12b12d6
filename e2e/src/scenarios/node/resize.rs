//! In-place resize of a Pod whose claim takes cpus of the node (KEP-5517), where kube-scheduler and kubelet count them.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::ledger;
use super::{Cluster, SERVE, Standalone, pod, standalone};
use crate::client::{CLAIMS, PODS};
use crate::node::NODE;
use crate::wait;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(the_cpus_of_a_claim_stay_when_its_pod_is_resized)]
}

const GATE: &[&str] = &["DRANodeAllocatableResources"];
const FIELD: &str = "nodeAllocatableResourceClaimStatuses";

async fn the_cpus_of_a_claim_stay_when_its_pod_is_resized(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::counting(bench, "node-cpus", 2, &["--cpus=1"], GATE).await?;
    let ns = cluster.namespace("cpus").await?;
    let mut sized = pod("sized", SERVE);
    sized["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m"});
    cluster.pod(&ns, &sized).await?;
    let before = cluster.phase(&ns, "sized", "Running").await?;
    ensure!(amount(&before) == "1", "{}", before["status"]);
    totals(&before, "1100m", "100m")?;
    let claims = cluster.world.client.list(CLAIMS, &ns).await?;
    let taken = cpus(&cluster).await?;
    ensure!((&*taken.0, &*taken.1) == ("100m", "1"), "{taken:?} {}", before["status"]);
    resize(&cluster, &ns, "300m").await?;
    let resized = async || {
        let pod = cluster.world.client.get(PODS, &ns, "sized").await?.context("gone")?;
        let status = &pod["status"]["containerStatuses"][0];
        let is_new = status["resources"]["requests"]["cpu"] == "300m" && status["restartCount"] == 0;
        Ok((is_new && pod["status"]["resources"]["requests"]["cpu"] == "1300m").then_some(pod))
    };
    let after = wait::value("the Pod has more cpu and was not restarted", resized).await?;
    ensure!(after["status"][FIELD] == before["status"][FIELD], "{}", after["status"]);
    totals(&after, "1300m", "300m")?;
    ensure!(cluster.world.client.list(CLAIMS, &ns).await? == claims, "the claim changed");
    let counted = async || Ok((cpus(&cluster).await? == ("300m".to_owned(), "1".to_owned())).then_some(()));
    wait::value("the ledger counts the resize, and the cpu of the claim", counted).await?;
    // More than the node has besides what the claim takes: kubelet says so, and nothing changes.
    let node = cluster.world.client.get("/api/v1/nodes", "", NODE).await?.context("node")?;
    let all = node["status"]["allocatable"]["cpu"].as_str().context("cpu")?.to_owned();
    resize(&cluster, &ns, &all).await?;
    let refused = async || {
        let pod = cluster.world.client.get(PODS, &ns, "sized").await?.context("gone")?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.into_iter().find(|of| of["type"] == "PodResizePending"))
    };
    let pending = wait::value("a resize beyond the node waits", refused).await?;
    ensure!(pending["reason"] == "Deferred", "{pending}");
    let pod = cluster.world.client.get(PODS, &ns, "sized").await?.context("gone")?;
    ensure!(pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] == "300m", "{pod}");
    ensure!(amount(&pod) == "1", "{}", pod["status"]);
    ledger::agrees(&cluster.world, NODE).await?;
    cluster.world.client.delete(PODS, &ns, "sized", None).await?;
    cluster.nothing_is_left(&ns).await?;
    overhead(&cluster, &ns).await?;
    cluster.stop().await
}

/// The total has the overhead of a RuntimeClass in it. component-helpers, and with it kube-scheduler and the ledger, adds it again.
async fn overhead(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "costly"},
        "handler": "runc", "overhead": {"podFixed": {"cpu": "250m"}}});
    cluster.world.client.create("/apis/node.k8s.io/v1/runtimeclasses", "", &class).await?;
    let mut costly = pod("costly", SERVE);
    costly["spec"]["resourceClaims"] = Value::Null;
    costly["spec"]["runtimeClassName"] = "costly".into();
    costly["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    cluster.pod(ns, &costly).await?;
    totals(&cluster.phase(ns, "costly", "Running").await?, "350m", "100m")?;
    let counted = async || Ok((cpus(cluster).await?.0 == "600m").then_some(()));
    wait::value("the ledger counts what a scheduler counts", counted).await?;
    cluster.world.client.delete(PODS, ns, "costly", None).await
}

/// kubelet's totals of the Pod have what the claim takes, and what it says of the container has not.
fn totals(pod: &Value, of_pod: &str, of_container: &str) -> anyhow::Result<()> {
    let (status, container) = (&pod["status"], &pod["status"]["containerStatuses"][0]);
    let reported = [&status["resources"]["requests"]["cpu"], &status["allocatedResources"]["cpu"]];
    ensure!(reported.iter().all(|cpu| **cpu == *of_pod), "{status}");
    let reported = [&container["resources"]["requests"]["cpu"], &container["allocatedResources"]["cpu"]];
    ensure!(reported.iter().all(|cpu| **cpu == *of_container), "{container}");
    Ok(())
}

/// The cpus that the status of a Pod says its claim takes.
fn amount(pod: &Value) -> &str {
    let mapping = pod["status"][FIELD][0]["mapping"].as_array();
    let cpu = mapping.and_then(|all| all.iter().find(|of| of["name"] == "cpu"));
    cpu.and_then(|of| of["quantity"].as_str()).unwrap_or("none")
}

/// Returns the cpus of the node that Pods and claims take, by the ledger.
async fn cpus(cluster: &Cluster) -> anyhow::Result<(String, String)> {
    let state = ledger::agrees(&cluster.world, NODE).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = &state["status"];
    Ok((text(&status["requestedByPods"]["cpu"]), text(&status["requestedByClaims"]["mapping"]["cpu"])))
}

async fn resize(cluster: &Cluster, ns: &str, cpu: &str) -> anyhow::Result<()> {
    let resources = json!({"requests": {"cpu": cpu}});
    let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}}).to_string();
    let ask = ["patch", "pod", "sized", "--namespace", ns, "--subresource", "resize", "--patch", &patch];
    cluster.world.plane.kubectl(&ask, "").await?.map_err(anyhow::Error::msg).map(drop)
}
