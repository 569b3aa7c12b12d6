//! Compares the account of a node by `dragoman account` and the published ledger of the node with that
//! of kube-scheduler, with KEP-5517 switched on.

use anyhow::{Context as _, ensure};
use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::claim::footprint::{Basis, DeviceCost, Mapping, ResourceFootprint};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::resource::Resource;
use dragoman_accounting::wire::device;
use dragoman_accounting::wire::pod_status::{to_1_36, to_1_37};
use dragoman_objects as objects;
use dragoman_quantity::Decimal;
use serde_json::{Value, json};

use super::{Standalone, ledger, standalone};
use crate::client::{CLASSES, PODS};
use crate::control_plane::{Release, Scheduling, Shape};
use crate::objects::{DRIVER, Pod, node};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_dump_and_the_ledger_say_what_kube_scheduler_counts),
        standalone!(a_dump_and_the_ledger_say_what_kube_scheduler_counts_in_1_36),
    ]
}

const NODES: &str = "/api/v1/nodes";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/{}/resourceclaimtemplates";
pub(super) const NODE: &str = "accounted";

/// A node of eight CPUs with two devices: one maps four CPUs, the other has shares of a pool of cores.
async fn a_dump_and_the_ledger_say_what_kube_scheduler_counts(bench: &Bench) -> anyhow::Result<()> {
    counted(bench, Release::V1_37).await
}

/// The same with the fields of 1.36.
async fn a_dump_and_the_ledger_say_what_kube_scheduler_counts_in_1_36(bench: &Bench) -> anyhow::Result<()> {
    counted(bench, Release::V1_36).await
}

async fn counted(bench: &Bench, release: Release) -> anyhow::Result<()> {
    let shape = Shape {
        release,
        on: &["DRANodeAllocatableResources"],
        scheduler: Scheduling::Kube,
        ..Shape::default()
    };
    let world = World::start(bench, &format!("accounts-{}", release.minor()), shape, 0, 0).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    prepare(&world).await?;
    let ns = world.namespace("accounts").await?;
    for kind in ["whole", "share"] {
        world.client.create(TEMPLATES, &ns, &template(kind)).await?;
    }
    run(&world, &ns, "whole", "500m").await?;
    let dump = dump(&world).await?;
    let cpu = account(&dump)?["resources"]["cpu"].clone();
    let expected = json!({"allocatable": "8", "pods": "500m", "mapping": "4", "overhead": "0", "reservations": "0", "left": "3500m"});
    ensure!(cpu == expected, "cpu: {cpu}");
    let memory = account(&dump)?["resources"]["memory"].clone();
    ensure!(memory["mapping"] == "1Gi" && memory["left"] == "15Gi", "memory: {memory}");
    ledger::agrees(&world, NODE).await?;
    shares(&world, &ns).await?;
    ledger::agrees(&world, NODE).await?;
    boundary(&world, &ns).await?;
    let state = ledger::agrees(&world, NODE).await?;
    ensure!(state["status"]["headroom"]["cpu"] == "0", "{state}");
    ensure!(ledger::condition(&state, "Overcommitted") == "False", "{state}");
    own_shape(&world, &ns).await?;
    dragoman.stop().await?;
    world.stop().await
}

