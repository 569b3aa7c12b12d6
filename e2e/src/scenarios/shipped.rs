//! The shipped binary, as a cluster would run it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::{NotRun, Standalone, standalone};
use crate::control_plane::{Process, Shape, free_port};
use crate::objects::Pod;
use crate::world::{Bench, PATIENCE, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(the_binary_needs_nothing_around_it)]
}

/// The directory with the credentials of the service account in a Pod.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// Runs a whole life with the binary in an empty root directory: with the volume of the service account,
/// the arguments of the shipped Deployment, the environment that a kubelet sets, and an unprivileged user.
async fn the_binary_needs_nothing_around_it(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "shipped", Shape::default(), 1, 1).await?;
    let root = root(&world).await?;
    let deployment = world.client.get("/apis/apps/v1/{}/deployments", "kube-system", "dragoman").await?;
    let container = deployment.context("Deployment")?["spec"]["template"]["spec"]["containers"][0].clone();
    let shipped = container["args"].as_array().context("args")?;
    let admin = free_port()?;
    let mut arguments = inside(&root, &world.plane.address())?;
    let probe = tokio::process::Command::new("env").args(&arguments).arg("--version").output().await?;
    if !probe.status.success() {
        // Without a root directory of its own, the binary is at least checked to be static.
        let head = std::fs::read(&world.bench.binary).context("binary")?;
        let interpreter = head.iter().take(4096).copied().collect::<Vec<_>>();
        ensure!(!String::from_utf8_lossy(&interpreter).contains("/ld-linux"), "it is not static");
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
    let ended = tokio::time::timeout(PATIENCE, process.stop()).await.context("it does not stop")??;
    ensure!(ended.success(), "{ended}");
    world.stop().await
}

/// Creates the root directory of the container.
async fn root(world: &World) -> anyhow::Result<PathBuf> {
    let root = world.directory.join("root");
    let account = root.join(ACCOUNT);
    std::fs::create_dir_all(&account).context("root")?;
    std::fs::copy(&world.bench.binary, root.join("dragoman")).context("binary")?;
    let token =
        world.plane.kubectl(&["create", "token", "dragoman", "--namespace", "kube-system"], "").await?;
    let token = token.map_err(anyhow::Error::msg)?;
    std::fs::write(account.join("token"), token.trim()).context("token")?;
    std::fs::write(account.join("namespace"), "kube-system").context("namespace")?;
    std::fs::copy(world.plane.authority(), account.join("ca.crt")).context("ca.crt")?;
    Ok(root)
}

/// The arguments of `env` that run `/dragoman` in `root` as a kubelet would.
fn inside(root: &Path, server: &(String, u16)) -> anyhow::Result<Vec<String>> {
    let (host, port) = server;
    let root = root.display().to_string();
    let superuser = std::fs::metadata("/proc/self").context("/proc/self")?.uid() == 0;
    // An unprivileged user needs a user namespace to change the root directory.
    let enter: &[&str] = if superuser {
        &["chroot", "--userspec=65532:65532", &root, "/dragoman"]
    } else {
        &["unshare", "--user", "--map-root-user", "chroot", &root, "/dragoman"]
    };
    let path = format!("PATH={}", std::env::var("PATH").unwrap_or_default());
    let server = [format!("KUBERNETES_SERVICE_HOST={host}"), format!("KUBERNETES_SERVICE_PORT={port}")];
    let start = ["-i".to_owned(), path].into_iter().chain(server);
    Ok(start.chain(enter.iter().map(|argument| (*argument).to_owned())).collect())
}
