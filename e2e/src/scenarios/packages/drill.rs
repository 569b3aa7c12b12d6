//! The drill of docs/install.md, section 6: from the built-in controller to Dragoman and back, on a cluster full of Pods, with the
//! chart. Nothing is lost, and nothing is left.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::cluster;
use super::helm::Helm;
use super::pods::Pods;
use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::objects::Pod;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World, claim_name};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(the_drill_from_the_built_in_controller_and_back_loses_nothing)]
}

/// Pods of each stage; the nodes have 64 devices.
const PODS_OF_A_STAGE: usize = 16;

/// A claim as its Pod uses it: its uid, and the devices that it has.
type Uses = BTreeMap<String, (Value, Value)>;

/// Every stage makes Pods that run on through all stages after it.
async fn the_drill_from_the_built_in_controller_and_back_loses_nothing(bench: &Bench) -> anyhow::Result<()> {
    let shape = Shape { built_in: true, ..Shape::default() };
    let mut world = cluster(bench, "packages-drill", 32, shape).await?;
    let pods = Pods::start(&world);
    let ns = world.namespace("drill").await?;
    let mut uses = Uses::new();
    stage(&world, &ns, "built-in", &mut uses).await?;
    let archive = {
        let helm = Helm::new(&world, &pods).await?;
        let archive = helm.archive().await?;
        helm.run(&["install", "dragoman", &archive], "mode=observe").await?;
        stage(&world, &ns, "observe", &mut uses).await?;
        helm.run(&["upgrade", "dragoman", &archive], "mode=assist").await?;
        same(&world, &ns, &uses).await?;
        archive
    };
    world.plane.restart_controllers(false).await?;
    Helm::new(&world, &pods).await?.run(&["upgrade", "dragoman", &archive], "mode=own").await?;
    stage(&world, &ns, "own", &mut uses).await?;
    // Claims of the built-in controller end under Dragoman.
    for number in 0..PODS_OF_A_STAGE / 2 {
        end(&world, &ns, &format!("built-in-{number}"), &mut uses).await?;
    }
    world.claims(&ns, uses.len()).await?;
    Helm::new(&world, &pods).await?.run(&["uninstall", "dragoman"], "").await?;
    same(&world, &ns, &uses).await?;
    world.plane.restart_controllers(true).await?;
    stage(&world, &ns, "back", &mut uses).await?;
    // And those of Dragoman end under the built-in controller.
    for pod in uses.keys().cloned().collect::<Vec<_>>() {
        end(&world, &ns, &pod, &mut uses).await?;
    }
    world.claims(&ns, 0).await?;
    drop(pods);
    world.stop().await
}

/// Makes Pods that run on, and checks that those before have what they had.
async fn stage(world: &World, namespace: &str, name: &str, uses: &mut Uses) -> anyhow::Result<()> {
    for number in 0..PODS_OF_A_STAGE {
        let pod = Pod::new(&format!("{name}-{number}")).with_template("gpu", "one").held();
        world.pod(namespace, &pod).await?;
    }
    for number in 0..PODS_OF_A_STAGE {
        let pod = format!("{name}-{number}");
        world.phase(namespace, &pod, "Running").await?;
        uses.insert(pod.clone(), used(world, namespace, &pod).await?);
    }
    same(world, namespace, uses).await
}

/// The claim of a Pod that runs.
async fn used(world: &World, namespace: &str, pod: &str) -> anyhow::Result<(Value, Value)> {
    let found =
        world.client.get(PODS, namespace, pod).await?.with_context(|| format!("Pod {pod} is gone"))?;
    ensure!(found["status"]["phase"] == "Running", "Pod {pod} is {}", found["status"]["phase"]);
    let name = claim_name(&found, "gpu").with_context(|| format!("Pod {pod} has no claim"))?;
    let claim = world.client.get(CLAIMS, namespace, &name).await?;
    let claim = claim.with_context(|| format!("claim {name} of Pod {pod} is gone"))?;
    let is_reserved = claim["status"]["reservedFor"][0]["uid"] == found["metadata"]["uid"];
    ensure!(is_reserved, "claim {name} is not reserved for Pod {pod}: {claim}");
    Ok((claim["metadata"]["uid"].clone(), claim["status"]["allocation"]["devices"]["results"].clone()))
}

async fn same(world: &World, namespace: &str, uses: &Uses) -> anyhow::Result<()> {
    for (pod, before) in uses {
        ensure!(used(world, namespace, pod).await? == *before, "Pod {pod} has another claim than before");
    }
    Ok(())
}

/// Ends a Pod and waits until its claim is given back.
async fn end(world: &World, namespace: &str, pod: &str, uses: &mut Uses) -> anyhow::Result<()> {
    let found = world.client.get(PODS, namespace, pod).await?.context("Pod")?;
    let name = claim_name(&found, "gpu").context("claim")?;
    world.let_end(namespace, pod).await?;
    world.client.delete(PODS, namespace, pod, Some(0)).await?;
    uses.remove(pod);
    wait::value(&format!("the claim {name} is gone"), async || {
        Ok(world.client.get(CLAIMS, namespace, &name).await?.is_none().then_some(()))
    })
    .await
}
