//! Which gated Pods come first, and which are let go.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{FLAGS, GATE, becomes_ready, gated, gates_of, namespace, says, waits_for};
use crate::client::{CLAIMS, FOOTPRINTS, PODS};
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::Bench;

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(pods_are_packed_spread_or_go_where_they_like),
        standalone!(a_pod_is_let_go_for_an_autoscaler),
        standalone!(a_pod_behind_others_says_why_it_waits),
        standalone!(a_pod_that_is_confined_to_a_full_node_is_woken),
        standalone!(a_pod_behind_another_gate_takes_no_devices),
    ]
}

/// The gate of another controller.
const QUEUE: &str = "queue.example/admission";

/// Two small Pods share a node or do not; one that prefers the third node is there.
async fn pods_are_packed_spread_or_go_where_they_like(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "order", Shape::default(), 3).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let ns = namespace(&world, "order", "enabled").await?;
    world
        .client
        .merge(super::NODES, "", "node-2", &json!({"metadata": {"labels": {"liked": "yes"}}}))
        .await?;
    let node = async |name: &str| {
        world.phase(&ns, name, "Running").await?;
        let pod = world.client.get(PODS, &ns, name).await?.context("Pod")?;
        pod["spec"]["nodeName"].as_str().map(str::to_owned).context("node")
    };
    for order in ["pack", "spread"] {
        let allocator = world.allocator(&["--order", order]).await?;
        let names = [format!("{order}-0"), format!("{order}-1")];
        for name in &names {
            world.pod(&ns, &Pod::new(name).with_template("device", "one").held()).await?;
            node(name).await?;
        }
        let together = node(&names[0]).await? == node(&names[1]).await?;
        ensure!(together == (order == "pack"), "{order}: together on a node: {together}");
        let mut pod =
            Pod::new(&format!("{order}-liked")).with_template("device", "one").held().object().clone();
        let term = json!({"matchExpressions": [{"key": "liked", "operator": "In", "values": ["yes"]}]});
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 1, "preference": term}]}});
        world.client.create(PODS, &ns, &pod).await?;
        let liked = node(&format!("{order}-liked")).await?;
        ensure!(liked == "node-2", "{order}: it likes node-2 and is on {liked}");
        for name in names.iter().chain([&format!("{order}-liked")]) {
            world.let_end(&ns, name).await?;
        }
        world.claims(&ns, 0).await?;
        allocator.stop().await?;
    }
    operator.stop().await?;
    world.stop().await
}

/// A Pod for which there is no device is let go after a while: kube-scheduler says that it cannot be
/// scheduled, which is what an autoscaler looks for.
async fn a_pod_is_let_go_for_an_autoscaler(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "let-go", Shape::default(), 1).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "let-go", "enabled").await?;
    let large = requesting(&Pod::new("large").with_template("device", "one").held(), "30");
    world.client.create(PODS, &ns, &large).await?;
    says(&world, &ns, "large", "gated Pods do not scale the cluster up").await?;
    // Not before: what the Pod waits for is not said of one that is let go at once.
    operator.stop().await?;
    let operator = world.dragoman("own", &[FLAGS[0], FLAGS[1], "--let-go-after=6"]).await?;
    let why = wait::value("kube-scheduler looks at it", async || {
        let pod = world.client.get(PODS, &ns, "large").await?.context("Pod")?;
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut said = conditions.filter(|condition| condition["reason"] == "Unschedulable");
        let message = said.next().map(|condition| condition["message"].to_string());
        Ok(message.filter(|_| gates_of(&pod).is_empty()))
    })
    .await?;
    println!("        {why}");
    // The gate is opened in one write, and the condition is written in the next one.
    becomes_ready(&world, &ns, "large", &["LetGo"]).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// A full node, and many Pods that ask for the same: each of them says what is missing, not the first one alone.
async fn a_pod_behind_others_says_why_it_waits(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "behind", Shape::default(), 1).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "behind", "enabled").await?;
    // The node has eight cpus, and each device takes three.
    for number in 0..2 {
        let name = format!("runs-{number}");
        world.pod(&ns, &Pod::new(&name).with_template("device", "one").held()).await?;
        world.phase(&ns, &name, "Running").await?;
    }
    world.pod(&ns, &Pod::new("first").with_template("device", "one")).await?;
    says(&world, &ns, "first", "cpu").await?;
    for name in ["second", "third"] {
        world.pod(&ns, &Pod::new(name).with_template("device", "one")).await?;
        let said = says(&world, &ns, name, "a Pod that asks for the same comes first").await?;
        ensure!(said.contains("cpu is missing"), "{said}");
        println!("        {said}");
    }
    for number in 0..2 {
        world.let_end(&ns, &format!("runs-{number}")).await?;
    }
    for name in ["first", "second", "third"] {
        world.phase(&ns, name, "Succeeded").await?;
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// A Pod shares a claim that has its devices on a full node, and needs another one there. When a Pod of that node ends, no
/// object of the waiting Pod changes.
async fn a_pod_that_is_confined_to_a_full_node_is_woken(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "woken", Shape::default(), 1).await?;
    // A claim whose devices take something of their node has one Pod.
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "woken", "enabled").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("both")).await?;
    world.pod(&ns, &Pod::new("first").with_claim("both", "both").held()).await?;
    world.phase(&ns, "first", "Running").await?;
    world.client.create(PODS, &ns, &requesting(&Pod::new("ordinary").held(), "6")).await?;
    world.phase(&ns, "ordinary", "Running").await?;
    let second = Pod::new("second").with_claim("both", "both").with_template("own", "one").held();
    world.client.create(PODS, &ns, &requesting(&second, "3")).await?;
    println!("        {}", world.event(&ns, "second", "NoNode").await?);
    world.let_end(&ns, "ordinary").await?;
    world.phase(&ns, "second", "Running").await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Pods that another controller holds take no devices, and no room: its gate may stay closed for days. Once it is open, they
/// have their turn.
async fn a_pod_behind_another_gate_takes_no_devices(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "queued", Shape::default(), 1).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "queued", "enabled").await?;
    // The node has room for two Pods with a device. All come behind the gate of the protocol, too.
    for number in 0..2 {
        let pod = Pod::new(&format!("queued-{number}")).with_template("device", "one").behind(QUEUE);
        world.pod(&ns, &pod).await?;
    }
    let why = waits_for(&world, &ns, "queued-1", "OtherGateClosed").await?;
    ensure!(why.contains(QUEUE), "{why}");
    for number in 0..2 {
        let name = format!("admitted-{number}");
        world.pod(&ns, &Pod::new(&name).with_template("device", "one").held()).await?;
        world.phase(&ns, &name, "Running").await?;
    }
    let claims = world.client.list(CLAIMS, &ns).await?;
    let allocated = claims.iter().filter(|claim| claim["status"]["allocation"].is_object()).count();
    ensure!(allocated == 2, "{allocated} claims have devices, two Pods run");
    for number in 0..2 {
        let ours = json!({"spec": {"schedulingGates": [{"name": GATE}]}});
        world.client.merge(PODS, &ns, &format!("queued-{number}"), &ours).await?;
    }
    waits_for(&world, &ns, "queued-0", "NotAllocated").await?;
    for number in 0..2 {
        world.let_end(&ns, &format!("admitted-{number}")).await?;
    }
    for number in 0..2 {
        world.phase(&ns, &format!("queued-{number}"), "Succeeded").await?;
    }
    world.claims(&ns, 0).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
