//! Pods whose claims take more than their Pod-level resources (`spec.resources`): no node takes them.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{COUNTS, FLAGS, gated, namespace, promise, says};
use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::objects::{self, Pod, pod_consumer};
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(a_pod_whose_claims_exceed_its_budget_takes_no_devices)]
}

/// Message that such a Pod gets.
const SAYS: &str = "spec.resources.requests[cpu] is 3, but containers and claims request 3500m";

/// A Pod of half a cpu, with these Pod-level cpus. Its device takes three.
fn with_budget(pod: &Pod, cpus: &str) -> Value {
    let mut pod = requesting(pod, "500m");
    pod["spec"]["resources"] = json!({"requests": {"cpu": cpus}});
    pod
}

/// kube-scheduler refuses such a Pod without a gate, our allocator gives one with a gate no devices, and the operator takes back what
/// an allocator of another make gives it.
async fn a_pod_whose_claims_exceed_its_budget_takes_no_devices(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "budget", Shape { on: &[COUNTS], ..Shape::default() }, 1).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let others = world.namespace("others").await?;
    let ungated = Pod::new("ungated").with_template("device", "one");
    world.client.create(PODS, &others, &with_budget(&ungated, "3")).await?;
    println!("        kube-scheduler: {}", is_refused(&world, &others, "ungated").await?);

    let ns = namespace(&world, "budget", "enabled").await?;
    let small = Pod::new("small").with_template("device", "one");
    world.client.create(PODS, &ns, &with_budget(&small, "3")).await?;
    println!("        {}", says(&world, &ns, "small", SAYS).await?);
    let large = Pod::new("large").with_template("device", "one").held();
    world.client.create(PODS, &ns, &with_budget(&large, "3500m")).await?;
    world.phase(&ns, "large", "Running").await?;
    ensure!(says(&world, &ns, "small", SAYS).await?.contains("node-0"), "the other one runs there");
    let claims = world.client.list(CLAIMS, &ns).await?;
    let allocated = claims.iter().filter(|claim| claim["status"]["allocation"].is_object()).count();
    ensure!(allocated == 1, "{allocated} claims have devices, and one Pod runs");

    let mut claim = objects::claim("foreign");
    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": "foreign"});
    world.client.create(CLAIMS, &ns, &claim).await?;
    let foreign = Pod::new("foreign").with_claim("device", "foreign");
    let pod = world.client.create(PODS, &ns, &with_budget(&foreign, "3")).await?;
    let status = promise("dev-3", "node-0", &[pod_consumer(&pod)]);
    world.client.merge(CLAIMS, &ns, "foreign/status", &status).await?;
    println!("        {}", world.event(&ns, "foreign", "OverBudget").await?);
    wait::value("the devices are given back", async || {
        let claim = world.client.get(CLAIMS, &ns, "foreign").await?.context("claim")?;
        Ok(claim["status"]["allocation"].is_null().then_some(()))
    })
    .await?;
    world.let_end(&ns, "large").await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Waits until kube-scheduler refuses a Pod that fits nowhere because of its budget, and returns its message.
async fn is_refused(world: &World, ns: &str, pod: &str) -> anyhow::Result<String> {
    wait::value(&format!("{pod} is refused"), async || {
        let pod = world.client.get(PODS, ns, pod).await?.context("Pod")?;
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut scheduled = conditions.filter(|condition| condition["type"] == "PodScheduled");
        let said = scheduled.next().and_then(|of| of["message"].as_str()).unwrap_or_default();
        Ok(said.contains("pod level request for cpu is insufficient").then(|| said.to_owned()))
    })
    .await
}
