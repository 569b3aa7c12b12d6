//! kube-scheduler as a second allocator of the same devices: Pods without the gate in another namespace, and extended
//! resources. A DriverOwner keeps them out.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FLAGS, gated, in_phase, namespace};
use crate::client::{CLAIMS, CLASSES, PODS};
use crate::control_plane::Shape;
use crate::objects::{DRIVER, Pod};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(the_devices_of_an_owned_driver_are_allocated_by_its_owner_alone)]
}

pub(super) const OWNERS: &str = "/apis/dragoman.dev/v1alpha1/driverowners";
/// Part of the refusal that kube-scheduler gets when it allocates.
const REFUSED: &str = "are allocated and deallocated by kube-system/";
/// The account of the reference allocator.
pub(crate) const REFERENCE: &str = "dragoman-allocator";
const PAIRS: usize = 6;

/// Declares that an account in kube-system owns a driver, and waits until the API server acts on it.
pub(crate) async fn own(world: &World, driver: &str, account: &str) -> anyhow::Result<()> {
    let owner = json!({
        "apiVersion": "dragoman.dev/v1alpha1", "kind": "DriverOwner", "metadata": {"name": driver},
        "spec": {"owners": [{"namespace": "kube-system", "name": account}]},
    });
    world.client.create(OWNERS, "", &owner).await?;
    let ns = world.namespace("owned-probe").await?;
    world.client.create(CLAIMS, &ns, &crate::objects::claim("probe")).await?;
    let scheduler = world.plane.client("scheduler").await?;
    let result = json!({"request": "device", "driver": driver, "pool": "none", "device": "none"});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    // The look is a dry run.
    let refused = async || {
        let outcome = scheduler.merge(CLAIMS, &ns, "probe/status?dryRun=All", &status).await;
        Ok(outcome.err().filter(|refusal| refusal.to_string().contains(REFUSED)).map(drop))
    };
    wait::value("the API server refuses allocations of others", refused).await?;
    world.client.delete(CLAIMS, &ns, "probe", None).await?;
    Ok(())
}

/// The claims of the cluster that have each device.
pub(super) async fn devices(world: &World) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut devices = BTreeMap::<String, Vec<String>>::new();
    for claim in world.client.list(CLAIMS, "").await? {
        let results = claim["status"]["allocation"]["devices"]["results"].as_array();
        for result in results.into_iter().flatten() {
            let name = format!("{}/{}", result["pool"], result["device"]);
            devices.entry(name).or_default().push(claim["metadata"]["name"].to_string());
        }
    }
    Ok(devices)
}

/// Pairs of a gated and an ungated Pod are created right after each other. Both allocators take the first free device.
async fn the_devices_of_an_owned_driver_are_allocated_by_its_owner_alone(
    bench: &Bench,
) -> anyhow::Result<()> {
    let world = gated(bench, "owned", Shape::default(), 4).await?;
    let class = json!({"spec": {"extendedResourceName": "e2e.dragoman.dev/gpu"}});
    let classes = world.client.list(CLASSES, "").await?;
    let class_name = classes[0]["metadata"]["name"].as_str().context("class")?;
    world.client.merge(CLASSES, "", class_name, &class).await?;
    own(&world, DRIVER, REFERENCE).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let (ours, theirs) = (namespace(&world, "owned", "enabled").await?, world.namespace("ungated").await?);
    for number in 0..PAIRS {
        let pod = Pod::new(&format!("pod-{number}")).with_template("device", "one").held();
        world.client.create(PODS, &ours, pod.object()).await?;
        world.client.create(PODS, &theirs, pod.object()).await?;
    }
    world.pod(&theirs, &Pod::new("extended").held().limited("e2e.dragoman.dev/gpu")).await?;
    wait::value("the gated Pods run", async || {
        Ok((in_phase(&world, &ours, "Running").await?.len() == PAIRS).then_some(()))
    })
    .await?;
    let refused = async || {
        let pods = world.client.list(PODS, &theirs).await?;
        let says = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let mut texts = conditions.filter_map(|condition| condition["message"].as_str());
            texts.any(|text| {
                text.contains(REFUSED)
                    && text.contains(REFERENCE)
                    && text.contains("dragoman.dev/gating=enabled")
            })
        };
        Ok((pods.iter().filter(says).count() == PAIRS + 1).then_some(()))
    };
    wait::value("each Pod without the gate says who allocates", refused).await?;
    ensure!(in_phase(&world, &theirs, "Running").await?.is_empty(), "a Pod without the gate runs");
    let held = devices(&world).await?;
    ensure!(held.values().all(|claims| claims.len() == 1) && held.len() == PAIRS, "{held:?}");
    // The last consumer has ended: the operator, which owns no driver, takes the allocations back.
    for number in 0..PAIRS {
        world.let_end(&ours, &format!("pod-{number}")).await?;
    }
    wait::value("the devices are free", async || Ok(devices(&world).await?.is_empty().then_some(()))).await?;
    // Without an owner kube-scheduler allocates as ever.
    world.client.delete(OWNERS, "", DRIVER, None).await?;
    wait::value("the other Pods run", async || {
        Ok((in_phase(&world, &theirs, "Running").await?.len() == PAIRS + 1).then_some(()))
    })
    .await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
