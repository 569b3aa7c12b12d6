//! `dragoman demo`: the whole system on a laptop.

#![expect(clippy::indexing_slicing, reason = "reading a field of JSON that is not there gives null")]

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use dragoman_crds::crdgen;
use dragoman_reconcilers::protocol::GATE;
use dragoman_simcluster::{
    ApiServer, Clock, Door, Driver, HistoryStep, Kubelet, Listening, Pace, Profile, Promises, Request,
    Scheduler, User,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::simulated;

/// Flags of `dragoman demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoFlags {
    /// Pods that live through their lives, each with a claim from a template.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pods: u32,
    /// Simulated nodes with eight devices each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// Serve the API here while it runs and until it is stopped, for kubectl; port 0 is any.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Let --listen be an address that others can reach.
    #[arg(long)]
    allow_remote: bool,
    /// Of everything that is left to chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const CLAIMS: &str = "resourceclaims.resource.k8s.io";
const NAMESPACE: &str = "demo";
const DRIVER: &str = "gpu.demo.dragoman.dev";
const DEVICES: usize = 8;
/// The cpus of a node.
const CPUS: usize = 32;
/// What a device takes of them: kube-scheduler alone would run a Pod on every device, and overcommit the node.
const CPUS_OF_DEVICE: usize = 5;
/// The Pods that a node has room for.
const ROOM: usize = CPUS / CPUS_OF_DEVICE;

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("stdout")
}

/// Runs it.
///
/// # Errors
/// The address of --listen is of no use, or something is left over at the end.
pub(crate) async fn demo(flags: &DemoFlags) -> anyhow::Result<()> {
    let server = ApiServer::new(Profile::default(), Clock::Real, flags.seed);
    server.chronicle();
    let kubeconfig = match flags.listen {
        Some(address) => Some(listen(&server, address, flags.allow_remote).await?),
        None => None,
    };
    let mut cluster = JoinSet::new();
    cluster.spawn(server.clone().collect());
    cluster.spawn(Driver::new(server.clone(), DRIVER, DEVICES).run());
    cluster.spawn(Scheduler::new(server.clone()).run());
    cluster.spawn(Kubelet::new(server.clone(), Pace::default(), flags.seed).run());
    let [mut operator, mut allocator] = simulated::gated(&server);
    let admin = Door::new(server.clone(), User::admin());
    populate(&admin, flags);
    say(&format!(
        "{} nodes with {CPUS} cpus and {DEVICES} devices each, of which each takes {CPUS_OF_DEVICE} cpus of its node: \
         {} Pods have room at once",
        flags.nodes,
        flags.nodes as usize * ROOM
    ))?;
    say(&format!(
        "{} Pods with a claim from a template each, held back by the gate {GATE} until it is allocated and accounted for",
        flags.pods
    ))?;
    if let Some(path) = &kubeconfig {
        say(&format!(
            "look with: kubectl --kubeconfig {path} -n {NAMESPACE} get pods,resourceclaims --watch"
        ))?;
        say(&format!("what devices take from the nodes: kubectl --kubeconfig {path} get nadcs"))?;
    }
    for number in 0..flags.pods {
        create(&admin, "/api/v1/namespaces/demo/pods", &pod(number));
        if number % 50 == 49 {
            tokio::task::yield_now().await;
        }
    }
    tokio::select! {
        done = watch(&server, flags.pods as usize, flags.nodes as usize * ROOM) => done?,
        () = operator.ended() => bail!("a part of the operator has ended"),
        () = allocator.ended() => bail!("a part of the allocator has ended"),
    }
    let left = claims_of(&server);
    say(&summary(&server))?;
    if kubeconfig.is_some() {
        say("the API is served until you press Ctrl-C; create a Pod of your own with the template \"one\"")?;
        tokio::signal::ctrl_c().await.context("signal")?;
    }
    drop([operator, allocator]);
    if left > 0 {
        bail!("{left} claims are left over");
    }
    Ok(())
}

