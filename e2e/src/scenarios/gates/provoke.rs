//! Every kind of request about gates, for the lane that takes each right away.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use serde_json::json;

use super::{NODES, born_gated, gated_by_hand, promise};
use crate::client::CLAIMS;
use crate::objects::pod_consumer;
use crate::scenarios::parameters;
use crate::world::World;

/// Provokes every kind of request about gates.
pub(in super::super) async fn provoke(world: &World, ns: &str) -> anyhow::Result<()> {
    static DEVICES: AtomicU32 = AtomicU32::new(0);
    born_gated(world, ns, "unlabelled", json!({}), "1").await?;
    // One has room on its node, the other has not. On the first node are devices of unknown cost.
    for (name, cpu) in [("fits", "10m"), ("large", "1000")] {
        let labels = json!({"labels": {"dragoman.dev/allocator": "foreign"}});
        let pod = born_gated(world, ns, name, labels, cpu).await?;
        let device = format!("dev-{}", DEVICES.fetch_add(1, Ordering::Relaxed));
        let status = promise(&device, "node-1", &[pod_consumer(&pod)]);
        world.client.merge(CLAIMS, ns, &format!("{name}/status"), &status).await?;
    }
    // Claims that take no patch in JSON: one without a label, and one of two Pods of which one has no room.
    parameters::create(world, ns, "raw-unlabelled", &json!({})).await?;
    parameters::create(world, ns, "raw", &json!({"labels": {"dragoman.dev/allocator": "foreign"}})).await?;
    gated_by_hand(world, ns, "raw-unlabelled", "raw-unlabelled", "1").await?;
    let large = gated_by_hand(world, ns, "raw-large", "raw", "1000").await?;
    let other = json!({"resource": "pods", "name": "other", "uid": "other"});
    let device = format!("dev-{}", DEVICES.fetch_add(1, Ordering::Relaxed));
    let status = promise(&device, "node-1", &[pod_consumer(&large), other]);
    parameters::give(world, ns, "raw", &status).await?;
    Ok(())
}

/// Provokes every kind of request of the allocator. What was promised before on the other nodes leaves no
/// room there.
pub(in super::super) async fn provoke_allocator(world: &World, ns: &str) -> anyhow::Result<()> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let labels = || json!({"labels": {"dragoman.dev/allocator": "dragoman"}});
    born_gated(world, ns, "fits", labels(), "10m").await?;
    born_gated(world, ns, "large", labels(), "1000").await?;
    // Claims that take no patch in JSON: one that no node takes, and one that another party has allocated.
    parameters::create(world, ns, "raw-large", &labels()).await?;
    gated_by_hand(world, ns, "raw-large", "raw-large", "1000").await?;
    parameters::create(world, ns, "raw", &labels()).await?;
    // From the other end of the 96 devices than the allocator.
    let number = 95_u32.checked_sub(GIVEN.fetch_add(1, Ordering::Relaxed)).context("no device is left")?;
    parameters::give(world, ns, "raw", &promise(&format!("dev-{number}"), "node-2", &[])).await?;
    gated_by_hand(world, ns, "raw", "raw", "10m").await?;
    Ok(())
}

/// A node changes, and is tried again: the Event recurs.
pub(in super::super) async fn stir_allocator(world: &World, turn: usize) -> anyhow::Result<()> {
    let label = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
    world.client.merge(NODES, "", "node-0", &label).await?;
    Ok(())
}
