//! Lives of Pods.

use anyhow::ensure;

use super::{Cluster, SERVE, Standalone, pod, standalone};
use crate::client::PODS;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(pods_see_their_devices_and_leave_nothing_behind)]
}

async fn pods_see_their_devices_and_leave_nothing_behind(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::start(bench, "node-pods", 4, &[]).await?;
    let ns = cluster.namespace("pods").await?;
    cluster.pod(&ns, &pod("once", "env; cat /var/run/kubernetes.io/dra-device-attributes/*/*/*/*.json")).await?;
    cluster.phase(&ns, "once", "Succeeded").await?;
    let said = cluster.log(&ns, "once").await?;
    ensure!(said.contains("DRA_GPU_GPU_MODEL=simulated-1") && said.contains("metadata.resource.k8s.io/v1beta1"), "{said}");
    cluster.pod(&ns, &pod("served", SERVE)).await?;
    cluster.phase(&ns, "served", "Running").await?;
    cluster.world.client.delete(PODS, &ns, "served", None).await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}
