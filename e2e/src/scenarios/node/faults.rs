//! Processes die, the power goes, the driver is replaced.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Cluster, SERVE, Standalone, pod, standalone};
use crate::client::{PODS, SLICES};
use crate::node::Machine;
use crate::wait;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(every_process_is_killed_and_all_pods_succeed),
        standalone!(after_a_loss_of_power_pods_run_again_on_their_devices),
        standalone!(a_driver_is_replaced_while_pods_run),
    ]
}

/// kubelet, driver, containerd and Dragoman are killed in turn while Pods come and go.
async fn every_process_is_killed_and_all_pods_succeed(bench: &Bench) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(bench, "node-kills", 4).await?;
    let ns = cluster.namespace("kills").await?;
    for number in 0..24 {
        cluster.pod(&ns, &pod(&format!("p-{number}"), "sleep 1")).await?;
    }
    // One more Pod has succeeded before each of them dies.
    for round in 0..8 {
        cluster.succeeded(&ns, round + 1).await?;
        match round % 4 {
            0 => {
                cluster.machine.kill_kubelet().await?;
                cluster.machine.start_kubelet().await?;
            }
            1 => {
                cluster.machine.kill_driver().await?;
                cluster.machine.start_driver()?;
            }
            2 => {
                cluster.machine.kill_containerd().await?;
                cluster.machine.start_containerd().await?;
            }
            _ => cluster.kill_dragoman().await?,
        }
    }
    cluster.succeeded(&ns, 24).await?;
    cluster.no_device_was_promised_twice(&ns).await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// Everything is killed at once, containers too, and /run is empty.
async fn after_a_loss_of_power_pods_run_again_on_their_devices(bench: &Bench) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(bench, "node-power", 4).await?;
    let ns = cluster.namespace("power").await?;
    let names = ["a", "b", "c", "d"];
    for name in names {
        let mut pod = pod(name, &format!("env | grep UUID; {SERVE}"));
        pod["spec"]["restartPolicy"] = "Always".into();
        cluster.pod(&ns, &pod).await?;
    }
    let mut before = Vec::new();
    for name in names {
        cluster.phase(&ns, name, "Running").await?;
        before.push(cluster.printed(&ns, name, "DRA_GPU_GPU_UUID=").await?);
    }
    cluster.machine.lose_power().await?;
    ensure!(Machine::cdi_files().is_empty(), "/run is empty");
    cluster.machine.boot().await?;
    for (name, uuid) in names.iter().zip(before) {
        let again = async || {
            let pod = cluster.world.client.get(PODS, &ns, name).await?.context("the Pod is gone")?;
            let status = &pod["status"]["containerStatuses"][0];
            Ok((status["restartCount"].as_i64() > Some(0) && status["ready"] == true).then_some(()))
        };
        wait::value(&format!("{name} runs again"), again)
            .await
            .map_err(|error| error.context(cluster.machine.log()))?;
        ensure!(cluster.printed(&ns, name, "DRA_GPU_GPU_UUID=").await? == uuid, "{name} has another device");
    }
    cluster.no_device_was_promised_twice(&ns).await?;
    for name in names {
        cluster.world.client.delete(PODS, &ns, name, None).await?;
    }
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// The driver ends and comes back, as in an upgrade: Pods run on, and one that ended meanwhile is unprepared.
async fn a_driver_is_replaced_while_pods_run(bench: &Bench) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(bench, "node-upgrade", 4).await?;
    let ns = cluster.namespace("upgrade").await?;
    for name in ["stays", "ends"] {
        cluster.pod(&ns, &pod(name, SERVE)).await?;
        cluster.phase(&ns, name, "Running").await?;
    }
    cluster.machine.kill_driver().await?;
    cluster.world.client.delete(PODS, &ns, "ends", None).await?;
    cluster.machine.start_driver()?;
    cluster.gone(&ns, "ends").await?;
    let slices = cluster.world.client.list(SLICES, "").await?;
    let generations: Vec<&Value> = slices.iter().map(|slice| &slice["spec"]["pool"]["generation"]).collect();
    ensure!(generations == [&json!(1)], "nothing was published anew: {generations:?}");
    let stays = cluster.world.client.get(PODS, &ns, "stays").await?.context("gone")?;
    ensure!(stays["status"]["containerStatuses"][0]["restartCount"] == 0, "{stays}");
    cluster.pod(&ns, &pod("next", "true")).await?;
    cluster.phase(&ns, "next", "Succeeded").await?;
    cluster.world.client.delete(PODS, &ns, "stays", None).await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}
