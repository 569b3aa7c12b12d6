//! A gated Pod goes to no node whose labels, taints, cordon or device plugins keep it out.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::unbound::is_out;
use super::{FLAGS, GATE as OURS, NODES, STATES, condition, gated, gates_of, namespace, waits_for};
use crate::client::{CLAIMS, PODS, SLICES};
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::proxy::{Harm, Proxy};
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_node_that_changes_before_the_release_is_given_up),
        standalone!(a_pod_goes_where_a_device_plugin_has_what_it_requests),
        standalone!(no_gate_opens_while_a_watch_is_cut_off),
    ]
}

const GATE: &str = "release-gates.dragoman.dev/fabric";

/// Runs a Pod to its end; returns its node.
async fn node_of(world: &World, ns: &str, pod: &str) -> anyhow::Result<String> {
    let running = world.phase(ns, pod, "Running").await?;
    let node = running["spec"]["nodeName"].as_str().context("node")?.to_owned();
    world.let_end(ns, pod).await?;
    Ok(node)
}

/// A node is cordoned while the Pod that has devices there waits for a release gate: the Pod gets others. A Pod whose devices
/// every node can use is pinned to a node that takes it.
async fn a_node_that_changes_before_the_release_is_given_up(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "suitable", Shape::default(), 2).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "suitable", "enabled").await?;
    let mut claim = objects::claim("waits");
    claim["metadata"]["annotations"] = json!({GATE: "the link is not up yet"});
    world.client.create(CLAIMS, &ns, &claim).await?;
    world.pod(&ns, &Pod::new("waits").with_claim("device", "waits").held()).await?;
    waits_for(&world, &ns, "waits", "ReleaseGateClosed").await?;
    let claim = world.client.get(CLAIMS, &ns, "waits").await?.context("claim")?;
    let first = claim["status"]["allocation"]["devices"]["results"][0]["pool"].as_str().context("pool")?;
    world.client.merge(NODES, "", first, &json!({"spec": {"unschedulable": true}})).await?;
    is_seen(&world, first, "7500m").await?;
    // The cordon alone takes nothing back: while the gate is closed, the node may come again.
    waits_for(&world, &ns, "waits", "ReleaseGateClosed").await?;
    world.client.merge(CLAIMS, &ns, "waits", &json!({"metadata": {"annotations": {GATE: null}}})).await?;
    println!("        {}", world.event(&ns, "waits", "NodeUnsuitable").await?);
    let second = node_of(&world, &ns, "waits").await?;
    ensure!(first != second, "{first} is cordoned, and the Pod is there");
    world.client.merge(NODES, "", first, &json!({"spec": {"unschedulable": null}})).await?;

    for node in ["node-0", "node-1"] {
        world.client.delete(SLICES, "", node, None).await?;
    }
    let mut fabric = objects::slice("fabric", 4);
    fabric["spec"]["allNodes"] = json!(true);
    fabric["spec"].as_object_mut().context("spec")?.remove("nodeName");
    world.client.create(SLICES, "", &fabric).await?;
    for (tainted, other) in [("node-0", "node-1"), ("node-1", "node-0")] {
        let taint = json!([{"key": "example.com/broken", "effect": "NoSchedule"}]);
        world.client.merge(NODES, "", tainted, &json!({"spec": {"taints": taint}})).await?;
        world.client.merge(NODES, "", other, &json!({"spec": {"taints": null}})).await?;
        for (node, cpu) in [(tainted, "7250m"), (other, "7")] {
            is_seen(&world, node, cpu).await?;
        }
        is_out(&world, &ns, tainted).await?;
        let name = format!("beside-{tainted}");
        world
            .client
            .create(PODS, &ns, Pod::new(&name).with_template("device", "one").held().object())
            .await?;
        let node = node_of(&world, &ns, &name).await?;
        ensure!(node == other, "{name} is on {node}");
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// One of two nodes has one unit of a device plugin's resource. A second Pod that requests it waits, and says so, until the first one ends.
async fn a_pod_goes_where_a_device_plugin_has_what_it_requests(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "plugin", Shape::default(), 2).await?;
    for (node, units) in [("node-0", "0"), ("node-1", "1")] {
        let has = json!({"example.com/nic": units});
        let status = json!({"status": {"capacity": has, "allocatable": has}});
        world.client.merge(NODES, "", &format!("{node}/status"), &status).await?;
    }
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "plugin", "enabled").await?;
    let wants = |name: &str| {
        let mut pod = Pod::new(name).with_template("device", "one").held().object().clone();
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"example.com/nic": "1"});
        pod
    };
    for name in ["first", "second"] {
        world.client.create(PODS, &ns, &wants(name)).await?;
        if name == "first" {
            let running = world.phase(&ns, name, "Running").await?;
            ensure!(running["spec"]["nodeName"] == "node-1", "{}", running["spec"]["nodeName"]);
        }
    }
    wait::value("the second Pod says what it lacks", async || {
        let pod = world.client.get(PODS, &ns, "second").await?.context("Pod")?;
        let why = condition(&pod).and_then(|of| of["message"].as_str()).unwrap_or_default();
        Ok((gates_of(&pod).contains(&OURS) && why.contains("0 of example.com/nic left")).then_some(()))
    })
    .await?;
    world.let_end(&ns, "first").await?;
    let node = node_of(&world, &ns, "second").await?;
    ensure!(node == "node-1", "the second Pod is on {node}");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Waits until the operator has seen what was written of a Node before. Events of Nodes and of other kinds come in no order;
