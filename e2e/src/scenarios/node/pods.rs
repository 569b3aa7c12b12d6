//! Lives of Pods with every kind of claim.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Cluster, SERVE, Standalone, container, pod, request, standalone, template};
use crate::client::{CLAIMS, EVENTS, NAMESPACES, PODS, SLICES, TEMPLATES};
use crate::node::{DRIVER, Machine};
use crate::wait;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(pods_see_their_devices_and_leave_nothing_behind),
        standalone!(every_kind_of_claim_reaches_its_containers),
        standalone!(halves_of_a_device_and_the_whole_exclude_each_other),
        standalone!(forty_pods_of_a_job_take_turns_on_four_devices),
    ]
}

/// Prints the variables and the files about devices.
const LOOK: &str = "env | grep -E '^(DRA|ACCELERATOR)_' | sort; \
                    cat $(find /var/run/kubernetes.io -name '*.json' | sort) 2>/dev/null; true";

async fn pods_see_their_devices_and_leave_nothing_behind(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::start(bench, "node-pods", 4).await?;
    let ns = cluster.namespace("pods").await?;
    cluster.pod(&ns, &pod("once", LOOK)).await?;
    let once = cluster.phase(&ns, "once", "Succeeded").await?;
    let said = cluster.log(&ns, "once").await?;
    said.lines().for_each(|line| println!("        {line}"));
    let line =
        |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default().to_owned();
    let file: Value = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|object| object["apiVersion"] == "metadata.resource.k8s.io/v1beta1")
        .context(said.clone())?;
    let device = &file["requests"][0]["devices"][0];
    // Three ways, one truth: the file, the variable, and the ResourceSlice.
    let bus = "resource.kubernetes.io/pciBusID";
    ensure!(file["podClaimName"] == "gpu" && device["driver"] == DRIVER, "{file}");
    let slices = cluster.world.client.list(SLICES, "").await?;
    let published =
        slices.iter().flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default());
    let published = published.into_iter().find(|of| of["name"] == device["name"]).context("the device")?;
    ensure!(device["attributes"] == published["attributes"], "{device} is published as {published}");
    let of_variable = line("DRA_GPU_GPU_RESOURCE_KUBERNETES_IO_PCIBUSID=");
    ensure!(published["attributes"][bus]["string"] == *of_variable, "{of_variable}: {published}");
    ensure!(said.contains("_MODE=plain") && said.contains("_MEMORY=all"), "{said}");
    let claim = crate::world::claim_name(&once, "gpu").context("claim")?;
    ensure!(file["metadata"]["name"] == *claim, "{file} is about {claim}");
    cluster.pod(&ns, &pod("served", SERVE)).await?;
    cluster.phase(&ns, "served", "Running").await?;
    ensure!(Machine::cdi_files().len() == 1, "{:?}", Machine::cdi_files());
    cluster.world.client.delete(PODS, &ns, "served", None).await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// Claims by name and shared, containers of every kind, shares, prioritized lists, administrators, parameters, extended
/// resources.
async fn every_kind_of_claim_reaches_its_containers(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::start_with(bench, "node-kinds", 4, &["--shared=1"]).await?;
    let ns = cluster.namespace("kinds").await?;
    shared_by_name(&cluster, &ns).await?;
    containers(&cluster, &ns).await?;
    shares(&cluster, &ns).await?;
    lists_and_parameters(&cluster, &ns).await?;
    administrators(&cluster).await?;
    extended(&cluster, &ns).await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// Two Pods use one claim by its name at once: both see the same device, and the second end gives it back.
async fn shared_by_name(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "shared"},
        "spec": {"devices": {"requests": [request("gpu")]}}});
    cluster.world.client.create(CLAIMS, ns, &claim).await?;
    let script = format!("{LOOK}; {SERVE}");
    for name in ["one", "two"] {
        let mut pod = pod(name, &script);
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "shared"}]);
        cluster.pod(ns, &pod).await?;
        cluster.phase(ns, name, "Running").await?;
    }
    let (one, two) = (
        cluster.printed(ns, "one", "DRA_SHARED_GPU_UUID=").await?,
        cluster.printed(ns, "two", "DRA_SHARED_GPU_UUID=").await?,
    );
    ensure!(one == two, "{one} and {two}");
    cluster.world.client.delete(PODS, ns, "one", None).await?;
    cluster.gone(ns, "one").await?;
    ensure!(Machine::cdi_files().len() == 1, "the second Pod still has it");
    cluster.world.client.delete(PODS, ns, "two", None).await?;
    cluster.gone(ns, "two").await?;
    cluster.world.client.delete(CLAIMS, ns, "shared", None).await
}

