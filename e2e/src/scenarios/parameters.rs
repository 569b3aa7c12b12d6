//! Claims with opaque parameters as clients in other languages write them: the API server keeps the bytes, and takes no
//! patch that would write them anew.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::accounts::requesting;
use super::gates::{FLAGS, gated, namespace, promise};
use super::sharing::{allocated, protected, reserved};
use super::{Scenario, Standalone, scenario, standalone};
use crate::client::{CLAIMS, FOOTPRINTS, PODS};
use crate::control_plane::Shape;
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod};
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Scenario> {
    vec![scenario!(parameters_keep_the_bytes_of_their_author)]
}

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(gated_pods_share_a_claim_that_takes_no_patch_in_json)]
}

/// Parameters with what the API server would write in another way: a blank, and the characters that it escapes.
const PARAMETERS: &str = "{\"mode\": \"a < b && c > \u{2028}\"}";

/// A configuration with them, where the text comes in later.
fn configuration() -> Value {
    json!({"opaque": {"driver": "other.example", "parameters": "PARAMETERS"}})
}

fn as_text(claim: &Value) -> String {
    claim.to_string().replace("\"PARAMETERS\"", PARAMETERS)
}

/// Creates a claim with such parameters.
pub async fn create(world: &World, ns: &str, name: &str, metadata: &Value) -> anyhow::Result<Value> {
    let mut claim = objects::claim(name);
    for (field, value) in metadata.as_object().into_iter().flatten() {
        claim["metadata"][field] = value.clone();
    }
    claim["spec"]["devices"]["config"] = json!([configuration()]);
    Ok(world.client.create_text(CLAIMS, ns, as_text(&claim)).await?)
}

/// Deletes such a claim, whatever protects it.
pub(super) async fn delete(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    let Some(mut claim) = world.client.get(CLAIMS, ns, name).await? else { return Ok(()) };
    claim["metadata"]["finalizers"] = Value::Null;
    claim["spec"]["devices"]["config"] = json!([configuration()]);
    world.client.replace_text(CLAIMS, ns, name, as_text(&claim)).await?;
    world.client.delete(CLAIMS, ns, name, None).await
}

/// Gives a claim a status whose allocation has such parameters, too.
pub(super) async fn give(world: &World, ns: &str, name: &str, status: &Value) -> anyhow::Result<()> {
    let mut claim = world.client.get(CLAIMS, ns, name).await?.context("claim")?;
    claim["status"] = status["status"].clone();
    let mut given = configuration();
    given["source"] = json!("FromClaim");
    claim["status"]["allocation"]["devices"]["config"] = json!([given]);
    world.client.replace_text(CLAIMS, ns, &format!("{name}/status"), as_text(&claim)).await?;
    Ok(())
}

async fn takes_no_patch(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"labels": {"by": "a patch"}}});
    let refused = world.client.merge(CLAIMS, ns, name, &patch).await;
    let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(why.contains("field is immutable"), "a patch would do: {why:?}");
    Ok(())
}

async fn parameters_keep_the_bytes_of_their_author(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("parameters").await?;
    create(world, &ns, "shared", &json!({})).await?;
    takes_no_patch(world, &ns, "shared").await?;
    for name in ["one", "two"] {
        world.pod(&ns, &Pod::new(name).with_claim("gpu", "shared").held()).await?;
        world.phase(&ns, name, "Running").await?;
    }
    world.let_end(&ns, "one").await?;
    world.claim_until(&ns, "shared", "is reserved for two only", |claim| reserved(claim) == ["two"]).await?;
    world.let_end(&ns, "two").await?;
    let is_free = |claim: Option<&Value>| !allocated(claim) && !protected(claim);
    world.claim_until(&ns, "shared", "is free", is_free).await?;
    // The bytes are those of their author still.
    takes_no_patch(world, &ns, "shared").await?;
    world.client.delete(CLAIMS, &ns, "shared", None).await?;
    world.claim_until(&ns, "shared", "is gone", |claim| claim.is_none()).await?;
    Ok(())
}

/// The label of the allocator, the finalizer, two reservations and their end: none of it is a patch of the claim.
async fn gated_pods_share_a_claim_that_takes_no_patch_in_json(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "parameters", Shape::default(), 2).await?;
    // The devices take nothing of their node: a claim of devices that do is no two Pods'.
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "parameters", "enabled").await?;
    create(&world, &ns, "shared", &json!({})).await?;
    for name in ["one", "two"] {
        let pod = Pod::new(name).with_claim("device", "shared").held();
        world.client.create(PODS, &ns, &requesting(&pod, "500m")).await?;
        world.phase(&ns, name, "Running").await?;
    }
    for name in ["one", "two"] {
        world.let_end(&ns, name).await?;
    }
    world.claim_until(&ns, "shared", "is free", |claim| !allocated(claim) && !protected(claim)).await?;
    world.client.delete(CLAIMS, &ns, "shared", None).await?;
    world.claim_until(&ns, "shared", "is gone", |claim| claim.is_none()).await?;
    // Of another party that writes the parameters into the allocation, too: the reservation is no patch.
    create(&world, &ns, "given", &json!({"labels": {"dragoman.dev/allocator": "dragoman"}})).await?;
    give(&world, &ns, "given", &promise("dev-3", "node-0", &[])).await?;
    world
        .client
        .create(PODS, &ns, &requesting(&Pod::new("three").with_claim("device", "given"), "500m"))
        .await?;
    world.phase(&ns, "three", "Succeeded").await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
