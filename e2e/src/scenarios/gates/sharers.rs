//! Pods that share one claim, with the gate and without.

use std::time::Instant;

use anyhow::ensure;

use super::{FLAGS, GATE, gated, in_phase, namespace};
use crate::client::{CLAIMS, FOOTPRINTS};
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::scenarios::sharing::{allocated, protected};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::Bench;

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(many_pods_share_a_claim_without_refused_writes),
        standalone!(kube_scheduler_adds_pods_to_a_claim_that_the_allocator_allocated),
    ]
}

/// All of them come at once, and each needs its place in `reservedFor`.
const SHARERS: usize = 80;

async fn many_pods_share_a_claim_without_refused_writes(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "sharers", Shape::default(), 1).await?;
    // A claim whose devices take something of their node has one Pod.
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let ns = namespace(&world, "sharers", "enabled").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("shared")).await?;
    for number in 0..SHARERS {
        world.pod(&ns, &Pod::new(&format!("pod-{number}")).with_claim("device", "shared").held()).await?;
    }
    let began = Instant::now();
    let allocator = world.allocator(&[]).await?;
    wait::value("all run", async || {
        Ok((in_phase(&world, &ns, "Running").await?.len() == SHARERS).then_some(()))
    })
    .await?;
    let entries = world.plane.audit().entries(&ns);
    let of_allocator = entries.iter().filter(|entry| entry.party() == "allocator");
    let (written, refused): (Vec<_>, Vec<_>) = of_allocator.partition(|entry| entry.took_effect());
    println!(
        "        {} writes for {SHARERS} Pods, {} refused, {:.1} s",
        written.len(),
        refused.len(),
        began.elapsed().as_secs_f64()
    );
    ensure!(
        refused.len() <= written.len(),
        "{} writes were refused, {} were not",
        refused.len(),
        written.len()
    );
    ensure!(written.len() <= SHARERS / 4, "{} writes for {SHARERS} Pods", written.len());
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// kube-scheduler stamps an allocation that has no time, in the write that adds a Pod, and an allocation never changes: it could add no
/// Pod, and not put back one that it took out when a binding failed.
async fn kube_scheduler_adds_pods_to_a_claim_that_the_allocator_allocated(
    bench: &Bench,
) -> anyhow::Result<()> {
    let world = gated(bench, "added", Shape::default(), 1).await?;
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = world.namespace("added").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("shared")).await?;
    world.pod(&ns, &Pod::new("gated").with_claim("device", "shared").behind(GATE).held()).await?;
    world.phase(&ns, "gated", "Running").await?;
    world.pod(&ns, &Pod::new("free").with_claim("device", "shared").held()).await?;
    world.phase(&ns, "free", "Running").await?;
    for name in ["gated", "free"] {
        world.let_end(&ns, name).await?;
    }
    world.claim_until(&ns, "shared", "is free", |claim| !allocated(claim) && !protected(claim)).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
