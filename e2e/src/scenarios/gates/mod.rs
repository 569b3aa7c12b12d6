//! Gated Pods on a real control plane: the shipped policies, the operator, the reference allocator, and
//! kube-scheduler as it is.

mod budget;
mod choice;
pub(crate) mod company;
mod confined;
mod contested;
pub mod costly;
mod given;
mod groups;
mod kit;
mod near;
mod neighbours;
mod promised;
mod provoke;
mod races;
mod restored;
pub(crate) mod room;
mod sharers;
mod stolen;
mod stubborn;
mod suitable;
mod turns;
mod unbound;

pub(crate) use kit::python;
pub(super) use provoke::{provoke, provoke_allocator, stir_allocator};
pub(super) use room::provoke_holders;

use anyhow::{Context as _, ensure};
use dragoman_simcluster::HOLD;
use serde_json::{Value, json};

use super::accounts::requesting;
use super::{NotRun, Standalone, ledger, standalone};
use crate::client::{CLAIMS, CLASSES, FOOTPRINTS, NAMESPACES, PODS, SLICES};
use crate::control_plane::{Backend, Scheduling, Shape};
use crate::objects::{self, DRIVER, Pod};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    let mut all = vec![
        standalone!(gated_pods_reach_their_nodes),
        standalone!(gated_pods_reach_their_nodes_where_kube_scheduler_counts),
        standalone!(each_party_is_killed_and_every_gated_pod_ends),
        standalone!(what_a_closed_gate_waits_for_is_said),
        standalone!(one_command_leaves_no_policy_and_no_gate),
    ];
    all.extend(budget::alone());
    all.extend(choice::alone());
    all.extend(company::alone());
    all.extend(confined::alone());
    all.extend(contested::alone());
    all.extend(restored::alone());
    all.extend(stolen::alone());
    all.extend(costly::alone());
    all.extend(given::alone());
    all.extend(groups::alone());
    all.extend(kit::alone());
    all.extend(near::alone());
    all.extend(neighbours::alone());
    all.extend(promised::alone());
    all.extend(stubborn::alone());
    all.extend(races::alone());
    all.extend(room::alone());
    all.extend(sharers::alone());
    all.extend(suitable::alone());
    all.extend(turns::alone());
    all.extend(unbound::alone());
    all
}

/// The gate of the protocol.
pub const GATE: &str = "dragoman.dev/claims";
const NODES: &str = "/api/v1/nodes";
pub(super) const STATES: &str = "/apis/dragoman.dev/v1alpha1/nodeallocatabledraclaimstates";
/// The flags of the operator in `config/gated`.
pub const FLAGS: [&str; 2] = ["--controllers=*,gates,holders", "--default-allocator=dragoman"];

/// A cluster with the manifests of `config/gated` and `nodes` nodes of eight cpus and four devices, each
/// of which takes three cpus of its node.
pub(super) async fn gated(bench: &Bench, name: &str, shape: Shape, nodes: usize) -> anyhow::Result<World> {
    let costs = if shape.on.contains(&COUNTS) { Costs::InSlices } else { Costs::InFootprint };
    gated_where(bench, name, shape, (nodes, SMALL), costs).await
}

/// The feature gate by which kube-scheduler counts what claims take.
pub(crate) const COUNTS: &str = "DRANodeAllocatableResources";

/// A node with devices.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Cpus of the node.
    pub cpus: i64,
    /// Devices of the node.
    pub devices: usize,
    /// The cpus that a device takes.
    pub each: i64,
}

/// Three devices take more than the node has.
const SMALL: Size = Size { cpus: 8, devices: 4, each: 3 };

/// Where it stands what a device takes from its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Costs {
    /// In its slice: kube-scheduler knows it, if it counts.
    InSlices,
    /// In a DeviceFootprint: Dragoman alone knows it.
    InFootprint,
}

