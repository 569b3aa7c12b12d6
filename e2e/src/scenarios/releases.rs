//! Features that a release brings or switches on, as far as they touch the life of claims: taints by
//! rule (1.37), and devices that are attached after their allocation (1.36).

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{NotRun, Standalone, standalone};
use crate::client::{CLAIMS, CLASSES, PODS, TAINT_RULES};
use crate::control_plane::{Backend, Release, Scheduling, Shape};
use crate::objects::Pod;
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_pod_on_a_tainted_device_goes_and_frees_it),
        standalone!(a_device_that_is_attached_late),
        standalone!(a_device_that_is_attached_late_in_1_36),
    ]
}

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/{}/resourceclaimtemplates";
const LATE: &str = "late.e2e.dragoman.dev";

fn real_only(bench: &Bench) -> anyhow::Result<()> {
    if bench.backend == Backend::Sim {
        return Err(NotRun("simcluster has no such controller".to_owned()).into());
    }
    Ok(())
}

/// The device of the only result of a claim.
fn device(claim: &Value) -> &Value {
    &claim["status"]["allocation"]["devices"]["results"][0]
}

/// A DeviceTaintRule evicts the Pod; its claim frees the device and goes, and the Pod after it gets
/// another device.
async fn a_pod_on_a_tainted_device_goes_and_frees_it(bench: &Bench) -> anyhow::Result<()> {
    real_only(bench)?;
    let world = World::start(bench, "taints", Shape::default(), 1, 2).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    let ns = world.namespace("taints").await?;
    world.pod(&ns, &Pod::new("first").with_template("device", "one").held()).await?;
    world.phase(&ns, "first", "Running").await?;
    let taken = device(&world.claim_of(&ns, "first", "device").await?).clone();
    let rule = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "broken"},
        "spec": {
            "deviceSelector": {"driver": taken["driver"], "pool": taken["pool"], "device": taken["device"]},
            "taint": {"key": "e2e.dragoman.dev/broken", "effect": "NoExecute"},
        },
    });
    world.client.create(TAINT_RULES, "", &rule).await?;
    wait::value("the Pod on the tainted device is gone", async || {
        Ok(world.client.get(PODS, &ns, "first").await?.is_none().then_some(()))
    })
    .await?;
    world.claims(&ns, 0).await?;
    world.pod(&ns, &Pod::new("second").with_template("device", "one").held()).await?;
    world.phase(&ns, "second", "Running").await?;
    let other = device(&world.claim_of(&ns, "second", "device").await?)["device"].clone();
    ensure!(other != taken["device"], "{other} is tainted");
    // No device is left for the third, until the taint goes.
    world.pod(&ns, &Pod::new("third").with_template("device", "one").held()).await?;
    world.claim_of(&ns, "third", "device").await?;
    world.rest(&ns).await?;
    let third = world.client.get(PODS, &ns, "third").await?.context("Pod")?;
    ensure!(third["spec"]["nodeName"].is_null(), "{third}");
    world.client.delete(TAINT_RULES, "", "broken", None).await?;
    world.phase(&ns, "third", "Running").await?;
    for name in ["second", "third"] {
        world.let_end(&ns, name).await?;
    }
    world.claims(&ns, 0).await?;
    dragoman.stop().await?;
    world.stop().await
}

async fn a_device_that_is_attached_late(bench: &Bench) -> anyhow::Result<()> {
    attached_late(bench, Release::V1_37).await
}

async fn a_device_that_is_attached_late_in_1_36(bench: &Bench) -> anyhow::Result<()> {
    attached_late(bench, Release::V1_36).await
}

