//! Changes under the ledger: resizes, static Pods, Pods that end, claims that move, groups.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::SLICES;
use super::{NODES, STATES, agrees, becomes, footprint};
use crate::client::{CLAIMS, FOOTPRINTS, PODS};
use crate::control_plane::{Scheduling, Shape};
use crate::objects::{self, Pod};
use crate::scenarios::accounts::requesting;
use crate::wait;
use crate::world::{Bench, World};

/// Waits until a part of what is published of a node has a value.
async fn part(world: &World, node: &str, pointer: &str, value: &str) -> anyhow::Result<Value> {
    wait::value(&format!("{pointer} of {node} is {value}"), async || {
        let state = world.client.get(STATES, "", node).await?;
        Ok(state.filter(|state| state.pointer(pointer).and_then(Value::as_str) == Some(value)))
    })
    .await
}

const PODS_CPU: &str = "/status/requestedByPods/cpu";
const MAPPED_CPU: &str = "/status/requestedByClaims/mapping/cpu";

/// A resize counts with the largest of what is wanted, granted and in force; a Pod that ends takes
/// nothing, one that is being deleted still does, and so does a static Pod.
pub(super) async fn the_ledger_follows_resizes_and_pods_that_end(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "resizes", Shape::default(), 1, 0).await?;
    let dragoman = world.dragoman("own", &["--ledger-nodes", "all"]).await?;
    let (ns, node) = (world.namespace("resizes").await?, "node-0");
    world.client.create(PODS, &ns, &requesting(&Pod::new("a").held(), "1")).await?;
    world.phase(&ns, "a", "Running").await?;
    part(&world, node, PODS_CPU, "1").await?;
    let resize = async |cpu: &str| {
        let patch =
            json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}});
        world.client.strategic_merge(PODS, &ns, "a/resize", &patch).await
    };
    let in_force = async |cpu: &str| {
        let container = json!({
            "name": "main", "image": "none", "imageID": "none", "restartCount": 0, "ready": true, "started": true,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}},
        });
        let status = json!({"status": {"containerStatuses": [container]}});
        world.client.merge(PODS, &ns, "a/status", &status).await
    };
    resize("3").await?;
    part(&world, node, PODS_CPU, "3").await?;
    in_force("3").await?;
    // Less is wanted, but the kubelet still holds more.
    resize("2").await?;
    world.rest(&ns).await?;
    ensure!(agrees(&world, node).await?.pointer(PODS_CPU) == Some(&json!("3")), "it is still in force");
    in_force("2").await?;
    part(&world, node, PODS_CPU, "2").await?;
    agrees(&world, node).await?;
    static_pod(&world, &ns, node).await?;
    // A Pod that is being deleted runs until the kubelet says otherwise.
    let keep = json!({"metadata": {"finalizers": ["e2e.dragoman.dev/keep"]}});
    world.client.merge(PODS, &ns, "a", &keep).await?;
    world.client.delete(PODS, &ns, "a", Some(3600)).await?;
    world.rest(&ns).await?;
    let state = agrees(&world, node).await?;
    let pod = world.client.get(PODS, &ns, "a").await?.context("Pod")?;
    ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]["phase"]);
    ensure!(state.pointer(PODS_CPU) == Some(&json!("2")), "{state}");
    world.client.merge(PODS, &ns, "a/status", &json!({"status": {"phase": "Succeeded"}})).await?;
    part(&world, node, PODS_CPU, "0").await?;
    world.client.merge(PODS, &ns, "a", &json!({"metadata": {"finalizers": null}})).await?;
    dragoman.stop().await?;
    world.stop().await
}

