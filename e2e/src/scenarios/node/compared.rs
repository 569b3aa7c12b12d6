//! The stand-in for kubelets beside kubelet: the same script, and what each writes to Pods and claims.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use dragoman_simcluster::HOLD;
use serde_json::{Value, json};

use super::{Cluster, SERVE, Standalone, pod, standalone, template};
use crate::client::{CLAIMS, PODS, TEMPLATES};
use crate::control_plane::{Entry, Shape};
use crate::differential::Recorder;
use crate::node::NODE;
use crate::objects;
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(the_stand_in_writes_what_kubelet_writes)]
}

/// Fields of the status of a Pod that kubelet writes and the stand-in does not, each by the beginning of its
/// path. Dragoman reads two of them, `containerStatuses` and `resources`, for resizes: scenarios of the real
/// node are about those.
const OF_KUBELET_ALONE: [(&str, &str); 15] = [
    ("conditions/ContainersReady", "the stand-in has no containers"),
    ("conditions/Initialized", "the stand-in has no containers"),
    ("conditions/PodReadyToStartContainers", "the stand-in has no sandboxes"),
    ("conditions/PodScheduled", "of a Pod that is created on its node kubelet says that it was scheduled"),
    ("conditions/Ready/lastProbeTime", "conditions of the stand-in have no times"),
    ("conditions/Ready/lastTransitionTime", "the same"),
    ("conditions/Ready/message", "conditions of the stand-in have no message"),
    ("conditions/Ready/observedGeneration", "the stand-in does not say which generation it saw"),
    ("conditions/Ready/reason", "conditions of the stand-in have no reason"),
    ("containerStatuses", "the stand-in has no containers"),
    ("hostIP", "the nodes and Pods of the stand-in have no address"),
    ("observedGeneration", "the stand-in does not say which generation it saw"),
    ("podIP", "the nodes and Pods of the stand-in have no address"),
    ("resources/", "the stand-in has no cgroups"),
    ("startTime", "the stand-in keeps no time"),
];
/// False of kubelet where the stand-in says nothing yet, and where its containers have ended while the Pod still runs.
const READY: &str = "conditions/Ready/status";

/// Record of one side: the phases of each Pod in their order, the status of each Pod in each phase, and the
/// requests of its kubelet.
#[derive(Debug, Default)]
struct Side {
    phases: BTreeMap<String, Vec<String>>,
    statuses: BTreeMap<String, BTreeMap<String, String>>,
    requests: BTreeSet<String>,
}

async fn the_stand_in_writes_what_kubelet_writes(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::start(bench, "node-compared", 4).await?;
    let kubelet = told(&cluster.world, "simulated", "system:node:node-0").await;
    let kubelet = kubelet.map_err(|error| error.context(cluster.machine.log()))?;
    cluster.stop().await?;
    let world = World::start(bench, "node-compared-stand-in", Shape::default(), 1, 4).await?;
    let dragoman = world.dragoman("own", &[]).await?;
    let stand_in = told(&world, "e2e", "kubelet").await?;
    dragoman.stop().await?;
    world.stop().await?;
    for (name, side) in [("kubelet", &kubelet), ("stand-in", &stand_in)] {
        println!("        {name}: {:?}", side.requests);
    }
    ensure!(kubelet.phases == stand_in.phases, "{:#?}\nstand-in {:#?}", kubelet.phases, stand_in.phases);
    ensure!(kubelet.requests.contains("patch pods/status"), "{:?}", kubelet.requests);
    ensure!(kubelet.requests == stand_in.requests, "{:?} {:?}", kubelet.requests, stand_in.requests);
    let is_about_claims = |request: &String| request.contains("resourceclaims");
    ensure!(
        !kubelet.requests.iter().any(is_about_claims),
        "kubelet writes to claims: {:?}",
        kubelet.requests
    );
    let missing = differences(&kubelet, &stand_in)?;
    println!(
        "        {} phases of {} Pods are those of kubelet, which writes besides: {}",
        kubelet.phases.values().map(Vec::len).sum::<usize>(),
        kubelet.phases.len(),
        missing.into_iter().collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

/// The paths that only kubelet writes; an error if the list above says something else.
fn differences(kubelet: &Side, stand_in: &Side) -> anyhow::Result<BTreeSet<String>> {
    let (mut alone, mut wrong) = (BTreeSet::new(), Vec::new());
    let none = BTreeMap::new();
    for (moment, status) in &kubelet.statuses {
        let other = stand_in.statuses.get(moment).unwrap_or(&none);
        let paths: BTreeSet<&String> = status.keys().chain(other.keys()).collect();
        for path in paths {
            let (ours, theirs) = (status.get(path), other.get(path));
            let is_not_ready = path == READY && ours.is_some_and(|status| status == "\"False\"");
            match OF_KUBELET_ALONE.iter().find(|(start, _)| path.starts_with(start)) {
                _ if ours == theirs => {}
                Some((start, _)) if theirs.is_none() => drop(alone.insert((*start).to_owned())),
                None if is_not_ready && (theirs.is_none() || moment.ends_with("Running")) => {}
                _ => wrong.push(format!("{moment}: {path} is {ours:?}, of the stand-in {theirs:?}")),
            }
        }
    }
    let idle = OF_KUBELET_ALONE.iter().filter(|(start, _)| !alone.contains(*start));
    wrong.extend(idle.map(|(start, _)| format!("{start} is in the list and does not differ")));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(alone)
}

/// Runs the script on one side.
async fn told(world: &World, class: &str, kubelet: &str) -> anyhow::Result<Side> {
    let ns = world.namespace("compared").await?;
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": class}});
    world.client.create(TEMPLATES, &ns, &template("accelerator", &request)).await?;
    let recorder = Recorder::start(&world.client, &ns, false).await;
    let claim = |name: &str| {
        let mut claim = objects::claim(name);
        claim["spec"]["devices"]["requests"] = json!([request]);
        claim
    };
    ends_by_itself(world, &ns).await?;
    is_killed(world, &ns).await?;
    world.client.create(CLAIMS, &ns, &claim("shared")).await?;
    share(world, &ns).await?;
    world.client.create(CLAIMS, &ns, &claim("unallocated")).await?;
    waits_for_its_claim(world, &ns).await?;
    by_force(world, &ns).await?;
    let entries = world.rest(&ns).await?;
    Ok(Side::of(&recorder.seen(), &entries, kubelet))
}

/// A Pod that ends when it has run for a while, and is deleted then.
async fn ends_by_itself(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(PODS, ns, &pod("ends", "sleep 3")).await?;
    world.phase(ns, "ends", "Succeeded").await?;
    end(world, ns, "ends", None).await
}

/// A Pod that does not listen is killed after its grace period.
async fn is_killed(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(PODS, ns, &held("killed", "while true; do sleep 1; done")).await?;
    world.phase(ns, "killed", "Running").await?;
    end(world, ns, "killed", None).await
}

/// Two Pods use one claim.
async fn share(world: &World, ns: &str) -> anyhow::Result<()> {
    for name in ["one", "two"] {
        let mut pod = held(name, "while true; do sleep 1; done");
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "shared"}]);
        world.client.create(PODS, ns, &pod).await?;
        world.phase(ns, name, "Running").await?;
    }
    for name in ["one", "two"] {
        end(world, ns, name, None).await?;
    }
    Ok(())
}

