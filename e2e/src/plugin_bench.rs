//! What `kubectl dra explain` costs in a full cluster of a real control plane: time and memory of the plugin, the answer
//! included. What the API server takes to list the claims is a part of it.

#![expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::client::{CLAIMS, Client, NAMESPACES, PODS};
use crate::control_plane::{Backend, ControlPlane, Programs, Release, Scheduling, Shape};
use crate::objects::{self, DRIVER, Pod, pod_consumer};
use crate::usage::Usage;
use crate::world::{Bench, add_node};

/// The devices of a node. Each is allocated to a claim of a running Pod.
const DEVICES: usize = 8;
/// The Pods of a node that have no claims.
const PLAIN: usize = 2;
/// Nodes that are filled at once.
const AT_ONCE: usize = 32;
const NAMESPACE: &str = "full";
/// The times that each question is asked.
const TIMES: usize = 5;

/// `e2e/plugin.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Budget {
    /// The longest answer, from the start of the process to its end; the median of [`TIMES`].
    seconds: f64,
    /// The most memory of the process, in MiB.
    #[serde(rename = "mostMiB")]
    mib: f64,
}

/// Fills a cluster of `nodes` nodes, and asks `plugin` about objects in it.
pub(crate) async fn run(bench: &Bench, nodes: usize, plugin: &Path) -> anyhow::Result<()> {
    let budget = std::fs::read_to_string(bench.repository.join("e2e/plugin.json")).context("plugin.json")?;
    let budget: Budget = serde_json::from_str(&budget).context("plugin.json")?;
    let directory = bench.output.join("plugin");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context("old logs")?;
    }
    let programs = Programs::provide(&bench.repository, Release::default()).await?;
    // Nothing but the API server works while the plugin is measured.
    let shape = Shape { scheduler: Scheduling::Nobody, ..Shape::default() };
    let plane = ControlPlane::start(Backend::Real, programs, &directory, shape).await?;
    let client = plane.client("admin").await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    client.create(NAMESPACES, "", &namespace).await?;
    client.create("/apis/resource.k8s.io/v1/deviceclasses", "", &objects::class()).await?;
    let began = Instant::now();
    stream::iter(0..nodes)
        .map(|node| fill(&client, format!("node-{node}")))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    client.create(CLAIMS, NAMESPACE, &objects::claim("waits")).await?;
    client.create(PODS, NAMESPACE, Pod::new("waits").with_claim("device", "waits").object()).await?;
    println!(
        "        {nodes} nodes, {} claims, {} Pods after {:.0} s",
        nodes * DEVICES,
        nodes * (DEVICES + PLAIN),
        began.elapsed().as_secs_f64()
    );
    let questions =
        [("pod waits", "NoDevicesFree"), ("claim waits", "NoDevicesFree"), ("pod node-0-dev-0", "Running")];
    for (question, reason) in questions {
        let mut answers = Vec::new();
        for _ in 0..TIMES {
            answers.push(ask(plugin, question, reason, &plane.kubeconfig("admin")).await?);
        }
        let most = answers.iter().map(|answer| answer.mib).fold(0.0, f64::max);
        let [seconds, cpu] = [|answer: &Cost| answer.seconds, |answer: &Cost| answer.cpu].map(|figure| {
            let mut figures: Vec<f64> = answers.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[TIMES / 2]
        });
        println!("ok      plugin: explain {question}: {seconds:.2} s, {cpu:.2} s of cpu, {most:.0} MiB at most");
        ensure!(seconds <= budget.seconds, "explain {question} takes {seconds:.2} s, not {}", budget.seconds);
        ensure!(most <= budget.mib, "explain {question} takes {most:.0} MiB, not {}", budget.mib);
    }
    Ok(())
}

/// A node, its slice, and a running Pod for each of its devices.
async fn fill(client: &Client, node: String) -> anyhow::Result<()> {
    add_node(client, &node, DEVICES).await?;
    for number in 0..DEVICES {
        let device = format!("dev-{number}");
        let name = format!("{node}-{device}");
        client.create(CLAIMS, NAMESPACE, &objects::claim(&name)).await?;
        let pod = Pod::new(&name).with_claim("device", &name).on(&node);
        let pod = client.create(PODS, NAMESPACE, pod.object()).await?;
        let selector = json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
        let result = json!({"request": "device", "driver": DRIVER, "pool": node, "device": device});
        let status = json!({"status": {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
            "reservedFor": [pod_consumer(&pod)],
        }});
        client.merge(CLAIMS, NAMESPACE, &format!("{name}/status"), &status).await?;
        let running = json!({"status": {"phase": "Running"}});
        client.merge(PODS, NAMESPACE, &format!("{name}/status"), &running).await?;
    }
    for number in 0..PLAIN {
        client.create(PODS, NAMESPACE, Pod::new(&format!("{node}-plain-{number}")).on(&node).object()).await?;
    }
    Ok(())
}

/// What an answer costs.
struct Cost {
    seconds: f64,
    cpu: f64,
    mib: f64,
}

/// Asks once; the answer has to have this reason.
async fn ask(plugin: &Path, question: &str, reason: &str, kubeconfig: &Path) -> anyhow::Result<Cost> {
    let began = Instant::now();
    let mut child = tokio::process::Command::new(plugin)
        .arg("explain")
        .args(question.split(' '))
        .args(["--namespace", NAMESPACE, "--output", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| plugin.display().to_string())?;
    let pid = child.id().context("pid")?;
    let mut stdout = child.stdout.take().context("stdout")?;
    let (mut said, mut peak, mut cpu) = (String::new(), 0, Duration::ZERO);
    let watched = async {
        loop {
            if let Ok(usage) = Usage::of(pid) {
                (peak, cpu) = (peak.max(usage.peak), usage.cpu);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        read = stdout.read_to_string(&mut said) => drop(read?),
        () = watched => {}
    }
    child.wait().await?;
    let seconds = began.elapsed().as_secs_f64();
    let answer: Value = serde_json::from_str(&said).with_context(|| said)?;
    ensure!(answer["reason"] == reason, "explain {question}: {answer}");
    Ok(Cost { seconds, cpu: cpu.as_secs_f64(), mib: peak as f64 / 1024.0 })
}
