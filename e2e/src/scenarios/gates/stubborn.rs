//! An allocator that comes back to the node that was refused.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{FLAGS, born_gated, gated, namespace, promise};
use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::objects::{Pod, pod_consumer};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(an_allocator_that_ignores_refusals_is_answered_later)]
}

/// Allocations within which one has to be left unanswered for a while: the second comes too soon, and the pause after the answer to it has a
/// second.
const TRIES: usize = 30;

async fn an_allocator_that_ignores_refusals_is_answered_later(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "stubborn", Shape::default(), 1).await?;
    let ns = namespace(&world, "stubborn", "enabled").await?;
    let others = namespace(&world, "neighbours", "enabled").await?;
    let labels = json!({"labels": {"dragoman.dev/allocator": "stubborn"}});
    let pod = born_gated(&world, &ns, "large", labels, "900").await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let mut waited = None;
    for number in 0..TRIES {
        allocate(&world, &ns, &pod).await?;
        let is_answered = async || {
            let claim = world.client.get(CLAIMS, &ns, "large").await?.context("claim")?;
            if claim["status"]["allocation"].is_null() {
                return Ok(Some(false));
            }
            let pod = world.client.get(PODS, &ns, "large").await?.context("Pod")?;
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            // A refusal that is not put off is no reason to wait for.
            Ok(conditions.into_iter().any(|of| of["reason"] == "DoesNotFit").then_some(true))
        };
        if wait::value("the allocation is refused, or its refusal waits", is_answered).await? {
            waited = Some(number);
            break;
        }
    }
    let number = waited.context("the allocator is answered at once, however often it comes back")?;
    println!("        the answer to allocation {number} waits");
    world.pod(&others, &Pod::new("other").with_template("device", "one")).await?;
    world.phase(&others, "other", "Succeeded").await?;
    wait::value("the allocation is refused in the end", async || {
        let claim = world.client.get(CLAIMS, &ns, "large").await?.context("claim")?;
        Ok(claim["status"]["allocation"].is_null().then_some(()))
    })
    .await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Gives the claim of the Pod the device of the full node.
async fn allocate(world: &World, ns: &str, pod: &Value) -> anyhow::Result<()> {
    let status = promise("dev-0", "node-0", &[pod_consumer(pod)]);
    world.client.merge(CLAIMS, ns, "large/status", &status).await?;
    Ok(())
}
