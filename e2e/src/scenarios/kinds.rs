//! Dragoman's own kinds, as the API server and kubectl see them.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::rights::write_rules;
use super::{Scenario, Standalone, gates, scenario, standalone};
use crate::client::{FOOTPRINTS, LEASES, PODS};
use crate::control_plane::Shape;
use crate::dragoman::Dragoman;
use crate::installed;
use crate::manifest;
use crate::objects::Pod;
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Scenario> {
    vec![scenario!(our_kinds_are_served_and_checked)]
}

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(without_our_kinds_claims_are_created_and_gates_wait),
        standalone!(a_kind_that_goes_stops_nothing_else),
        standalone!(a_right_that_goes_stops_nothing_else),
    ]
}

/// Those that need kubectl, on simcluster too.
pub(super) fn by_kubectl() -> Vec<Scenario> {
    vec![scenario!(kubectl_knows_our_kinds), scenario!(kubectl_creates_what_it_names)]
}

const OURS: [&str; 4] = ["claimgates", "devicefootprints", "driverowners", "nodeallocatabledraclaimstates"];
const STATES: &str = "/apis/dragoman.dev/v1alpha1/nodeallocatabledraclaimstates";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn our_kinds_are_served_and_checked(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    manifest::apply(&world.client, &definitions(world).await?).await?;
    for plural in OURS {
        let established = async || {
            let definition = world.client.get(DEFINITIONS, "", &format!("{plural}.dragoman.dev")).await?;
            let conditions = definition.context("definition")?["status"]["conditions"].clone();
            let of = |kind: &str| {
                conditions.as_array()?.iter().find(|c| c["type"] == kind).map(|c| c["status"].clone())
            };
            ensure!(of("NonStructuralSchema") != Some(json!("True")), "{conditions}");
            Ok((of("Established") == Some(json!("True"))).then_some(()))
        };
        wait::value(&format!("{plural} are served"), established).await?;
    }
    wrong_footprints(world).await?;
    let right = right_footprint();
    world.client.create(FOOTPRINTS, "", &right).await?;
    is_stored(world, &right).await?;
    let mut typo = right;
    typo["spec"]["resources"]["cpu"]["overhed"] = json!({"perPod": 1});
    typo["metadata"]["name"] = json!("typo");
    let Err(refusal) = world.client.create(&format!("{FOOTPRINTS}?fieldValidation=Strict"), "", &typo).await
    else {
        anyhow::bail!("an unknown field was accepted");
    };
    ensure!(refusal.to_string().contains("overhed"), "{refusal}");
    states(world).await
}

/// A cluster without the definitions of our kinds: the operator leads, claims are created and released, and gates
/// stay closed until the definitions have been applied.
async fn without_our_kinds_claims_are_created_and_gates_wait(bench: &Bench) -> anyhow::Result<()> {
    let world = gates::gated(bench, "undefined", Shape::default(), 1).await?;
    let defined = definitions(&world).await?;
    for plural in OURS {
        world.client.delete(DEFINITIONS, "", &format!("{plural}.dragoman.dev"), None).await?;
    }
    let gone = async || Ok(world.client.list(FOOTPRINTS, "").await.is_err().then_some(()));
    wait::value("no kind of ours is served", gone).await?;
    let dragoman =
        Dragoman::supervised(&world.start_of(world.plane.kubeconfig("operator"), "own", &gates::FLAGS))?;
    let allocator = Dragoman::supervised(&world.allocator_start(&[]))?;
    let ns = world.namespace("undefined").await?;
    let runs = async |pod: &str| {
        world.pod(&ns, &Pod::new(pod).with_template("gpu", "one")).await?;
        world.phase(&ns, pod, "Succeeded").await
    };
    runs("first").await?;
    world.pod(&ns, &Pod::new("gated").with_template("gpu", "one").behind(gates::GATE)).await?;
    for name in ["dragoman", "dragoman-allocator"] {
        is_held(&world, name).await?;
    }
    runs("second").await?;
    for process in [&dragoman, &allocator] {
        let (code, text) = process.readiness().await?;
        let is_said = text.contains("not served: devicefootprints.dragoman.dev in v1alpha1");
        ensure!(code != 200 && is_said, "{code}: {text}");
        ensure!(process.metric("dragoman_kind_served", &["DeviceFootprint"]).await? == 0.0, "the gauge");
    }
    let waits = world.client.get(PODS, &ns, "gated").await?.context("Pod")?;
    ensure!(gates::gates_of(&waits).contains(&gates::GATE), "the gate opened: {waits}");
    let claim = world.claim_of(&ns, "gated", "gpu").await?;
    ensure!(
        claim["status"]["allocation"].is_null(),
        "the allocator does not know what devices take: {claim}"
    );
    manifest::apply(&world.client, &defined).await?;
    installed::kinds(&world.client, &defined).await?;
    world.client.create(FOOTPRINTS, "", &super::ledger::footprint("cores", "3")).await?;
    world.phase(&ns, "gated", "Succeeded").await?;
    for process in [dragoman, allocator] {
        wait::value("the process is ready", async || Ok((process.readiness().await?.0 == 200).then_some(())))
            .await?;
        ensure!(process.metric("dragoman_kind_served", &["DeviceFootprint"]).await? == 1.0, "the gauge");
        process.stop().await?;
    }
    world.stop().await
}

