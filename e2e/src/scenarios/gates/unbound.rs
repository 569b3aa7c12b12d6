//! A node is lost or tainted after the gate of its Pod was opened.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::company::{REFERENCE, own};
use super::{
    FLAGS, NODES, add_node, becomes_ready, gated, gates_of, namespace, no_node_is_overcommitted, waits_for,
};
use crate::client::{CLAIMS, PODS, SLICES};
use crate::control_plane::{Release, Shape};
use crate::objects::{self, DRIVER, Pod};
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(a_node_that_is_lost_after_the_release),
        standalone!(a_node_that_is_lost_after_the_release_in_1_36),
        standalone!(a_released_pod_that_has_lost_its_devices_gets_others),
        standalone!(a_pinned_pod_that_cannot_be_bound_is_reported_and_deleted_where_asked),
        standalone!(a_pinned_pod_is_reported_in_1_36),
    ]
}

/// A gate of another owner. kube-scheduler sees the Pod only once this gate is open, after ours.
const HELD: &str = "example.com/held";
/// The word of the administrator for that order, for operator and allocator.
const LATER: &str = "--later-gates=example.com/held";

async fn create(world: &World, ns: &str, name: &str, template: &str, owner: &str) -> anyhow::Result<()> {
    let pod = Pod::new(name).with_template("device", template).held();
    let mut pod = requesting(&pod, "500m");
    pod["spec"]["schedulingGates"] = json!([{"name": HELD}]);
    if !owner.is_empty() {
        let labels = json!({"app": "none"});
        let template =
            json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        // The garbage collector deletes Pods of an owner that does not exist. The controller of this owner does not run.
        let set = json!({"apiVersion": "apps/v1", "kind": owner, "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": template}});
        let path = format!("/apis/apps/v1/{{}}/{}s", owner.to_lowercase());
        let set = world.client.create(&path, ns, &set).await?;
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": owner, "name": name,
            "uid": set["metadata"]["uid"], "controller": true}]);
    }
    world.client.create(PODS, ns, &pod).await?;
    wait::value(&format!("{name} is released"), async || {
        let pod = world.client.get(PODS, ns, name).await?.context("Pod")?;
        Ok((gates_of(&pod) == [HELD]).then_some(()))
    })
    .await
}

async fn let_in(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    world.client.merge(PODS, ns, name, &json!({"spec": {"schedulingGates": null}})).await?;
    Ok(())
}

async fn claim_of(world: &World, ns: &str, pod: &str) -> anyhow::Result<Value> {
    let pod = world.client.get(PODS, ns, pod).await?.context("Pod")?;
    let name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().context("claim")?;
    world.client.get(CLAIMS, ns, name).await?.context("claim")
}

/// The node that the devices of a Pod are on.
async fn node_of_claim(world: &World, ns: &str, pod: &str) -> anyhow::Result<String> {
    let claim = claim_of(world, ns, pod).await?;
    Ok(claim["status"]["allocation"]["devices"]["results"][0]["pool"].as_str().unwrap_or_default().to_owned())
}

async fn taint(world: &World, node: &str) -> anyhow::Result<()> {
    let taint = json!({"key": "example.com/broken", "effect": "NoSchedule"});
    world.client.merge(NODES, "", node, &json!({"spec": {"taints": [taint]}})).await?;
    Ok(())
}

