//! The memory of the reference allocator in a full cluster: every device of every node is allocated to a claim of a
//! running Pod.

#![expect(clippy::cast_precision_loss, reason = "counts and sizes are far below 2^52")]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dragoman_simcluster::{ApiServer, Clock, Door, Driver, Profile, User};
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

use super::{DEVICES, NAMESPACE, ask, create, listen, populate};
use crate::client::{CLAIMS, PODS, path};
use crate::dragoman::{Dragoman, Start};
use crate::objects::{self, DRIVER, Pod, pod_consumer};
use crate::usage::Usage;
use crate::wait;
use crate::world::Bench;

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
    let admin = Door::new(server.clone(), User::admin());
    populate(&admin, NODES)?;
    // Without the definition of footprints nothing is known of what devices take, and nothing is allocated.
    for definition in dragoman_crds::crdgen::definitions() {
        create(&admin, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)?;
    }
    let slices = async || server.count("resourceslices.resource.k8s.io") == NODES;
    wait::until("every node has its devices", Duration::from_mins(5), slices).await?;
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
    wait::until("every Pod in vain is told why", Duration::from_mins(2), verdicts).await?;
    let end = Usage::of(pid)?;
    explains(&directory.join("allocator.kubeconfig")).await?;
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

/// The most that a debug build of `kubectl dra explain pod` may take in this cluster, in cpu of its own: the stand-in for the
/// API server is slower than a real one. 2.6 s were measured, and 1.3 s of a release build.
const MOST_SECONDS: f64 = 4.0;
const MOST_MIB: f64 = 200.0;

/// Measures `kubectl dra explain pod` of a Pod in vain: the median of five.
async fn explains(kubeconfig: &Path) -> anyhow::Result<()> {
    let plugin = std::env::current_exe()?.with_file_name("kubectl-dra");
    let (mut seconds, mut peak, mut cpu) = (Vec::new(), 0, Duration::ZERO);
    for _ in 0..5 {
        let began = Instant::now();
        let mut child = tokio::process::Command::new(&plugin)
            .args(["explain", "pod", "vain-0", "--namespace", NAMESPACE, "--output", "json", "--kubeconfig"])
            .arg(kubeconfig)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| plugin.display().to_string())?;
        let pid = child.id().context("pid")?;
        let mut stdout = child.stdout.take().context("stdout")?;
        let mut said = String::new();
        tokio::select! {
            read = stdout.read_to_string(&mut said) => drop(read?),
            () = async {
                loop {
                    if let Ok(usage) = Usage::of(pid) {
                        (peak, cpu) = (peak.max(usage.peak), usage.cpu);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            } => {}
        }
        child.wait().await?;
        seconds.push(began.elapsed().as_secs_f64());
        let answer: Value = serde_json::from_str(&said).with_context(|| said)?;
        ensure!(answer["reason"] == "NoDevicesFree", "{answer}");
    }
    seconds.sort_by(f64::total_cmp);
    let (median, mib) = (seconds[2], peak as f64 / 1024.0);
    println!(
        "ok      scale: kubectl dra explain pod: {median:.2} s, {:.2} s of cpu, {mib:.0} MiB at most",
        cpu.as_secs_f64()
    );
    ensure!(
        cpu.as_secs_f64() <= MOST_SECONDS && mib <= MOST_MIB,
        "more than {MOST_SECONDS} s of cpu or {MOST_MIB} MiB"
    );
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
fn fill(admin: &Door, server: &ApiServer) -> anyhow::Result<()> {
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