pub(super) async fn prepare(world: &World) -> anyhow::Result<()> {
    let capacity = json!({"cpu": "8", "memory": "16Gi", "pods": "100"});
    let mut node = node(NODE);
    node["status"]["allocatable"] = capacity.clone();
    node["status"]["capacity"] = capacity;
    if world.release == Release::V1_37 {
        // Since 1.37 slices may have these fields for nodes whose kubelet declares the feature.
        node["status"]["declaredFeatures"] = json!(["DRANodeAllocatableResources"]);
    }
    world.client.create(NODES, "", &node).await?;
    world.client.merge(NODES, "", NODE, &json!({"spec": {"taints": null}})).await?;
    world.client.merge(NODES, "", &format!("{NODE}/status"), &json!({"status": node["status"]})).await?;
    // Dragoman prints the mappings: the API server must accept them, and kube-scheduler must count them.
    let per_device = |units: i64| ResourceFootprint {
        mapping: Some(Mapping { basis: Basis::PerDevice, multiplier: Decimal::from(units) }),
        ..ResourceFootprint::default()
    };
    let resources = [(Resource::Cpu, per_device(4)), (Resource::Memory, per_device(1 << 30))].into();
    let cost = DeviceCost { resources };
    let ((field, printed), losses, share_costs) = match world.release {
        Release::V1_36 => {
            let (printed, losses) = device::to_1_36(&cost);
            let share = json!({"capacityKey": "cores", "allocationMultiplier": "250m"});
            (("nodeAllocatableResourceMappings", json!(printed)), losses, share)
        }
        Release::V1_37 => {
            let (printed, losses) = device::to_1_37(&cost, false);
            let share = json!({"mapping": {"capacityKey": "cores", "capacityMultiplier": "250m"}});
            (("nodeAllocatableResources", json!(printed)), losses, share)
        }
    };
    ensure!(losses.is_empty(), "{losses:?}");
    let whole = json!({
        "name": "whole", "attributes": {"kind": {"string": "whole"}},
        field: printed,
    });
    let share = json!({
        "name": "share", "attributes": {"kind": {"string": "share"}}, "allowMultipleAllocations": true,
        "capacity": {"cores": {"value": "4", "requestPolicy": {
            "default": "1", "validRange": {"min": "1", "step": "1"},
        }}},
        field: {"cpu": share_costs},
    });
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": NODE},
        "spec": {"driver": DRIVER, "nodeName": NODE, "devices": [whole, share],
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1}},
    });
    world.client.create(&format!("{SLICES}?fieldValidation=Strict"), "", &slice).await?;
    for kind in ["whole", "share"] {
        let expression =
            format!("device.driver == {DRIVER:?} && device.attributes[{DRIVER:?}].kind == {kind:?}");
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": kind},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        });
        world.client.create(CLASSES, "", &class).await?;
    }
    Ok(())
}

pub(super) fn template(class: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": class},
        "spec": {"spec": {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": class}}]}}},
    })
}

/// A Pod with this CPU request.
pub(crate) fn requesting(pod: &Pod, cpu: &str) -> Value {
    let mut pod = pod.object().clone();
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": cpu});
    pod
}

/// Runs a Pod with a claim of `class`. The Pod has the name of the class.
async fn run(world: &World, ns: &str, class: &str, cpu: &str) -> anyhow::Result<()> {
    let pod = requesting(&Pod::new(class).with_template("device", class).held(), cpu);
    world.client.create(PODS, ns, &pod).await?;
    world.phase(ns, class, "Running").await?;
    Ok(())
}

/// Returns what `dragoman account` prints for the objects of the cluster.
pub(crate) async fn dump(world: &World) -> anyhow::Result<Value> {
    let kinds = "nodes,pods,resourceclaims,resourceslices,devicefootprints";
    let dumped = world.plane.kubectl(&["get", kinds, "-A", "-o", "yaml"], "").await?;
    let path = world.directory.join("dump.yaml");
    std::fs::write(&path, dumped.map_err(anyhow::Error::msg)?).context("dump")?;
    let out = tokio::process::Command::new(&world.bench.binary)
        .args(["account", "--output", "json", "--filename"])
        .arg(&path)
        .output()
        .await
        .context("dragoman account")?;
    // 3 says that a node is overcommitted, or that an amount is not known.
    let answered = matches!(out.status.code(), Some(0 | 3));
    ensure!(answered, "dump: {}", String::from_utf8_lossy(&out.stderr));
    let dump: Value = serde_json::from_slice(&out.stdout).context("dump")?;
    ensure!(dump["unreadable"] == json!([]), "{}", dump["unreadable"]);
    Ok(dump)
}

