//! Random Pods, with and without claims, over ten nodes: what kube-scheduler decides, beside what the
//! ledger says.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use super::{NODES, SLICES, STATES, agrees, becomes, condition};
use crate::client::{FOOTPRINTS, PODS};
use crate::control_plane::{Release, Scheduling, Shape};
use crate::objects::{self, DRIVER, Pod};
use crate::scenarios::accounts::{dump, requesting};
use crate::wait;
use crate::world::{Bench, World};

const MACHINES: usize = 10;
const LOAD: usize = 200;
/// Pods with a claim that are bound before the others exist. They take so much that the Pods without claims never all fit,
/// whatever kube-scheduler sees first, and so little that they do.
const FIRST: usize = 20;
/// The cpus of a node.
const CPUS: i64 = 8;
const GATE: &str = "DRANodeAllocatableResources";

/// The gate is on: kube-scheduler refuses one thousandth of a cpu more than the ledger says is left, on
/// every node, and binds what just fits.
pub(super) async fn kube_scheduler_and_the_ledger_agree_on_what_fits(bench: &Bench) -> anyhow::Result<()> {
    let world = loaded(bench, "agree", &[GATE]).await?;
    let dragoman = world.dragoman("own", &["--ledger-nodes", "all"]).await?;
    let ns = load(&world, "agree").await?;
    let left = left(&world).await?;
    let (room, full): (Vec<_>, Vec<_>) = left.iter().partition(|(_, left)| **left > 0);
    ensure!(room.len() >= 3, "{left:?}: the nodes are too full to tell anything");
    for (node, left) in &left {
        ensure!(condition(&agrees(&world, node).await?, "Overcommitted") == "False", "{node}");
        probe(&world, &ns, "more", node, left + 1).await?;
    }
    for node in left.keys() {
        refused(&world, &ns, &format!("more-{node}")).await?;
        world.client.delete(PODS, &ns, &format!("more-{node}"), Some(0)).await?;
    }
    for (node, left) in &room {
        probe(&world, &ns, "exact", node, **left).await?;
    }
    for (node, _) in &room {
        world.phase(&ns, &format!("exact-{node}"), "Running").await?;
        let state = agrees(&world, node).await?;
        ensure!(state["status"]["headroom"]["cpu"] == "0", "{state}");
        ensure!(condition(&state, "Overcommitted") == "False", "{state}");
    }
    println!("        {} probes refused, {} bound, {} nodes full before", left.len(), room.len(), full.len());
    dragoman.stop().await?;
    world.stop().await
}

/// The gate is off: kube-scheduler fills every node as if claims took nothing, and the ledger says so of
/// each node that has a claim.
pub(super) async fn the_ledger_says_which_pods_kube_scheduler_oversees(bench: &Bench) -> anyhow::Result<()> {
    let world = loaded(bench, "overseen", &[]).await?;
    let dragoman = world.dragoman("own", &["--ledger-nodes", "all"]).await?;
    let ns = load(&world, "overseen").await?;
    let mut overseen = 0;
    for node in machines() {
        let state = agrees(&world, &node).await?;
        // What kube-scheduler takes for what is left.
        let free = CPUS * 1_000 - amount(&state["status"]["requestedByPods"]["cpu"])?;
        let mapped = amount(&state["status"]["requestedByClaims"]["mapping"]["cpu"])?;
        if free > 0 {
            probe(&world, &ns, "fills", &node, free).await?;
            world.phase(&ns, &format!("fills-{node}"), "Running").await?;
        }
        let expected = if mapped > 0 { "True" } else { "False" };
        becomes(&world, &node, "Overcommitted", expected).await?;
        overseen += usize::from(mapped > 0);
        // A node may have been overcommitted before, and what is published be that of then.
        let state = agrees(&world, &node).await?;
        let message = state["status"]["conditions"].to_string();
        let short = format!("{} of cpu more is taken", cpu_text(mapped));
        ensure!(mapped == 0 || message.contains(&short), "{short}: {message}");
    }
    ensure!(overseen >= 5, "{overseen} of {MACHINES} nodes have claims: that tells nothing");
    let count = dragoman.metric("dragoman_ledger_nodes", &["state=\"overcommitted\""]).await?;
    ensure!(count == f64::from(u32::try_from(overseen)?), "{count}, not {overseen}");
    println!("        {overseen} of {MACHINES} nodes overcommitted");
    dragoman.stop().await?;
    world.stop().await
}

