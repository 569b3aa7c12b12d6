//! The shipped binary, as a cluster would run it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::packages::{inside, is_static, provide};
use super::{NotRun, Standalone, standalone};
use crate::control_plane::{Process, Shape, free_port};
use crate::objects::Pod;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(the_binary_needs_nothing_around_it)]
}

/// Runs a whole life with the binary in an empty root directory: with the volume of the service account,
/// the arguments of the shipped Deployment, the environment that a kubelet sets, and an unprivileged user.
async fn the_binary_needs_nothing_around_it(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "shipped", Shape::default(), 1, 1).await?;
    let root = root(&world).await?;
    let deployment = world.client.get("/apis/apps/v1/{}/deployments", "kube-system", "dragoman").await?;
    let container = deployment.context("Deployment")?["spec"]["template"]["spec"]["containers"][0].clone();
    let shipped = container["args"].as_array().context("args")?;
    let admin = free_port()?;
    let (host, port) = world.plane.address();
    let server = vec![format!("KUBERNETES_SERVICE_HOST={host}"), format!("KUBERNETES_SERVICE_PORT={port}")];
    let mut arguments = inside(&root, server)?;
    let probe = tokio::process::Command::new("env").args(&arguments).arg("--version").output().await?;
    if !probe.status.success() {
        // Without a root directory of its own, the binary is at least checked to be static.
        ensure!(is_static(&world.bench.binary)?, "it is not static");
        world.stop().await?;
        let why = String::from_utf8_lossy(&probe.stderr).trim().to_owned();
        return Err(NotRun(format!("nobody may change the root directory here: {why}")).into());
    }
    arguments.extend(shipped.iter().filter_map(|a| a.as_str().map(str::to_owned)));
    arguments.extend(["--admin-address".to_owned(), format!("127.0.0.1:{admin}")]);
    let mut process = Process::spawn(Path::new("env"), "dragoman", &arguments, &world.directory)?;
    let ns = world.namespace("shipped").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one")).await?;
    let lived = world.phase(&ns, "pod", "Succeeded").await;
    ensure!(process.ended()?.is_none(), "it ended:\n{}", process.output());
    lived.with_context(|| process.output())?;
    world.claims(&ns, 0).await?;
    let writes = world.rest(&ns).await?;
    ensure!(writes.iter().any(|w| w.party() == "dragoman"), "somebody else did the work");
    let lease = world.client.get("/apis/coordination.k8s.io/v1/{}/leases", "kube-system", "dragoman").await?;
    ensure!(lease.is_some(), "the namespace is not that of the service account");
    let ended = process.stop().await?;
    ensure!(ended.success(), "{ended}");
    world.stop().await
}

/// Creates the root directory of the container.
async fn root(world: &World) -> anyhow::Result<PathBuf> {
    let token =
        world.plane.kubectl(&["create", "token", "dragoman", "--namespace", "kube-system"], "").await?;
    let token = token.map_err(anyhow::Error::msg)?;
    let root = world.directory.join("root");
    provide(&root, &world.bench.binary, &world.plane.authority(), "kube-system", token.trim())?;
    Ok(root)
}
