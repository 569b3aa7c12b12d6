//! Gated Pods that ask for Pods near them, to be apart from some, or that use volumes. kube-scheduler has the last word.

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use super::company::own;
use super::{Costs, FLAGS, GATE, NODES, Size, condition, gated_where, gates_of, namespace, says};
use crate::client::{FOOTPRINTS, PODS};
use crate::control_plane::Shape;
use crate::objects::{DRIVER, Pod};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(gated_pods_go_where_other_pods_and_volumes_let_them),
        standalone!(no_random_pod_is_released_to_a_node_that_kube_scheduler_refuses),
    ]
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const VOLUME_CLAIMS: &str = "/api/v1/{}/persistentvolumeclaims";

/// A cluster in which devices cost nothing: two nodes in each zone.
async fn zoned(bench: &Bench, name: &str, nodes: usize) -> anyhow::Result<World> {
    // Every Pod of a scenario has a place on every node.
    let size = Size { cpus: 64, devices: 96, each: 1 };
    let world = gated_where(bench, name, Shape::default(), (nodes, size), Costs::InFootprint).await?;
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

/// The apps of random Pods: few, so that their Pods concern each other.
const APPS: [&str; 3] = ["a", "b", "c"];

/// Random requirements on the Pods nearby. No Pod asks for Pods like itself: the first of those has no place beside one that comes
/// between its decision and its binding.
fn wishes(rng: &mut Rng, own: &str) -> Value {
    let (app, key) = (APPS[rng.usize(..APPS.len())], [HOST, ZONE][rng.usize(..2)]);
    let spread = |rng: &mut Rng| {
        let skew = if rng.i8(0..4) < 3 { 1 } else { 2 };
        json!({"labelSelector": selects(app), "topologyKey": key, "maxSkew": skew,
            "whenUnsatisfiable": "DoNotSchedule"})
    };
    match rng.u8(..10) {
        0 => json!({}),
        1..=3 => json!({"nodeSelector": {ZONE: format!("zone-{}", rng.u8(..3))}}),
        4 => term("podAntiAffinity", app, HOST),
        5 if app != own => term("podAffinity", app, key),
        _ => json!({"topologySpreadConstraints": [spread(rng)]}),
    }
}

/// Pods with random requirements come at once. Each is bound, or waits behind its gate and says which requirement no node
/// meets: none is released to a node that kube-scheduler refuses.
async fn no_random_pod_is_released_to_a_node_that_kube_scheduler_refuses(
    bench: &Bench,
) -> anyhow::Result<()> {
    let world = zoned(bench, "wishes", 6).await?;
    // kube-scheduler would move a Pod that it cannot bind yet.
    own(&world, DRIVER, "dragoman-allocator").await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    for seed in 0..2 {
        let mut rng = Rng::with_seed(seed);
        let ns = namespace(&world, &format!("wishes-{seed}"), "enabled").await?;
        for number in 0..45 {
            let app = APPS[rng.usize(..APPS.len())];
            world
                .client
                .create(PODS, &ns, &pod(&format!("pod-{number}"), app, &wishes(&mut rng, app)))
                .await?;
        }
        let (bound, waiting) = settled(&world, &ns).await?;
        println!("        seed {seed}: {bound} Pods bound, {waiting} wait");
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Waits until each Pod is bound or says which requirement no node meets. Returns how many of both there are.
async fn settled(world: &World, ns: &str) -> anyhow::Result<(usize, usize)> {
    const WISHES: [&str; 4] = ["Pod affinity", "anti-affinity", "its topology spread", "asks for the same"];
    let says_why = |pod: &Value| {
        let message = condition(pod).map(|of| of["message"].to_string()).unwrap_or_default();
        gates_of(pod).contains(&GATE) && WISHES.iter().any(|wish| message.contains(wish))
    };
    wait::value("each Pod is bound or waits behind its gate for a reason", async || {
        let pods = world.client.list(PODS, ns).await?;
        let (bound, others): (Vec<_>, Vec<_>) =
            pods.iter().partition(|pod| pod["spec"]["nodeName"].is_string());
        let open: Vec<_> = others.iter().filter(|pod| !says_why(pod)).collect();
        let first =
            || open.first().map_or(Value::Null, |pod| json!([pod["metadata"]["name"], pod["status"]]));
        wait::note(|| format!("{} Pods neither; the first one", open.len()), first);
        Ok(open.is_empty().then_some((bound.len(), others.len())))
    })
    .await
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