/// Opens the port; the path of the kubeconfig.
async fn listen(server: &ApiServer, address: SocketAddr, allow_remote: bool) -> anyhow::Result<String> {
    let listening = Listening::open(server.clone(), address, allow_remote, &[User::admin()]).await;
    let listening = listening.context("--listen")?;
    let kubeconfig = listening.kubeconfig("admin").context("kubeconfig")?;
    let path = std::env::temp_dir().join(format!("dragoman-demo-{}.kubeconfig", listening.address().port()));
    let mut options = std::fs::OpenOptions::new();
    // One of an earlier demo; whatever else is there is not written into.
    std::fs::remove_file(&path).ok();
    options.write(true).create_new(true);
    // It holds a token.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path).with_context(|| path.display().to_string())?;
    file.write_all(kubeconfig.to_string().as_bytes()).context("kubeconfig")?;
    tokio::spawn(listening.serve());
    Ok(path.display().to_string())
}

fn create(admin: &Door, path: &str, object: &Value) {
    admin.ask(Request {
        method: http::Method::POST,
        path: path.to_owned(),
        user_agent: "dragoman-demo".to_owned(),
        body: object.to_string().into_bytes(),
        ..Request::default()
    });
}

/// Our own kinds, nodes, a class, a namespace and a template.
fn populate(admin: &Door, flags: &DemoFlags) {
    for definition in crdgen::definitions() {
        create(admin, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    }
    let footprint = json!({
        "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "gpu"},
        "spec": {"driver": DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": CPUS_OF_DEVICE.to_string()}}}},
    });
    create(admin, "/apis/dragoman.dev/v1alpha1/devicefootprints", &footprint);
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
    });
    create(admin, "/apis/resource.k8s.io/v1/deviceclasses", &class);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(admin, "/api/v1/namespaces", &namespace);
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
    });
    create(admin, "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaimtemplates", &template);
    for number in 0..flags.nodes {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}")},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": CPUS.to_string(), "memory": "128Gi", "pods": "110"},
            },
        });
        create(admin, "/api/v1/nodes", &node);
    }
}

fn pod(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number}"), "labels": {"dragoman.dev/demo": "true"}},
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": GATE}],
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        },
    })
}

fn is_ours(pod: &Value) -> bool {
    pod["metadata"]["namespace"] == NAMESPACE && pod["metadata"]["labels"]["dragoman.dev/demo"] == "true"
}

/// Claims of our Pods.
fn claims_of(server: &ApiServer) -> usize {
    let is_ours = |claim: &Value| {
        claim["metadata"]["ownerReferences"][0]["name"].as_str().is_some_and(|name| name.starts_with("pod-"))
    };
    server.all(CLAIMS).iter().filter(|claim| is_ours(claim)).count()
}

