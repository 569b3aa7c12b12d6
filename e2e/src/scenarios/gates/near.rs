//! Gated Pods that ask for Pods near them, to be apart from some, or that use volumes. kube-scheduler has the last word.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FLAGS, NODES, gated, namespace, says};
use crate::client::{FOOTPRINTS, PODS};
use crate::control_plane::Shape;
use crate::objects::Pod;
use crate::scenarios::{Standalone, standalone};
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(gated_pods_go_where_other_pods_and_volumes_let_them)]
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const VOLUME_CLAIMS: &str = "/api/v1/{}/persistentvolumeclaims";

/// A cluster in which devices cost nothing: two nodes in each zone.
async fn zoned(bench: &Bench, name: &str, nodes: usize) -> anyhow::Result<World> {
    let world = gated(bench, name, Shape::default(), nodes).await?;
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    for number in 0..nodes {
        let node = format!("node-{number}");
        let labels = json!({HOST: node, ZONE: format!("zone-{}", number / 2)});
        world.client.merge(NODES, "", &node, &json!({"metadata": {"labels": labels}})).await?;
    }
    Ok(world)
}

/// A Pod with a device, the label `app`, and these fields of its spec.
fn pod(name: &str, app: &str, spec: &Value) -> Value {
    let mut pod = Pod::new(name).with_template("device", "one").held().object().clone();
    pod["metadata"]["labels"]["app"] = json!(app);
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn selects(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

/// `affinity` with one required term about the Pods of an app.
fn term(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({"labelSelector": selects(app), "topologyKey": key});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

async fn node_of(world: &World, ns: &str, name: &str) -> anyhow::Result<String> {
    let pod = world.phase(ns, name, "Running").await?;
    pod["spec"]["nodeName"].as_str().map(str::to_owned).context("node")
}

async fn gated_pods_go_where_other_pods_and_volumes_let_them(bench: &Bench) -> anyhow::Result<()> {
    let world = zoned(bench, "near", 4).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = namespace(&world, "near", "enabled").await?;
    let comes = async |name: &str, app: &str, spec: &Value| -> anyhow::Result<()> {
        world.client.create(PODS, &ns, &pod(name, app, spec)).await?;
        Ok(())
    };

    // Four that have to be apart have four nodes; the fifth says why it waits, and gets the place of one that ends.
    let apart = term("podAntiAffinity", "apart", HOST);
    let mut nodes = Vec::new();
    for number in 0..4 {
        comes(&format!("apart-{number}"), "apart", &apart).await?;
    }
    for number in 0..4 {
        nodes.push(node_of(&world, &ns, &format!("apart-{number}")).await?);
    }
    let first = nodes.first().cloned().context("a node")?;
    nodes.sort();
    nodes.dedup();
    ensure!(nodes.len() == 4, "on a node together: {nodes:?}");
    comes("apart-4", "apart", &apart).await?;
    let said = says(&world, &ns, "apart-4", "a Pod that the required Pod anti-affinity excludes").await?;
    println!("        {said}");
    world.let_end(&ns, "apart-0").await?;
    let last = node_of(&world, &ns, "apart-4").await?;
    ensure!(last == first, "apart-0 was on {first}, and apart-4 is on {last}");

    // One that follows another waits for it.
    comes("follower", "follower", &term("podAffinity", "leader", ZONE)).await?;
    says(&world, &ns, "follower", "no Pod that the required Pod affinity asks for").await?;
    comes("leader", "leader", &json!({"nodeSelector": {ZONE: "zone-1"}})).await?;
    let node = node_of(&world, &ns, "follower").await?;
    ensure!(["node-2", "node-3"].contains(&&*node), "the leader is in zone-1, and the follower on {node}");

    // Where a volume is.
    comes("writer", "writer", &using("data")).await?;
    says(&world, &ns, "writer", "PersistentVolumeClaim data does not exist").await?;
    bound_volume(&world, &ns, "data", "zone-1").await?;
    let node = node_of(&world, &ns, "writer").await?;
    ensure!(["node-2", "node-3"].contains(&&*node), "its volume is in zone-1, and the Pod on {node}");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

fn using(claim: &str) -> Value {
    json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
}

/// Makes a volume in a zone and a claim that is bound to it, as the controllers of volumes leave them.
async fn bound_volume(world: &World, ns: &str, name: &str, zone: &str) -> anyhow::Result<()> {
    let (mode, size) = (json!(["ReadWriteMany"]), json!({"storage": "1Gi"}));
    let terms = json!([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]);
    let volume = format!("{ns}-{name}");
    let pv = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {"accessModes": mode, "capacity": size, "hostPath": {"path": "/data"}, "storageClassName": "made",
            "claimRef": {"namespace": ns, "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    world.client.create(VOLUMES, "", &pv).await?;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"accessModes": mode, "resources": {"requests": size}, "storageClassName": "made", "volumeName": volume}});
    world.client.create(VOLUME_CLAIMS, ns, &claim).await?;
    let bound = json!({"status": {"phase": "Bound"}});
    world.client.merge(VOLUME_CLAIMS, ns, &format!("{name}/status"), &bound).await?;
    Ok(())
}
