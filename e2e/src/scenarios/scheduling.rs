//! The stand-in for kube-scheduler beside kube-scheduler: the same chapters on simcluster, and what each writes to Pods and claims.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::accounts::requesting;
use super::{Outcome, Standalone, standalone};
use crate::client::{CLAIMS, CLASSES, PODS};
use crate::control_plane::{Backend, Scheduling, Shape};
use crate::differential::Recorder;
use crate::objects::{self, Pod};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(the_stand_in_schedules_what_kube_scheduler_schedules)]
}

const NODES: &str = "/api/v1/nodes";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// The cpus of a node.
const CPUS: &str = "8";

/// A part of the script, with Pods, claims and nodes of its own.
struct Chapter {
    name: &'static str,
    run: for<'a> fn(&'a Scene<'a>) -> Outcome<'a>,
}

macro_rules! chapters {
    ($($function:ident),+ $(,)?) => {
        [$(Chapter { name: stringify!($function), run: |scene| Box::pin($function(scene)) }),+]
    };
}

const CHAPTERS: &[Chapter] = &chapters![
    a_pod_gets_a_device_and_a_node,
    a_pod_waits_for_room_and_gets_it,
    a_nomination_holds_room_against_equals_alone,
    an_allocation_is_taken_back_where_its_node_is_full,
    an_allocation_of_two_pods_stays,
    an_important_pod_takes_the_room_of_another,
    an_important_pod_gives_its_allocation_back_before_it_takes_room,
    a_nomination_ends_where_another_node_has_room,
    a_nomination_without_room_is_cleared,
];

/// The versions of each object, as text.
type Histories = BTreeMap<String, Vec<String>>;

async fn the_stand_in_schedules_what_kube_scheduler_schedules(bench: &Bench) -> anyhow::Result<()> {
    let bench = Bench { backend: Backend::Sim, ..bench.clone() };
    let mut differing: Vec<&Chapter> = CHAPTERS.iter().collect();
    let mut wrong = Vec::new();
    // Which of two events kube-scheduler sees first may decide for which of two nodes it takes a Pod: chapters that differ are told
    // again, and a fault differs every time.
    for round in ["", "-again", "-once-more"] {
        let original =
            told(&bench, &format!("scheduling-original{round}"), Scheduling::Kube, &differing).await?;
        let stand_in =
            told(&bench, &format!("scheduling-stand-in{round}"), Scheduling::Usual, &differing).await?;
        wrong.clear();
        differing.retain(|chapter| {
            let before = wrong.len();
            let [original, stand_in] = [&original, &stand_in].map(|of| of.get(chapter.name));
            wrong.extend(differences(chapter.name, original, stand_in));
            wrong.len() > before
        });
        let count: usize = original.values().map(BTreeMap::len).sum();
        println!("        {} of {count} histories are not those of kube-scheduler", wrong.len());
        if differing.is_empty() {
            return Ok(());
        }
    }
    anyhow::bail!("{} histories differ each time:\n{}", wrong.len(), wrong.join("\n"))
}

/// The objects of a chapter whose histories are not the same.
fn differences(chapter: &str, original: Option<&Histories>, stand_in: Option<&Histories>) -> Vec<String> {
    let [original, stand_in] = [original, stand_in].map(|of| of.cloned().unwrap_or_default());
    let objects: BTreeSet<&String> = original.keys().chain(stand_in.keys()).collect();
    let differs = |object: &&&String| original.get(**object) != stand_in.get(**object);
    let line = |object: &String| {
        let [one, other] = [&original, &stand_in].map(|of| of.get(object).cloned().unwrap_or_default());
        format!("{chapter}: {object}: kube-scheduler {one:#?}\nthe stand-in {other:#?}")
    };
    objects.iter().filter(differs).map(|object| line(object)).collect()
}

/// Runs these chapters with one of the two.
async fn told(
    bench: &Bench,
    name: &str,
    scheduler: Scheduling,
    chapters: &[&'static Chapter],
) -> anyhow::Result<BTreeMap<&'static str, Histories>> {
    let world = World::bare(bench, name, Shape { scheduler, ..Shape::default() }, 0, 0).await?;
    let mut told = BTreeMap::new();
    for chapter in chapters {
        let ns = world.namespace("scheduling").await?;
        let recorder = Recorder::start(&world.client, &ns, false).await;
        let scene = Scene { world: &world, ns };
        (chapter.run)(&scene).await.with_context(|| format!("{name}: {}", chapter.name))?;
        world.rest(&scene.ns).await?;
        told.insert(chapter.name, views(&recorder.seen()));
        scene.clear().await?;
    }
    world.stop().await?;
    Ok(told)
}