/// A cluster with nodes, in which the package with gates is installed.
pub async fn gated_where(
    bench: &Bench,
    name: &str,
    shape: Shape,
    (nodes, size): (usize, Size),
    costs: Costs,
) -> anyhow::Result<World> {
    if bench.backend == Backend::Sim {
        return Err(NotRun("simcluster has no admission policies".to_owned()).into());
    }
    let counts = shape.on.contains(&COUNTS);
    let world = World::start(bench, name, Shape { scheduler: Scheduling::Kube, ..shape }, 0, 0).await?;
    world.install("config/gated").await?;
    println!("        {}", gating(&world, "wait").await?.trim());
    if costs == Costs::InFootprint {
        world.client.create(FOOTPRINTS, "", &ledger::footprint("cores", &size.each.to_string())).await?;
    }
    for number in 0..nodes {
        add_node(&world, &format!("node-{number}"), size, counts, costs).await?;
    }
    Ok(world)
}

async fn add_node(world: &World, name: &str, size: Size, counts: bool, costs: Costs) -> anyhow::Result<()> {
    let mut node = objects::node(name);
    let amounts = json!({"cpu": size.cpus.to_string(), "memory": "16Gi", "pods": "100"});
    node["status"]["allocatable"] = amounts.clone();
    node["status"]["capacity"] = amounts;
    let mut slice = objects::slice(name, size.devices);
    if counts {
        node["status"]["declaredFeatures"] = json!([COUNTS]);
    }
    if costs == Costs::InSlices {
        for device in slice["spec"]["devices"].as_array_mut().into_iter().flatten() {
            device["nodeAllocatableResources"] =
                json!({"cpu": {"mapping": {"deviceMultiplier": size.each.to_string()}}});
        }
    }
    world.client.create(NODES, "", &node).await?;
    world.client.merge(NODES, "", name, &json!({"spec": {"taints": null}})).await?;
    world.client.merge(NODES, "", &format!("{name}/status"), &json!({"status": node["status"]})).await?;
    world.client.create(SLICES, "", &slice).await?;
    Ok(())
}

pub(super) fn gates_of(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    gates.filter_map(|gate| gate["name"].as_str()).collect()
}

/// A namespace with a label for gating. The API server takes a moment until it knows a new policy.
pub async fn namespace(world: &World, name: &str, label: &str) -> anyhow::Result<String> {
    let ns = world.namespace(name).await?;
    let labels = json!({"metadata": {"labels": {"dragoman.dev/gating": label}}});
    world.client.merge(NAMESPACES, "", &ns, &labels).await?;
    let dry = format!("{PODS}?dryRun=All");
    wait::value("Pods get the gate", async || {
        let probe = Pod::new("probe").with_template("device", "one");
        let pod = world.client.create(&dry, &ns, probe.object()).await?;
        Ok(gates_of(&pod).contains(&GATE).then_some(()))
    })
    .await?;
    Ok(ns)
}

/// The condition of a Pod that says whether its claims are ready.
fn condition(pod: &Value) -> Option<&Value> {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "dragoman.dev/ClaimsReady")
}

/// Status, reason and message of the condition of a Pod.
async fn ready(world: &World, ns: &str, pod: &str) -> anyhow::Result<Option<(String, String, String)>> {
    let pod = world.client.get(PODS, ns, pod).await?.context("Pod")?;
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    Ok(condition(&pod).map(|of| (text(of, "status"), text(of, "reason"), text(of, "message"))))
}

/// Waits until a Pod says that it waits for this reason; returns the message.
async fn waits_for(world: &World, ns: &str, pod: &str, reason: &str) -> anyhow::Result<String> {
    wait::value(&format!("{pod} says {reason}"), async || {
        let said = ready(world, ns, pod).await?;
        Ok(said.filter(|(status, word, _)| status == "False" && word == reason).map(|said| said.2))
    })
    .await
}

/// Waits until a Pod says that it waits for nothing any more, for one of these reasons.
async fn becomes_ready(world: &World, ns: &str, pod: &str, reasons: &[&str]) -> anyhow::Result<()> {
    wait::value(&format!("{pod} is {reasons:?}"), async || {
        let said = ready(world, ns, pod).await?;
        Ok(said.filter(|(status, word, _)| status == "True" && reasons.contains(&&**word)).map(drop))
    })
    .await
}