/// The account of the node. The records of kube-scheduler must agree with the slices, and every field must
/// be readable.
fn account(dump: &Value) -> anyhow::Result<&Value> {
    let nodes = dump["nodes"].as_array().context("nodes")?;
    let node = nodes.iter().find(|node| node["name"] == NODE).context("node")?;
    for part in ["violations", "unaccounted", "notices"] {
        ensure!(node[part] == json!([]), "{part}: {}", node[part]);
    }
    Ok(node)
}

/// A share of one core is a quarter of a CPU.
async fn shares(world: &World, ns: &str) -> anyhow::Result<()> {
    run(world, ns, "share", "500m").await?;
    let dump = dump(world).await?;
    let cpu = account(&dump)?["resources"]["cpu"].clone();
    ensure!(cpu["mapping"] == "4250m" && cpu["left"] == "2750m", "cpu: {cpu}");
    Ok(())
}

/// kube-scheduler refuses a Pod that does not fit by the ledger, and binds one that just fits.
async fn boundary(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(PODS, ns, &requesting(&Pod::new("large").held(), "2751m")).await?;
    let refused = async || {
        let pod = world.client.get(PODS, ns, "large").await?.context("Pod")?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let message = |c: &Value| c["message"].as_str().is_some_and(|m| m.contains("Insufficient cpu"));
        Ok(conditions.iter().any(message).then_some(()))
    };
    wait::value("kube-scheduler refuses one thousandth too much", refused).await?;
    let asked = dump(world).await?["pending"][0]["nodes"][NODE].clone();
    ensure!(asked["missing"]["cpu"]["missing"] == "1m", "{asked}");
    let first = asked["missing"]["cpu"]["heldBy"][0].as_str().unwrap_or_default();
    ensure!(first.starts_with("devices of ResourceClaim") && first.ends_with(": 4"), "{first}");
    world.client.delete(PODS, ns, "large", Some(0)).await?;
    world.client.create(PODS, ns, &requesting(&Pod::new("exact").held(), "2750m")).await?;
    world.phase(ns, "exact", "Running").await?;
    let dump = dump(world).await?;
    ensure!(account(&dump)?["resources"]["cpu"]["left"] == "0", "{}", account(&dump)?);
    Ok(())
}

/// Dragoman prints for this release what kube-scheduler has written, and the API server accepts it.
async fn own_shape(world: &World, ns: &str) -> anyhow::Result<()> {
    const FIELD: &str = "nodeAllocatableResourceClaimStatuses";
    let read = |pod: &Value| -> anyhow::Result<Vec<Contribution>> {
        let mut unaccounted = Vec::new();
        let view = PodSpecView::of(&serde_json::from_value::<objects::Pod>(pod.clone())?, &mut unaccounted);
        ensure!(unaccounted.is_empty(), "{unaccounted:?}");
        Ok(view.contributions)
    };
    for name in ["whole", "share"] {
        let pod = world.client.get(PODS, ns, name).await?.context("Pod")?;
        let contributions = read(&pod)?;
        ensure!(contributions.len() == 1, "{}", pod["status"]);
        let (printed, losses) = match world.release {
            Release::V1_36 => to_1_36(&contributions).map(|(printed, losses)| (json!(printed), losses))?,
            Release::V1_37 => to_1_37(&contributions).map(|(printed, losses)| (json!(printed), losses))?,
        };
        ensure!(losses.is_empty(), "{losses:?}");
        // Only the order of keys and the spelling of amounts may differ.
        let printed = json!({"status": {FIELD: printed}});
        ensure!(read(&json!({"spec": {}, "status": printed["status"]}))? == contributions, "{printed}");
        let status = format!("{name}/status?dryRun=All&fieldValidation=Strict");
        // A JSON merge patch replaces the whole list.
        let answer = world.client.merge(PODS, ns, &status, &printed).await?;
        ensure!(read(&answer)? == contributions, "{}", answer["status"][FIELD]);
        let wrong = json!({"status": {FIELD: [{"resourceClaimName": "x", "resources": {"cpu": "1"}, "mappings": []}]}});
        let refused = world.client.merge(PODS, ns, &status, &wrong).await;
        ensure!(refused.is_err(), "an unknown field was taken: {refused:?}");
    }
    Ok(())
}
