//! Room on nodes that claims have taken: Pods without the gate cannot take it, too.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    COUNTS, Costs, FLAGS, SMALL, born_gated, gated, gated_where, in_phase, namespace,
    no_node_is_overcommitted, promise,
};
use crate::client::{CLAIMS, LEASES, PODS};
use crate::control_plane::{Election, OPERATOR, Release, Shape};
use crate::objects::{Pod, pod_consumer};
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(ungated_pods_cannot_take_what_claims_have_taken),
        standalone!(ungated_pods_cannot_take_what_claims_have_taken_where_kube_scheduler_counts),
        standalone!(a_kube_scheduler_that_starts_learns_of_the_room_in_1_36),
        standalone!(holders_give_way_to_what_kube_scheduler_counts_of_bound_pods),
        standalone!(the_operator_deletes_no_pod_but_its_holders),
    ]
}

const SYSTEM: &str = "kube-system";

async fn ungated_pods_cannot_take_what_claims_have_taken(bench: &Bench) -> anyhow::Result<()> {
    crowded(bench, "room", Shape { election: Election::Lease, ..Shape::default() }).await
}

/// A kube-scheduler of that release forgets the nominations of gated Pods when it starts.
async fn a_kube_scheduler_that_starts_learns_of_the_room_in_1_36(bench: &Bench) -> anyhow::Result<()> {
    let before = Shape { release: Release::V1_36, election: Election::Lease, ..Shape::default() };
    crowded(bench, "room-before", before).await
}

async fn ungated_pods_cannot_take_what_claims_have_taken_where_kube_scheduler_counts(
    bench: &Bench,
) -> anyhow::Result<()> {
    let on = &["DRANodeAllocatableResources"];
    crowded(bench, "room-counted", Shape { on, ..Shape::default() }).await
}

pub(crate) async fn holders(world: &World) -> anyhow::Result<Vec<Value>> {
    let pods = world.client.list(PODS, SYSTEM).await?;
    Ok(pods
        .into_iter()
        .filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "holder")
        .collect())
}

/// Waits until there is one holder, which requests so much cpu. A smaller one is there before the larger one is gone.
async fn holds(world: &World, cpu: &str) -> anyhow::Result<Value> {
    wait::value(&format!("the holder holds {cpu}"), async || {
        let mut holders = holders(world).await?;
        ensure!(holders.len() <= 2, "{} holders for one node", holders.len());
        let runs = holders.iter().find(|pod| pod["spec"]["nodeName"].is_string());
        ensure!(runs.is_none(), "a holder runs: {runs:?}");
        let only = if holders.len() == 1 { holders.pop() } else { None };
        Ok(only.filter(|pod| {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == cpu
                && pod["status"]["nominatedNodeName"] == "node-0"
        }))
    })
    .await
}

/// Whether kube-scheduler has said that a Pod has no room.
async fn has_no_room(world: &World, ns: &str, pod: &str) -> anyhow::Result<String> {
    wait::value(&format!("{pod} has no room"), async || {
        let pod = world.client.get(PODS, ns, pod).await?.context("Pod")?;
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut scheduled = conditions.filter(|condition| condition["type"] == "PodScheduled");
        let said = scheduled.next().and_then(|of| of["message"].as_str()).unwrap_or_default();
        Ok(said.contains("Insufficient cpu").then(|| said.to_owned()))
    })
    .await
}