/// Waits until the condition of a Pod has these words; returns its message. The first message of a wait may be
/// older than what the allocator found, and it stays for half a minute.
async fn says(world: &World, ns: &str, pod: &str, words: &str) -> anyhow::Result<String> {
    wait::value(&format!("{pod} says {words:?}"), async || {
        let message = ready(world, ns, pod).await?.map(|said| said.2).unwrap_or_default();
        Ok(message.contains(words).then_some(message))
    })
    .await
}

/// Fails unless `kubectl describe` prints these words of a Pod outside its Events.
async fn is_described(world: &World, ns: &str, pod: &str, words: &str) -> anyhow::Result<()> {
    let text =
        world.plane.kubectl(&["describe", "pod", pod, "-n", ns], "").await?.map_err(anyhow::Error::msg)?;
    let mut lines = text.lines().take_while(|line| !line.starts_with("Events:"));
    let is_said = lines.any(|line| line.starts_with("Message:") && line.contains(words));
    ensure!(is_said, "kubectl describe does not say {words:?}: {text}");
    Ok(())
}

/// Fails if a Pod says in its message that it waits, and in its condition that it does not.
async fn says_no_more(world: &World, ns: &str) -> anyhow::Result<()> {
    for pod in world.client.list(PODS, ns).await? {
        let is_ready = condition(&pod).is_some_and(|of| of["status"] == "True");
        ensure!(!is_ready || pod["status"]["message"].is_null(), "its condition is true: {pod}");
    }
    Ok(())
}

