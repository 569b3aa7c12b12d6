//! An allocator that comes back to the node that was refused.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FLAGS, born_gated, gated, namespace, promise};
use crate::client::CLAIMS;
use crate::control_plane::Shape;
use crate::objects::{Pod, pod_consumer};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(an_allocator_that_ignores_refusals_is_answered_later)]
}

/// The refusals that are waited for, and the shortest time from the first to the last: the second comes at once, and the pauses after
/// it have 1, 2 and 4 seconds.
const REFUSALS: (usize, Duration) = (5, Duration::from_secs(7));

async fn an_allocator_that_ignores_refusals_is_answered_later(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "stubborn", Shape::default(), 1).await?;
    let ns = namespace(&world, "stubborn", "enabled").await?;
    let labels = json!({"labels": {"dragoman.dev/allocator": "stubborn"}});
    let pod = born_gated(&world, &ns, "large", labels, "900").await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let others = namespace(&world, "neighbours", "enabled").await?;
    let (count, shortest) = REFUSALS;
    let mut first = None;
    for number in 0..count {
        allocate(&world, &ns, &pod).await?;
        wait::value("the allocation is refused", async || {
            let claim = world.client.get(CLAIMS, &ns, "large").await?.context("claim")?;
            Ok(claim["status"]["allocation"].is_null().then_some(()))
        })
        .await?;
        first.get_or_insert_with(Instant::now);
        let name = format!("other-{number}");
        world.pod(&others, &Pod::new(&name).with_template("device", "one")).await?;
        world.phase(&others, &name, "Succeeded").await?;
    }
    let took = first.context("a refusal")?.elapsed();
    ensure!(took >= shortest, "{count} refusals took {took:?}: the allocator is answered at once");
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
