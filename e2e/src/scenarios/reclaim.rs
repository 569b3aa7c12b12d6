//! Devices that no consumer uses, and devices that a node may still hold.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Standalone, standalone};
use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(an_idle_claim_is_reported_and_released_where_that_is_chosen),
        standalone!(the_device_of_a_pod_that_vanished_waits_for_its_node),
    ]
}

fn is_allocated(claim: Option<&Value>) -> bool {
    claim.is_some_and(|claim| !claim["status"]["allocation"].is_null())
}

/// A third party allocates and reserves nothing; one of the claims is in use.
async fn an_idle_claim_is_reported_and_released_where_that_is_chosen(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "idle", Shape::default(), 1, 8).await?;
    let ns = world.namespace("idle").await?;
    let reports = world.dragoman("own", &["--idle-after", "10"]).await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "pod", "Running").await?;
    let used = world.claim_of(&ns, "pod", "gpu").await?;
    let used = used["metadata"]["name"].as_str().context("name")?;
    let mut protected = objects::claim("protected");
    protected["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    for claim in [objects::claim("bare"), protected] {
        let name = claim["metadata"]["name"].as_str().context("name")?;
        world.client.create(CLAIMS, &ns, &claim).await?;
        let allocation = objects::foreign_allocation("node-0", &[]);
        world.client.merge(CLAIMS, &ns, &format!("{name}/status"), &allocation).await?;
    }
    for name in ["bare", "protected"] {
        let note = world.event(&ns, name, "ClaimIdle").await?;
        ensure!(note.contains("reserved for no consumer"), "{note}");
        world.claim_until(&ns, name, "keeps its devices", is_allocated).await?;
    }
    reports.stop().await?;
    let releases = world.dragoman("own", &["--idle-after", "10", "--reclaim", "--without-lease"]).await?;
    for name in ["bare", "protected"] {
        let is_free = |claim: Option<&Value>| {
            claim.is_some_and(|claim| {
                claim["status"]["allocation"].is_null() && claim["metadata"]["finalizers"].is_null()
            })
        };
        world.claim_until(&ns, name, "is free, and still there", is_free).await?;
    }
    // A step counts once its answer is there, after the object shows it.
    wait::value("two are reclaimed", async || {
        let reclaimed = releases.metric("dragoman_claim_steps_total", &["step=\"reclaim\""]).await?;
        ensure!(reclaimed <= 2.0, "{reclaimed} are reclaimed");
        Ok((reclaimed == 2.0).then_some(()))
    })
    .await?;
    world.claim_until(&ns, used, "keeps its devices", is_allocated).await?;
    releases.stop().await?;
    world.stop().await
}

/// The Pod is deleted by force while it runs: the next Pod gets the device only once the node is out of service. Killing
/// Dragoman in between changes nothing.
async fn the_device_of_a_pod_that_vanished_waits_for_its_node(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "vanished", Shape::default(), 1, 1).await?;
    let ns = world.namespace("vanished").await?;
    let flags = ["--hold-vanished-for", "3600"];
    let first = world.dragoman("own", &flags).await?;
    world.pod(&ns, &Pod::new("first").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "first", "Running").await?;
    let claim = world.claim_of(&ns, "first", "gpu").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?;
    world.client.delete(PODS, &ns, "first", Some(0)).await?;
    let note = world.event(&ns, name, "DevicesHeld").await?;
    ensure!(note.contains("node node-0 may still hold"), "{note}");
    world.pod(&ns, &Pod::new("second").with_template("gpu", "one").held()).await?;
    let refused = async || {
        let pod = world.client.get(PODS, &ns, "second").await?.context("the Pod is gone")?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let no = conditions.iter().any(|of| of["type"] == "PodScheduled" && of["reason"] == "Unschedulable");
        Ok(no.then_some(()))
    };
    wait::value("kube-scheduler has no device for the second Pod", refused).await?;
    first.kill().await?;
    // The one that comes after saw no end.
    let second = world.dragoman("own", &flags).await?;
    let held = async || {
        let held = second.metric("dragoman_claims_held_for_vanished_pods", &[]).await?;
        Ok((held == 1.0).then_some(()))
    };
    wait::value("the claim is held after a restart", held).await?;
    world
        .claim_until(&ns, name, "is held", |claim| {
            is_allocated(claim) && claim.is_some_and(|claim| !claim["status"]["reservedFor"].is_null())
        })
        .await?;
    second.stop().await?;
    // A process that was there when the Pod vanished knows the node.
    let third = world.dragoman("own", &["--hold-vanished-for", "1"]).await?;
    world.claim_until(&ns, name, "is gone after the guard time", |claim| claim.is_none()).await?;
    world.phase(&ns, "second", "Running").await?;
    third.stop().await?;
    let fourth = world.dragoman("own", &flags).await?;
    let claim = world.claim_of(&ns, "second", "gpu").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?;
    world.client.delete(PODS, &ns, "second", Some(0)).await?;
    world.event(&ns, name, "DevicesHeld").await?;
    let taint = json!({"spec": {"taints": [
        {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}});
    world.client.merge("/api/v1/nodes", "", "node-0", &taint).await?;
    world.claim_until(&ns, name, "is gone once its node is out of service", |claim| claim.is_none()).await?;
    fourth.stop().await?;
    world.stop().await
}
