//! Claims with opaque parameters as clients in other languages write them: the API server keeps the bytes, and takes no
//! patch that would write them anew.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::sharing::{allocated, protected, reserved};
use super::{Scenario, scenario};
use crate::client::CLAIMS;
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod};
use crate::world::World;

pub(super) fn all() -> Vec<Scenario> {
    vec![scenario!(parameters_keep_the_bytes_of_their_author)]
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
pub(crate) async fn create(world: &World, ns: &str, name: &str, metadata: &Value) -> anyhow::Result<Value> {
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

async fn parameters_keep_the_bytes_of_their_author(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("parameters").await?;
    create(world, &ns, "shared", &json!({})).await?;
    let moved = json!({"metadata": {"labels": {"by": "a patch"}}});
    let refused = world.client.merge(CLAIMS, &ns, "shared", &moved).await;
    let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(why.contains("field is immutable"), "a patch would do: {why:?}");
    for name in ["one", "two"] {
        world.pod(&ns, &Pod::new(name).with_claim("gpu", "shared").held()).await?;
        world.phase(&ns, name, "Running").await?;
    }
    world.let_end(&ns, "one").await?;
    world.claim_until(&ns, "shared", "is reserved for two only", |claim| reserved(claim) == ["two"]).await?;
    world.let_end(&ns, "two").await?;
    let is_free = |claim: Option<&Value>| !allocated(claim) && !protected(claim);
    world.claim_until(&ns, "shared", "is free", is_free).await?;
    world.client.delete(CLAIMS, &ns, "shared", None).await?;
    world.claim_until(&ns, "shared", "is gone", |claim| claim.is_none()).await?;
    Ok(())
}
