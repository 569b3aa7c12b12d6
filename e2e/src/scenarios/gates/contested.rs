//! A node that publishes devices of another one, as the token of a kubelet allows.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{FLAGS, gated, namespace};
use crate::client::SLICES;
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::scenarios::{Standalone, standalone};
use crate::world::Bench;

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(a_node_gives_no_devices_of_another_away)]
}

/// The slice of node-0 is older than that of node-1, and has a newer generation and more devices.
async fn a_node_gives_no_devices_of_another_away(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "another-node", Shape::default(), 2).await?;
    let mut lie = objects::slice("node-1", 100);
    lie["metadata"]["name"] = json!("lie");
    lie["spec"]["nodeName"] = json!("node-0");
    lie["spec"]["pool"]["generation"] = json!(999);
    world.client.create(SLICES, "", &lie).await?;
    world.client.delete(SLICES, "", "node-1", None).await?;
    world.client.create(SLICES, "", &objects::slice("node-1", 4)).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    println!("        {}", world.event("default", "lie", "PoolOfAnotherNode").await?);
    let ns = namespace(&world, "another-node", "enabled").await?;
    // There is room for two Pods on each of the nodes.
    for number in 0..4 {
        let name = format!("pod-{number}");
        let pod = world.pod(&ns, &Pod::new(&name).with_template("device", "one").held()).await?;
        let name = pod["metadata"]["name"].as_str().context("name")?;
        world.phase(&ns, name, "Running").await?;
        let pod = world.client.get(crate::client::PODS, &ns, name).await?.context("Pod")?;
        let claim = world.claim_of(&ns, name, "device").await?;
        let pool = &claim["status"]["allocation"]["devices"]["results"][0]["pool"];
        ensure!(
            *pool == pod["spec"]["nodeName"],
            "a device of pool {pool} for node {}",
            pod["spec"]["nodeName"]
        );
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
