//! Slices whose devices are not given: those of another node, as the token of a kubelet allows, and those that are not understood.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{FLAGS, gated, namespace};
use crate::client::SLICES;
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::Bench;

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_node_gives_no_devices_of_another_away),
        standalone!(a_device_that_is_not_understood_is_left_out_and_its_slice_says_so),
    ]
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

/// One device has a capacity that is larger than any integer, the other one is like all.
async fn a_device_that_is_not_understood_is_left_out_and_its_slice_says_so(
    bench: &Bench,
) -> anyhow::Result<()> {
    let world = gated(bench, "undecidable", Shape::default(), 1).await?;
    let publish = async |generation: u32, memory: &str| {
        let devices = json!([{"name": "a-large", "capacity": {"memory": {"value": memory}}}, {"name": "b"}]);
        let pool = json!({"name": "node-0", "generation": generation, "resourceSliceCount": 1});
        world.client.merge(SLICES, "", "node-0", &json!({"spec": {"devices": devices, "pool": pool}})).await
    };
    publish(2, &"9".repeat(39)).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let said = world.event("default", "node-0", "Undecidable").await?;
    let words = ["device a-large of the slice cannot be given", "the number is too large"];
    ensure!(words.iter().all(|words| said.contains(words)), "{said}");
    let count = async || {
        allocator.metric("dragoman_allocator_undecidable_objects", &["kind=\"ResourceSlice\""]).await
    };
    wait::value("one slice counts", async || Ok((count().await? == 1.0).then_some(()))).await?;
    let ns = namespace(&world, "undecidable", "enabled").await?;
    world.pod(&ns, &Pod::new("first").with_template("device", "one").held()).await?;
    world.phase(&ns, "first", "Running").await?;
    let claim = world.claim_of(&ns, "first", "device").await?;
    let device = &claim["status"]["allocation"]["devices"]["results"][0]["device"];
    ensure!(device == "b", "{device}");
    world.pod(&ns, &Pod::new("second").with_template("device", "one").held()).await?;
    let waits = world.event(&ns, "second", "NoNode").await?;
    ensure!(waits.contains("the number is too large"), "{waits}");
    publish(3, "1Gi").await?;
    world.phase(&ns, "second", "Running").await?;
    wait::value("no slice counts", async || Ok((count().await? == 0.0).then_some(()))).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