/// Init containers, sidecars and ordinary containers see the devices that they name, and no others.
async fn containers(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let named = |name: &str, script: &str| {
        let mut container = container(script);
        container["name"] = name.into();
        container
    };
    let mut sidecar = named("sidecar", &format!("{LOOK}; {SERVE}"));
    sidecar["restartPolicy"] = "Always".into();
    let mut without = named("without", LOOK);
    without["resources"] = json!({});
    let mut pod = pod("containers", "");
    pod["spec"]["initContainers"] = json!([named("init", LOOK), sidecar]);
    pod["spec"]["containers"] = json!([named("main", LOOK), without]);
    cluster.pod(ns, &pod).await?;
    cluster.phase(ns, "containers", "Succeeded").await?;
    for (container, sees) in [("init", true), ("sidecar", true), ("main", true), ("without", false)] {
        let ask = ["logs", "containers", "--container", container, "--namespace", ns];
        let said = cluster.world.plane.kubectl(&ask, "").await?.map_err(anyhow::Error::msg)?;
        ensure!(said.contains("DRA_GPU_GPU_UUID=") == sees, "{container}: {said}");
    }
    cluster.world.client.delete(PODS, ns, "containers", None).await
}

/// Two claims have shares of one device, and each sees how much.
async fn shares(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let mut share = request("gpu");
    share["exactly"]["capacity"] = json!({"requests": {"memory": "3Gi"}});
    let expression = format!("device.attributes[{DRIVER:?}].uuid == \"node-0-3\"");
    share["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    cluster.world.client.create(TEMPLATES, ns, &template("share", &share)).await?;
    for name in ["share-1", "share-2"] {
        let mut pod = pod(name, &format!("{LOOK}; {SERVE}"));
        pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "share".into();
        cluster.pod(ns, &pod).await?;
        cluster.phase(ns, name, "Running").await?;
        let memory = cluster.printed(ns, name, "ACCELERATOR_3_MEMORY=").await?;
        ensure!(memory == "3Gi", "{memory}");
    }
    ensure!(Machine::cdi_files().len() == 2, "{:?}", Machine::cdi_files());
    for name in ["share-1", "share-2"] {
        cluster.world.client.delete(PODS, ns, name, None).await?;
    }
    Ok(())
}

/// An accelerator that can be had whole or in halves (partitionable devices, KEP-4815): both halves run at once, the whole waits for
/// both.
async fn halves_of_a_device_and_the_whole_exclude_each_other(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::start_with(bench, "node-halves", 1, &["--split=1"]).await?;
    cluster.devices(3).await?;
    let ns = cluster.namespace("halves").await?;
    for (name, memory) in [("half", "4Gi"), ("whole", "8Gi")] {
        let mut part = request("gpu");
        let expression = format!("device.capacity[{DRIVER:?}].memory.compareTo(quantity({memory:?})) == 0");
        part["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
        cluster.world.client.create(TEMPLATES, &ns, &template(name, &part)).await?;
    }
    let want = async |name: &str, template: &str| {
        let mut pod = pod(name, &format!("{LOOK}; {SERVE}"));
        pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template.into();
        cluster.pod(&ns, &pod).await
    };
    for name in ["left", "right"] {
        want(name, "half").await?;
        cluster.phase(&ns, name, "Running").await?;
        cluster.printed(&ns, name, "ACCELERATOR_0_HALF_").await?;
    }
    want("all", "whole").await?;
    for name in ["left", "right"] {
        let refused = cluster.world.event(&ns, "all", "FailedScheduling").await?;
        ensure!(refused.contains("cannot allocate all claims"), "{refused}");
        let all = cluster.world.client.get(PODS, &ns, "all").await?.context("gone")?;
        ensure!(all["status"]["phase"] == "Pending", "the whole is there beside {name}: {all}");
        cluster.world.client.delete(PODS, &ns, name, None).await?;
        cluster.gone(&ns, name).await?;
    }
    cluster.phase(&ns, "all", "Running").await?;
    cluster.no_device_was_promised_twice(&ns).await?;
    cluster.world.client.delete(PODS, &ns, "all", None).await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// The second of a prioritized list is what there is; parameters reach the driver, and wrong ones the author of the Pod.
async fn lists_and_parameters(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let never = format!("device.attributes[{DRIVER:?}].model == \"none\"");
    let list = json!({"name": "gpu", "firstAvailable": [
        {"name": "large", "deviceClassName": "simulated", "selectors": [{"cel": {"expression": never}}]},
        {"name": "any", "deviceClassName": "simulated"}]});
    let with = |name: &str, parameters: &Value| {
        let mut template = template(name, &list);
        template["spec"]["spec"]["devices"]["config"] = json!([{"requests": ["gpu/any"],
            "opaque": {"driver": DRIVER, "parameters": parameters}}]);
        template
    };
    cluster.world.client.create(TEMPLATES, ns, &with("list", &json!({"mode": "fast"}))).await?;
    cluster.world.client.create(TEMPLATES, ns, &with("wrong", &json!({"moed": "fast"}))).await?;
    let from = |name: &str, template: &str| {
        let mut pod = pod(name, LOOK);
        pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template.into();
        pod
    };
    cluster.pod(ns, &from("list", "list")).await?;
    cluster.phase(ns, "list", "Succeeded").await?;
    let said = cluster.log(ns, "list").await?;
    ensure!(said.contains("_MODE=fast") && said.contains("\"name\":\"gpu/any\""), "{said}");
    cluster.pod(ns, &from("wrong", "wrong")).await?;
    let note = cluster.world.event(ns, "wrong", "FailedPrepareDynamicResources").await?;
    ensure!(note.contains("do not decode") && note.contains("moed"), "{note}");
    for name in ["list", "wrong"] {
        cluster.world.client.delete(PODS, ns, name, None).await?;
    }
    Ok(())
}

/// A Pod of administrators sees all devices, those too that are in use.
async fn administrators(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.namespace("admin").await?;
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    cluster.world.client.merge(NAMESPACES, "", &ns, &label).await?;
    cluster.pod(&ns, &pod("user", SERVE)).await?;
    cluster.phase(&ns, "user", "Running").await?;
    let all = json!({"name": "gpu", "exactly": {"deviceClassName": "simulated", "adminAccess": true, "allocationMode": "All"}});
    cluster.world.client.create(TEMPLATES, &ns, &template("all", &all)).await?;
    let mut admin = pod("admin", LOOK);
    admin["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "all".into();
    cluster.pod(&ns, &admin).await?;
    cluster.phase(&ns, "admin", "Succeeded").await?;
    let uuids = cluster.printed(&ns, "admin", "DRA_GPU_GPU_UUID=").await?;
    ensure!(uuids.split(',').count() == 4, "{uuids}");
    for name in ["user", "admin"] {
        cluster.world.client.delete(PODS, &ns, name, None).await?;
    }
    Ok(())
}

/// A Pod asks for a device as for any resource.
async fn extended(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let class = json!({"spec": {"extendedResourceName": "dragoman.dev/accelerator"}});
    cluster.world.client.merge("/apis/resource.k8s.io/v1/deviceclasses", "", "simulated", &class).await?;
    let mut pod = pod("extended", LOOK);
    pod["spec"]["resourceClaims"] = Value::Null;
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"dragoman.dev/accelerator": "1"}});
    cluster.pod(ns, &pod).await?;
    cluster.phase(ns, "extended", "Succeeded").await?;
    let said = cluster.log(ns, "extended").await?;
    ensure!(said.contains("ACCELERATOR_") && said.contains("_MODE=plain"), "{said}");
    cluster.world.client.delete(PODS, ns, "extended", None).await
}

/// The same Job under the built-in controller and under Dragoman, on the same machine: what each costs is printed.
async fn forty_pods_of_a_job_take_turns_on_four_devices(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::bare(bench, "node-job-built-in", 4, &[], true).await?;
    let built_in = turns(&cluster, "the built-in controller").await?;
    cluster.stop().await?;
    let cluster = Cluster::start(bench, "node-job", 4).await?;
    let ours = turns(&cluster, "Dragoman").await?;
    ensure!(ours <= built_in, "{ours} writes about claims, and {built_in} of the built-in controller");
    driver_at_rest(&cluster).await?;
    cluster.stop().await
}

/// Runs forty Pods over four devices; returns the number of writes of the claim controller.
async fn turns(cluster: &Cluster, whose: &str) -> anyhow::Result<usize> {
    // The claim controller works before the Job comes: Dragoman has to become the leader first.
    let ns = cluster.namespace("first").await?;
    cluster.pod(&ns, &pod("first", "true")).await?;
    cluster.phase(&ns, "first", "Succeeded").await?;
    cluster.nothing_is_left(&ns).await?;
    let ns = cluster.namespace("job").await?;
    let spec = &pod("", "sleep 0.2")["spec"];
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "turns"},
        "spec": {"completions": PODS_OF_JOB, "parallelism": PODS_OF_JOB, "template": {"spec": spec}}});
    cluster.world.client.create(JOBS, &ns, &job).await?;
    let done = async || {
        let job = cluster.world.client.get(JOBS, &ns, "turns").await?.context("the Job is gone")?;
        Ok((job["status"]["succeeded"] == PODS_OF_JOB).then_some(()))
    };
    let started = std::time::Instant::now();
    let outcome = wait::value("40 Pods have succeeded", done).await;
    outcome.map_err(|error| error.context(cluster.machine.log()))?;
    let minutes = started.elapsed().as_secs_f32() / 60.0;
    cluster.no_device_was_promised_twice(&ns).await?;
    cluster.nothing_is_left(&ns).await?;
    let entries = cluster.world.rest(&ns).await?;
    let of = |party: &str| entries.iter().filter(|entry| entry.party() == party).count();
    let claims = if whose == "Dragoman" { of("dragoman") } else { of("built-in claim controller") };
    let all = entries.len();
    let events = cluster.world.client.list(EVENTS, &ns).await?;
    let late = events.iter().filter(|event| event["reason"] == "FailedPrepareDynamicResources").count();
    println!(
        "        {whose}: {:.0} Pods in a minute over 4 devices; {:.1} writes for a Pod, {:.1} of them its own; {late} Pods were \
         prepared late",
        f64::from(PODS_OF_JOB) / f64::from(minutes),
        per_pod(all),
        per_pod(claims)
    );
    ensure!(
        claims > 0,
        "{whose} writes nothing: {:?}",
        entries.iter().map(|entry| entry.party().to_owned()).collect::<std::collections::BTreeSet<_>>()
    );
    Ok(claims)
}