/// Two gated Pods take seven of the eight cpus of a node, six of them by claims. A Pod without the gate that
/// wants two has to wait; without Dragoman it would be bound at once.
async fn crowded(bench: &Bench, name: &str, shape: Shape) -> anyhow::Result<()> {
    let is_counted = !shape.on.is_empty();
    let mut world = gated(bench, name, shape, 1).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, name, "enabled").await?;
    for number in 0..2 {
        let pod = Pod::new(&format!("gated-{number}")).with_template("device", "one").held();
        world.client.create(PODS, &ns, &requesting(&pod, "500m")).await?;
    }
    wait::value("both run", async || Ok((in_phase(&world, &ns, "Running").await?.len() == 2).then_some(())))
        .await?;
    if !is_counted {
        // The holder is made again, whatever happens to it.
        let holder = holds(&world, "6").await?;
        let name = holder["metadata"]["name"].as_str().context("name")?;
        world.client.delete(PODS, SYSTEM, name, Some(0)).await?;
        wait::value("another holder", async || {
            let again = holds(&world, "6").await?;
            Ok((again["metadata"]["uid"] != holder["metadata"]["uid"]).then_some(()))
        })
        .await?;
    }
    if !is_counted {
        another_scheduler(&mut world).await?;
    }
    let others = world.namespace("others").await?;
    world.client.create(PODS, &others, &requesting(&Pod::new("plain").held(), "2")).await?;
    println!("        {}", has_no_room(&world, &others, "plain").await?);
    if is_counted {
        ensure!(holders(&world).await?.is_empty(), "kube-scheduler counts, and nothing has to be held");
    } else {
        let holder = holds(&world, "6").await?;
        println!("        holder: {}", holder["spec"]["containers"][0]["resources"]);
    }
    no_node_is_overcommitted(&world).await?;
    // One ends: a smaller holder comes after a while, and the Pod has room.
    world.let_end(&ns, "gated-0").await?;
    world.phase(&others, "plain", "Running").await?;
    if !is_counted {
        holds(&world, "3").await?;
    }
    no_node_is_overcommitted(&world).await?;
    world.let_end(&ns, "gated-1").await?;
    wait::value("no holder is left", async || Ok(holders(&world).await?.is_empty().then_some(()))).await?;
    world.let_end(&others, "plain").await?;
    wait::value("the gauge counts no holder", async || {
        Ok((operator.metric("dragoman_holder_pods", &[]).await? == 0.0).then_some(()))
    })
    .await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// kube-scheduler starts anew: the holder is nominated again, for the process that has its Lease then.
async fn another_scheduler(world: &mut World) -> anyhow::Result<()> {
    let first = nominated_for(world, None).await?;
    world.plane.restart_scheduler().await?;
    let second = nominated_for(world, Some(&first)).await?;
    println!("        the holder was nominated for {first}, and then for {second}");
    Ok(())
}

/// The process that the holder is nominated for, once it has the Lease of kube-scheduler and is another one than `before`.
async fn nominated_for(world: &World, before: Option<&str>) -> anyhow::Result<String> {
    wait::value("the holder is nominated for the process that leads", async || {
        let lease = world.client.get(LEASES, SYSTEM, "kube-scheduler").await?.unwrap_or_default();
        let leads = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let holder = holds(world, "6").await?;
        let conditions = holder["status"]["conditions"].as_array().into_iter().flatten();
        let mut ours = conditions.filter(|of| of["type"] == "dragoman.dev/Nominated");
        let is_for_it = !leads.is_empty() && ours.any(|of| of["message"] == leads);
        Ok((is_for_it && Some(leads) != before).then(|| leads.to_owned()))
    })
    .await
}

