//! The published ledger of nodes on clusters whose kube-scheduler does not count what claims take.

mod changes;
mod random;

use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::changes::{
    charges_follow_claims_to_other_nodes_and_groups, the_example_of_a_footprint_counts,
    the_ledger_follows_resizes_and_pods_that_end, what_cannot_be_read_makes_its_node_uncertain_and_no_other,
};
use self::random::{
    kube_scheduler_and_the_ledger_agree_on_what_fits, the_ledger_says_which_pods_kube_scheduler_oversees,
};
use super::accounts::dump;
use super::{Standalone, standalone};
use crate::client::{CLAIMS, EVENTS, FOOTPRINTS, PODS};
use crate::control_plane::{Release, Scheduling, Shape};
use crate::dragoman::Dragoman;
use crate::objects::{DRIVER, Pod};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(the_ledger_says_what_kube_scheduler_oversees),
        standalone!(the_ledger_follows_nodes_slices_and_footprints),
        standalone!(kube_scheduler_and_the_ledger_agree_on_what_fits),
        standalone!(the_ledger_says_which_pods_kube_scheduler_oversees),
        standalone!(the_ledger_follows_resizes_and_pods_that_end),
        standalone!(charges_follow_claims_to_other_nodes_and_groups),
        standalone!(the_example_of_a_footprint_counts),
        standalone!(what_cannot_be_read_makes_its_node_uncertain_and_no_other),
    ]
}

const NODES: &str = "/api/v1/nodes";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const STATES: &str = "/apis/dragoman.dev/v1alpha1/nodeallocatabledraclaimstates";

/// Waits until the published ledger of a node equals `dragoman account` of a dump of the cluster;
/// returns the object.
pub(super) async fn agrees(world: &World, node: &str) -> anyhow::Result<Value> {
    wait::value(&format!("the ledger of {node} equals the account of a dump"), async || {
        let dump = dump(world).await?;
        let Some(state) = world.client.get(STATES, "", node).await? else { return Ok(None) };
        let nodes = dump["nodes"].as_array().context("nodes")?;
        let account = nodes.iter().find(|known| known["name"] == node).context("node")?;
        Ok(is_same(&state["status"], account).then_some(state))
    })
    .await
}

fn is_same(status: &Value, account: &Value) -> bool {
    let Some(resources) = account["resources"].as_object() else { return false };
    !resources.is_empty()
        && resources.iter().all(|(name, of)| {
            let reserved = status["reserved"].get(name).cloned().unwrap_or_else(|| json!("0"));
            let left = of["left"].as_str().map(|left| if left.starts_with('-') { "0" } else { left });
            status["allocatable"][name] == of["allocatable"]
                && status["requestedByPods"][name] == of["pods"]
                && status["requestedByClaims"]["mapping"][name] == of["mapping"]
                && status["requestedByClaims"]["overhead"][name] == of["overhead"]
                && reserved == of["reservations"]
                && status["headroom"][name].as_str() == left
        })
}

/// The status of a condition.
pub(super) fn condition<'a>(state: &'a Value, of: &str) -> &'a str {
    let conditions = state["status"]["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == of);
    found.next().and_then(|condition| condition["status"].as_str()).unwrap_or("absent")
}

/// Waits until a condition of a node has a status; returns the object.
pub(super) async fn becomes(world: &World, node: &str, of: &str, status: &str) -> anyhow::Result<Value> {
    wait::value(&format!("{of} of {node} is {status}"), async || {
        let state = world.client.get(STATES, "", node).await?;
        Ok(state.filter(|state| condition(state, of) == status))
    })
    .await
}

/// Returns a DeviceFootprint by which each device of the driver takes so many cpus from its node.
pub(super) fn footprint(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": name},
        "spec": {"driver": DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": cpu}}}},
    })
}

