//! Promises of two allocators that know nothing of each other: devices, shares of devices, and counters.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FLAGS, born_gated, gated, namespace, promise, promise_of};
use crate::client::{CLAIMS, FOOTPRINTS, PODS, SLICES};
use crate::control_plane::Shape;
use crate::objects::{DRIVER, Pod, pod_consumer};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_device_that_two_allocators_promised_is_given_back),
        standalone!(shares_and_counters_that_two_allocators_promised_are_given_back),
    ]
}

/// Waits until an object that is created now is younger than this one: ages have seconds.
async fn a_second_goes_by(world: &World, ns: &str, older: &Value) -> anyhow::Result<()> {
    let created = older["metadata"]["creationTimestamp"].clone();
    wait::value("the clock goes on", async || {
        let probe = Pod::new("probe");
        let dry = world.client.create(&format!("{PODS}?dryRun=All"), ns, probe.object()).await?;
        Ok((dry["metadata"]["creationTimestamp"] != created).then_some(()))
    })
    .await
}

/// Two allocators without knowledge of each other give the only device to a Pod each. The older Pod runs;
/// the allocation of the younger is given back, and nothing it reads names the claim of the other.
async fn a_device_that_two_allocators_promised_is_given_back(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "gated-twice", Shape::default(), 1).await?;
    let (one, two) = (namespace(&world, "one", "enabled").await?, namespace(&world, "two", "enabled").await?);
    let mut pods = Vec::new();
    for (ns, name) in [(&one, "first"), (&two, "second")] {
        let labels = json!({"labels": {"dragoman.dev/allocator": "foreign"}});
        pods.push(born_gated(&world, ns, name, labels, "100m").await?);
        a_second_goes_by(&world, ns, pods.last().context("Pod")?).await?;
    }
    let [first, second] = &*pods else { anyhow::bail!("two Pods") };
    for (ns, pod, name) in [(&two, second, "second"), (&one, first, "first")] {
        let status = promise("dev-0", "node-0", &[pod_consumer(pod)]);
        world.client.merge(CLAIMS, ns, &format!("{name}/status"), &status).await?;
    }
    let operator = world.dragoman("own", &FLAGS).await?;
    world.phase(&one, "first", "Succeeded").await?;
    let note = world.event(&two, "second", "PromisedTwice").await?;
    ensure!(!note.contains("first") && !note.contains(&one), "{note}");
    let claim = world.client.get(CLAIMS, &two, "second").await?.context("claim")?;
    ensure!(claim["status"]["allocation"].is_null(), "{claim}");
    let rejections = claim["metadata"]["annotations"]["dragoman.dev/rejections"].to_string();
    ensure!(rejections.contains("two allocators promised it") && !rejections.contains(&one), "{rejections}");
    ensure!(operator.log().contains(&format!("claims={one}/first,{two}/second")), "the log names both");
    operator.stop().await?;
    // The judge has seen what this scenario is about.
    let verdict = world.stop().await;
    ensure!(verdict.is_err(), "the device was not promised twice: this tells nothing");
    Ok(())
}

/// The pool of the shares and the partitions.
const POOL: &str = "parts";

/// A device of 10Gi that Pods share, one without any capacity, and two partitions that draw 6 each on a counter of 10.
async fn parts(world: &World) -> anyhow::Result<()> {
    let pool = json!({"name": POOL, "generation": 1, "resourceSliceCount": 2});
    let slice = |name: &str, content: Value| {
        let mut spec = json!({"driver": DRIVER, "nodeName": "node-0", "pool": pool});
        spec.as_object_mut()
            .into_iter()
            .zip(content.as_object())
            .for_each(|(spec, of)| spec.extend(of.clone()));
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
    };
    let counters = json!({"sharedCounters": [{"name": "gpu", "counters": {"slots": {"value": "10"}}}]});
    let draws = json!([{"counterSet": "gpu", "counters": {"slots": {"value": "6"}}}]);
    let devices = json!({"devices": [
        {"name": "memory", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "10Gi"}}},
        {"name": "free", "allowMultipleAllocations": true},
        {"name": "part-0", "consumesCounters": draws}, {"name": "part-1", "consumesCounters": draws}]});
    world.client.create(SLICES, "", &slice("counters", counters)).await?;
    world.client.create(SLICES, "", &slice("devices", devices)).await?;
    Ok(())
}

