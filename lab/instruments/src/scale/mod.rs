//! Tens of thousands of lives of Pods on simcluster, with Dragoman as a process of its own. The cost of a
//! life must not depend on the size of the cluster.

#![expect(clippy::cast_precision_loss, reason = "counts and sizes are far below 2^52")]

mod full;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use dragoman_simcluster::{
    ApiHandle, ApiServer, Body, Clock, Driver, Kubelet, Listening, Pace, Profile, Request, Scheduler, User,
    Write,
};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use dragoman_e2e::client::{PODS, TEMPLATES, path};
use dragoman_e2e::control_plane::OPERATOR;
use dragoman_e2e::dragoman::{Dragoman, Start};
use dragoman_e2e::objects::{self, Pod};
use dragoman_e2e::usage::Usage;
use dragoman_e2e::wait;
use dragoman_e2e::world::Bench;

/// Nodes and Pods, the smallest cluster first.
const SIZES: [(usize, usize); 3] = [(100, 1_000), (1_000, 10_000), (5_000, 50_000)];
/// The devices of each node.
const DEVICES: usize = 8;
/// The most Pods whose claims are not deleted yet. More Pods would only wait in queues.
const AT_ONCE: usize = 2_000;
/// Pods that are created at once.
const BATCH: usize = 100;
const NAMESPACE: &str = "scale";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";

/// `lab/instruments/scale.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Budget {
    /// The most writes and CPU time of Dragoman for a life, at every size.
    writes: f64,
    cpu_ms: f64,
    /// The most CPU time for a life in the largest cluster, relative to the smallest.
    growth: f64,
    /// The most memory of Dragoman for each completed Pod.
    bytes_per_pod: f64,
    /// The most memory of the allocator in a full cluster of 5 000 nodes with 40 000 claims, in MiB.
    #[serde(rename = "allocatorMiB")]
    allocator: f64,
}

/// The figures of one size.
struct Figures {
    nodes: usize,
    pods: usize,
    /// Writes by Dragoman for a life, without those of Events and Leases.
    writes: f64,
    /// CPU time for a life, in milliseconds.
    cpu: f64,
    /// Resident memory of Dragoman when it was ready, at the end, and at its peak, in KiB.
    memory: [u64; 3],
    seconds: f64,
}

/// Measures every size with at most `most` Pods, if any, and the allocator in a full cluster.
pub(crate) async fn run(bench: &Bench, most: Option<usize>) -> anyhow::Result<()> {
    let budget =
        std::fs::read_to_string(bench.repository.join("lab/instruments/scale.json")).context("scale.json")?;
    let budget: Budget = serde_json::from_str(&budget).context("scale.json")?;
    if let Some(most) = most {
        lives(bench, &budget, most).await?;
    }
    if most.is_none_or(|most| most >= SIZES[2].1) { full::run(bench, budget.allocator).await } else { Ok(()) }
}

/// Measures lives in clusters of different sizes with at most this many Pods.
async fn lives(bench: &Bench, budget: &Budget, most: usize) -> anyhow::Result<()> {
    println!("  nodes    Pods  writes   cpu ms  ready MiB  end MiB  most MiB  seconds");
    let mut all: Vec<Figures> = Vec::new();
    for (nodes, pods) in SIZES.into_iter().filter(|(_, pods)| *pods <= most) {
        let figures = measure(bench, nodes, pods).await.with_context(|| format!("{pods} Pods"))?;
        println!("{}", figures.text());
        ensure!(figures.writes <= budget.writes, "more than {} writes for a life", budget.writes);
        ensure!(figures.cpu <= budget.cpu_ms, "more than {} ms of cpu for a life", budget.cpu_ms);
        all.push(figures);
    }
    if let [first, .., last] = all.as_slice() {
        let (few, many) = (first.pods, last.pods);
        let growth = last.cpu / first.cpu;
        let [_, small, _] = first.memory;
        let [_, large, _] = last.memory;
        // The difference leaves out the memory that does not depend on the number of Pods.
        let bytes = large.saturating_sub(small) as f64 * 1024.0 / (many - few) as f64;
        println!(
            "ok      scale: with {many} Pods a life costs {growth:.2} times as much cpu as with {few}; a Pod takes {bytes:.0} bytes"
        );
        ensure!(growth <= budget.growth, "a life costs {growth:.2} times as much, not {}", budget.growth);
        ensure!(bytes <= budget.bytes_per_pod, "a Pod takes {bytes:.0} bytes, not {}", budget.bytes_per_pod);
    }
    Ok(())
}

impl Figures {
    fn text(&self) -> String {
        let [ready, end, most] = self.memory.map(|kib| kib as f64 / 1024.0);
        format!(
            "{:>7} {:>7} {:>7.2} {:>8.3} {ready:>10.1} {end:>8.1} {most:>9.1} {:>8.0}",
            self.nodes, self.pods, self.writes, self.cpu, self.seconds
        )
    }
}

