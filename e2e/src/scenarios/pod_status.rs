//! Amounts that claims take, in the status of Pods whose scheduler does not write them.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::accounts::{NODE, prepare, requesting, template};
use super::{Standalone, gates, ledger, standalone};
use crate::client::{CLAIMS, FOOTPRINTS, PODS};
use crate::control_plane::{Release, Scheduling, Shape};
use crate::objects::{DRIVER, Pod, pod_consumer};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(kube_scheduler_counts_what_is_written_for_other_schedulers),
        standalone!(kube_scheduler_counts_what_is_written_for_other_schedulers_in_1_36),
        standalone!(where_the_field_is_dropped_nothing_is_written),
        standalone!(what_the_api_server_does_not_take_is_said),
    ]
}

const TEMPLATES: &str = "/apis/resource.k8s.io/v1/{}/resourceclaimtemplates";
const FIELD: &str = "nodeAllocatableResourceClaimStatuses";

async fn kube_scheduler_counts_what_is_written_for_other_schedulers(bench: &Bench) -> anyhow::Result<()> {
    counted(bench, Release::V1_37).await
}

async fn kube_scheduler_counts_what_is_written_for_other_schedulers_in_1_36(
    bench: &Bench,
) -> anyhow::Result<()> {
    counted(bench, Release::V1_36).await
}

/// A Pod that another scheduler has placed, with the device that takes four of the node's eight cpus.
async fn placed(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(TEMPLATES, ns, &template("whole")).await?;
    let pod = Pod::new("placed").with_template("device", "whole").held().gated();
    let mut pod = requesting(&pod, "500m");
    // kube-scheduler counts the Pod once it has a node, and places it never.
    pod["spec"]["schedulerName"] = json!("other");
    world.client.create(PODS, ns, &pod).await?;
    let claim = world.claim_of(ns, "placed", "device").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?;
    let pod = world.client.get(PODS, ns, "placed").await?.context("Pod")?;
    let result = json!({"request": "device", "driver": DRIVER, "pool": NODE, "device": "whole"});
    let status = json!({
        "allocation": {"devices": {"results": [result]}}, "reservedFor": [pod_consumer(&pod)],
    });
    world.client.merge(CLAIMS, ns, &format!("{name}/status"), &json!({"status": status})).await?;
    let open = json!([{"op": "remove", "path": "/spec/schedulingGates"}]);
    world.client.json_patch(PODS, ns, "placed", &open).await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "placed"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    });
    world.client.create(&format!("{PODS}/placed/binding"), ns, &binding).await?;
    Ok(())
}

/// Waits until the status of the Pod records its claim.
async fn entries(world: &World, ns: &str) -> anyhow::Result<Value> {
    wait::value("the entry is there", async || {
        let pod = world.client.get(PODS, ns, "placed").await?.context("Pod")?;
        let entries = pod["status"][FIELD].clone();
        Ok(entries.as_array().is_some_and(|all| !all.is_empty()).then_some(entries))
    })
    .await
}

async fn counted(bench: &Bench, release: Release) -> anyhow::Result<()> {
    let shape = Shape {
        release,
        on: &["DRANodeAllocatableResources"],
        scheduler: Scheduling::Kube,
        ..Shape::default()
    };
    let world = World::start(bench, &format!("pod-status-{}", release.minor()), shape, 0, 0).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    prepare(&world).await?;
    let ns = world.namespace("pod-status").await?;
    placed(&world, &ns).await?;
    let entry = entries(&world, &ns).await?[0].clone();
    ensure!(entry["containers"] == json!(["main"]), "{entry}");
    let amounts = match release {
        Release::V1_36 => entry["resources"]["cpu"].clone(),
        Release::V1_37 => {
            let mapping = entry["mapping"].as_array().context("mapping")?;
            mapping.iter().find(|of| of["name"] == "cpu").context("cpu")?["quantity"].clone()
        }
    };
    ensure!(amounts == "4", "{entry}");
    let state = ledger::agrees(&world, NODE).await?;
    ensure!(ledger::condition(&state, "Drifted") == "False", "{state}");
    // kube-scheduler counts it: half a cpu and four of eight are taken.
    world.client.create(PODS, &ns, &requesting(&Pod::new("large").held(), "3501m")).await?;
    wait::value("kube-scheduler refuses one thousandth too much", async || {
        let pod = world.client.get(PODS, &ns, "large").await?.context("Pod")?;
        let conditions = pod["status"]["conditions"].to_string();
        Ok(conditions.contains("Insufficient cpu").then_some(()))
    })
    .await?;
    world.client.delete(PODS, &ns, "large", Some(0)).await?;
    world.client.create(PODS, &ns, &requesting(&Pod::new("exact").held(), "3500m")).await?;
    world.phase(&ns, "exact", "Running").await?;
    // Erased entries come back; other amounts in their place are left alone, and said.
    let erased = world.client.merge(PODS, &ns, "placed/status", &json!({"status": {FIELD: null}})).await?;
    let is_kept = !erased["status"][FIELD].is_null();
    // 1.37 keeps the entries of a running Pod whatever a patch says; 1.36 lets them be erased.
    ensure!(!is_kept || release == Release::V1_37, "{}", erased["status"]);
    entries(&world, &ns).await?;
    let mut other = entry.clone();
    match release {
        Release::V1_36 => other["resources"] = json!({"cpu": "3"}),
        Release::V1_37 => other["mapping"] = json!([{"name": "cpu", "quantity": "3"}]),
    }
    world.client.merge(PODS, &ns, "placed/status", &json!({"status": {FIELD: [other]}})).await?;
    world.event(&ns, "placed", "PodStatusReplaced").await?;
    let state = ledger::becomes(&world, NODE, "Drifted", "True").await?;
    ensure!(state["status"]["requestedByClaims"]["mapping"]["cpu"] == "3", "a record counts: {state}");
    let written = dragoman.metric("dragoman_pod_status_written_total", &[]).await?;
    ensure!(written == if is_kept { 1.0 } else { 2.0 }, "{written} writes, kept: {is_kept}");
    dragoman.stop().await?;
    world.stop().await
}