fn machines() -> impl Iterator<Item = String> {
    (0..MACHINES).map(|i| format!("machine-{i}"))
}

/// A cluster of ten nodes with four devices each. A device takes one to three cpus: its slice says so with
/// the gate on, and DeviceFootprints with selectors otherwise.
async fn loaded(bench: &Bench, name: &str, on: &'static [&'static str]) -> anyhow::Result<World> {
    let shape = Shape { release: Release::V1_37, on, scheduler: Scheduling::Kube, ..Shape::default() };
    let world = World::start(bench, name, shape, 0, 0).await?;
    let counted = !on.is_empty();
    if !counted {
        for cores in 1..=3 {
            let footprint = json!({
                "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint",
                "metadata": {"name": format!("cores-{cores}")},
                "spec": {"driver": DRIVER, "selector": format!("device.attributes[{DRIVER:?}].cores == {cores}"),
                    "resources": {"cpu": {"mapping": {"deviceMultiplier": cores}}}},
            });
            world.client.create(FOOTPRINTS, "", &footprint).await?;
        }
    }
    for machine in machines() {
        let capacity = json!({"cpu": CPUS.to_string(), "memory": "16Gi", "pods": "100"});
        let mut node = objects::node(&machine);
        node["status"]["allocatable"] = capacity.clone();
        node["status"]["capacity"] = capacity;
        node["status"]["declaredFeatures"] = if counted { json!([GATE]) } else { Value::Null };
        world.client.create(NODES, "", &node).await?;
        world.client.merge(NODES, "", &machine, &json!({"spec": {"taints": null}})).await?;
        let status = json!({"status": node["status"]});
        world.client.merge(NODES, "", &format!("{machine}/status"), &status).await?;
        world.client.create(SLICES, "", &slice(&machine, counted)).await?;
    }
    Ok(world)
}

fn slice(node: &str, counted: bool) -> Value {
    let device = |i: usize| {
        let cores = i % 3 + 1;
        let mut device = json!({"name": format!("dev-{i}"), "attributes": {"cores": {"int": cores}}});
        if counted {
            device["nodeAllocatableResources"] =
                json!({"cpu": {"mapping": {"deviceMultiplier": cores.to_string()}}});
        }
        device
    };
    let mut slice = objects::slice(node, 0);
    slice["spec"]["devices"] = (0..4).map(device).collect();
    slice
}

/// Creates the Pods and waits until kube-scheduler is done with them.
async fn load(world: &World, name: &str) -> anyhow::Result<String> {
    let ns = world.namespace(name).await?;
    let mut rng = Rng::with_seed(7);
    for i in 0..LOAD {
        // A Pod that ends while the nodes are looked at would change them.
        let mut pod = Pod::new(&format!("load-{i}")).held();
        if i < FIRST || rng.bool() {
            pod = pod.with_template("device", "one");
        }
        if i == FIRST {
            first_are_bound(world, &ns).await?;
        }
        let cpu = format!("{}m", rng.u32(1..20) * 70);
        world.client.create(PODS, &ns, &requesting(&pod, &cpu)).await?;
    }
    // Room and devices only become fewer: a Pod that was refused for one of them is refused for good. A Pod without claims
    // waits only where no node has room for it.
    wait::value("kube-scheduler has bound what fits by the ledger", async || {
        let pods = world.client.list(PODS, &ns).await?;
        if !pods.iter().all(|pod| !pod["spec"]["nodeName"].is_null() || lacks(pod, &[CPU, DEVICES])) {
            return Ok(None);
        }
        let dump = dump(world).await?;
        let pending = dump["pending"].as_array().context("pending")?;
        let plain: Vec<_> = pending.iter().filter(|pod| is_plain(pod)).collect();
        ensure!(!pending.is_empty(), "every Pod is bound: that tells nothing");
        let fitting: Vec<_> = plain.iter().filter_map(|pod| disagreement(pod, &pods)).collect();
        let what =
            format!("{} of {} that wait are judged; these fit by the ledger", plain.len(), pending.len());
        wait::note(|| what, || json!(fitting));
        Ok((!plain.is_empty() && fitting.is_empty()).then_some(()))
    })
    .await?;
    Ok(ns)
}

