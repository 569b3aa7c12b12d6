//! Bad input and refusals: Events report them, and requests are not repeated without end.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Scenario, Standalone, scenario, standalone};
use crate::client::{CLAIMS, NAMESPACES, PODS, TEMPLATES};
use crate::control_plane::Shape;
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod};
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario!(a_quota_is_said_and_waited_for),
        scenario!(admin_access_without_the_label_is_said),
        scenario!(a_terminating_namespace_ends),
        scenario!(a_claim_name_taken_by_somebody_else_is_avoided),
        scenario!(a_long_pod_name_with_a_dot_at_the_cut),
    ]
}

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(a_field_that_the_api_server_drops_is_said)]
}

async fn a_quota_is_said_and_waited_for(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("quota").await?;
    world.quota(&ns, &[("count/resourceclaims.resource.k8s.io", 1)]).await?;
    world.pod(&ns, &Pod::new("first").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "first", "Running").await?;
    world.pod(&ns, &Pod::new("second").with_template("gpu", "one")).await?;
    let note = world.event(&ns, "second", "FailedResourceClaimCreation").await?;
    ensure!(note.contains("quota"), "{note}");
    world.rest(&ns).await?;
    world.let_end(&ns, "first").await?;
    world.phase(&ns, "second", "Succeeded").await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

async fn admin_access_without_the_label_is_said(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("admin_access").await?;
    let label = |value| json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}});
    world.client.merge(NAMESPACES, "", &ns, &label(Some("true"))).await?;
    let mut template = objects::template("admin");
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    world.client.create(TEMPLATES, &ns, &template).await?;
    world.client.merge(NAMESPACES, "", &ns, &label(None)).await?;
    world
        .pod(&ns, &Pod::new("pod").with_template("gpu", "admin").with_template("other", "one").gated())
        .await?;
    let note = world.event(&ns, "pod", "FailedResourceClaimCreation").await?;
    ensure!(note.contains("admin"), "{note}");
    // The other entry is served.
    world.claim_of(&ns, "pod", "other").await?;
    world.rest(&ns).await?;
    Ok(())
}

async fn a_terminating_namespace_ends(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("ending").await?;
    world.pod(&ns, &Pod::new("running").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "running", "Running").await?;
    world.pod(&ns, &Pod::new("waiting").with_template("gpu", "one").gated()).await?;
    world.claim_of(&ns, "waiting", "gpu").await?;
    world.client.delete(NAMESPACES, "", &ns, None).await?;
    let gone = async || Ok(world.client.get(NAMESPACES, "", &ns).await?.is_none().then_some(()));
    crate::wait::value("the namespace is gone", gone).await?;
    Ok(())
}

/// The hash in the claim name is salted until the name is free.
async fn a_claim_name_taken_by_somebody_else_is_avoided(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    use dragoman_reconcilers::claim_lifecycle::{Generation, claim_name};
    let ns = world.namespace("taken").await?;
    // The missing template delays the claim until its name is taken.
    let pod = world.pod(&ns, &Pod::new("pod").with_template("gpu", "late").gated()).await?;
    let uid = pod["metadata"]["uid"].as_str().context("uid")?;
    let taken = claim_name("pod", uid, "gpu", Generation::default());
    world.client.create(CLAIMS, &ns, &objects::claim(&taken)).await?;
    world.client.create(TEMPLATES, &ns, &objects::template("late")).await?;
    let claim = world.claim_of(&ns, "pod", "gpu").await?;
    let next = claim_name("pod", uid, "gpu", Generation { predecessor: None, salt: 1 });
    ensure!(claim["metadata"]["name"] == next, "{claim}");
    let stranger = world.client.get(CLAIMS, &ns, &taken).await?.context("the other claim")?;
    ensure!(stranger["metadata"]["ownerReferences"].is_null(), "it was taken over");
    world.rest(&ns).await?;
    Ok(())
}

/// The built-in controller tries an invalid claim name here, for ever.
async fn a_long_pod_name_with_a_dot_at_the_cut(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("dotted").await?;
    // 57·60/68 = 50: the name is cut right after the dot.
    let name = format!("{}.{}", "a".repeat(49), "b".repeat(10));
    world.pod(&ns, &Pod::new(&name).with_template("device", "one").gated()).await?;
    world.claim_of(&ns, &name, "device").await?;
    world.client.delete(PODS, &ns, &name, Some(0)).await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// After a downgrade, templates still have fields that the API server drops from new claims.
async fn a_field_that_the_api_server_drops_is_said(bench: &Bench) -> anyhow::Result<()> {
    let mut world = World::start(bench, "dropped", Shape::default(), 1, 1).await?;
    let ns = world.namespace("dropped").await?;
    let mut template = objects::template("shared");
    let exactly = "/spec/spec/devices/requests/0/exactly";
    let exactly = template.pointer_mut(exactly).context("request")?;
    exactly["capacity"] = json!({"requests": {"memory": "1Gi"}});
    world.client.create(TEMPLATES, &ns, &template).await?;
    world.plane.restart_apiserver(|shape| shape.off = &["DRAConsumableCapacity"]).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "shared").gated()).await?;
    let note = world.event(&ns, "pod", "ResourceClaimFieldsDropped").await?;
    ensure!(note.contains("spec.devices.requests[0].exactly.capacity"), "{note}");
    // The Pod gets its claim all the same.
    let claim = world.claim_of(&ns, "pod", "gpu").await?;
    ensure!(claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"].is_null(), "{claim}");
    world.rest(&ns).await?;
    dragoman.stop().await?;
    world.stop().await
}