const PODS_OF_JOB: u16 = 40;

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn per_pod(count: usize) -> f64 {
    count as f64 / f64::from(PODS_OF_JOB)
}

/// The memory of a driver that has nothing to do, and how long prepares took.
async fn driver_at_rest(cluster: &Cluster) -> anyhow::Result<()> {
    let metrics = cluster.machine.metrics().await?;
    let bucket = |line: &str| -> Option<(String, u64)> {
        let rest = line.strip_prefix("dra_driver_call_seconds_bucket{le=\"")?;
        let rest = rest.contains("call=\"prepare\",status=\"success\"").then_some(rest)?;
        Some((rest.split('"').next()?.to_owned(), line.rsplit(' ').next()?.parse().ok()?))
    };
    let buckets: Vec<(String, u64)> = metrics.lines().filter_map(bucket).collect();
    let count = buckets.last().map(|(_, count)| *count).context(metrics.clone())?;
    let within = |share: u64| {
        let found = buckets.iter().find(|(_, so_far)| *so_far * 100 >= count * share);
        found.map_or("?", |(seconds, _)| seconds)
    };
    let memory = cluster.machine.driver_memory()?;
    println!(
        "        the driver prepared {count} claims, half of them within {} s and 99 of 100 within {} s; it takes {memory} MiB",
        within(50),
        within(99)
    );
    ensure!(memory <= DRIVER_MEMORY, "the driver takes {memory} MiB, and {DRIVER_MEMORY} are its budget");
    Ok(())
}

/// The most MiB of the example driver in a debug build.
const DRIVER_MEMORY: u64 = 32;

const JOBS: &str = "/apis/batch/v1/{}/jobs";