/// Returns the fields of each object that concern a scheduler, version by version.
fn views(seen: &[(bool, Value)]) -> Histories {
    let mut histories = Histories::new();
    for (is_deleted, object) in seen {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let (kind, view): (_, fn(&Value) -> Value) = match object["kind"].as_str() {
            Some("Pod") => ("Pod", view_of_pod),
            Some("ResourceClaim") => ("claim", view_of_claim),
            _ => continue,
        };
        let history = histories.entry(format!("{kind} {name}")).or_default();
        if kind == "Pod" && !is_deleted && has_failed(object) {
            // An attempt that was decided on before kube-scheduler's watch had brought a write, and that the API server refused: how often
            // that happens follows from the load of the machine. The nomination belongs to the attempt.
            while history.last().is_some_and(|view| view.contains(NOMINATED) && !view.contains(NOT_NOMINATED))
            {
                history.pop();
            }
            continue;
        }
        let view = if *is_deleted { "deleted".to_owned() } else { view(object).to_string() };
        if history.last() != Some(&view) {
            history.push(view);
        }
    }
    histories
}

/// The field of a view of a Pod that says for which node it is nominated, and what it says of one that is nominated for none.
const NOMINATED: &str = r#""nominated":"#;
const NOT_NOMINATED: &str = r#""nominated":null"#;

/// Whether kube-scheduler says of a Pod that its last attempt has failed, for another reason than that no node takes the Pod.
fn has_failed(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|of| of["type"] == "PodScheduled" && of["reason"] == "SchedulerError")
}

fn view_of_pod(pod: &Value) -> Value {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let said: Vec<String> = conditions
        .filter(|condition| condition["type"] == "PodScheduled" || condition["type"] == "DisruptionTarget")
        .map(|condition| {
            ["type", "status", "reason"].map(|field| condition[field].as_str().unwrap_or_default()).join(" ")
        })
        .collect();
    json!({
        "node": pod["spec"]["nodeName"], "nominated": pod["status"]["nominatedNodeName"], "said": said,
        "deleting": !pod["metadata"]["deletionTimestamp"].is_null(),
    })
}

fn view_of_claim(claim: &Value) -> Value {
    let consumers = claim["status"]["reservedFor"].as_array().into_iter().flatten();
    let consumers: Vec<&Value> = consumers.map(|consumer| &consumer["name"]).collect();
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    // Which of the devices that are alike follows from how far kube-scheduler's watch is: one that was given back a moment ago
    // is not free there yet.
    let alike = |result: &Value| ["driver", "pool", "request"].map(|field| result[field].clone());
    let devices: Option<Vec<[Value; 3]>> = results.map(|results| results.iter().map(alike).collect());
    json!({
        "finalizers": claim["metadata"]["finalizers"], "devices": devices,
        "nodes": claim["status"]["allocation"]["nodeSelector"], "reservedFor": consumers,
    })
}

/// The stage of a chapter.
struct Scene<'a> {
    world: &'a World,
    ns: String,
}