/// The Pods of a namespace that are in a phase.
async fn in_phase(world: &World, ns: &str, phase: &str) -> anyhow::Result<Vec<String>> {
    let pods = world.client.list(PODS, ns).await?;
    let of = pods.iter().filter(|pod| pod["status"]["phase"] == phase);
    Ok(of.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// Fails if a node is overcommitted now.
async fn no_node_is_overcommitted(world: &World) -> anyhow::Result<()> {
    for state in world.client.list(STATES, "").await? {
        ensure!(ledger::condition(&state, "Overcommitted") != "True", "{state}");
    }
    Ok(())
}

async fn gated_pods_reach_their_nodes(bench: &Bench) -> anyhow::Result<()> {
    reach(bench, "gated", Shape::default()).await
}

async fn gated_pods_reach_their_nodes_where_kube_scheduler_counts(bench: &Bench) -> anyhow::Result<()> {
    let on = &["DRANodeAllocatableResources"];
    reach(bench, "gated-counted", Shape { on, ..Shape::default() }).await
}

/// A gate in kube-system could keep Dragoman itself from starting: whatever the label of the namespace says, its Pods get none.
async fn kube_system_takes_no_part(world: &World) -> anyhow::Result<()> {
    const SYSTEM: &str = "kube-system";
    let labels = json!({"metadata": {"labels": {"dragoman.dev/gating": "enforced"}}});
    world.client.merge(NAMESPACES, "", SYSTEM, &labels).await?;
    // A namespace that was labelled later: the API server knows both labels once its Pods get the gate.
    namespace(world, "later", "enabled").await?;
    let probe = Pod::new("probe").with_template("device", "one");
    let pod = world.client.create(&format!("{PODS}?dryRun=All"), SYSTEM, probe.object()).await?;
    ensure!(gates_of(&pod).is_empty(), "{pod}");
    let labels = json!({"metadata": {"labels": {"dragoman.dev/gating": null}}});
    world.client.merge(NAMESPACES, "", SYSTEM, &labels).await.map(drop)?;
    Ok(())
}

/// Twelve Pods that take three and a half cpus each race for two nodes of eight. Two at a time have
/// room on a node, although it has four devices; the others say what they wait for, and come in their
/// turn.
async fn reach(bench: &Bench, name: &str, shape: Shape) -> anyhow::Result<()> {
    const PODS_IN_ALL: usize = 12;
    let world = gated(bench, name, shape, 2).await?;
    // The allocator copies what the class configures into the allocation, and the operator knows that it is of the class.
    let config = json!([{"opaque": {"driver": DRIVER, "parameters": {"sharing": "none"}}}]);
    world.client.merge(CLASSES, "", "e2e", &json!({"spec": {"config": config}})).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, name, "enabled").await?;
    kube_system_takes_no_part(&world).await?;
    for number in 0..PODS_IN_ALL {
        let pod = Pod::new(&format!("pod-{number}")).with_template("device", "one").held();
        let pod = world.client.create(PODS, &ns, &requesting(&pod, "500m")).await?;
        ensure!(gates_of(&pod) == [GATE], "{pod}");
    }
    let mut ended = 0;
    while ended < PODS_IN_ALL {
        let room = (PODS_IN_ALL - ended).min(4);
        let running = wait::value(&format!("{room} Pods run"), async || {
            let running = in_phase(&world, &ns, "Running").await?;
            ensure!(running.len() <= 4, "{running:?} run at once");
            Ok((running.len() == room).then_some(running))
        })
        .await?;
        no_node_is_overcommitted(&world).await?;
        if ended == 0 {
            let claims = world.client.list(CLAIMS, &ns).await?;
            let mut configs = claims.iter().map(|claim| &claim["status"]["allocation"]["devices"]["config"]);
            ensure!(configs.any(|config| config[0]["source"] == "FromClass"), "{claims:?}");
            let pending = in_phase(&world, &ns, "Pending").await?;
            let waits = pending.first().context("a Pod waits")?;
            waits_for(&world, &ns, waits, "NotAllocated").await?;
            println!("        {}", says(&world, &ns, waits, "of cpu is missing").await?);
            is_described(&world, &ns, waits, "of cpu is missing").await?;
        }
        world.let_end(&ns, running.first().context("a Pod runs")?).await?;
        ended += 1;
    }
    world.claims(&ns, 0).await?;
    says_no_more(&world, &ns).await?;
    let writes = world.rest(&ns).await?;
    let done = writes.iter().filter(|w| w.took_effect());
    let scheduler = done.filter(|w| w.party() == "kube-scheduler");
    let about_claims = scheduler.filter(|w| w.object_ref.resource == "resourceclaims").count();
    ensure!(about_claims == 0, "kube-scheduler wrote {about_claims} times about claims");
    let of = |party: &str| writes.iter().filter(|w| w.party() == party).count();
    println!(
        "        writes for {PODS_IN_ALL} Pods: {} by the operator, {} by the allocator, {} by kube-scheduler",
        of("dragoman"),
        of("allocator"),
        of("kube-scheduler")
    );
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Sixteen Pods race for room for two. Whenever one ends, operator or allocator is killed without warning
/// while the next is on its way.
async fn each_party_is_killed_and_every_gated_pod_ends(bench: &Bench) -> anyhow::Result<()> {
    const ALL: usize = 16;
    let world = gated(bench, "gated-killed", Shape::default(), 1).await?;
    // Without a Lease nothing waits until that of a dead process ends.
    let flags = [FLAGS[0], FLAGS[1], "--without-lease"];
    let without_lease = ["--without-lease"];
    let mut operator = world.dragoman("own", &flags).await?;
    let mut allocator = world.allocator(&without_lease).await?;
    let ns = namespace(&world, "killed", "enabled").await?;
    for number in 0..ALL {
        let pod = Pod::new(&format!("pod-{number}")).with_template("device", "one").held();
        world.client.create(PODS, &ns, &requesting(&pod, "500m")).await?;
    }
    for ended in 0..ALL {
        let room = (ALL - ended).min(2);
        let running = wait::value(&format!("{room} Pods run"), async || {
            let running = in_phase(&world, &ns, "Running").await?;
            ensure!(running.len() <= 2, "{running:?} run at once");
            Ok((running.len() == room).then_some(running))
        })
        .await?;
        no_node_is_overcommitted(&world).await?;
        let let_go = json!({"metadata": {"annotations": {HOLD: null}}});
        let ends = running.first().context("a Pod runs")?;
        world.client.merge(PODS, &ns, ends, &let_go).await?;
        if ended % 2 == 0 {
            operator.kill().await?;
            operator = world.dragoman("own", &flags).await?;
        } else {
            allocator.kill().await?;
            allocator = world.allocator(&without_lease).await?;
        }
        // Its kubelet may be slower than a new process.
        world.phase(&ns, ends, "Succeeded").await?;
    }
    world.claims(&ns, 0).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Gates of other owners before and after the allocation, an allocator that does not exist, a claim that
/// is missing, and a Pod that is larger than any node.
async fn what_a_closed_gate_waits_for_is_said(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "gated-reasons", Shape::default(), 1).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "reasons", "enabled").await?;
    let claim = async |name: &str, metadata: Value| {
        let mut claim = objects::claim(name);
        claim["metadata"] = metadata;
        claim["metadata"]["name"] = json!(name);
        world.client.create(CLAIMS, &ns, &claim).await?;
        world.pod(&ns, &Pod::new(name).with_claim("device", name).held()).await?;
        anyhow::Ok(())
    };
    let gate = "allocation-gates.dragoman.dev/quota";
    claim("before", json!({"annotations": {gate: "team a has no budget"}})).await?;
    let why = waits_for(&world, &ns, "before", "AllocationGateClosed").await?;
    ensure!(why.contains("gate quota is closed: team a has no budget"), "{why}");
    world.client.merge(CLAIMS, &ns, "before", &json!({"metadata": {"annotations": {gate: null}}})).await?;
    world.phase(&ns, "before", "Running").await?;
    world.let_end(&ns, "before").await?;

    let gate = "release-gates.dragoman.dev/fabric";
    claim("after", json!({"annotations": {gate: "the link is not up yet"}})).await?;
    let why = waits_for(&world, &ns, "after", "ReleaseGateClosed").await?;
    ensure!(why.contains("gate fabric is closed: the link is not up yet"), "{why}");
    world.client.merge(CLAIMS, &ns, "after", &json!({"metadata": {"annotations": {gate: null}}})).await?;
    world.phase(&ns, "after", "Running").await?;
    becomes_ready(&world, &ns, "after", &["Released", "Bound"]).await?;
    world.let_end(&ns, "after").await?;

    claim("elsewhere", json!({"labels": {"dragoman.dev/allocator": "nowhere"}})).await?;
    let why = waits_for(&world, &ns, "elsewhere", "NotAllocated").await?;
    ensure!(why.contains("allocator nowhere has not allocated"), "{why}");
    world.pod(&ns, &Pod::new("missing").with_claim("device", "missing").held()).await?;
    let why = waits_for(&world, &ns, "missing", "ClaimMissing").await?;
    ensure!(why.contains("claim missing does not exist"), "{why}");
    let large = requesting(&Pod::new("large").with_template("device", "one").held(), "7500m");
    world.client.create(PODS, &ns, &large).await?;
    waits_for(&world, &ns, "large", "NotAllocated").await?;
    println!("        {}", says(&world, &ns, "large", "the node is too small: cpu").await?);
    // Annotations of a tenant that are large or do not parse harm nothing.
    let large = "x".repeat(200_000);
    let annotations = json!({"dragoman.dev/verdict": large, "dragoman.dev/rejections": "{"});
    claim("scribbled", json!({"annotations": annotations})).await?;
    world.phase(&ns, "scribbled", "Running").await?;
    // A Pod without claims gets no gate.
    let plain = world.pod(&ns, &Pod::new("plain")).await?;
    ensure!(gates_of(&plain).is_empty(), "{plain}");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Whether a policy goes with the package that has brought it: those that confine allocator and operator whatever they do.
pub(super) fn is_of_a_package(policy: &str) -> bool {
    let of_the_base =
        ["dragoman-operator-pod-status", "dragoman-operator-claims", "dragoman-operator-allocations"];
    policy.starts_with("dragoman-allocator") || of_the_base.contains(&policy)
}

/// `dragoman gating off` on a cluster in use: Pods with the gate are let go, other gates stay, and
/// `dragoman gating on` installs the policies again.
async fn one_command_leaves_no_policy_and_no_gate(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "gated-off", Shape::default(), 1).await?;
    let ns = namespace(&world, "off", "enforced").await?;
    world.pod(&ns, &Pod::new("waits").with_template("device", "one")).await?;
    world.pod(&ns, &Pod::new("other-gate").with_template("device", "one").gated()).await?;
    let said = gating(&world, "off").await?;
    println!("        {}", said.trim().replace('\n', "\n        "));
    ensure!(said.contains("gate removed from 2 Pods"), "{said}");
    ensure!(said.contains("the API server has forgotten"), "{said}");
    for kind in ["mutatingadmissionpolicies", "validatingadmissionpolicies"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        let left = world.client.list(&path, "").await?;
        let names: Vec<&str> = left.iter().filter_map(|of| of["metadata"]["name"].as_str()).collect();
        ensure!(names.iter().all(|name| is_of_a_package(name)), "{names:?}");
    }
    let pod = world.client.get(PODS, &ns, "waits").await?.context("Pod")?;
    ensure!(gates_of(&pod).is_empty(), "{pod}");
    let pod = world.client.get(PODS, &ns, "other-gate").await?.context("Pod")?;
    ensure!(gates_of(&pod) == ["e2e.dragoman.dev/gate"], "{pod}");
    let plain = world.pod(&ns, &Pod::new("plain").with_template("device", "one")).await?;
    ensure!(gates_of(&plain).is_empty(), "{plain}");
    let said = gating(&world, "on").await?;
    ensure!(said.contains("the API server enforces"), "{said}");
    // From the first moment on. The label is there at birth: the API server learns of a later one later.
    let labels = json!({"dragoman.dev/gating": "enabled"});
    let on = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "on", "labels": labels}});
    world.client.create(NAMESPACES, "", &on).await?;
    let pod = world.pod("on", &Pod::new("gated").with_template("device", "one")).await?;
    ensure!(gates_of(&pod) == [GATE], "{pod}");
    let left = world.client.list(NAMESPACES, "").await?;
    let is_probe = |of: &Value| of["metadata"]["name"].as_str().is_some_and(|name| name.contains("probe"));
    ensure!(
        left.iter().filter(|of| is_probe(of)).all(|of| !of["metadata"]["deletionTimestamp"].is_null()),
        "{left:?}"
    );
    world.stop().await
}