/// The mirror of a static Pod counts as any Pod of its node.
async fn static_pod(world: &World, ns: &str, node: &str) -> anyhow::Result<()> {
    let uid = world.client.get(NODES, "", node).await?.context("Node")?["metadata"]["uid"].clone();
    let mut pod = requesting(&Pod::new("mirror").held(), "1500m");
    pod["spec"]["nodeName"] = node.into();
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "0123456789abcdef".into();
    pod["metadata"]["annotations"]["kubernetes.io/config.source"] = "file".into();
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}]);
    // Only Pods of the API may name claims.
    pod["spec"].as_object_mut().context("spec")?.remove("resourceClaims");
    pod["spec"]["containers"][0]["resources"].as_object_mut().context("resources")?.remove("claims");
    world.client.create(PODS, ns, &pod).await?;
    part(world, node, PODS_CPU, "3500m").await?;
    agrees(world, node).await?;
    world.client.delete(PODS, ns, "mirror", Some(0)).await?;
    part(world, node, PODS_CPU, "2").await?;
    Ok(())
}

/// A claim that is allocated again, on another node, takes its charge along; the claim of a PodGroup is
/// charged once, and for as long as a Pod of the group runs.
pub(super) async fn charges_follow_claims_to_other_nodes_and_groups(bench: &Bench) -> anyhow::Result<()> {
    let shape = Shape { pod_groups: true, scheduler: Scheduling::Kube, ..Shape::default() };
    let world = World::start(bench, "moves", shape, 2, 2).await?;
    let dragoman = world.dragoman("own", &["--ledger-nodes", "all"]).await?;
    let ns = world.namespace("moves").await?;
    world.client.create(FOOTPRINTS, "", &footprint("cores", "3")).await?;
    world.client.create(CLAIMS, &ns, &objects::claim("moves")).await?;
    for (pod, node, other) in [("a", "node-0", "node-1"), ("b", "node-1", "node-0")] {
        // A Pod that names its node is in no race with what kube-scheduler knows of nodes.
        world.pod(&ns, &Pod::new(pod).with_claim("device", "moves").only_on(node).held()).await?;
        world.phase(&ns, pod, "Running").await?;
        part(&world, node, MAPPED_CPU, "3").await?;
        part(&world, other, MAPPED_CPU, "0").await?;
        agrees(&world, node).await?;
        world.let_end(&ns, pod).await?;
        part(&world, node, MAPPED_CPU, "0").await?;
    }
    let groups = world.release.pod_groups_path();
    // Overhead per Pod: a mapped claim is for one Pod.
    let overhead = json!({"spec": {"resources": {"cpu": {"mapping": null, "overhead": {"perPod": "1"}}}}});
    world.client.merge(FOOTPRINTS, "", "cores", &overhead).await?;
    world.client.create(&groups, &ns, &objects::pod_group(world.release, "group", "shared", "one")).await?;
    for name in ["c", "d"] {
        let pod = Pod::new(name).with_template("shared", "one").in_group("group").only_on("node-0").held();
        world.pod(&ns, &pod).await?;
    }
    for name in ["c", "d"] {
        world.phase(&ns, name, "Running").await?;
    }
    let overheads = "/status/requestedByClaims/overhead/cpu";
    part(&world, "node-0", overheads, "2").await?;
    agrees(&world, "node-0").await?;
    world.let_end(&ns, "c").await?;
    part(&world, "node-0", overheads, "1").await?;
    world.let_end(&ns, "d").await?;
    part(&world, "node-0", overheads, "0").await?;
    agrees(&world, "node-0").await?;
    dragoman.stop().await?;
    world.stop().await
}