/// Each kind of ours goes while both processes are at work. Claims are created and released as before; gates wait where they have to, and
/// open again when the definitions are back.
async fn a_kind_that_goes_stops_nothing_else(bench: &Bench) -> anyhow::Result<()> {
    let world = gates::gated(bench, "undefining", Shape::default(), 1).await?;
    let (defined, ns) = (definitions(&world).await?, world.namespace("plain").await?);
    let gated = gates::namespace(&world, "gated", "enabled").await?;
    let dragoman =
        Dragoman::supervised(&world.start_of(world.plane.kubeconfig("operator"), "own", &gates::FLAGS))?;
    let allocator = Dragoman::supervised(&world.allocator_start(&[]))?;
    serves(&world, &gated, "before").await?;
    for plural in OURS {
        world.client.delete(DEFINITIONS, "", &format!("{plural}.dragoman.dev"), None).await?;
        serves(&world, &ns, plural).await?;
    }
    for process in [&dragoman, &allocator] {
        says(process, "not served: devicefootprints").await?;
    }
    for name in ["dragoman", "dragoman-allocator"] {
        is_held(&world, name).await?;
    }
    serves(&world, &ns, "without").await?;
    manifest::apply(&world.client, &defined).await?;
    installed::kinds(&world.client, &defined).await?;
    world.client.create(FOOTPRINTS, "", &super::ledger::footprint("cores", "3")).await?;
    serves(&world, &gated, "after").await?;
    allocator.stop().await?;
    dragoman.stop().await?;
    world.stop().await
}

/// A Pod with a claim from a template comes, runs and ends.
async fn serves(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new(name).with_template("device", "one")).await?;
    world.phase(ns, name, "Succeeded").await.map(drop)
}

/// The roles, and the kinds that they let a process read and without which it has something to do all the same.
const READABLE: [(&str, &[&str]); 3] = [
    ("config/base/roles.yaml", &["devicefootprints", "resourceslices"]),
    ("config/components/gating/roles.yaml", &["deviceclasses"]),
    (
        "config/components/allocator/roles.yaml",
        &["persistentvolumeclaims", "persistentvolumes", "storageclasses", "podgroups"],
    ),
];

/// Both processes start with the roles of an earlier version. What needs the new rights waits, and says so; the rest is served.
async fn a_right_that_goes_stops_nothing_else(bench: &Bench) -> anyhow::Result<()> {
    let world = gates::gated(bench, "unreadable", Shape::default(), 1).await?;
    let ns = world.namespace("plain").await?;
    let gated = gates::namespace(&world, "gated", "enabled").await?;
    let dragoman =
        Dragoman::supervised(&world.start_of(world.plane.kubeconfig("operator"), "own", &gates::FLAGS))?;
    let [base, gating, allocators] = READABLE;
    take_away(&world, allocators.0, allocators.1).await?;
    let allocator = Dragoman::supervised(&world.allocator_start(&[]))?;
    serves(&world, &gated, "first").await?;
    is_held(&world, "dragoman-allocator").await?;
    serves(&world, &gated, "second").await?;
    says(&allocator, "missing rights: list persistentvolumeclaims").await?;
    dragoman.stop().await?;
    for (file, kinds) in [base, gating] {
        take_away(&world, file, kinds).await?;
    }
    let dragoman =
        Dragoman::supervised(&world.start_of(world.plane.kubeconfig("operator"), "own", &gates::FLAGS))?;
    serves(&world, &ns, "plain").await?;
    world.pod(&gated, &Pod::new("waits").with_template("device", "one")).await?;
    is_held(&world, "dragoman").await?;
    serves(&world, &ns, "later").await?;
    says(&dragoman, "missing rights").await?;
    let waits = world.client.get(PODS, &gated, "waits").await?.context("Pod")?;
    ensure!(gates::gates_of(&waits).contains(&gates::GATE), "the gate opened: {waits}");
    for (file, _) in READABLE {
        take_away(&world, file, &[]).await?;
    }
    world.phase(&gated, "waits", "Succeeded").await?;
    allocator.stop().await?;
    dragoman.stop().await?;
    world.stop().await
}

