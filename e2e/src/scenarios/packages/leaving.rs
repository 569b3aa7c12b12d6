//! The rights of the Job that leaves: without any one of them `dragoman drain` or `dragoman gating off` fails and names
//! what it may not do, and with them nothing is left.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::said;
use crate::client::{CLAIMS, LEASES, PODS};
use crate::control_plane::{Backend, Scheduling, Shape};
use crate::manifest;
use crate::objects::{self, Pod};
use crate::scenarios::rights::{give_back, rights_of, take_away};
use crate::scenarios::{NotRun, Standalone, gates, parameters, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(every_right_of_the_job_that_leaves_is_needed)]
}

const STATES: &str = "/apis/dragoman.dev/v1alpha1/nodeallocatabledraclaimstates";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

async fn every_right_of_the_job_that_leaves_is_needed(bench: &Bench) -> anyhow::Result<()> {
    if bench.backend == Backend::Sim {
        return Err(NotRun("simcluster has no admission policies".to_owned()).into());
    }
    let shape = Shape { scheduler: Scheduling::Absent, ..Shape::default() };
    let world = World::start(bench, "packages-leaving", shape, 1, 1).await?;
    world.install("config/drain").await?;
    let kubeconfig = world.account("kube-system", "dragoman-drain").await?.display().to_string();
    let ns = world.namespace("leaving").await?;
    let roles = bench.repository.join("config/drain/roles.yaml");
    let roles = manifest::parse(&std::fs::read_to_string(roles).context("roles")?)?;
    let mut useless = Vec::new();
    let mut count = 0;
    for right in roles.iter().flat_map(rights_of) {
        scene(&world, &ns).await?;
        take_away(&world, &right).await?;
        let refused = wait::value("the right is gone", async || {
            // The API server takes a moment until it knows the role, and meanwhile everything succeeds.
            let complaint = leave(bench, &kubeconfig).await?.err();
            if complaint.is_none() {
                scene(&world, &ns).await?;
            }
            Ok(complaint)
        })
        .await;
        give_back(&world, &right).await?;
        let names =
            |complaint: &String| complaint.contains(&right.resource) && complaint.contains(&right.verb);
        match refused {
            Ok(complaint) if names(&complaint) => count += 1,
            Ok(complaint) => useless.push(format!("{} {}: {complaint}", right.verb, right.resource)),
            Err(_) => useless.push(format!("{} {}: nothing is refused", right.verb, right.resource)),
        }
    }
    ensure!(useless.is_empty(), "not shown to be needed, or not named: {}", useless.join("; "));
    scene(&world, &ns).await?;
    wait::value("everything is given back", async || Ok(leave(bench, &kubeconfig).await?.ok())).await?;
    nothing_is_left(&world, &ns).await?;
    println!("        {count} rights, each needed");
    world.stop().await
}

/// Runs the commands of the Job; returns their output, or the complaint of one.
async fn leave(bench: &Bench, kubeconfig: &str) -> anyhow::Result<Result<String, String>> {
    let drain = ["drain", "--kubeconfig", kubeconfig, "--scale-down", "dragoman,dragoman-allocator"];
    let drained = said(&bench.binary, &drain).await?;
    let opened = said(&bench.binary, &["gating", "off", "--no-wait", "--kubeconfig", kubeconfig]).await?;
    Ok(drained.and_then(|drained| opened.map(|opened| drained + &opened)))
}

/// Something of everything that is removed.
async fn scene(world: &World, ns: &str) -> anyhow::Result<()> {
    world.install("config/gated").await?;
    let client = &world.client;
    let mut claim = objects::claim("protected");
    claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    let mut gated = Pod::new("gated").object().clone();
    gated["spec"]["schedulingGates"] = json!([{"name": "dragoman.dev/claims"}]);
    let mut holder = Pod::new("holder-node-0").object().clone();
    holder["metadata"]["labels"] = json!({"app.kubernetes.io/component": "holder"});
    let state = json!({"apiVersion": "dragoman.dev/v1alpha1", "kind": "NodeAllocatableDRAClaimState",
        "metadata": {"name": "node-0"}});
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "dragoman"}});
    for (collection, namespace, name, object) in [
        (CLAIMS, ns, "protected", &claim),
        (PODS, ns, "gated", &gated),
        (PODS, "kube-system", "holder-node-0", &holder),
        (STATES, "", "node-0", &state),
        (LEASES, "kube-system", "dragoman", &lease),
    ] {
        if collection == CLAIMS || object["spec"]["schedulingGates"].is_array() {
            // These two stay and are changed: they are made anew.
            let none = json!({"metadata": {"finalizers": null}});
            if client.get(collection, namespace, name).await?.is_some() {
                client.merge(collection, namespace, name, &none).await?;
                client.delete(collection, namespace, name, Some(0)).await?;
            }
        }
        wait::value(&format!("{name} is there"), async || {
            // The look writes: what is there is not written again.
            if client.get(collection, namespace, name).await?.is_none() {
                client.create(collection, namespace, object).await.map(drop).or_else(
                    |error| match error {
                        kube::Error::Api(status) if status.is_already_exists() => Ok(()),
                        error => Err(error),
                    },
                )?;
            }
            client.get(collection, namespace, name).await
        })
        .await?;
    }
    // One that takes no patch in JSON.
    parameters::delete(world, ns, "raw").await?;
    let protected = json!({"finalizers": ["resource.kubernetes.io/delete-protection"]});
    parameters::create(world, ns, "raw", &protected).await?;
    Ok(())
}

async fn nothing_is_left(world: &World, ns: &str) -> anyhow::Result<()> {
    let client = &world.client;
    for name in ["protected", "raw"] {
        let claim = client.get(CLAIMS, ns, name).await?.context("claim")?;
        ensure!(claim["metadata"]["finalizers"].is_null(), "{claim}");
    }
    let pod = client.get(PODS, ns, "gated").await?.context("Pod")?;
    ensure!(pod["spec"]["schedulingGates"].is_null(), "{pod}");
    let holder = client.get(PODS, "kube-system", "holder-node-0").await?;
    ensure!(
        holder.is_none_or(|holder| !holder["metadata"]["deletionTimestamp"].is_null()),
        "the holder Pod is left"
    );
    ensure!(client.list(STATES, "").await?.is_empty(), "a ledger is left");
    ensure!(client.get(LEASES, "kube-system", "dragoman").await?.is_none(), "the Lease is left");
    for name in ["dragoman", "dragoman-allocator"] {
        let deployment = client.get("/apis/apps/v1/{}/deployments", "kube-system", name).await?;
        ensure!(deployment.context("Deployment")?["spec"]["replicas"] == 0, "{name} is not scaled down");
    }
    let policies = client.list(POLICIES, "").await?;
    let names: Vec<&str> = policies.iter().filter_map(|of| of["metadata"]["name"].as_str()).collect();
    // That of the allocator goes with its manifests.
    ensure!(names.iter().all(|name| gates::is_of_a_package(name)), "{names:?}");
    Ok(())
}