/// those of one Node do: it shows in the ledger that the Node has so many cpus now.
async fn is_seen(world: &World, node: &str, cpu: &str) -> anyhow::Result<()> {
    let allocatable = json!({"status": {"allocatable": {"cpu": cpu}}});
    world.client.merge(NODES, "", &format!("{node}/status"), &allocatable).await?;
    wait::value(&format!("the operator has seen that {node} has {cpu} cpus"), async || {
        let state = world.client.get(STATES, "", node).await?.unwrap_or_default();
        Ok((state["status"]["allocatable"]["cpu"] == cpu).then_some(()))
    })
    .await
}

/// A Pod takes the room of a gated one while the operator sees no Pods: the gate stays closed until it has seen it.
async fn no_gate_opens_while_a_watch_is_cut_off(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "cut-off", Shape::default(), 1).await?;
    let proxy = Proxy::start(world.plane.client("operator").await?.kube).await?;
    let operator = world.dragoman_as(proxy.kubeconfig(&world.directory)?, "own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let (ns, others) = (namespace(&world, "cut-off", "enabled").await?, world.namespace("others").await?);
    let mut claim = objects::claim("waits");
    claim["metadata"]["annotations"] = json!({GATE: "the link is not up yet"});
    world.client.create(CLAIMS, &ns, &claim).await?;
    world.pod(&ns, &Pod::new("waits").with_claim("device", "waits").held()).await?;
    waits_for(&world, &ns, "waits", "ReleaseGateClosed").await?;

    // Everything is ready but the release itself.
    let (release, pods) = ("/pods/waits$", "/api/v1/pods");
    proxy.harm(Some(Harm::Refuse { paths: vec![release] }));
    world.client.merge(CLAIMS, &ns, "waits", &json!({"metadata": {"annotations": {GATE: null}}})).await?;
    let refused = || {
        operator
            .log()
            .contains("kind=\"Pod\" namespace=cut-off-0 name=waits verb=\"patch\" outcome=\"Transient\"")
    };
    wait::value("the release is tried", async || Ok(refused().then_some(()))).await?;
    proxy.harm(Some(Harm::Refuse { paths: vec![release, pods] }));
    proxy.cut_watches();
    let failures = async || operator.metric("dragoman_watch_failures_total", &["kind=\"Pod\""]).await;
    wait::value("the watch of Pods fails", async || Ok((failures().await? > 0.0).then_some(()))).await?;
    let taker = Pod::new("taker").on("node-0").held();
    world.client.create(PODS, &others, &requesting(&taker, "7")).await?;
    // The first look may have been decided before the watch was cut: the second ends after it. An operator that has been blind
    // for 30 s gives its Lease up, which may be before a busy machine comes to that look, and looks no more.
    let looks = async || {
        let labels = ["controller=\"gates\"", "result=\"requeue_after\""];
        operator.metric("controller_runtime_reconcile_total", &labels).await
    };
    let looked_twice = async |what: &str| {
        let before = looks().await?;
        wait::value(what, async || {
            Ok((looks().await? > before + 1.0 || operator.log().contains("giving the lease up"))
                .then_some(()))
        })
        .await
    };
    looked_twice("the Pod is looked at without its watch, or the operator leads no more").await?;
    proxy.harm(Some(Harm::Refuse { paths: vec![pods] }));
    looked_twice("the Pod is looked at when it can be released, or the operator leads no more").await?;
    let pod = world.client.get(PODS, &ns, "waits").await?.context("Pod")?;
    ensure!(gates_of(&pod).contains(&OURS), "it was released without a look at the Pods of its node");
    proxy.harm(None);
    println!("        {}", waits_for(&world, &ns, "waits", "NotAllocated").await?);
    world.let_end(&others, "taker").await?;
    world.phase(&ns, "waits", "Running").await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
