//! etcd is restored from a backup: what happened after it has not happened.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FLAGS, NODES, Size, gated_where, gates_of, namespace};
use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::objects::Pod;
use crate::promises::Judge;
use crate::scenarios::gates::Costs;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(a_standby_that_has_seen_what_a_backup_lacks_begins_anew)]
}

/// A node whose devices are fewer than the Pods of this story.
const NODE: Size = Size { cpus: 64, devices: 4, each: 1 };

/// A standby has seen a history that a backup lacks: a device that was given after it, and one that came free. It leads from now on. If it
/// went on, it would wait for events from a version that does not come for long, and would then give devices away that running Pods have.
async fn a_standby_that_has_seen_what_a_backup_lacks_begins_anew(bench: &Bench) -> anyhow::Result<()> {
    let mut world = gated_where(bench, "restored", Shape::default(), (1, NODE), Costs::InFootprint).await?;
    let ns = namespace(&world, "restored", "enabled").await?;
    let leaders = [world.dragoman("own", &FLAGS).await?, world.allocator(&[]).await?];
    for name in ["old", "back"] {
        runs(&world, &ns, name).await?;
    }
    world.rest(&ns).await?;
    world.plane.back_up().await?;
    runs(&world, &ns, "last").await?;
    world.client.delete(PODS, &ns, "back", Some(0)).await?;
    world.claims(&ns, 2).await?;
    // So far that the restored store is not soon there again.
    for number in 0..500 {
        let label = json!({"metadata": {"labels": {"number": number.to_string()}}});
        world.client.merge(NODES, "", "node-0", &label).await?;
    }
    let standbys = [world.dragoman("own", &FLAGS).await?, world.allocator(&[]).await?];
    for standby in &standbys {
        let is_ready =
            async || Ok(standby.readiness().await.is_ok_and(|(code, _)| code == 200).then_some(()));
        wait::value("a standby is ready", is_ready).await?;
    }
    world.rest(&ns).await?;
    for leader in leaders {
        leader.kill().await?;
    }
    world.plane.lose_the_store().await?;
    world.judge.verdict()?;
    world.plane.restore().await?;
    // What it has seen is of the lost history, too.
    world.judge = Judge::start(&world.client);

    // Two devices are free.
    for name in ["first", "second", "third"] {
        let pod = Pod::new(name).with_template("device", "one").held();
        // Until the API server knows the policies again, a Pod is created without the gate.
        wait::value(&format!("{name} is created with the gate"), async || {
            let dry = format!("{PODS}?dryRun=All");
            let made = world.client.create(&dry, &ns, pod.object()).await?;
            Ok(gates_of(&made).contains(&super::GATE).then_some(()))
        })
        .await?;
        world.client.create(PODS, &ns, pod.object()).await?;
    }
    wait::value("two of the three are bound", async || {
        let pods = world.client.list(PODS, &ns).await?;
        let new =
            pods.iter().filter(|pod| !["old", "back"].iter().any(|name| pod["metadata"]["name"] == *name));
        let bound = new.filter(|pod| pod["spec"]["nodeName"].is_string()).count();
        Ok((bound == 2).then_some(()))
    })
    .await?;
    one_claim_for_each_device(&world, &ns).await?;
    world.rest(&ns).await?;
    one_claim_for_each_device(&world, &ns).await?;
    for standby in standbys {
        standby.stop().await?;
    }
    world.stop().await
}

/// Creates a Pod with a device, and waits until it runs.
async fn runs(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new(name).with_template("device", "one").held()).await?;
    world.phase(ns, name, "Running").await.map(drop)
}

async fn one_claim_for_each_device(world: &World, ns: &str) -> anyhow::Result<()> {
    let mut holders = BTreeMap::<String, String>::new();
    for claim in world.client.list(CLAIMS, ns).await? {
        let results =
            claim["status"]["allocation"]["devices"]["results"].as_array().cloned().unwrap_or_default();
        for result in results {
            let device = result["device"].as_str().context("device")?.to_owned();
            let name = claim["metadata"]["name"].as_str().context("name")?.to_owned();
            let other = holders.insert(device.clone(), name.clone());
            ensure!(other.is_none(), "{device} is given to {name} and {other:?}");
        }
    }
    let devices: Vec<&String> = holders.keys().collect();
    ensure!(
        devices.len() == 4,
        "{devices:?} are given, and four are there: {:?}",
        Value::from(holders.values().cloned().collect::<Vec<_>>())
    );
    Ok(())
}
