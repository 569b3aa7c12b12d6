//! The attributes of devices in containers, in three ways: files and variables of the driver kit, annotations of Dragoman.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Cluster, SERVE, Standalone, pod, request, standalone, template};
use crate::client::{PODS, TEMPLATES};
use crate::node::DRIVER;
use crate::scenarios::gates;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(attributes_reach_a_container_in_three_ways_that_agree)]
}

/// A Pod that asks for attributes, and reads the answers through the downward API.
fn asking(name: &str, question: &str, script: &str) -> Value {
    let mut pod = pod(name, script);
    pod["metadata"]["annotations"] = json!({"dragoman.dev/attributes": question});
    let answer = |variable: &str, name: &str| {
        let path = format!("metadata.annotations['attributes.dragoman.dev/{name}']");
        json!({"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    };
    pod["spec"]["containers"][0]["env"] = json!([answer("BUS", "bus"), answer("MODEL", "model")]);
    pod
}

async fn attributes_reach_a_container_in_three_ways_that_agree(bench: &Bench) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(bench, "node-attributes", 4).await?;
    cluster.world.install("config/gated").await?;
    cluster.without_deployments().await?;
    cluster.restart_dragoman(&gates::FLAGS).await?;
    let allocator = cluster.world.allocator(&[]).await?;
    let ns = gates::namespace(&cluster.world, "attributes", "enabled").await?;
    let mut two = request("gpu");
    two["exactly"]["count"] = json!(2);
    cluster.world.client.create(TEMPLATES, &ns, &template("accelerator", &two)).await?;
    let bus = "resource.kubernetes.io/pciBusID";
    let question = format!("bus: gpu/gpu/{bus}\nmodel: gpu/gpu/{DRIVER}/model\n");
    let look = "env | sort; head -1 $(find /var/run/kubernetes.io -name '*.json')";
    cluster.pod(&ns, &asking("asks", &question, look)).await?;
    cluster.phase(&ns, "asks", "Succeeded").await?;
    let said = cluster.log(&ns, "asks").await?;
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned);
    let by_annotation = line("BUS=").context(said.clone())?;
    let by_variable = line("DRA_GPU_GPU_RESOURCE_KUBERNETES_IO_PCIBUSID=").context(said.clone())?;
    let file =
        said.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).context(said.clone())?;
    let devices = file["requests"][0]["devices"].as_array().context("devices")?;
    let by_file: Vec<&str> =
        devices.iter().filter_map(|device| device["attributes"][bus]["string"].as_str()).collect();
    ensure!(
        by_file.len() == 2 && by_file.join(",") == by_annotation,
        "file {by_file:?}, annotation {by_annotation}"
    );
    ensure!(by_variable == by_annotation, "variable {by_variable}, annotation {by_annotation}");
    ensure!(line("MODEL=").as_deref() == Some("simulated-1,simulated-1"), "{said}");
    // What cannot be told keeps the gate closed, and its author is told why.
    cluster.pod(&ns, &asking("wrong", "bus: gpu/gpu/speed", SERVE)).await?;
    let note = cluster.world.event(&ns, "wrong", "AttributeMissing").await?;
    ensure!(
        note.contains(&format!("device {DRIVER}/node-0/")) && note.contains("has no attribute speed"),
        "{note}"
    );
    let wrong = cluster.world.client.get(PODS, &ns, "wrong").await?.context("gone")?;
    ensure!(gates::gates_of(&wrong).contains(&"dragoman.dev/claims"), "{wrong}");
    for name in ["asks", "wrong"] {
        cluster.world.client.delete(PODS, &ns, name, None).await?;
    }
    cluster.nothing_is_left(&ns).await?;
    allocator.stop().await?;
    cluster.stop().await
}