/// Waits until kube-scheduler knows that `node` takes no Pod. Its watches of Nodes and Pods are not in step: a Pod that is
/// let in before this may be bound to the node as it was.
pub(super) async fn is_out(world: &World, ns: &str, node: &str) -> anyhow::Result<()> {
    let mut probe = Pod::new("probe").object().clone();
    probe["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}});
    wait::value(&format!("kube-scheduler refuses {node}"), async || {
        // The look writes: a Pod of its own asks kube-scheduler, and a bound one gives way to the next. Neither changes the node.
        let Some(pod) = world.client.get(PODS, ns, "probe").await? else {
            world.client.create(PODS, ns, &probe).await?;
            return Ok(None);
        };
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let refused = conditions.any(|condition| condition["reason"] == "Unschedulable");
        if refused || pod["spec"]["nodeName"].is_string() {
            world.client.delete(PODS, ns, "probe", Some(0)).await?;
        }
        Ok(refused.then_some(()))
    })
    .await
}

async fn a_node_that_is_lost_after_the_release(bench: &Bench) -> anyhow::Result<()> {
    lost(bench, "lost", Shape::default()).await
}

async fn a_node_that_is_lost_after_the_release_in_1_36(bench: &Bench) -> anyhow::Result<()> {
    lost(bench, "lost-1-36", Shape { release: Release::V1_36, ..Shape::default() }).await
}

/// A claim confines its Pod to the node of its device. Once that node is tainted or gone, kube-scheduler
/// takes the devices back and allocates elsewhere, and the ledger follows.
async fn lost(bench: &Bench, name: &str, shape: Shape) -> anyhow::Result<()> {
    let world = gated(bench, name, shape, 3).await?;
    let operator = world.dragoman("own", &[FLAGS[0], FLAGS[1], LATER]).await?;
    let allocator = world.allocator(&[LATER]).await?;
    let ns = namespace(&world, name, "enabled").await?;
    for how in ["tainted", "gone"] {
        create(&world, &ns, how, "one", "").await?;
        let first = node_of_claim(&world, &ns, how).await?;
        match how {
            "tainted" => taint(&world, &first).await?,
            _ => world.client.delete(NODES, "", &first, None).await?,
        }
        is_out(&world, &ns, &first).await?;
        let_in(&world, &ns, how).await?;
        let pod = world.phase(&ns, how, "Running").await?;
        let second = node_of_claim(&world, &ns, how).await?;
        println!("        {how}: {first}, then {second}");
        ensure!(pod["spec"]["nodeName"] == *second && first != second, "{first} {second} {pod}");
        wait::value("the ledger follows", async || {
            let state = world.client.get(super::STATES, "", &second).await?;
            let cpu = |state: &Value| state["status"]["requestedByClaims"]["mapping"]["cpu"] == "3";
            Ok(state.filter(cpu))
        })
        .await?;
        no_node_is_overcommitted(&world).await?;
        // Its devices are those of the node on which the next one may come.
        world.let_end(&ns, how).await?;
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Whatever takes the devices from a released Pod: kube-scheduler may not allocate those of an owned driver, and the allocator
/// does so again. The operator that says so is not the one that released the Pod.
async fn a_released_pod_that_has_lost_its_devices_gets_others(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "lost-devices", Shape::default(), 2).await?;
    own(&world, DRIVER, REFERENCE).await?;
    let start = async || world.dragoman("own", &[FLAGS[0], FLAGS[1], LATER]).await;
    let mut operator = start().await?;
    let allocator = world.allocator(&[LATER]).await?;
    let ns = namespace(&world, "lost-devices", "enabled").await?;
    let is_whole = |claim: &Value| {
        claim["status"]["allocation"].is_object() && claim["status"]["reservedFor"].as_array().is_some()
    };
    for (pod, taken) in [
        ("all", json!({"allocation": null, "reservedFor": null})),
        ("reservation", json!({"reservedFor": null})),
    ] {
        create(&world, &ns, pod, "one", "").await?;
        let claim = claim_of(&world, &ns, pod).await?;
        ensure!(is_whole(&claim), "{claim}");
        let name = claim["metadata"]["name"].as_str().context("name")?;
        operator.kill().await?;
        world.client.merge(CLAIMS, &ns, &format!("{name}/status"), &json!({"status": taken})).await?;
        operator = start().await?;
        println!("        {}", waits_for(&world, &ns, pod, "NotBound").await?);
        world.claim_until(&ns, name, "is whole again", |claim| claim.is_some_and(is_whole)).await?;
        let_in(&world, &ns, pod).await?;
        world.phase(&ns, pod, "Running").await?;
    }
    no_node_is_overcommitted(&world).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// A device that every node can use confines no Pod: the operator pins the Pod to the node that it counts it on,
/// and kube-scheduler cannot move it. That is said; a Pod of a controller is deleted where that is asked for.
async fn a_pinned_pod_that_cannot_be_bound_is_reported_and_deleted_where_asked(
    bench: &Bench,
) -> anyhow::Result<()> {
    pinned(bench, "pinned", Shape::default()).await
}

async fn a_pinned_pod_is_reported_in_1_36(bench: &Bench) -> anyhow::Result<()> {
    pinned(bench, "pinned-1-36", Shape { release: Release::V1_36, ..Shape::default() }).await
}

/// Two nodes, and eight devices that both can use.
async fn devices_for_all_nodes(world: &World) -> anyhow::Result<()> {
    for node in ["node-0", "node-1"] {
        add_node(world, node, super::SMALL, false, super::Costs::InFootprint).await?;
        world.client.delete(SLICES, "", node, None).await?;
    }
    let mut fabric = objects::slice("fabric", 8);
    fabric["spec"]["allNodes"] = json!(true);
    fabric["spec"].as_object_mut().context("spec")?.remove("nodeName");
    world.client.create(SLICES, "", &fabric).await?;
    Ok(())
}

async fn pinned(bench: &Bench, name: &str, shape: Shape) -> anyhow::Result<()> {
    let world = gated(bench, name, shape, 0).await?;
    world.install("config/components/delete-unbound").await?;
    devices_for_all_nodes(&world).await?;
    let operator = world.dragoman("own", &[FLAGS[0], FLAGS[1], LATER]).await?;
    let allocator = world.allocator(&[LATER]).await?;
    let ns = namespace(&world, name, "enabled").await?;
    let pods = [("replica", "ReplicaSet"), ("bare", ""), ("daemon", "DaemonSet"), ("late", "")];
    for (pod, owner) in pods {
        create(&world, &ns, pod, "one", owner).await?;
    }
    let pin = async |name: &str| {
        let pod = world.client.get(PODS, &ns, name).await?.context("Pod")?;
        let required =
            &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let node =
            required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().map(str::to_owned);
        node.context("a pin")
    };
    // Another leader knows of the pins what the API says.
    operator.kill().await?;
    let operator = world.dragoman("own", &[FLAGS[0], FLAGS[1], LATER]).await?;
    for node in ["node-0", "node-1"] {
        taint(&world, node).await?;
        is_out(&world, &ns, node).await?;
    }
    for (pod, _) in pods {
        let_in(&world, &ns, pod).await?;
    }
    for (pod, _) in pods {
        let why = waits_for(&world, &ns, pod, "NotBound").await?;
        println!("        {pod}: {why}");
        ensure!(why.contains(&pin(pod).await?) && why.contains("untolerated taint"), "{why}");
    }
    let claim = claim_of(&world, &ns, "bare").await?;
    println!("        kube-scheduler leaves the claim: {}", claim["status"]);
    // What each says is read before one is deleted.
    operator.stop().await?;
    let operator = world.dragoman("own", &[FLAGS[0], FLAGS[1], "--delete-unbound-after=60", LATER]).await?;
    wait::value("the Pod of a ReplicaSet is deleted", async || {
        Ok(world.client.get(PODS, &ns, "replica").await?.is_none().then_some(()))
    })
    .await?;
    let first = pin("late").await?;
    world.client.merge(NODES, "", &first, &json!({"spec": {"taints": null}})).await?;
    world.phase(&ns, "late", "Running").await?;
    becomes_ready(&world, &ns, "late", &["Bound"]).await?;
    for pod in ["bare", "daemon"] {
        ensure!(world.client.get(PODS, &ns, pod).await?.is_some(), "{pod} is not made again, and stays");
    }
    no_node_is_overcommitted(&world).await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
