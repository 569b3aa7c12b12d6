//! Measures the answers of `kubectl dra` in a full cluster of a real control plane: time and memory of the
//! plugin, the answer included. The time in which the API server lists the claims is a part of it.

#![expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use dragoman_e2e::client::{CLAIMS, Client, NAMESPACES, PODS};
use dragoman_e2e::control_plane::{Backend, ControlPlane, Garbage, Scheduling, Shape};
use dragoman_e2e::objects::{self, DRIVER, Pod, pod_consumer};
use dragoman_e2e::usage::Usage;
use dragoman_e2e::world::{Bench, add_node};

/// The devices of a node. Each is allocated to a claim of a running Pod.
const DEVICES: usize = 8;
/// The Pods of a node that have no claims.
const PLAIN: usize = 2;
/// Nodes that are filled at once.
const AT_ONCE: usize = 32;
/// Pods that wait for a claim which finds no devices.
const WAITING: usize = 10_000;
const NAMESPACE: &str = "full";
/// The times that each question is asked.
const TIMES: usize = 5;

/// `lab/instruments/plugin.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Budget {
    /// `explain`.
    explain: Most,
    /// Questions that list all claims or all Pods.
    lists: Most,
}

/// The most that an answer may take.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Most {
    /// From the start of the process to its end; the median of [`TIMES`].
    seconds: f64,
    /// Peak memory of the process.
    #[serde(rename = "MiB")]
    mib: f64,
}

/// A question, and a part of its answer.
struct Question {
    arguments: &'static str,
    pointer: &'static str,
    answer: Value,
    most: Most,
}

fn questions(budget: &Budget) -> Vec<Question> {
    let ask = |most, arguments, pointer, answer| Question { arguments, pointer, answer, most };
    let explain = |what, reason: &str| ask(budget.explain, what, "/reason", json!(reason));
    let list = |arguments, pointer, answer| ask(budget.lists, arguments, pointer, answer);
    vec![
        explain("explain pod waits-0", "NoDevicesFree"),
        explain("explain claim waits", "NoDevicesFree"),
        explain("explain device node-0/dev-0", "Taken"),
        explain("explain node node-0", "Full"),
        explain("explain pod node-0-dev-0", "Running"),
        list("top --once", "/waiting", json!(WAITING)),
        list("pools", "/items/0/FREE", json!("0")),
        list("devices", "/items/0/STATE", json!("Taken")),
        list("claims -A", "/items/0/STATE", json!("InUse")),
        list("reclaim -A", "/items", json!([])),
        list("ledger node-0", "/nodes/0/resources/cpu/allocatable", json!("64")),
    ]
}

/// Fills a cluster of `nodes` nodes, and asks `plugin` about objects in it.
pub(crate) async fn run(bench: &Bench, nodes: usize, plugin: &Path) -> anyhow::Result<()> {
    let budget = std::fs::read_to_string(bench.repository.join("lab/instruments/plugin.json"))
        .context("plugin.json")?;
    let budget: Budget = serde_json::from_str(&budget).context("plugin.json")?;
    let directory = bench.output.join("plugin");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context("old logs")?;
    }
    // Nothing but the API server works while the plugin is measured.
    let shape = Shape { scheduler: Scheduling::Absent, garbage: Garbage::AsShipped, ..Shape::default() };
    let plane = ControlPlane::start(Backend::Real, &bench.repository, &directory, shape).await?;
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
    stream::iter(0..WAITING)
        .map(async |number| {
            let pod = Pod::new(&format!("waits-{number}")).with_claim("device", "waits");
            client.create(PODS, NAMESPACE, pod.object()).await
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await?;
    println!(
        "        {nodes} nodes, {} claims, {} Pods, and {WAITING} that wait, after {:.0} s",
        nodes * DEVICES,
        nodes * (DEVICES + PLAIN),
        began.elapsed().as_secs_f64()
    );
    for question in questions(&budget) {
        measure(&question, plugin, &plane.kubeconfig("admin")).await.context(question.arguments)?;
    }
    Ok(())
}

/// Asks several times, and prints the medians.
async fn measure(question: &Question, plugin: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let mut costs = Vec::new();
    for _ in 0..TIMES {
        costs.push(ask(plugin, question, kubeconfig).await?);
    }
    let mib = costs.iter().map(|cost| cost.mib).fold(0.0, f64::max);
    let [seconds, cpu] = [|cost: &Cost| cost.seconds, |cost: &Cost| cost.cpu].map(|figure| {
        let mut figures: Vec<f64> = costs.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[TIMES / 2]
    });
    let (arguments, most) = (question.arguments, question.most);
    println!("ok      plugin: {arguments}: {seconds:.2} s, {cpu:.2} s of cpu, {mib:.0} MiB at most");
    ensure!(seconds <= most.seconds && mib <= most.mib, "more than {} s or {} MiB", most.seconds, most.mib);
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
        client
            .create(PODS, NAMESPACE, Pod::new(&format!("{node}-plain-{number}")).on(&node).object())
            .await?;
    }
    Ok(())
}

/// Cost of an answer.
struct Cost {
    seconds: f64,
    cpu: f64,
    mib: f64,
}

/// Asks once.
async fn ask(plugin: &Path, question: &Question, kubeconfig: &Path) -> anyhow::Result<Cost> {
    let began = Instant::now();
    let mut child = tokio::process::Command::new(plugin)
        .args(question.arguments.split(' '))
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
    let part = answer.pointer(question.pointer);
    ensure!(part == Some(&question.answer), "{} is {part:?}", question.pointer);
    Ok(Cost { seconds, cpu: cpu.as_secs_f64(), mib: peak as f64 / 1024.0 })
}