/// Where kube-scheduler counts claims and does not know what they take, a holder holds that until the Pod is bound. Then its status
/// says it, and the holder goes: at once where a Pod needs the room.
async fn holders_give_way_to_what_kube_scheduler_counts_of_bound_pods(bench: &Bench) -> anyhow::Result<()> {
    let shape = Shape { on: &[COUNTS], ..Shape::default() };
    let world = gated_where(bench, "room-footprints", shape, (1, SMALL), Costs::InFootprint).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "footprints", "enabled").await?;
    let create = async |name: &str, cpu: &str| {
        let pod = requesting(&Pod::new(name).with_template("device", "one").held(), cpu);
        world.client.create(PODS, &ns, &pod).await
    };
    // Three of eight cpus by its claim; the second Pod takes the rest to the last one.
    create("first", "1").await?;
    world.phase(&ns, "first", "Running").await?;
    create("second", "1").await?;
    world.phase(&ns, "second", "Running").await?;
    for name in ["first", "second"] {
        wait::value(&format!("the status of {name} says what its claim takes"), async || {
            let pod = world.client.get(PODS, &ns, name).await?.context("Pod")?;
            let said = pod["status"]["nodeAllocatableResourceClaimStatuses"].as_array();
            Ok(said.filter(|said| !said.is_empty()).map(drop))
        })
        .await?;
    }
    wait::value("no holder is left", async || Ok(holders(&world).await?.is_empty().then_some(()))).await?;
    let others = world.namespace("others").await?;
    world.client.create(PODS, &others, &requesting(&Pod::new("plain").held(), "1")).await?;
    println!("        {}", has_no_room(&world, &others, "plain").await?);
    world.let_end(&ns, "first").await?;
    world.phase(&others, "plain", "Running").await?;
    no_node_is_overcommitted(&world).await?;
    world.let_end(&ns, "second").await?;
    world.let_end(&others, "plain").await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// The token of the operator deletes no other Pod in its namespace, whatever that looks like; a tenant does not get the priority of holders.
/// What the operator creates is tried in `stolen.rs`.
async fn the_operator_deletes_no_pod_but_its_holders(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "holders", Shape::default(), 1).await?;
    let operator = world.plane.client("operator").await?;
    let dry = format!("{PODS}?dryRun=All");
    // Another Pod there, also one that carries the label.
    let mut other = Pod::new("other").object().clone();
    other["metadata"]["labels"] = json!({"app.kubernetes.io/name": "dragoman", "app.kubernetes.io/component": "holder",
        "app.kubernetes.io/managed-by": "dragoman"});
    world.client.create(PODS, SYSTEM, &other).await?;
    let why = operator.delete(PODS, SYSTEM, "other?dryRun=All", None).await.err().context("it is deleted")?;
    ensure!(format!("{why:#}").contains("holder Pods and no other"), "{why:#}");
    let tenant = world.namespace("tenant").await?;
    let mut pod = Pod::new("important").object().clone();
    pod["spec"]["priorityClassName"] = json!("dragoman-holder");
    let why = world.client.create(&dry, &tenant, &pod).await.err().context("a tenant gets the priority")?;
    ensure!(format!("{why:#}").contains("is for the holder Pods"), "{why:#}");
    world.stop().await
}

/// Provokes every kind of request about holder Pods: one is made for a Pod, raised for a second one, and removed after
/// both. Each step ends early where a right for it is missing.
pub(in super::super) async fn provoke_holders(world: &World, ns: &str) -> anyhow::Result<()> {
    static DEVICES: AtomicU32 = AtomicU32::new(0);
    for (name, cpu) in [("first", "1"), ("second", "2")] {
        let labels = json!({"labels": {"dragoman.dev/allocator": "foreign"}});
        let pod = born_gated(world, ns, name, labels, "10m").await?;
        let device = format!("dev-{}", DEVICES.fetch_add(1, Ordering::Relaxed));
        let status = promise(&device, "node-2", &[pod_consumer(&pod)]);
        world.client.merge(CLAIMS, ns, &format!("{name}/status"), &status).await?;
        wait::value(&format!("a holder holds {cpu}, or may not"), async || {
            let is_refused = !world.plane.audit().refusals(OPERATOR).is_empty();
            let holders = holders(world).await?;
            let holds =
                |holder: &Value| holder["spec"]["containers"][0]["resources"]["requests"]["cpu"] == cpu;
            Ok((is_refused || holders.iter().any(holds)).then_some(()))
        })
        .await?;
    }
    for pod in ["first", "second"] {
        let ended = json!({"status": {"phase": "Failed"}});
        world.client.merge(PODS, ns, &format!("{pod}/status"), &ended).await?;
    }
    Ok(())
}