/// `config/examples/devicefootprint-gpu.yaml`, as it is shipped: four cpus for each device, 1 GiB for each
/// Pod and 512 MiB for each container. One whose selector does not compile is reported.
pub(super) async fn the_example_of_a_footprint_counts(bench: &Bench) -> anyhow::Result<()> {
    let world =
        World::start(bench, "example", Shape { scheduler: Scheduling::Kube, ..Shape::default() }, 1, 0)
            .await?;
    let dragoman = world.dragoman("own", &[]).await?;
    let (ns, node) = (world.namespace("example").await?, "node-0");
    let example = bench.repository.join("config/examples/devicefootprint-gpu.yaml");
    let applied = world.plane.kubectl(&["apply", "-f", &example.display().to_string()], "").await?;
    applied.map_err(anyhow::Error::msg)?;
    let driver = "gpu.example.com";
    let mut slice = objects::slice(node, 2);
    slice["metadata"]["name"] = "gpus".into();
    slice["spec"]["driver"] = driver.into();
    world.client.create(SLICES, "", &slice).await?;
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {driver:?}")}}]},
    });
    world.client.create("/apis/resource.k8s.io/v1/deviceclasses", "", &class).await?;
    let template = crate::scenarios::accounts::template("gpu");
    world.client.create("/apis/resource.k8s.io/v1/{}/resourceclaimtemplates", &ns, &template).await?;
    world.pod(&ns, &Pod::new("a").with_template("gpu", "gpu").held()).await?;
    world.phase(&ns, "a", "Running").await?;
    part(&world, node, MAPPED_CPU, "4").await?;
    let state = agrees(&world, node).await?;
    let overhead = state.pointer("/status/requestedByClaims/overhead/memory");
    ensure!(overhead == Some(&json!("1536Mi")), "{state}");
    // An expression that does not compile is said to its author, and the driver's devices are uncertain.
    let mut broken = footprint("broken", "1");
    broken["spec"]["driver"] = driver.into();
    broken["spec"]["selector"] = "device.attributes[".into();
    world.client.create(FOOTPRINTS, "", &broken).await?;
    let note = world.event("default", "broken", "InvalidFootprint").await?;
    ensure!(note.starts_with("spec.selector: CEL compile error: "), "{note}");
    becomes(&world, node, "Unaccounted", "True").await?;
    world.client.delete(FOOTPRINTS, "", "broken", None).await?;
    becomes(&world, node, "Unaccounted", "False").await?;
    let dump = dragoman.dump().await?;
    let table = dump.split_once("NODE").map(|(_, table)| table).context("the table of account")?;
    let row =
        table.lines().find(|line| line.starts_with("node-0") && line.contains("cpu")).context("a row")?;
    let columns: Vec<&str> = row.split_whitespace().collect();
    ensure!(columns == ["node-0", "cpu", "64", "0", "4", "0", "0", "60"], "{row}");
    dragoman.stop().await?;
    world.stop().await
}

/// The API server takes quantities with more digits than Kubernetes' arithmetic has. The device that has
/// one makes its node uncertain, for as long as it has it.
pub(super) async fn what_cannot_be_read_makes_its_node_uncertain_and_no_other(
    bench: &Bench,
) -> anyhow::Result<()> {
    let world = World::start(bench, "unread", Shape::default(), 2, 0).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    let ns = world.namespace("unread").await?;
    let mut costs = footprint("memory", "1");
    costs["spec"]["resources"] =
        json!({"memory": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}}});
    world.client.create(FOOTPRINTS, "", &costs).await?;
    let list = async |node: &str, generation: u32, memory: &str| {
        let devices = json!([{"name": "dev", "capacity": {"memory": {"value": memory}}}]);
        let pool = json!({"name": node, "generation": generation, "resourceSliceCount": 1});
        let edit = json!({"spec": {"devices": devices, "pool": pool}});
        world.client.merge(SLICES, "", node, &edit).await
    };
    let unreadable = "9".repeat(39);
    list("node-0", 2, &unreadable).await?;
    list("node-1", 2, "1Gi").await?;
    for name in ["a", "b"] {
        world.pod(&ns, &Pod::new(name).with_template("device", "one").held()).await?;
    }
    for name in ["a", "b"] {
        world.phase(&ns, name, "Running").await?;
    }
    let state = becomes(&world, "node-0", "Unaccounted", "True").await?;
    let conditions = state["status"]["conditions"].to_string();
    let is_named = conditions.contains("the number is too large") && conditions.contains(&format!("{ns}/"));
    ensure!(is_named, "{conditions}");
    let mapped = "/status/requestedByClaims/mapping/memory";
    part(&world, "node-1", mapped, "1Gi").await?;
    becomes(&world, "node-1", "Unaccounted", "False").await?;
    list("node-0", 3, "2Gi").await?;
    part(&world, "node-0", mapped, "2Gi").await?;
    becomes(&world, "node-0", "Unaccounted", "False").await?;
    agrees(&world, "node-0").await?;
    dragoman.stop().await?;
    world.stop().await
}
