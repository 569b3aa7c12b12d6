//! The allocator takes the devices that cost others least.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FLAGS, gated, namespace, says};
use crate::client::{CLAIMS, FOOTPRINTS, PODS, SLICES};
use crate::control_plane::Shape;
use crate::objects::{self, DRIVER, Pod};
use crate::scenarios::{Standalone, standalone};
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_partition_goes_where_it_splits_nothing),
        standalone!(a_network_card_comes_beside_its_gpu),
    ]
}

/// Two GPUs of node-0, each as a whole and as two halves, in place of the devices that the node had.
async fn gpus(world: &World) -> anyhow::Result<()> {
    world.client.delete(SLICES, "", "node-0", None).await?;
    let slice = |name: &str, field: &str, content: Value| {
        let mut slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": DRIVER, "nodeName": "node-0",
                "pool": {"name": "gpus", "generation": 1, "resourceSliceCount": 2}}});
        slice["spec"][field] = content;
        slice
    };
    let counters =
        ["gpu-0", "gpu-1"].map(|gpu| json!({"name": gpu, "counters": {"memory": {"value": "80Gi"}}}));
    let device = |gpu: &str, part: &str, memory: &str| {
        json!({"name": format!("{gpu}-{part}"),
            "attributes": {"gpu": {"string": gpu}, "whole": {"bool": part == "whole"}},
            "consumesCounters": [{"counterSet": gpu, "counters": {"memory": {"value": memory}}}]})
    };
    let of =
        |gpu| [device(gpu, "whole", "80Gi"), device(gpu, "half-0", "40Gi"), device(gpu, "half-1", "40Gi")];
    let devices: Vec<Value> = ["gpu-0", "gpu-1"].into_iter().flat_map(of).collect();
    world.client.create(SLICES, "", &slice("counters", "sharedCounters", json!(counters))).await?;
    world.client.create(SLICES, "", &slice("devices", "devices", json!(devices))).await?;
    Ok(())
}

/// Runs a Pod with a device that a selector selects, until it is told to end. Returns the device.
async fn device_of(world: &World, ns: &str, name: &str, selector: &str) -> anyhow::Result<String> {
    let mut claim = objects::claim(name);
    let expression = selector.replace("DEVICE", &format!("device.attributes['{DRIVER}']"));
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] =
        json!([{"cel": {"expression": expression}}]);
    world.client.create(CLAIMS, ns, &claim).await?;
    world.pod(ns, &Pod::new(name).with_claim("device", name).held()).await?;
    world.phase(ns, name, "Running").await?;
    let claim = world.client.get(CLAIMS, ns, name).await?.context("claim")?;
    let device = claim["status"]["allocation"]["devices"]["results"][0]["device"].as_str();
    Ok(device.context("a device")?.to_owned())
}

/// One half of gpu-1 is taken. The next half is the other one, although gpu-0 comes first, and a Pod that needs a whole GPU
/// runs.
async fn a_partition_goes_where_it_splits_nothing(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "choice", Shape::default(), 1).await?;
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    gpus(&world).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "choice", "enabled").await?;
    let first = device_of(&world, &ns, "first", "DEVICE.gpu == 'gpu-1' && !DEVICE.whole").await?;
    let second = device_of(&world, &ns, "second", "!DEVICE.whole").await?;
    let whole = device_of(&world, &ns, "whole", "DEVICE.whole").await?;
    println!("        {first}, then {second}, then {whole}");
    ensure!(
        (&*first, &*second, &*whole) == ("gpu-1-half-0", "gpu-1-half-1", "gpu-0-whole"),
        "{first}, {second}, {whole}"
    );
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// The GPU and the network card of a Pod are in two claims. The GPU that comes first is on another PCIe root than the first card. A Pod that
/// asks for devices on one root waits until there are such.
async fn a_network_card_comes_beside_its_gpu(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "aligned", Shape::default(), 1).await?;
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    world.client.delete(SLICES, "", "node-0", None).await?;
    let device = |name: &str, kind: &str, root: &str| {
        json!({"name": name, "attributes": {"kind": {"string": kind},
            "resource.kubernetes.io/pcieRoot": {"string": root}}})
    };
    let devices = [
        device("gpu-0", "gpu", "pci0000:00"),
        device("gpu-1", "gpu", "pci0000:80"),
        device("nic-0", "nic", "pci0000:80"),
        device("nic-1", "nic", "pci0000:40"),
    ];
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "cards"},
        "spec": {"driver": DRIVER, "nodeName": "node-0", "devices": devices,
            "pool": {"name": "cards", "generation": 1, "resourceSliceCount": 1}}});
    world.client.create(SLICES, "", &slice).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "aligned", "enabled").await?;
    uses_a_gpu_and_a_card(&world, &ns, "train", None).await?;
    world.phase(&ns, "train", "Running").await?;
    ensure!(given(&world, &ns, "train").await? == ["gpu-1", "nic-0"], "a GPU and its card");
    uses_a_gpu_and_a_card(&world, &ns, "strict", Some("resource.kubernetes.io/pcieRoot")).await?;
    let words = "no value of attribute resource.kubernetes.io/pcieRoot that all devices of the Pod share";
    println!("        {}", says(&world, &ns, "strict", words).await?);
    world.let_end(&ns, "train").await?;
    world.phase(&ns, "strict", "Running").await?;
    ensure!(given(&world, &ns, "strict").await? == ["gpu-1", "nic-0"], "on one root");
    // Without the annotation it is a wish.
    uses_a_gpu_and_a_card(&world, &ns, "wish", None).await?;
    world.phase(&ns, "wish", "Running").await?;
    ensure!(given(&world, &ns, "wish").await? == ["gpu-0", "nic-1"], "what there is");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Creates a Pod with a claim for a GPU and one for a network card, which share an attribute if one is named.
async fn uses_a_gpu_and_a_card(
    world: &World,
    ns: &str,
    name: &str,
    aligned_by: Option<&str>,
) -> anyhow::Result<()> {
    let claims = ["gpu", "nic"].map(|kind| format!("{name}-{kind}"));
    for (claim_name, kind) in claims.iter().zip(["gpu", "nic"]) {
        let mut claim = objects::claim(claim_name);
        let expression = format!("device.attributes['{DRIVER}'].kind == '{kind}'");
        claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] =
            json!([{"cel": {"expression": expression}}]);
        world.client.create(CLAIMS, ns, &claim).await?;
    }
    let pod = Pod::new(name).with_claim("gpu", &claims[0]).with_claim("nic", &claims[1]).held();
    let mut pod = pod.object().clone();
    if let Some(attribute) = aligned_by {
        pod["metadata"]["annotations"]["dragoman.dev/aligned-by"] = json!(attribute);
    }
    world.client.create(PODS, ns, &pod).await.map(drop)?;
    Ok(())
}

/// The devices of the GPU claim and of the card claim of a Pod.
async fn given(world: &World, ns: &str, pod: &str) -> anyhow::Result<[String; 2]> {
    let device = async |kind: &str| {
        let claim = world.client.get(CLAIMS, ns, &format!("{pod}-{kind}")).await?.context("claim")?;
        let device = claim["status"]["allocation"]["devices"]["results"][0]["device"].as_str();
        anyhow::Ok(device.context("a device")?.to_owned())
    };
    Ok([device("gpu").await?, device("nic").await?])
}