/// A slice of two devices of which each has to be attached before a Pod may be bound (KEP-5007), with its class
/// and a template.
async fn prepare(world: &World, ns: &str) -> anyhow::Result<()> {
    let device = |name: &str| {
        json!({
            "name": name, "bindsToNode": true, "bindingConditions": ["e2e.dragoman.dev/attached"],
            "bindingFailureConditions": ["e2e.dragoman.dev/failed"],
        })
    };
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "late"},
        "spec": {"driver": LATE, "nodeName": "node-0",
            "pool": {"name": "late", "generation": 1, "resourceSliceCount": 1},
            "devices": [device("one"), device("two")]},
    });
    world.client.create(SLICES, "", &slice).await?;
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "late"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {LATE:?}")}}]},
    });
    world.client.create(CLASSES, "", &class).await?;
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "late"},
        "spec": {"spec": {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": "late"}}]}}},
    });
    world.client.create(TEMPLATES, ns, &template).await?;
    Ok(())
}

/// Waits until the claim of the Pod is allocated and reserved; returns its name.
async fn reserved(world: &World, ns: &str, pod: &str) -> anyhow::Result<String> {
    let claim = world.claim_of(ns, pod, "device").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?.to_owned();
    let is_reserved = |claim: Option<&Value>| {
        claim.is_some_and(|claim| claim["status"]["reservedFor"].as_array().is_some_and(|all| all.len() == 1))
    };
    world.claim_until(ns, &name, "is reserved", is_reserved).await?;
    Ok(name)
}

/// Sets a condition of the device in the status of its claim, as a driver does.
async fn condition(world: &World, ns: &str, claim: &str, of: &str) -> anyhow::Result<()> {
    let object = world.client.get(CLAIMS, ns, claim).await?.context("claim")?;
    let devices = json!([{
        "driver": LATE, "pool": "late", "device": device(&object)["device"],
        "conditions": [{"type": of, "status": "True", "reason": "E2E", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }]);
    let status = json!({"status": {"devices": devices}});
    world.client.merge(CLAIMS, ns, &format!("{claim}/status"), &status).await?;
    Ok(())
}

/// The claim of a Pod whose device is being attached is left alone; a Pod that is deleted meanwhile
/// frees the device, and a device that cannot be attached is taken back by kube-scheduler.
async fn attached_late(bench: &Bench, release: Release) -> anyhow::Result<()> {
    real_only(bench)?;
    let shape = Shape { release, scheduler: Scheduling::Kube, ..Shape::default() };
    let world = World::start(bench, &format!("late-{}", release.minor()), shape, 1, 0).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    let ns = world.namespace("late").await?;
    prepare(&world, &ns).await?;
    let pod = |name: &str| Pod::new(name).with_template("device", "late").held();
    world.pod(&ns, &pod("first")).await?;
    let claim = reserved(&world, &ns, "first").await?;
    let writes = world.rest(&ns).await?;
    ensure!(!writes.iter().any(|entry| entry.what().contains("delete")), "it is left alone");
    let waiting = world.client.get(PODS, &ns, "first").await?.context("Pod")?;
    ensure!(waiting["spec"]["nodeName"].is_null(), "its device is not attached: {waiting}");
    condition(&world, &ns, &claim, "e2e.dragoman.dev/attached").await?;
    world.phase(&ns, "first", "Running").await?;
    world.let_end(&ns, "first").await?;
    world.claims(&ns, 0).await?;
    // A Pod that is deleted while its device is being attached. kube-scheduler 1.37 goes on waiting for the
    // device; the next Pod gets the other one.
    world.pod(&ns, &pod("second")).await?;
    reserved(&world, &ns, "second").await?;
    world.client.delete(PODS, &ns, "second", Some(0)).await?;
    world.claims(&ns, 0).await?;
    // A device that cannot be attached: kube-scheduler takes the allocation back. 1.36 then tries again at
    // once, 1.37 did not within a minute.
    world.pod(&ns, &pod("third")).await?;
    let claim = reserved(&world, &ns, "third").await?;
    condition(&world, &ns, &claim, "e2e.dragoman.dev/failed").await?;
    let is_free = |claim: Option<&Value>| claim.is_some_and(|claim| claim["status"]["devices"].is_null());
    world.claim_until(&ns, &claim, "has lost its allocation", is_free).await?;
    ensure!(world.claims(&ns, 1).await?[0]["metadata"]["name"] == claim, "one claim for the Pod");
    world.client.delete(PODS, &ns, "third", Some(0)).await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    dragoman.stop().await?;
    world.stop().await
}