impl Scene<'_> {
    /// A node with two devices, which the scheduler has seen. Its watches of Nodes, ResourceSlices and Pods are not in step:
    /// it would refuse a Pod that it sees before the node.
    async fn node(&self, name: &str) -> anyhow::Result<()> {
        let mut node = objects::node(name);
        for of in ["allocatable", "capacity"] {
            node["status"][of] = json!({"cpu": CPUS, "memory": "16Gi", "pods": "100"});
        }
        node["metadata"]["labels"]["chapter"] = json!(self.ns);
        let client = &self.world.client;
        client.create(SLICES, "", &objects::slice(name, 2)).await?;
        // Slices come in the order in which they were created: a scheduler that has seen this one has seen the other.
        let driver = format!("{name}.{}.example.com", self.ns);
        let mut last = objects::slice(name, 1);
        last["metadata"]["name"] = json!(driver);
        last["spec"]["driver"] = json!(driver);
        client.create(SLICES, "", &last).await?;
        client.create(NODES, "", &node).await?;
        self.is_seen(name, &driver).await
    }

    /// Waits until the scheduler has bound a Pod with the device of a driver that this node alone has, and removes the Pod.
    async fn is_seen(&self, node: &str, driver: &str) -> anyhow::Result<()> {
        let client = &self.world.client;
        let mut class = objects::class();
        class["metadata"]["name"] = json!(driver);
        class["spec"]["selectors"][0]["cel"]["expression"] = json!(format!("device.driver == {driver:?}"));
        client.create(CLASSES, "", &class).await?;
        let apart = Self { world: self.world, ns: self.world.namespace("seen").await? };
        let mut claim = objects::claim("last");
        claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!(driver);
        client.create(CLAIMS, &apart.ns, &claim).await?;
        let mut pod = requesting(&Pod::new("looks").held().with_claim("last", "last"), "0");
        // A node of the chapter before may have had this name.
        pod["spec"]["nodeSelector"] = json!({"chapter": self.ns});
        client.create(PODS, &apart.ns, &pod).await?;
        apart.bound("looks", node).await?;
        apart.empty().await
    }

    /// Creates a Pod that requests so many cpus.
    async fn pod(&self, pod: &Pod, cpu: &str, priority: i64) -> anyhow::Result<Value> {
        let mut pod = requesting(pod, cpu);
        pod["spec"]["priority"] = json!(priority);
        Ok(self.world.client.create(PODS, &self.ns, &pod).await?)
    }

    async fn seen(&self, name: &str) -> anyhow::Result<Value> {
        self.world.client.get(PODS, &self.ns, name).await?.context("Pod")
    }

    async fn bound(&self, name: &str, node: &str) -> anyhow::Result<()> {
        wait::value(&format!("{name} is bound to {node}"), async || {
            Ok((self.seen(name).await?["spec"]["nodeName"] == node).then_some(()))
        })
        .await
    }

    async fn waits(&self, name: &str) -> anyhow::Result<()> {
        wait::value(&format!("{name} waits"), async || {
            let pod = self.seen(name).await?;
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            Ok(conditions.any(|condition| condition["reason"] == "Unschedulable").then_some(()))
        })
        .await
    }

    async fn nominate(&self, name: &str, node: &str) -> anyhow::Result<()> {
        let status = json!({"status": {"nominatedNodeName": node}});
        self.world.client.merge(PODS, &self.ns, &format!("{name}/status"), &status).await?;
        Ok(())
    }

    async fn open(&self, name: &str) -> anyhow::Result<()> {
        let open = json!({"spec": {"schedulingGates": null}});
        self.world.client.merge(PODS, &self.ns, name, &open).await?;
        Ok(())
    }

    async fn end(&self, name: &str) -> anyhow::Result<()> {
        self.world.client.delete(PODS, &self.ns, name, Some(0)).await
    }

    /// A claim that has the first device of `node-0`, reserved for these Pods.
    async fn allocated(&self, claim: &str, consumers: &[&str]) -> anyhow::Result<()> {
        let mut object = objects::claim(claim);
        object["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
        self.world.client.create(CLAIMS, &self.ns, &object).await?;
        let mut reserved = Vec::new();
        for name in consumers {
            reserved.push(objects::pod_consumer(&self.seen(name).await?));
        }
        let result =
            json!({"request": "device", "driver": objects::DRIVER, "pool": "node-0", "device": "dev-0"});
        let selector = json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}]});
        let allocation = json!({"devices": {"results": [result]}, "nodeSelector": selector});
        let status = json!({"status": {"allocation": allocation, "reservedFor": reserved}});
        self.world.client.merge(CLAIMS, &self.ns, &format!("{claim}/status"), &status).await?;
        Ok(())
    }

    /// Waits until a claim has a device of this node.
    async fn moved(&self, claim: &str, node: &str) -> anyhow::Result<()> {
        wait::value(&format!("{claim} has a device of {node}"), async || {
            let claim = self.world.client.get(CLAIMS, &self.ns, claim).await?.context("claim")?;
            let pool = &claim["status"]["allocation"]["devices"]["results"][0]["pool"];
            Ok((pool == node).then_some(()))
        })
        .await
    }

    /// Removes Pods, claims and nodes.
    async fn clear(&self) -> anyhow::Result<()> {
        self.empty().await?;
        let client = &self.world.client;
        for collection in [SLICES, NODES] {
            for object in client.list(collection, "").await? {
                client.delete(collection, "", name_of(&object), None).await?;
            }
        }
        Ok(())
    }

    /// Removes Pods and claims.
    async fn empty(&self) -> anyhow::Result<()> {
        let client = &self.world.client;
        for pod in client.list(PODS, &self.ns).await? {
            client.delete(PODS, &self.ns, name_of(&pod), Some(0)).await?;
        }
        for claim in client.list(CLAIMS, &self.ns).await? {
            let name = name_of(&claim);
            client.merge(CLAIMS, &self.ns, name, &json!({"metadata": {"finalizers": null}})).await?;
            client.delete(CLAIMS, &self.ns, name, Some(0)).await?;
        }
        Ok(())
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

async fn a_pod_gets_a_device_and_a_node(scene: &Scene<'_>) -> anyhow::Result<()> {
    scene.node("node-0").await?;
    scene.world.client.create(CLAIMS, &scene.ns, &objects::claim("device")).await?;
    for name in ["first", "second"] {
        // The second one shares the claim of the first.
        scene.pod(&Pod::new(name).with_claim("gpu", "device"), "1", 0).await?;
        scene.bound(name, "node-0").await?;
    }
    Ok(())
}

/// A node of which a Pod has taken six cpus.
async fn filled(scene: &Scene<'_>) -> anyhow::Result<()> {
    scene.node("node-0").await?;
    scene.pod(&Pod::new("first").held(), "6", 0).await?;
    scene.bound("first", "node-0").await
}

async fn a_pod_waits_for_room_and_gets_it(scene: &Scene<'_>) -> anyhow::Result<()> {
    filled(scene).await?;
    scene.pod(&Pod::new("second"), "4", 0).await?;
    scene.waits("second").await?;
    scene.end("first").await?;
    scene.bound("second", "node-0").await
}

/// A gated Pod is nominated. A Pod of its priority waits, a smaller one is bound, and so is a more important one. Then the gate is
/// opened and the Pod has no room.
async fn a_nomination_holds_room_against_equals_alone(scene: &Scene<'_>) -> anyhow::Result<()> {
    scene.node("node-0").await?;
    scene.pod(&Pod::new("gated").gated(), "6", 0).await?;
    scene.nominate("gated", "node-0").await?;
    scene.world.rest(&scene.ns).await?;
    scene.pod(&Pod::new("equal"), "4", 0).await?;
    scene.waits("equal").await?;
    scene.pod(&Pod::new("small").held(), "2", 0).await?;
    scene.bound("small", "node-0").await?;
    scene.pod(&Pod::new("important").held(), "4", 1_000).await?;
    scene.bound("important", "node-0").await?;
    scene.open("gated").await?;
    scene.waits("gated").await?;
    scene.world.rest(&scene.ns).await?;
    scene.end("important").await?;
    scene.bound("gated", "node-0").await
}

/// A Pod with a device of `node-0` and a gate; the node is full, and another one has room.
async fn stranded(scene: &Scene<'_>, priority: i64) -> anyhow::Result<()> {
    filled(scene).await?;
    scene.node("node-1").await?;
    scene.pod(&Pod::new("gated").with_claim("gpu", "device").gated(), "4", priority).await?;
    Ok(())
}

async fn an_allocation_is_taken_back_where_its_node_is_full(scene: &Scene<'_>) -> anyhow::Result<()> {
    stranded(scene, 0).await?;
    scene.allocated("device", &["gated"]).await?;
    scene.open("gated").await?;
    scene.moved("device", "node-1").await?;
    scene.bound("gated", "node-1").await
}

async fn an_allocation_of_two_pods_stays(scene: &Scene<'_>) -> anyhow::Result<()> {
    stranded(scene, 0).await?;
    scene.allocated("device", &["gated", "first"]).await?;
    scene.open("gated").await?;
    scene.waits("gated").await?;
    scene.world.rest(&scene.ns).await?;
    scene.end("first").await?;
    scene.bound("gated", "node-0").await
}

async fn an_important_pod_takes_the_room_of_another(scene: &Scene<'_>) -> anyhow::Result<()> {
    filled(scene).await?;
    scene.pod(&Pod::new("important").held(), "6", 1_000).await?;
    scene.bound("important", "node-0").await
}

async fn an_important_pod_gives_its_allocation_back_before_it_takes_room(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    stranded(scene, 1_000).await?;
    scene.allocated("device", &["gated"]).await?;
    scene.open("gated").await?;
    wait::value("the Pod is bound", async || {
        Ok(scene.seen("gated").await?["spec"]["nodeName"].is_string().then_some(()))
    })
    .await
}

async fn a_nomination_ends_where_another_node_has_room(scene: &Scene<'_>) -> anyhow::Result<()> {
    filled(scene).await?;
    scene.node("node-1").await?;
    scene.pod(&Pod::new("gated").gated(), "4", 0).await?;
    scene.nominate("gated", "node-0").await?;
    scene.world.rest(&scene.ns).await?;
    scene.open("gated").await?;
    scene.bound("gated", "node-1").await
}

async fn a_nomination_without_room_is_cleared(scene: &Scene<'_>) -> anyhow::Result<()> {
    filled(scene).await?;
    scene.pod(&Pod::new("gated").gated(), "4", 0).await?;
    scene.nominate("gated", "node-0").await?;
    scene.world.rest(&scene.ns).await?;
    scene.open("gated").await?;
    scene.waits("gated").await?;
    scene.world.rest(&scene.ns).await?;
    // A Pod of its priority takes what is left: the nomination is gone.
    scene.pod(&Pod::new("small").held(), "2", 0).await?;
    scene.bound("small", "node-0").await
}
