//! The memory of the reference allocator in a full cluster: every device of every node is allocated to a claim of a
//! running Pod.

#![expect(clippy::cast_precision_loss, reason = "counts and sizes are far below 2^52")]

use std::time::Instant;

use anyhow::{Context as _, ensure};
use dragoman_simcluster::{ApiHandle, ApiServer, Clock, Driver, Profile, User};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{DEVICES, NAMESPACE, ask, create, listen, populate};
use dragoman_e2e::client::{CLAIMS, PODS, path};
use dragoman_e2e::dragoman::{Dragoman, Start};
use dragoman_e2e::objects::{self, DRIVER, Pod, pod_consumer};
use dragoman_e2e::usage::Usage;
use dragoman_e2e::wait;
use dragoman_e2e::world::Bench;

const NODES: usize = 5_000;
/// Pods that find no room.
const IN_VAIN: usize = 100;

/// Fills a cluster, starts the allocator, lets Pods wait in vain, and measures what it takes.
pub(super) async fn run(bench: &Bench, most: f64) -> anyhow::Result<()> {
    let directory = bench.output.join("scale-full");
    std::fs::create_dir_all(&directory).context("directory")?;
    let server = ApiServer::new(Profile::default(), Clock::Real, 1);
    let kubeconfig = directory.join("allocator.kubeconfig");
    let mut cluster = JoinSet::new();
    cluster.spawn(listen(&server, &kubeconfig).await?.serve());
    cluster.spawn(Driver::new(server.clone(), DRIVER, DEVICES).run());
    let admin = ApiHandle::new(server.clone(), User::admin());
    populate(&admin, NODES)?;
    // Without the definition of footprints nothing is known of what devices take, and nothing is allocated.
    for definition in dragoman_crds::crdgen::definitions() {
        create(&admin, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)?;
    }
    let slices = async || server.count("resourceslices.resource.k8s.io") == NODES;
    wait::until("every node has its devices", slices).await?;
    fill(&admin, &server)?;
    let began = Instant::now();
    let start = Start {
        command: "allocator",
        binary: &bench.binary,
        directory: &directory,
        kubeconfig,
        mode: None,
        log: "warn",
        flags: &[],
    };
    let allocator = Dragoman::start(&start).await?;
    let pid = allocator.pid().context("the allocator has ended")?;
    let (ready, seconds) = (Usage::of(pid)?, began.elapsed().as_secs_f64());
    for number in 0..IN_VAIN {
        let name = format!("vain-{number}");
        create(&admin, CLAIMS, &claim(&name))?;
        create(&admin, PODS, &waiting(&name))?;
    }
    let verdicts = async || {
        let claims = server.all("resourceclaims.resource.k8s.io");
        let verdict = "/metadata/annotations/dragoman.dev~1verdict";
        claims.iter().filter(|claim| claim.pointer(verdict).is_some()).count() == IN_VAIN
    };
    wait::until("every Pod in vain is told why", verdicts).await?;
    let end = Usage::of(pid)?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!(
        "ok      scale: the allocator with {NODES} nodes and {} claims: ready after {seconds:.1} s with {:.0} MiB, {:.0} MiB \
         at most; {IN_VAIN} Pods in vain",
        NODES * DEVICES,
        mib(ready.resident),
        mib(end.peak)
    );
    allocator.stop().await?;
    cluster.shutdown().await;
    ensure!(mib(end.peak) <= most, "the allocator takes {:.0} MiB, not {most}", mib(end.peak));
    Ok(())
}

fn claim(name: &str) -> Value {
    let mut claim = objects::claim(name);
    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": "dragoman"});
    claim
}

/// A Pod with the gate.
fn waiting(name: &str) -> Value {
    let mut pod = Pod::new(name).with_claim("device", name).object().clone();
    pod["spec"]["schedulingGates"] = json!([{"name": "dragoman.dev/claims"}]);
    pod
}

/// A running Pod for each device, with its claim.
fn fill(admin: &ApiHandle, server: &ApiServer) -> anyhow::Result<()> {
    for slice in server.all("resourceslices.resource.k8s.io") {
        let node = slice["spec"]["nodeName"].as_str().context("nodeName")?;
        let pool = &slice["spec"]["pool"]["name"];
        for device in slice["spec"]["devices"].as_array().context("devices")? {
            let name = format!("{node}-{}", device["name"].as_str().context("name")?);
            create(admin, CLAIMS, &claim(&name))?;
            let pod = Pod::new(&name).with_claim("device", &name).on(node);
            let pod = create(admin, PODS, pod.object())?;
            let selector = json!({"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
            let status = json!({"status": {
                "allocation": {
                    "devices": {"results": [{"request": "device", "driver": DRIVER, "pool": pool, "device": device["name"]}]},
                    "nodeSelector": selector,
                },
                "reservedFor": [pod_consumer(&pod)],
            }});
            let merge = "application/merge-patch+json";
            ask(admin, Method::PATCH, &format!("{}/{name}/status", path(CLAIMS, NAMESPACE)), merge, &status)?;
            let running = json!({"status": {"phase": "Running"}});
            ask(admin, Method::PATCH, &format!("{}/{name}/status", path(PODS, NAMESPACE)), merge, &running)?;
        }
    }
    Ok(())
}
