//! The driver as people install it: a `DaemonSet` whose Pods have the tokens of their ServiceAccount.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Cluster, SERVE, SLICES, Standalone, pod, standalone, without_deployments};
use crate::client::PODS;
use crate::control_plane::{Shape, Workloads};
use crate::node::{BOX, Machine, Parts};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(a_daemonset_of_drivers_is_installed_replaced_and_removed)]
}

async fn a_daemonset_of_drivers_is_installed_replaced_and_removed(bench: &Bench) -> anyhow::Result<()> {
    let shape = Shape { workloads: Workloads::OnRealNode, accounts: true, ..Shape::default() };
    let world = World::start(bench, "node-daemonset", shape, 0, 0).await?;
    without_deployments(&world).await?;
    let programs = [Machine::driver_program()?];
    let machine = Machine::without_driver(&world, &Parts { programs: &programs, ..Parts::default() }).await?;
    let mut cluster = Cluster { world, machine, dragoman: None };
    cluster.restart_dragoman(&[]).await?;
    let manifests = overlay(&cluster)?.display().to_string();
    kubectl(&cluster, &["apply", "-k", &manifests]).await?;
    let first = rolled_out(&cluster).await?;
    cluster.devices(4).await?;
    let ns = cluster.namespace("daemonset").await?;
    has_accounts(&cluster, &ns).await?;
    cluster.pod(&ns, &pod("once", "env | grep UUID")).await?;
    cluster.phase(&ns, "once", "Succeeded").await?;
    ensure!(cluster.log(&ns, "once").await?.starts_with("DRA_GPU_GPU_UUID=node-0-"), "no device");
    cluster.pod(&ns, &pod("served", SERVE)).await?;
    cluster.phase(&ns, "served", "Running").await?;
    kubectl(&cluster, &["rollout", "restart", "daemonset/simulated-driver", "--namespace", "kube-system"])
        .await?;
    let second = rolled_out(&cluster).await?;
    ensure!(first != second, "the Pod of the driver is the same: {first}");
    let served = cluster.phase(&ns, "served", "Running").await?;
    let restarts = &served["status"]["containerStatuses"][0]["restartCount"];
    ensure!(restarts == 0, "the Pod was restarted: {served}");
    cluster.pod(&ns, &pod("next", "true")).await?;
    cluster.phase(&ns, "next", "Succeeded").await?;
    cluster.world.client.delete(PODS, &ns, "served", None).await?;
    cluster.nothing_is_left(&ns).await?;
    kubectl(&cluster, &["delete", "-k", &manifests]).await?;
    let none = async || Ok(cluster.world.client.list(SLICES, "").await?.is_empty().then_some(()));
    wait::value("kubelet removes the slices of a driver that is gone", none).await?;
    cluster.stop().await
}

/// Writes an overlay with what this node has in place of a registry and of a network of Services.
fn overlay(cluster: &Cluster) -> anyhow::Result<PathBuf> {
    let (host, port) = cluster.world.plane.address();
    let environment = json!([
        {"name": "KUBERNETES_SERVICE_HOST", "value": host},
        {"name": "KUBERNETES_SERVICE_PORT", "value": port.to_string()},
    ]);
    let driver = json!({"name": "driver", "imagePullPolicy": "Never", "env": environment});
    let spec = json!({"template": {"spec": {"hostNetwork": true, "containers": [driver]}}});
    let patch = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata":
        {"name": "simulated-driver", "namespace": "kube-system"}, "spec": spec});
    let (image, tag) = BOX.split_once(':').context("image")?;
    let directory = cluster.world.directory.join("overlay");
    // kustomize takes no absolute paths.
    let up = "../".repeat(directory.components().count() - 1);
    let manifests = cluster.world.bench.repository.join("driver/examples/manifests");
    let manifests = manifests.strip_prefix("/").context("repository")?.display().to_string();
    let overlay = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [up + &manifests], "patches": [{"patch": patch.to_string()}],
        "images": [{"name": "example.com/simulated-driver", "newName": image, "newTag": tag}]});
    std::fs::create_dir_all(&directory).context("overlay")?;
    std::fs::write(directory.join("kustomization.yaml"), overlay.to_string()).context("overlay")?;
    Ok(directory)
}

/// Waits until the `DaemonSet` has its Pod; returns the name of the Pod.
async fn rolled_out(cluster: &Cluster) -> anyhow::Result<String> {
    let ask = ["rollout", "status", "daemonset/simulated-driver", "--namespace", "kube-system"];
    let rolled = kubectl(cluster, &[&ask[..], &["--timeout", "15m"]].concat()).await;
    if let Err(error) = rolled {
        let pods = cluster.world.client.list(PODS, "kube-system").await?;
        let statuses: Vec<&Value> = pods.iter().map(|pod| &pod["status"]).collect();
        return Err(error.context(json!(statuses).to_string()).context(cluster.machine.log()));
    }
    let only = async || {
        let pods = cluster.world.client.list(PODS, "kube-system").await?;
        let names: Vec<&str> = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["app"] == "simulated-driver")
            .filter_map(|pod| pod["metadata"]["name"].as_str())
            .collect();
        Ok(if let [only] = names[..] { Some(only.to_owned()) } else { None })
    };
    wait::value("the driver has one Pod", only).await
}

/// Pods need the ServiceAccount and the certificate of their namespace.
async fn has_accounts(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let there = async || {
        let account = cluster.world.client.get("/api/v1/{}/serviceaccounts", ns, "default").await?;
        let authority = cluster.world.client.get("/api/v1/{}/configmaps", ns, "kube-root-ca.crt").await?;
        Ok((account.is_some() && authority.is_some()).then_some(()))
    };
    wait::value("the namespace has its ServiceAccount", there).await
}

async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<()> {
    let said = cluster.world.plane.kubectl(arguments, "").await?;
    said.map(drop).map_err(anyhow::Error::msg).with_context(|| arguments.join(" "))
}