/// Runs `dragoman gating`; returns what it prints.
async fn gating(world: &World, what: &str) -> anyhow::Result<String> {
    let output = tokio::process::Command::new(&world.bench.binary)
        .args(["gating", what, "--patience", &wait::patience().as_secs().to_string(), "--kubeconfig"])
        .arg(world.plane.kubeconfig("admin"))
        .output()
        .await?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "dragoman gating {what}: {error}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A merge patch that allocates a device of a node that its slice publishes.
pub(super) fn promise(device: &str, node: &str, consumers: &[Value]) -> Value {
    let result = json!({"request": "device", "driver": DRIVER, "pool": node, "device": device});
    promise_of(&result, node, consumers)
}

/// The same for one result as it stands.
fn promise_of(result: &Value, node: &str, consumers: &[Value]) -> Value {
    let selector = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": selector});
    json!({"status": {"allocation": allocation, "reservedFor": consumers}})
}

/// A Pod that waits all the time, so that every controller has a key.
pub(super) async fn rest(world: &World) -> anyhow::Result<()> {
    let ns = world.namespace("rest").await?;
    born_gated(world, &ns, "rests", json!({"labels": {"dragoman.dev/allocator": "nowhere"}}), "1").await?;
    Ok(())
}

/// A Pod of an author who knows the gate, and its claim.
async fn born_gated(
    world: &World,
    ns: &str,
    name: &str,
    metadata: Value,
    cpu: &str,
) -> anyhow::Result<Value> {
    let mut claim = objects::claim(name);
    claim["metadata"] = metadata;
    claim["metadata"]["name"] = json!(name);
    world.client.create(CLAIMS, ns, &claim).await?;
    gated_by_hand(world, ns, name, name, cpu).await
}

/// A Pod that has the gate from its author.
async fn gated_by_hand(world: &World, ns: &str, name: &str, claim: &str, cpu: &str) -> anyhow::Result<Value> {
    let mut pod = requesting(&Pod::new(name).with_claim("device", claim), cpu);
    pod["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    Ok(world.client.create(PODS, ns, &pod).await?)
}