async fn says(process: &Dragoman, words: &str) -> anyhow::Result<()> {
    let said = async || {
        let (code, text) = process.readiness().await?;
        Ok((code != 200 && text.contains(words)).then_some(()))
    };
    wait::value(&format!("the process says {words:?}"), said).await
}

/// Gives the roles of a file what it says, but to read these kinds.
async fn take_away(world: &World, file: &str, kinds: &[&str]) -> anyhow::Result<()> {
    let roles = manifest::read(&world.bench.repository.join(file))?;
    for role in roles.iter().filter(|role| role["kind"] == "ClusterRole") {
        let mut rules = role["rules"].clone();
        let is_left = |rule: &Value| {
            let is_read = rule["verbs"].to_string().contains("list");
            !(is_read && kinds.iter().any(|kind| rule["resources"][0] == *kind))
        };
        rules.as_array_mut().context("rules")?.retain(is_left);
        write_rules(world, role, &rules).await?;
    }
    Ok(())
}

/// A leader that took missing kinds for blindness would free its Lease every 30 s. One that loses it on a busy machine gets it
/// again.
async fn is_held(world: &World, name: &str) -> anyhow::Result<()> {
    const HELD: i64 = 40;
    let held = async || {
        let Some(lease) = world.client.get(LEASES, "kube-system", name).await? else { return Ok(None) };
        let time = |field: &str| {
            let text = lease["spec"][field].as_str().context("a time")?;
            Ok::<i64, anyhow::Error>(text.parse::<jiff::Timestamp>()?.as_second())
        };
        Ok((time("renewTime")? >= time("acquireTime")? + HELD).then_some(()))
    };
    wait::value(&format!("Lease {name} has been held for {HELD} s"), held).await
}

/// The definitions of our kinds, as `dragoman crdgen` prints them.
async fn definitions(world: &World) -> anyhow::Result<Vec<Value>> {
    let out = tokio::process::Command::new(&world.bench.binary).arg("crdgen").output().await?;
    ensure!(out.status.success(), "crdgen: {}", String::from_utf8_lossy(&out.stderr));
    manifest::parse(&String::from_utf8(out.stdout)?)
}

/// kubectl creates and prints objects of our kinds, and names a field that they do not have.
async fn kubectl_knows_our_kinds(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    // Another scenario of this world creates one, too.
    let mut right = right_footprint();
    right["metadata"]["name"] = json!("by-kubectl");
    let text = right.to_string();
    let known = async || match world.plane.kubectl(&STRICT, &text).await? {
        // An established kind may not be in the discovery document yet.
        Err(complaint) if complaint.contains("no matches for kind") => Ok(None),
        answer => answer.map(Some).map_err(anyhow::Error::msg),
    };
    wait::value("kubectl knows the kind", known).await?;
    is_stored(world, &right).await?;
    let mut typo = right;
    typo["spec"]["resources"]["cpu"]["overhed"] = json!({"perPod": 1});
    let Err(complaint) = world.plane.kubectl(&STRICT, &typo.to_string()).await? else {
        anyhow::bail!("an unknown field was accepted");
    };
    ensure!(complaint.contains("overhed"), "{complaint}");
    let table = world.plane.kubectl(&["get", "dfp"], "").await?.map_err(anyhow::Error::msg)?;
    ensure!(table.contains("DRIVER") && table.contains("gpu.example.com"), "{table}");
    let published = async || world.client.get(STATES, "", "node-0").await;
    wait::value("the ledger of node-0 is published", published).await?;
    let table = world.plane.kubectl(&["get", "nadcs"], "").await?.map_err(anyhow::Error::msg)?;
    ensure!(table.contains("node-0") && table.contains("REVISION"), "{table}");
    Ok(())
}