/// With default gates the API server drops the field: it is asked once, and nothing is written.
async fn where_the_field_is_dropped_nothing_is_written(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "pod-status-off", Shape::default(), 1, 2).await?;
    let dragoman = world.dragoman("own", &["--without-lease"]).await?;
    let ns = world.namespace("off").await?;
    world.client.create(FOOTPRINTS, "", &ledger::footprint("cores", "1")).await?;
    let asked = || dragoman.log().matches("generation of node-allocatable claim statuses").count();
    for name in ["a", "b"] {
        world.pod(&ns, &Pod::new(name).with_template("device", "one").held()).await?;
        world.phase(&ns, name, "Running").await?;
        // The first one is what the API server is asked with.
        wait::until("the API server was asked", async || asked() > 0).await?;
    }
    ledger::agrees(&world, "node-0").await?;
    world.rest(&ns).await?;
    for name in ["a", "b"] {
        let pod = world.client.get(PODS, &ns, name).await?.context("Pod")?;
        ensure!(pod["status"][FIELD].is_null(), "{pod}");
    }
    ensure!(asked() == 1, "asked {} times", asked());
    let written = dragoman.metric("dragoman_pod_status_written_total", &[]).await?;
    ensure!(written < 1.0, "{written} writes");
    dragoman.stop().await?;
    world.stop().await
}

/// Ephemeral storage, and a claim for extended resources: 1.37.2 refuses entries about them. A gated Pod is released all the same, and
/// nothing is tried without end.
async fn what_the_api_server_does_not_take_is_said(bench: &Bench) -> anyhow::Result<()> {
    let shape = Shape { on: &[gates::COUNTS], ..Shape::default() };
    let size = gates::Size { cpus: 8, devices: 4, each: 2 };
    let world = gates::gated_where(bench, "not-taken", shape, (1, size), gates::Costs::InFootprint).await?;
    let storage =
        json!({"spec": {"resources": {"ephemeral-storage": {"mapping": {"deviceMultiplier": "1Gi"}}}}});
    world.client.merge(FOOTPRINTS, "", "cores", &storage).await?;
    let node = json!({"status": {"allocatable": {"ephemeral-storage": "10Gi"}, "capacity": {"ephemeral-storage": "10Gi"}}});
    world.client.merge("/api/v1/nodes", "", "node-0/status", &node).await?;
    let operator = world.dragoman("own", &gates::FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = gates::namespace(&world, "gated", "enabled").await?;
    world.pod(&ns, &Pod::new("gated").with_template("device", "one").held()).await?;
    world.phase(&ns, "gated", "Running").await?;
    let note = world.event(&ns, "gated", "NotPublished").await?;
    println!("        {note}");
    ensure!(note.contains("ephemeral-storage of claim gated-device"), "{note}");
    let held = async || -> anyhow::Result<bool> {
        let pods = world.client.list(PODS, "kube-system").await?;
        let cpu = |pod: &Value| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone();
        Ok(pods.iter().any(|pod| cpu(pod) == "2"))
    };
    world.let_end(&ns, "gated").await?;
    world.claims(&ns, 0).await?;
    wait::value("no holder holds anything", async || Ok((!held().await?).then_some(()))).await?;
    let class = json!({"spec": {"extendedResourceName": "e2e.dragoman.dev/gpu"}});
    world.client.merge("/apis/resource.k8s.io/v1/deviceclasses", "", "e2e", &class).await?;
    let ns = world.namespace("extended").await?;
    world.pod(&ns, &Pod::new("extended").held().limited("e2e.dragoman.dev/gpu")).await?;
    world.phase(&ns, "extended", "Running").await?;
    let note = world.event(&ns, "extended", "PodStatusIncomplete").await?;
    println!("        {note}");
    ensure!(
        note.contains("ephemeral-storage of claim extended-") && !note.contains("cpu"),
        "a holder holds the cpus: {note}"
    );
    wait::value("a holder holds its cpus", async || Ok(held().await?.then_some(()))).await?;
    world.rest(&ns).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