/// A managed cluster: default gates, the built-in claim controller, Dragoman in mode assist. The node
/// has eight cpus, and each device takes three that only a DeviceFootprint knows of.
async fn the_ledger_says_what_kube_scheduler_oversees(bench: &Bench) -> anyhow::Result<()> {
    let shape =
        Shape { release: Release::V1_37, built_in: true, scheduler: Scheduling::Kube, ..Shape::default() };
    let world = World::start(bench, "oversees", shape, 1, 8).await?;
    let dragoman = world.dragoman("assist", &["--metrics-per-node", "--pod-device-info"]).await?;
    let (ns, node) = (world.namespace("oversees").await?, "node-0");
    let allocatable = json!({"status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "100"}}});
    world.client.merge(NODES, "", &format!("{node}/status"), &allocatable).await?;
    world.client.create(FOOTPRINTS, "", &footprint("cores", "3")).await?;
    for name in ["a", "b"] {
        world.pod(&ns, &Pod::new(name).with_template("device", "one").held()).await?;
        world.phase(&ns, name, "Running").await?;
    }
    let state = agrees(&world, node).await?;
    ensure!(state["status"]["headroom"]["cpu"] == "2", "{state}");
    ensure!(condition(&state, "Overcommitted") == "False", "{state}");
    // kube-scheduler counts no device: it takes the third Pod for a small one.
    let bound = Instant::now();
    world.pod(&ns, &Pod::new("c").with_template("device", "one").held()).await?;
    world.phase(&ns, "c", "Running").await?;
    let state = becomes(&world, node, "Overcommitted", "True").await?;
    println!("        overcommitted {:.1} s after the Pod was created", bound.elapsed().as_secs_f32());
    let message = state["status"]["conditions"].to_string();
    ensure!(message.contains("1 of cpu more is taken than the node has"), "{message}");
    ensure!(message.contains(&format!("devices of ResourceClaim {ns}/c-device-")), "{message}");
    agrees(&world, node).await?;
    // Events about objects without a namespace are in the namespace default.
    let note = world.event("default", node, "NodeOvercommitted").await?;
    ensure!(note.contains("1 of cpu more"), "{note}");
    ensure!(world.client.list(EVENTS, "default").await?.len() < 10, "one Event, not one for each change");
    let count = dragoman.metric("dragoman_ledger_nodes", &["state=\"overcommitted\""]).await?;
    let left =
        dragoman.metric("dragoman_ledger_node_amount", &["node=\"node-0\"", "\"cpu\"", "\"left\""]).await?;
    ensure!((count, left) == (1.0, -1.0), "{count} {left}");
    for name in ["a", "b", "c"] {
        has_a_series(&world, &dragoman, &ns, name).await?;
    }
    let table = world.plane.kubectl(&["get", "nadcs"], "").await?.map_err(anyhow::Error::msg)?;
    let columns = table.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(columns.contains("node-0 0 16Gi True"), "{table}");
    for name in ["a", "b", "c"] {
        world.let_end(&ns, name).await?;
    }
    becomes(&world, node, "Overcommitted", "False").await?;
    // The first of the three is enough for that.
    wait::value("the ledger has no claim", async || {
        let state = world.client.get(STATES, "", node).await?.context("ledger")?;
        Ok(state["status"]["claims"].is_null().then_some(()))
    })
    .await?;
    dragoman.stop().await?;
    world.stop().await
}

/// Fails unless the metric of the devices of Pods has one series for the device of a Pod.
async fn has_a_series(world: &World, dragoman: &Dragoman, ns: &str, pod: &str) -> anyhow::Result<()> {
    let of_pod = world.client.get(PODS, ns, pod).await?.context("Pod")?;
    let claim =
        of_pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().context("claim")?;
    let claim = world.client.get(CLAIMS, ns, claim).await?.context("claim")?;
    let text = |label: &str, value: &Value| format!("{label}={value}");
    let device = &claim["status"]["allocation"]["devices"]["results"][0];
    let labels = [
        text("namespace", &of_pod["metadata"]["namespace"]),
        text("pod", &of_pod["metadata"]["name"]),
        text("uid", &of_pod["metadata"]["uid"]),
        text("resourceclaim", &claim["metadata"]["name"]),
        text("device", &device["device"]),
    ];
    let labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
    let count = dragoman.metric("dragoman_pod_device_info", &labels).await?;
    ensure!(count == 1.0, "{count} devices for Pod {pod}: {labels:?}");
    Ok(())
}

/// A change under a claim in use changes the ledger: the node, the slice, the footprint.
async fn the_ledger_follows_nodes_slices_and_footprints(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "follows", Shape::default(), 2, 2).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    let ns = world.namespace("follows").await?;
    world.client.create(FOOTPRINTS, "", &footprint("cores", "3")).await?;
    world.pod(&ns, &Pod::new("a").with_template("device", "one").held()).await?;
    let pod = world.phase(&ns, "a", "Running").await?;
    let node = pod["spec"]["nodeName"].as_str().context("node")?;
    let mapped = async |cpu: &str| {
        wait::value(&format!("claims take {cpu} cpus"), async || {
            let state = world.client.get(STATES, "", node).await?;
            Ok(state.filter(|state| state["status"]["requestedByClaims"]["mapping"]["cpu"] == cpu))
        })
        .await
    };
    mapped("3").await?;
    let object = agrees(&world, node).await?;
    let revision = object["status"]["revision"].as_i64().context("revision")?;
    // An edited footprint counts at once, and a second one that says otherwise makes both doubtful.
    world.client.merge(FOOTPRINTS, "", "cores", &json!({"spec": footprint("cores", "4")["spec"]})).await?;
    let state = mapped("4").await?;
    ensure!(state["status"]["revision"].as_i64() > Some(revision), "{state}");
    world.client.create(FOOTPRINTS, "", &footprint("others", "5")).await?;
    let state = becomes(&world, node, "Unaccounted", "True").await?;
    ensure!(
        state["status"]["headroom"].get("cpu").is_none() || condition(&state, "Overcommitted") == "Unknown",
        "{state}"
    );
    world.client.delete(FOOTPRINTS, "", "others", None).await?;
    becomes(&world, node, "Unaccounted", "False").await?;
    // A slice that is withdrawn while its device is in use.
    let slice = world.client.get(SLICES, "", node).await?.context("slice")?;
    world.client.delete(SLICES, "", node, None).await?;
    becomes(&world, node, "Unaccounted", "True").await?;
    let mut again = slice.clone();
    again["metadata"] = json!({"name": node});
    world.client.create(SLICES, "", &again).await?;
    becomes(&world, node, "Unaccounted", "False").await?;
    // The other node has no claim, and so no object.
    ensure!(world.client.list(STATES, "").await?.len() == 1, "one node has claims");
    node_comes_back(&world, node).await?;
    // Nothing is written while nothing changes.
    world.client.delete(PODS, &ns, "a", Some(0)).await?;
    world.claims(&ns, 0).await?;
    mapped("0").await?;
    let written = dragoman.metric("dragoman_ledger_published_total", &[]).await?;
    world.rest(&ns).await?;
    ensure!(dragoman.metric("dragoman_ledger_published_total", &[]).await? <= written + 1.0, "it rests");
    dragoman.stop().await?;
    world.stop().await
}

/// The Node goes and comes back under its name: the object belongs to the new one.
async fn node_comes_back(world: &World, node: &str) -> anyhow::Result<()> {
    let before = agrees(world, node).await?;
    let object = world.client.get(NODES, "", node).await?.context("node")?;
    world.client.delete(NODES, "", node, None).await?;
    wait::value("the object is gone with its Node", async || {
        Ok(world.client.get(STATES, "", node).await?.is_none().then_some(()))
    })
    .await?;
    let anew = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": object["metadata"]["labels"]}});
    world.client.create(NODES, "", &anew).await?;
    world.client.merge(NODES, "", &format!("{node}/status"), &json!({"status": object["status"]})).await?;
    let after = agrees(world, node).await?;
    ensure!(after["status"]["requestedByClaims"]["mapping"]["cpu"] == "4", "{after}");
    ensure!(after["metadata"]["uid"] != before["metadata"]["uid"], "{after}");
    let uid = world.client.get(NODES, "", node).await?.context("node")?["metadata"]["uid"].clone();
    ensure!(after["metadata"]["ownerReferences"][0]["uid"] == uid, "{after}");
    ensure!(after["status"]["revision"].as_i64() >= Some(1), "{after}");
    Ok(())
}