/// Devices that two allocators write into the claims of two Pods, and the words to the younger Pod; no words
/// where both fit.
struct Case {
    name: &'static str,
    older: Value,
    younger: Value,
    words: &'static str,
}

fn cases() -> [Case; 5] {
    let of = |device: &str| json!({"request": "device", "driver": DRIVER, "pool": POOL, "device": device});
    let share = |device: &str, id: u8, memory: &str| {
        let mut result = of(device);
        result["shareID"] = json!(format!("00000000-0000-4000-8000-0000000000{id:02}"));
        if !memory.is_empty() {
            result["consumedCapacity"] = json!({"memory": memory});
        }
        result
    };
    let case = |name, older, younger, words| Case { name, older, younger, words };
    let memory = |id, amount| share("memory", id, amount);
    [
        case("shares", memory(1, "8Gi"), memory(2, "8Gi"), "take 16Gi of memory, and it has 10Gi"),
        case("fitting", memory(3, "5Gi"), memory(4, "5Gi"), ""),
        case("whole", memory(5, "1Gi"), of("memory"), "another claim has device"),
        case("without", share("free", 6, ""), share("free", 7, ""), ""),
        case("partitions", of("part-0"), of("part-1"), "take 12 of counter gpu/slots, and there is 10"),
    ]
}

/// Shares that take more than their device has, a whole device beside a share, and partitions that take more than their counter
/// has: the older Pod runs, and the allocation of the younger is given back. What fits runs.
async fn shares_and_counters_that_two_allocators_promised_are_given_back(
    bench: &Bench,
) -> anyhow::Result<()> {
    let world = gated(bench, "gated-parts", Shape::default(), 1).await?;
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    parts(&world).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let ns = namespace(&world, "parts", "enabled").await?;
    for case in cases() {
        played(&world, &ns, &case).await.with_context(|| case.name)?;
        world.claims(&ns, 0).await?;
    }
    operator.stop().await?;
    world.stop().await
}

async fn played(world: &World, ns: &str, case: &Case) -> anyhow::Result<()> {
    let names = [format!("{}-older", case.name), format!("{}-younger", case.name)];
    let gate = "release-gates.dragoman.dev/both";
    let mut pods = Vec::new();
    for name in &names {
        let metadata =
            json!({"labels": {"dragoman.dev/allocator": "foreign"}, "annotations": {gate: "closed"}});
        pods.push(born_gated(world, ns, name, metadata, "100m").await?);
        a_second_goes_by(world, ns, pods.last().context("Pod")?).await?;
    }
    for ((name, pod), result) in names.iter().zip(&pods).zip([&case.older, &case.younger]) {
        let status = promise_of(result, "node-0", &[pod_consumer(pod)]);
        world.client.merge(CLAIMS, ns, &format!("{name}/status"), &status).await?;
    }
    let [older, younger] = &names;
    if !case.words.is_empty() {
        let note = world.event(ns, younger, "PromisedTwice").await?;
        println!("        {note}");
        ensure!(note.contains(case.words) && !note.contains(&**older), "{note}");
    }
    for name in &names {
        let open = json!({"metadata": {"annotations": {gate: null}}});
        world.client.merge(CLAIMS, ns, name, &open).await?;
    }
    world.phase(ns, older, "Succeeded").await?;
    if case.words.is_empty() {
        world.phase(ns, younger, "Succeeded").await?;
    }
    for name in &names {
        world.client.delete(PODS, ns, name, None).await?;
        world.client.delete(CLAIMS, ns, name, None).await?;
    }
    Ok(())
}
