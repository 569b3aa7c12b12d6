//! Gated Pods that ask for Pods near them, to be apart from some, or that use volumes. kube-scheduler has the last word.

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{FLAGS, NODES, gated, gates_of, namespace, says};
use crate::client::{FOOTPRINTS, PODS};
use crate::control_plane::Shape;
use crate::objects::Pod;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(gated_pods_go_where_other_pods_and_volumes_let_them),
        standalone!(kube_scheduler_and_the_allocator_agree_on_pods_near_others),
    ]
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const VOLUME_CLAIMS: &str = "/api/v1/{}/persistentvolumeclaims";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

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

fn spread(app: &str, key: &str) -> Value {
    json!({"topologySpreadConstraints": [{"labelSelector": selects(app), "topologyKey": key, "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule"}]})
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

/// A requirement on Pods near, on volumes, or on nothing.
fn random(rng: &mut Rng) -> Value {
    let apps = ["a", "b", "c"];
    let (app, key) = (apps[rng.usize(..apps.len())], [HOST, ZONE][rng.usize(..2)]);
    let mut all = Map::new();
    let more = match rng.u8(..8) {
        0 | 1 => term("podAntiAffinity", app, HOST),
        2 => term("podAntiAffinity", app, key),
        3 => term("podAffinity", app, key),
        4 | 5 => spread(app, key),
        6 => using(&format!("volume-{}", rng.u8(..3))),
        _ => json!({}),
    };
    all.extend(more.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// Pods of three apps with random requirements, gated and not. kube-scheduler binds every Pod that is released, and
/// finds no node for one that waits.
async fn kube_scheduler_and_the_allocator_agree_on_pods_near_others(bench: &Bench) -> anyhow::Result<()> {
    let world = zoned(bench, "agree-near", 6).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "made"},
        "provisioner": "example.com/none", "volumeBindingMode": "WaitForFirstConsumer"});
    world.client.create(STORAGE_CLASSES, "", &class).await?;
    let (mut bound, mut waiting) = (0, 0);
    for seed in 1..=3 {
        let mut rng = Rng::with_seed(seed);
        let ns = namespace(&world, &format!("agree-near-{seed}"), "enabled").await?;
        for (volume, zone) in ["zone-0", "zone-1", "zone-2"].iter().enumerate() {
            bound_volume(&world, &ns, &format!("volume-{volume}"), zone).await?;
        }
        // Those without claims get no gate.
        for number in 0..4 {
            let mut plain =
                pod(&format!("plain-{number}"), ["a", "b", "c"][rng.usize(..3)], &random(&mut rng));
            let spec = plain["spec"].as_object_mut().context("spec")?;
            spec.remove("resourceClaims");
            spec.get_mut("containers").context("containers")?[0]
                .as_object_mut()
                .context("container")?
                .remove("resources");
            world.client.create(PODS, &ns, &plain).await?;
        }
        for number in 0..14 {
            let app = ["a", "b", "c"][rng.usize(..3)];
            world.client.create(PODS, &ns, &pod(&format!("gated-{number}"), app, &random(&mut rng))).await?;
        }
        let (ran, left) = agreed(&world, &ns, seed).await?;
        (bound, waiting) = (bound + ran, waiting + left);
        for pod in world.client.list(PODS, &ns).await? {
            let name = pod["metadata"]["name"].as_str().context("name")?;
            world.client.delete(PODS, &ns, name, None).await?;
        }
        wait::until("no Pod is left", async || {
            world.client.list(PODS, &ns).await.is_ok_and(|pods| pods.is_empty())
        })
        .await?;
    }
    println!("        {bound} gated Pods were bound, {waiting} had no node");
    ensure!(bound >= 15, "{bound} Pods were bound: the requirements leave too little");
    ensure!(waiting >= 1, "every Pod had a node: the requirements say nothing");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Waits until every gated Pod runs, or says that no node takes it and kube-scheduler finds none for a Pod like it.
/// Returns how many do either.
async fn agreed(world: &World, ns: &str, seed: u64) -> anyhow::Result<(usize, usize)> {
    let what = format!("seed {seed}: released Pods run, and the others have no node");
    let left = wait::value(&what, async || {
        let pods = world.client.list(PODS, ns).await?;
        let gated = pods.iter().filter(|pod| is_named(pod, "gated-"));
        let (ran, left): (Vec<&Value>, Vec<&Value>) =
            gated.partition(|pod| pod["status"]["phase"] == "Running");
        let all_wait = left.iter().all(|pod| {
            let said = super::condition(pod).and_then(|of| of["message"].as_str()).unwrap_or_default();
            !gates_of(pod).is_empty() && said.contains("node") && said.contains(':')
        });
        Ok(all_wait.then(|| (ran.len(), left.into_iter().cloned().collect::<Vec<_>>())))
    })
    .await;
    let (ran, left) = match left {
        Ok(found) => found,
        Err(why) => {
            for pod in
                world.client.list(PODS, ns).await?.iter().filter(|pod| pod["status"]["phase"] != "Running")
            {
                println!(
                    "        {} {}: {}",
                    pod["metadata"]["name"], pod["spec"], pod["status"]["conditions"]
                );
            }
            return Err(why);
        }
    };
    for pod in &left {
        no_node_takes(world, ns, pod).await?;
    }
    Ok((ran, left.len()))
}

fn is_named(pod: &Value, prefix: &str) -> bool {
    pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix))
}

/// kube-scheduler refuses a Pod like this one that has no claim and no gate, or has bound the Pod meanwhile.
async fn no_node_takes(world: &World, ns: &str, pod: &Value) -> anyhow::Result<()> {
    let name = pod["metadata"]["name"].as_str().context("name")?;
    let app = pod["metadata"]["labels"]["app"].as_str().context("app")?;
    let spec = &pod["spec"];
    let of = |field: &str| spec.get(field).cloned().unwrap_or_default();
    let mut like = self::pod(&format!("like-{name}"), app, &json!({}));
    let asked = like["spec"].as_object_mut().context("spec")?;
    asked.remove("resourceClaims");
    asked.get_mut("containers").context("containers")?[0]
        .as_object_mut()
        .context("container")?
        .remove("resources");
    for field in ["affinity", "topologySpreadConstraints", "volumes"] {
        asked.insert(field.to_owned(), of(field));
    }
    world.client.create(PODS, ns, &like).await?;
    let verdict = wait::value(&format!("kube-scheduler looks at a Pod like {name}"), async || {
        let like = world.client.get(PODS, ns, &format!("like-{name}")).await?.context("Pod")?;
        let mut conditions = like["status"]["conditions"].as_array().into_iter().flatten();
        let scheduled = conditions.find(|of| of["type"] == "PodScheduled");
        Ok(scheduled.map(|of| (of["status"] == "True", of["message"].to_string())))
    })
    .await?;
    println!("        {name}: {}", verdict.1);
    ensure!(!verdict.0, "kube-scheduler binds a Pod like {name}: {} {}", pod["spec"], pod["status"]);
    world.client.delete(PODS, ns, &format!("like-{name}"), None).await?;
    wait::until("the other Pod is gone", async || {
        world.client.get(PODS, ns, &format!("like-{name}")).await.is_ok_and(|pod| pod.is_none())
    })
    .await
}