/// Measures the lives of Pods in a cluster of this size.
async fn measure(bench: &Bench, nodes: usize, pods: usize) -> anyhow::Result<Figures> {
    let directory = bench.output.join(format!("scale-{pods}"));
    std::fs::create_dir_all(&directory).context("directory")?;
    let server = ApiServer::new(Profile::default(), Clock::Real, 1);
    let kubeconfig = directory.join("operator.kubeconfig");
    let mut cluster = run_cluster(&server, &kubeconfig).await?;
    let admin = ApiHandle::new(server.clone(), User::admin());
    populate(&admin, nodes)?;
    let slices = async || server.count("resourceslices.resource.k8s.io") == nodes;
    wait::until("every node has its devices", slices).await?;
    let start = Start {
        command: "run",
        binary: &bench.binary,
        directory: &directory,
        kubeconfig,
        mode: Some("own"),
        log: "warn",
        flags: &[],
    };
    let dragoman = Dragoman::start(&start).await?;
    let pid = dragoman.pid().context("dragoman has ended")?;
    let (before, began, writes) = (Usage::of(pid)?, Instant::now(), server.writes(0).len());
    live(&server, &admin, pods, writes).await?;
    let (after, seconds) = (Usage::of(pid)?, began.elapsed().as_secs_f64());
    let ours = own_writes(&server, writes);
    dragoman.stop().await?;
    cluster.shutdown().await;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3;
    let lives = pods as f64;
    Ok(Figures {
        nodes,
        pods,
        writes: ours as f64 / lives,
        cpu: cpu / lives,
        memory: [before.resident, after.resident, after.peak],
        seconds,
    })
}

/// Runs the API server and the stand-ins of the other components.
async fn run_cluster(server: &ApiServer, kubeconfig: &Path) -> anyhow::Result<JoinSet<()>> {
    let mut cluster = JoinSet::new();
    cluster.spawn(listen(server, kubeconfig).await?.serve());
    cluster.spawn(server.clone().collect());
    cluster.spawn(Driver::new(server.clone(), objects::DRIVER, DEVICES).run());
    cluster.spawn(Scheduler::new(server.clone()).run());
    cluster.spawn(Kubelet::new(server.clone(), Pace::default(), 1).run());
    Ok(cluster)
}

/// Creates Pods and waits until all have succeeded and their claims are gone. `writes` is the number of
/// writes before the first Pod.
async fn live(server: &ApiServer, admin: &ApiHandle, pods: usize, writes: usize) -> anyhow::Result<()> {
    let (mut read, mut gone) = (writes, 0);
    for first in (0..pods).step_by(BATCH) {
        for number in first..pods.min(first + BATCH) {
            let pod = Pod::new(&format!("pod-{number}")).with_template("gpu", "one");
            create(admin, PODS, pod.object())?;
        }
        let room = async || {
            let news = server.writes(read);
            read += news.len();
            gone += news.iter().filter(|write| is_end_of_claim(write)).count();
            first + BATCH < gone + AT_ONCE
        };
        wait::until("claims go as they come", room).await?;
    }
    let done = async || {
        let ended = |pod: &Value| pod.pointer("/status/phase").is_some_and(|phase| phase == "Succeeded");
        server.count(CLAIMS) == 0 && server.all("pods").iter().filter(|pod| ended(pod)).count() == pods
    };
    wait::until("every Pod has succeeded and its claim is gone", done).await
}

/// The number of writes by Dragoman after the first `from` writes, without those of Events and Leases.
fn own_writes(server: &ApiServer, from: usize) -> usize {
    let is_own = |write: &&Write| write.user == OPERATOR && !is_bookkeeping(&write.resource);
    server.writes(from).iter().filter(is_own).count()
}

fn is_end_of_claim(write: &Write) -> bool {
    write.verb == "delete" && write.resource == "resourceclaims"
}

fn is_bookkeeping(resource: &str) -> bool {
    resource.starts_with("events") || resource.starts_with("leases")
}

async fn listen(server: &ApiServer, kubeconfig: &Path) -> anyhow::Result<Listening> {
    let user = User { name: OPERATOR.to_owned(), groups: vec!["system:masters".to_owned()] };
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listening = Listening::open(server.clone(), loopback, false, &[user]).await?;
    let text = listening.kubeconfig(OPERATOR).context("kubeconfig")?.to_string();
    std::fs::write(kubeconfig, text).context("kubeconfig")?;
    Ok(listening)
}

fn populate(admin: &ApiHandle, nodes: usize) -> anyhow::Result<()> {
    for name in [NAMESPACE, "kube-system"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        // The namespace `kube-system` may exist from the start.
        let created = create(admin, "/api/v1/namespaces", &namespace);
        ensure!(created.is_ok() || name != NAMESPACE, "{created:?}");
    }
    create(admin, "/apis/resource.k8s.io/v1/deviceclasses", &objects::class())?;
    create(admin, TEMPLATES, &objects::template("one"))?;
    for number in 0..nodes {
        create(admin, "/api/v1/nodes", &objects::node(&format!("node-{number}")))?;
    }
    Ok(())
}

fn create(admin: &ApiHandle, collection: &str, object: &Value) -> anyhow::Result<Value> {
    ask(admin, Method::POST, &path(collection, NAMESPACE), "", object)
}

/// Sends a request; returns the object that the answer has.
fn ask(
    admin: &ApiHandle,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> anyhow::Result<Value> {
    let answer = admin.ask(Request {
        method,
        path: path.to_owned(),
        content_type: content_type.to_owned(),
        user_agent: "scale/1".to_owned(),
        body: body.to_string().into_bytes(),
        ..Request::default()
    });
    ensure!((200..300).contains(&answer.code), "{path}: {}", answer.code);
    if let Body::Json(object) = answer.body { Ok(object) } else { bail!("{path}: no object") }
}