/// The arguments with which kubectl creates an object and refuses unknown fields.
const STRICT: [&str; 4] = ["create", "--validate=strict", "-f", "-"];

fn footprint(resources: &Value) -> Value {
    json!({
        "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "gpus"},
        "spec": {"driver": "gpu.example.com", "selector": "device.driver == 'gpu.example.com'", "resources": resources},
    })
}

/// Checks that the API server refuses wrong footprints and says what is wrong.
async fn wrong_footprints(world: &World) -> anyhow::Result<()> {
    let wrong = [
        (json!({}), "resources"),
        (json!({"pods": {"overhead": {"perPod": 1}}}), "only cpu, memory"),
        (json!({"cpu": {}}), "one of mapping, overhead and reservation"),
        (json!({"cpu": {"mapping": {}}}), "exactly one of deviceMultiplier and capacityKey"),
        (
            json!({"cpu": {"mapping": {"deviceMultiplier": 1, "capacityKey": "cores", "capacityMultiplier": 1}}}),
            "exactly one of deviceMultiplier and capacityKey",
        ),
        (json!({"cpu": {"mapping": {"capacityKey": "cores"}}}), "require each other"),
        (json!({"cpu": {"mapping": {"deviceMultiplier": 0}}}), "must be greater than zero"),
        (json!({"cpu": {"mapping": {"deviceMultiplier": "0.0"}}}), "must be greater than zero"),
        (json!({"cpu": {"overhead": {}}}), "one of perPod and perContainer"),
        (json!({"cpu": {"overhead": {"perPod": "-1"}}}), "perPod"),
        (json!({"cpu": {"overhead": {"perPod": -1}}}), "perPod"),
        (json!({"cpu": {"overhead": {"perPod": "1 core"}}}), "perPod"),
        (json!({"cpu": {"reservation": {}}}), "perDevice"),
        (json!({"cpu": {"reservation": {"perDevice": 1}, "accountingPolicy": "Min"}}), "accountingPolicy"),
    ];
    for (resources, complaint) in wrong {
        let answer = world.client.create(FOOTPRINTS, "", &footprint(&resources)).await;
        let Err(kube::Error::Api(status)) = answer else {
            anyhow::bail!("accepted: {resources}: {answer:?}")
        };
        ensure!(status.code == 422 && status.message.contains(complaint), "{resources}: {}", status.message);
    }
    Ok(())
}

/// Checks that a right footprint is stored as it was sent.
async fn is_stored(world: &World, right: &Value) -> anyhow::Result<()> {
    let name = right["metadata"]["name"].as_str().context("name")?;
    let stored = world.client.get(FOOTPRINTS, "", name).await?.context("footprint")?;
    ensure!(stored["spec"] == right["spec"], "{stored}");
    let spec: dragoman_crds::device_footprint::DeviceFootprintSpec =
        serde_json::from_value(stored["spec"].clone())?;
    ensure!(
        serde_json::to_value(&spec)?["resources"]["cpu"]["mapping"]["deviceMultiplier"] == "4",
        "{spec:?}"
    );
    Ok(())
}

fn right_footprint() -> Value {
    footprint(&json!({
        "cpu": {"mapping": {"deviceMultiplier": 4}},
        "memory": {
            "mapping": {"capacityKey": "memory", "capacityMultiplier": "1.5"},
            "overhead": {"perPod": "0", "perContainer": "512Mi"},
            "reservation": {"perDevice": "1Gi"}, "accountingPolicy": "Max",
        },
        "hugepages-2Mi": {"overhead": {"perPod": "2Mi"}},
    }))
}