/// Says how far everything is until all Pods have succeeded and their claims are gone.
async fn watch(server: &ApiServer, pods: usize, most: usize) -> anyhow::Result<()> {
    const EVERY: Duration = Duration::from_millis(500);
    let mut last = String::new();
    let (mut promises, mut judged) = (Promises::default(), 0);
    loop {
        let chronicle = server.chronicled(judged);
        chronicle.iter().for_each(|step| promises.step(step));
        judged += chronicle.len();
        if let Some(why) = promises.broken() {
            bail!("the simulated cluster contradicts itself: {why}");
        }
        // Somebody else may have Pods too, by kubectl.
        let mut phases = server.all("pods");
        phases.retain(|pod| is_ours(pod));
        let of = |phase: &str| phases.iter().filter(|pod| pod["status"]["phase"] == phase).count();
        let (running, done, claims) = (of("Running"), of("Succeeded"), claims_of(server));
        let line = format!(
            "  {:>6} waiting  {running:>6} running  {done:>6} done  {claims:>6} claims",
            pods.saturating_sub(running + done)
        );
        if line != last {
            say(&line)?;
            last = line;
        }
        if running > most {
            bail!("{running} Pods run, and the nodes have room for {most}");
        }
        let failed = of("Failed");
        if done + failed + pods.saturating_sub(phases.len()) >= pods && claims == 0 {
            return Ok(());
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// What has happened, in numbers.
fn summary(server: &ApiServer) -> String {
    let chronicle = server.chronicled(0);
    let of_claims = || chronicle.iter().filter(|step| step.resource == CLAIMS);
    let created = of_claims().filter(|step| step.before.is_none()).count();
    let deleted = of_claims().filter(|step| step.after.is_none()).count();
    let held = |claim: &Value| !claim["status"]["allocation"].is_null();
    let released = of_claims().filter(|step| match (&step.before, &step.after) {
        (Some(before), Some(after)) => held(before) && !held(after),
        _ => false,
    });
    let pods = chronicle.iter().filter(|step| step.resource == "pods" && step.before.is_none()).count();
    let writes = server.writes(0);
    let about_nodes = |resource: &str| resource.starts_with("nodeallocatabledraclaimstates");
    let by = |user: &str, nodes: bool| {
        writes.iter().filter(|write| write.user == user && about_nodes(&write.resource) == nodes).count()
    };
    // Tenths are enough, and whole numbers hold them.
    let per = |count: usize| {
        let tenths = count * 10 / pods.max(1);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let latency = |what: &str, mut times: Vec<i128>| {
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        format!("{what}: p50 {} ms, p99 {} ms", at(50), at(99))
    };
    [
        format!(
            "claims: {created} created, {} released, {deleted} deleted, {} left over",
            released.count(),
            server.count(CLAIMS)
        ),
        format!(
            "API writes for a Pod's life: {} by the operator, {} by the allocator, {} by the scheduler; {} for the \
             ledgers of nodes",
            per(by(simulated::USER, false)),
            per(by(simulated::ALLOCATOR, false)),
            per(by("system:kube-scheduler", false)),
            per(by(simulated::USER, true))
        ),
        latency("Pod created until its status names the claim", until_named(&chronicle)),
        latency("Pod done until its claim is gone", until_gone(&chronicle)),
    ]
    .join("\n")
}

/// Milliseconds from the creation of each Pod until its status names a claim.
fn until_named(chronicle: &[HistoryStep]) -> Vec<i128> {
    let is_named = |pod: &Value| pod["status"]["resourceClaimStatuses"].is_array();
    between(
        chronicle,
        |step| step.resource == "pods" && step.before.is_none(),
        move |step| step.resource == "pods" && step.after.as_deref().is_some_and(is_named),
        |pod| pod["metadata"]["uid"].clone(),
        |pod| pod["metadata"]["uid"].clone(),
    )
}

/// Milliseconds from the end of each Pod until its claim is gone.
fn until_gone(chronicle: &[HistoryStep]) -> Vec<i128> {
    let is_done = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    between(
        chronicle,
        move |step| step.resource == "pods" && step.after.as_deref().is_some_and(is_done),
        |step| step.resource == CLAIMS && step.after.is_none(),
        |pod| pod["metadata"]["uid"].clone(),
        |claim| claim["metadata"]["ownerReferences"][0]["uid"].clone(),
    )
}

/// Milliseconds from the first step of a kind to the first of another about the same thing.
fn between(
    chronicle: &[HistoryStep],
    begins: impl Fn(&HistoryStep) -> bool,
    ends: impl Fn(&HistoryStep) -> bool,
    begun: impl Fn(&Value) -> Value,
    ended: impl Fn(&Value) -> Value,
) -> Vec<i128> {
    let mut since = std::collections::BTreeMap::new();
    let mut times = Vec::new();
    for step in chronicle {
        let Some(object) = step.after.as_deref().or(step.before.as_deref()) else { continue };
        if begins(step) {
            since.entry(begun(object).to_string()).or_insert(step.at);
        }
        if ends(step)
            && let Some(from) = since.remove(&ended(object).to_string())
        {
            times.push(step.at.duration_since(from).as_millis());
        }
    }
    times
}
