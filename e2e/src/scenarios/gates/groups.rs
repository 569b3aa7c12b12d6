//! PodGroups behind the gate: Pods that start together, and claims of a group.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Costs, FLAGS, SMALL, add_node, gated, in_phase, namespace, says, waits_for};
use crate::client::{CLAIMS, FOOTPRINTS, PODS, TEMPLATES};
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::Bench;

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_gang_starts_as_a_whole),
        standalone!(a_gang_starts_with_the_claim_of_its_group),
        standalone!(a_group_whose_first_pod_has_no_room_gives_its_claim_back),
    ]
}

const RELEASE_GATE: &str = "release-gates.dragoman.dev/test";

fn groups() -> Shape {
    Shape { pod_groups: true, ..Shape::default() }
}

/// The Pods of a PodGroup that needs three of them at once wait together while there is room for two, and
/// run together once there is room for three.
async fn a_gang_starts_as_a_whole(bench: &Bench) -> anyhow::Result<()> {
    // A node has room for two of the three.
    let world = gated(bench, "gangs", groups(), 1).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "gangs", "enabled").await?;
    let mut group = objects::pod_group(world.release, "group", "unused", "one");
    group["spec"] = json!({"schedulingPolicy": {"gang": {"minCount": 3}}});
    world.client.create(&world.release.pod_groups_path(), &ns, &group).await?;
    for number in 0..2 {
        let pod = Pod::new(&format!("pod-{number}")).with_template("device", "one").in_group("group").held();
        world.client.create(PODS, &ns, &requesting(&pod, "500m")).await?;
    }
    waits_for(&world, &ns, "pod-0", "NotAllocated").await?;
    says(&world, &ns, "pod-0", "needs 3 Pods at once, and fewer than 3 Pods have all their claims").await?;
    let pod = Pod::new("pod-2").with_template("device", "one").in_group("group").held();
    world.client.create(PODS, &ns, &requesting(&pod, "500m")).await?;
    // There is room for two of the three.
    println!("        {}", says(&world, &ns, "pod-0", "need a node at once").await?);
    for name in ["pod-1", "pod-2"] {
        println!("        {}", says(&world, &ns, name, "devices at once or not at all").await?);
    }
    ensure!(in_phase(&world, &ns, "Running").await?.is_empty(), "none of them runs");
    add_node(&world, "another", SMALL, false, Costs::InFootprint).await?;
    wait::value("all run", async || Ok((in_phase(&world, &ns, "Running").await?.len() == 3).then_some(())))
        .await?;
    for number in 0..3 {
        world.let_end(&ns, &format!("pod-{number}")).await?;
    }
    world.claims(&ns, 0).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// The claim is reserved once, for the group, and every Pod of it is released; each has a claim of its own beside it.
async fn a_gang_starts_with_the_claim_of_its_group(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "group-claim", groups(), 1).await?;
    // A claim whose devices take something of their node has one Pod.
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "group-claim", "enabled").await?;
    let path = world.release.pod_groups_path();
    let mut group = objects::pod_group(world.release, "group", "shared", "one");
    group["spec"]["schedulingPolicy"] = json!({"gang": {"minCount": 3}});
    world.client.create(&path, &ns, &group).await?;
    let names = ["pod-0", "pod-1", "pod-2"];
    for name in names {
        let pod = Pod::new(name).with_template("shared", "one").with_template("own", "one");
        world.pod(&ns, &pod.in_group("group").held()).await?;
    }
    for name in names {
        world.phase(&ns, name, "Running").await?;
        let own = world.claim_of(&ns, name, "own").await?;
        ensure!(own["status"]["reservedFor"][0]["name"] == name, "{own}");
    }
    let shared = world.claim_of(&ns, names[0], "shared").await?;
    let consumers = shared["status"]["reservedFor"].as_array().context("reservedFor")?;
    ensure!(consumers.len() == 1 && consumers[0]["resource"] == "podgroups", "{consumers:?}");
    for name in names {
        world.let_end(&ns, name).await?;
    }
    world.claims(&ns, 1).await?;
    for name in names {
        world.client.delete(PODS, &ns, name, Some(0)).await?;
    }
    world.client.delete(&path, &ns, "group", None).await?;
    world.claims(&ns, 0).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// While a release gate is closed, a neighbour fills the node: the claim of the group moves with all its Pods.
async fn a_group_whose_first_pod_has_no_room_gives_its_claim_back(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "group-moves", groups(), 2).await?;
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "group-moves", "enabled").await?;
    let mut template = objects::template("held");
    template["spec"]["metadata"] = json!({"annotations": {RELEASE_GATE: "a test"}});
    world.client.create(TEMPLATES, &ns, &template).await?;
    let group = objects::pod_group(world.release, "group", "shared", "held");
    world.client.create(&world.release.pod_groups_path(), &ns, &group).await?;
    let names = ["pod-0", "pod-1"];
    for name in names {
        let pod = Pod::new(name).with_template("shared", "held").in_group("group").held();
        world.client.create(PODS, &ns, &requesting(&pod, "3")).await?;
        waits_for(&world, &ns, name, "ReleaseGateClosed").await?;
    }
    let claim = world.claim_of(&ns, names[0], "shared").await?;
    let pool = |claim: &Value| claim["status"]["allocation"]["devices"]["results"][0]["pool"].clone();
    let (before, name) = (pool(&claim), claim["metadata"]["name"].as_str().context("name")?);
    let node = before.as_str().context("a pool")?;
    world.client.create(PODS, &ns, &requesting(&Pod::new("neighbour").on(node).held(), "6")).await?;
    world.phase(&ns, "neighbour", "Running").await?;
    world
        .client
        .merge(CLAIMS, &ns, name, &json!({"metadata": {"annotations": {RELEASE_GATE: null}}}))
        .await?;
    for name in names {
        world.phase(&ns, name, "Running").await?;
    }
    let after = pool(&world.claim_of(&ns, names[0], "shared").await?);
    ensure!(after != before, "the devices are on {after}");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