/// The controller publishes the state of each node. Status is written only through the subresource, by
/// dry runs here: the controller would put its own in place.
async fn states(world: &World) -> anyhow::Result<()> {
    let state = json!({
        "apiVersion": "dragoman.dev/v1alpha1", "kind": "NodeAllocatableDRAClaimState",
        "metadata": {"name": "node-0"},
        "status": {
            "revision": 3, "allocatable": {"cpu": "64"}, "requestedByPods": {"cpu": "1500m"},
            "requestedByClaims": {"mapping": {"cpu": "4"}}, "headroom": {"cpu": "58500m"},
            "claims": [{"namespace": "a", "name": "b", "uid": "c", "amounts": {"cpu": "4"}, "consumers": ["pod"]}],
            "conditions": [{"type": "Overcommitted", "status": "False", "reason": "Fits", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    let published = async || world.client.get(STATES, "", "node-0").await;
    wait::value("the ledger of node-0 is published", published).await?;
    let mut other = state.clone();
    other["metadata"]["name"] = json!("other");
    let created = world.client.create(&format!("{STATES}?dryRun=All"), "", &other).await?;
    ensure!(created["status"].is_null(), "status was written with the object: {created}");
    let replaced = json!([{"op": "replace", "path": "/status", "value": state["status"]}]);
    let stored = world.client.json_patch(STATES, "", "node-0/status?dryRun=All", &replaced).await?;
    ensure!(stored["status"] == state["status"], "{stored}");
    let status: dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimStateStatus =
        serde_json::from_value(stored["status"].clone())?;
    ensure!(serde_json::to_value(status)? == state["status"], "{stored}");
    let wrong = json!({"status": {"headroom": {"cpu": "-1"}}});
    ensure!(
        world.client.merge(STATES, "", "node-0/status?dryRun=All", &wrong).await.is_err(),
        "negative headroom"
    );
    Ok(())
}

/// Commands of kubectl without a manifest, for which kubectl builds the objects itself.
async fn kubectl_creates_what_it_names(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("named").await?;
    let kubectl = async |words: &str| -> anyhow::Result<String> {
        let words: Vec<&str> = words.split(' ').chain(["--namespace", &ns]).collect();
        world.plane.kubectl(&words, "").await?.map_err(anyhow::Error::msg)
    };
    let get = async |path: &str, name: &str| {
        world.client.get(path, &ns, name).await?.with_context(|| format!("{path}: {name}"))
    };
    let explained = kubectl("explain resourceclaim.spec.devices.requests").await?;
    ensure!(explained.contains("<[]DeviceRequest>") && explained.contains("firstAvailable"), "{explained}");
    kubectl(&format!("create namespace {ns}-b")).await?;
    ensure!(world.client.get("/api/v1/namespaces", "", &format!("{ns}-b")).await?.is_some(), "no namespace");
    kubectl("create configmap settings --from-literal=a=b").await?;
    ensure!(get("/api/v1/{}/configmaps", "settings").await?["data"] == json!({"a": "b"}), "its data");
    kubectl("create secret generic hidden --from-literal=a=b").await?;
    ensure!(get("/api/v1/{}/secrets", "hidden").await?["data"] == json!({"a": "Yg=="}), "its data");
    kubectl("create quota few --hard=pods=3,cpu=2").await?;
    let quota = get("/api/v1/{}/resourcequotas", "few").await?;
    ensure!(quota["spec"]["hard"] == json!({"pods": "3", "cpu": "2"}), "{quota}");
    kubectl("create serviceaccount worker").await?;
    kubectl("create role reader --verb=get,list --resource=pods").await?;
    kubectl(&format!("create rolebinding reader --role=reader --serviceaccount={ns}:worker")).await?;
    let worker = format!("--as=system:serviceaccount:{ns}:worker");
    let may = async || match kubectl(&format!("auth can-i list pods {worker}")).await {
        Ok(answer) => Ok((answer.trim() == "yes").then_some(())),
        // The authorizer learns of roles from a watch. kubectl reports "no" as an error.
        Err(_) => Ok(None),
    };
    wait::value("the account may list Pods", may).await?;
    ensure!(kubectl(&format!("auth can-i delete pods {worker}")).await.is_err(), "it may delete them");
    ensure!(!kubectl("create token worker").await?.trim().is_empty(), "no token");
    ensure!(kubectl(&format!("get pods {worker}")).await?.is_empty(), "there are Pods");
    let Err(refusal) = kubectl(&format!("get configmaps {worker}")).await else {
        anyhow::bail!("it may list more than Pods")
    };
    let whom = format!("User \"system:serviceaccount:{ns}:worker\" cannot list resource \"configmaps\"");
    ensure!(refusal.to_string().contains(&whom), "{refusal}");
    kubectl("delete configmap settings").await?;
    Ok(())
}