/// A Pod is on its node before its claim is allocated: it does not start, and is deleted.
async fn waits_for_its_claim(world: &World, ns: &str) -> anyhow::Result<()> {
    let mut pod = held("early", SERVE);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "unallocated"}]);
    pod["spec"]["nodeName"] = NODE.into();
    world.client.create(PODS, ns, &pod).await?;
    let refused = async || {
        let events = world.client.list(crate::client::EVENTS, ns).await?;
        let is_it = |event: &Value| event["reason"] == "FailedPrepareDynamicResources";
        let is_refused = world.refusals.contains(ns, "early") || events.iter().any(is_it);
        Ok(is_refused.then_some(()))
    };
    wait::value("the Pod is not started", refused).await?;
    end(world, ns, "early", None).await
}

/// A Pod is deleted by force while it runs.
async fn by_force(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(PODS, ns, &held("forced", SERVE)).await?;
    world.phase(ns, "forced", "Running").await?;
    end(world, ns, "forced", Some(0)).await
}

fn held(name: &str, script: &str) -> Value {
    let mut pod = pod(name, script);
    pod["metadata"]["annotations"] = json!({HOLD: ""});
    pod
}

async fn end(world: &World, ns: &str, name: &str, grace: Option<u32>) -> anyhow::Result<()> {
    world.client.delete(PODS, ns, name, grace).await?;
    let gone = async || Ok(world.client.get(PODS, ns, name).await?.is_none().then_some(()));
    wait::value(&format!("{name} is gone"), gone).await
}

impl Side {
    fn of(seen: &[(bool, Value)], entries: &[Entry], kubelet: &str) -> Self {
        let mut side = Self::default();
        for (is_gone, pod) in seen.iter().filter(|(_, object)| object["kind"] == "Pod") {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            let deleting =
                if pod["metadata"]["deletionTimestamp"].is_null() { "" } else { ", being deleted" };
            let step = if *is_gone { "gone".to_owned() } else { format!("{phase}{deleting}") };
            let phases = side.phases.entry(name.to_owned()).or_default();
            if phases.last() != Some(&step) {
                phases.push(step);
            }
            // Before it is on a node, kubelet has nothing to say.
            if !pod["spec"]["nodeName"].is_null() {
                let mut status = BTreeMap::new();
                flatten(&pod["status"], String::new(), &mut status);
                side.statuses.insert(format!("{name}{deleting}, {phase}"), status);
            }
        }
        let of_kubelet = entries.iter().filter(|entry| entry.user.username == kubelet);
        let about = |entry: &&Entry| {
            let ended = (200..300).contains(&entry.response_status.code);
            ended && ["pods", "resourceclaims"].contains(&&*entry.object_ref.resource)
        };
        side.requests = of_kubelet.filter(about).map(Entry::what).collect();
        side
    }
}

/// The leaves of a status by their paths: items of lists by their type or name. Times, addresses and ids only are there.
fn flatten(value: &Value, path: String, leaves: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| !["type", "name"].contains(&&***key)) {
                flatten(value, below(key), leaves);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let key = ["type", "name"].iter().find_map(|key| item[key].as_str());
                flatten(item, below(key.unwrap_or(&number.to_string())), leaves);
            }
        }
        leaf => {
            let is_own = path.ends_with("Time") || path.ends_with("resourceClaimName");
            let text = if is_own { "set".to_owned() } else { leaf.to_string() };
            leaves.insert(path, text);
        }
    }
}