async fn first_are_bound(world: &World, ns: &str) -> anyhow::Result<()> {
    wait::value("the first Pods are bound", async || {
        let pods = world.client.list(PODS, ns).await?;
        let unbound: Vec<_> = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null()).collect();
        wait::note(|| "not bound".to_owned(), || json!(unbound));
        Ok(unbound.is_empty().then_some(()))
    })
    .await
}

/// Whether what is missing is known on every node: the Pod has no claim that is not allocated.
fn is_plain(pod: &Value) -> bool {
    let nodes = pod["nodes"].as_object().filter(|nodes| !nodes.is_empty());
    nodes.is_some_and(|nodes| nodes.values().all(|on| !on["fits"].is_null()))
}

/// The nodes on which a Pod fits by the ledger, and why kube-scheduler has bound it to none; `None` where it fits on none.
fn disagreement(pending: &Value, pods: &[Value]) -> Option<Value> {
    let nodes = pending["nodes"].as_object()?;
    let on: Vec<_> = nodes.iter().filter(|(_, on)| on["fits"] == true).map(|(node, _)| node).collect();
    let name = pending["pod"].as_str().unwrap_or_default();
    // A Pod that was created after the list has no words yet.
    let pod = pods
        .iter()
        .find(|pod| name.ends_with(&format!("/{}", pod["metadata"]["name"].as_str().unwrap_or("?"))));
    let conditions = pod.and_then(|pod| pod["status"]["conditions"].as_array()).into_iter().flatten();
    let says: Vec<_> = conditions.filter_map(|condition| condition["message"].as_str()).collect();
    (!on.is_empty()).then(|| json!({"pod": name, "fits on": on, "kube-scheduler": says}))
}

/// Returns the published headroom of the cpus of every node, in thousandths.
async fn left(world: &World) -> anyhow::Result<BTreeMap<String, i64>> {
    let mut left = BTreeMap::new();
    for node in machines() {
        agrees(world, &node).await?;
        let state = world.client.get(STATES, "", &node).await?.context("published")?;
        left.insert(node, amount(&state["status"]["headroom"]["cpu"])?);
    }
    Ok(left)
}

/// Creates a Pod for one node.
async fn probe(world: &World, ns: &str, name: &str, node: &str, cpu: i64) -> anyhow::Result<()> {
    let mut pod = requesting(&Pod::new(&format!("{name}-{node}")).held(), &format!("{cpu}m"));
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    world.client.create(PODS, ns, &pod).await?;
    Ok(())
}

/// Words of kube-scheduler about a Pod for which a node has too few cpus, or too few devices.
const CPU: &str = "Insufficient cpu";
const DEVICES: &str = "cannot allocate all claims";

/// Whether kube-scheduler says that one of these is what a Pod lacks.
fn lacks(pod: &Value, reasons: &[&str]) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
    messages.any(|message| reasons.iter().any(|reason| message.contains(reason)))
}

/// Waits until kube-scheduler has said that there are too few cpus.
async fn refused(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    wait::value(&format!("kube-scheduler refuses {name}"), async || {
        let pod = world.client.get(PODS, ns, name).await?.context("Pod")?;
        ensure!(pod["spec"]["nodeName"].is_null(), "{name} is bound, and the ledger says it does not fit");
        Ok(lacks(&pod, &[CPU]).then_some(()))
    })
    .await
}

/// Thousandths of a cpu.
fn amount(text: &Value) -> anyhow::Result<i64> {
    let text = text.as_str().unwrap_or("0");
    Ok(match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse()?,
        None => text.parse::<i64>().with_context(|| text.to_owned())? * 1_000,
    })
}

fn cpu_text(thousandths: i64) -> String {
    if thousandths % 1_000 == 0 { (thousandths / 1_000).to_string() } else { format!("{thousandths}m") }
}
