//! Two Pods race for the last cpus of a node, again and again.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use dragoman_simcluster::HOLD;
use serde_json::{Value, json};

use super::{FLAGS, gated, namespace, no_node_is_overcommitted};
use crate::client::PODS;
use crate::control_plane::Shape;
use crate::objects::Pod;
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(two_pods_race_for_the_last_cpus_of_a_node_a_thousand_times),
        standalone!(two_pods_race_for_the_last_cpus_of_a_counted_node_a_thousand_times),
    ]
}

/// The nodes on each of which two Pods race at the same time.
const NODES: usize = 50;
const ROUNDS: usize = 20;

async fn two_pods_race_for_the_last_cpus_of_a_node_a_thousand_times(bench: &Bench) -> anyhow::Result<()> {
    race(bench, "races", Shape::default()).await
}

async fn two_pods_race_for_the_last_cpus_of_a_counted_node_a_thousand_times(
    bench: &Bench,
) -> anyhow::Result<()> {
    let on = &["DRANodeAllocatableResources"];
    race(bench, "races-counted", Shape { on, ..Shape::default() }).await
}

/// Each node has eight cpus and four devices, a Pod requests two and its device takes three: there is room for
/// one of the two.
async fn race(bench: &Bench, name: &str, shape: Shape) -> anyhow::Result<()> {
    let world = gated(bench, name, shape, NODES).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, name, "enabled").await?;
    let mut first_created_won = 0;
    for round in 0..ROUNDS {
        let names =
            (0..NODES).flat_map(|node| ["a", "b"].map(|which| (node, format!("{which}-{round}-{node}"))));
        for (node, name) in names {
            let mut pod = requesting(&Pod::new(&name).with_template("device", "one").held().reaped(), "2");
            pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": format!("node-{node}")});
            world.client.create(PODS, &ns, &pod).await?;
        }
        let winners = wait::value("one of two runs on each node, and the other says why not", async || {
            let now = look(&world, &ns).await?;
            Ok((now.running.len() == NODES && now.refused == NODES).then_some(now.running))
        })
        .await?;
        no_node_is_overcommitted(&world).await?;
        first_created_won += winners.values().filter(|name| name.starts_with("a-")).count();
        end(&world, &ns, winners.values()).await?;
        let losers = wait::value("the other one runs", async || {
            let running = look(&world, &ns).await?.running;
            let others = running.into_iter().filter(|(node, name)| winners.get(node) != Some(name));
            let others: BTreeMap<_, _> = others.collect();
            Ok((others.len() == NODES).then_some(others))
        })
        .await?;
        no_node_is_overcommitted(&world).await?;
        end(&world, &ns, losers.values()).await?;
        wait::value("all are gone", async || {
            Ok(world.client.list(PODS, &ns).await?.is_empty().then_some(()))
        })
        .await?;
    }
    world.claims(&ns, 0).await?;
    println!("        {} races; the Pod created first won {first_created_won}", NODES * ROUNDS);
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// State of the Pods of a namespace.
#[derive(Default)]
struct Now {
    /// The Pod that runs on each node.
    running: BTreeMap<String, String>,
    /// Number of Pods that say that cpu is missing.
    refused: usize,
}

/// Fails if two Pods run on one node.
async fn look(world: &World, ns: &str) -> anyhow::Result<Now> {
    let mut now = Now::default();
    for pod in world.client.list(PODS, ns).await? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&pod["metadata"]["name"]);
        if pod["status"]["phase"] == "Running" {
            let node = text(&pod["spec"]["nodeName"]);
            let other = now.running.insert(node.clone(), name.clone());
            ensure!(other.is_none(), "{other:?} and {name} run on {node}");
        }
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let waits = |of: &&Value| of["type"] == "dragoman.dev/ClaimsReady" && of["status"] == "False";
        let why = conditions.into_iter().find(waits).map(|of| text(&of["message"])).unwrap_or_default();
        now.refused += usize::from(why.contains("of cpu is missing"));
    }
    Ok(now)
}

/// Lets Pods end, without waiting until they have.
async fn end(world: &World, ns: &str, pods: impl Iterator<Item = &String>) -> anyhow::Result<()> {
    for pod in pods {
        let release = json!({"metadata": {"annotations": {HOLD: null}}});
        world.client.merge(PODS, ns, pod, &release).await.context("let a Pod end")?;
    }
    Ok(())
}
