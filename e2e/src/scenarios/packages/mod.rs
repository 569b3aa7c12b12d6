//! The packages, as people who run a cluster handle them: rendered and compared, installed by the real installers on
//! a real control plane, upgraded, and left again.

mod bundle;
mod chart;
mod drill;
mod helm;
mod leaving;
mod olm;
mod pages;
mod pods;

pub(super) use pods::{inside, is_static, provide};

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{NotRun, Standalone};
use crate::control_plane::{Backend, Scheduling, Shape};
use crate::world::{Bench, World};

/// The value without which the chart is not rendered: the image that was loaded into the nodes.
const IMAGE: [&str; 2] = ["--set", "image.repository=dragoman"];

/// Scenarios that need no cluster.
pub(super) fn manifests() -> Vec<Standalone> {
    [chart::all(), bundle::all()].into_iter().flatten().collect()
}

/// Whole lives, each in a cluster of its own.
pub(super) fn lives() -> Vec<Standalone> {
    [helm::all(), drill::all(), leaving::all(), pages::all(), olm::all()].into_iter().flatten().collect()
}

/// Runs a program; what it prints, or its complaint.
async fn said(program: &Path, arguments: &[&str]) -> anyhow::Result<Result<String, String>> {
    let mut command = tokio::process::Command::new(program);
    let out = command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let out = out.with_context(|| program.display().to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stdout) + &text(&out.stderr)) })
}

/// Runs a program that must succeed; returns what it prints.
pub(super) async fn done(program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let said = said(program, arguments).await?;
    said.map_err(|complaint| anyhow::anyhow!("{} {}: {complaint}", program.display(), arguments.join(" ")))
}

/// A cluster in which nothing is installed, whose Deployments make Pods, and whose nodes have so many devices each.
async fn cluster(bench: &Bench, name: &str, devices: usize, shape: Shape) -> anyhow::Result<World> {
    if bench.backend == Backend::Sim {
        return Err(NotRun("simcluster has no controllers of Deployments".to_owned()).into());
    }
    if !is_static(&bench.binary)? {
        return Err(
            NotRun("a Pod has nothing but the shipped binary, and this one is another".to_owned()).into()
        );
    }
    let shape = Shape {
        workloads: crate::control_plane::Workloads::OfControllers,
        scheduler: Scheduling::Kube,
        ..shape
    };
    World::bare(bench, name, shape, 2, devices).await
}

/// The objects of these kinds that carry a label, as `Kind namespace/name`.
async fn labelled(world: &World, label: &str) -> anyhow::Result<Vec<String>> {
    const KINDS: &str = "deployments,jobs,pods,services,serviceaccounts,leases,roles,rolebindings,clusterroles,\
        clusterrolebindings,networkpolicies,poddisruptionbudgets,priorityclasses,customresourcedefinitions,\
        mutatingadmissionpolicies,mutatingadmissionpolicybindings,validatingadmissionpolicies,\
        validatingadmissionpolicybindings";
    let arguments = ["get", KINDS, "--all-namespaces", "--selector", label, "--output", "json"];
    let list = world.plane.kubectl(&arguments, "").await?.map_err(anyhow::Error::msg)?;
    let list: Value = serde_json::from_str(&list)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |object: &Value| {
        let meta = &object["metadata"];
        format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
    };
    let items = list["items"].as_array().context("items")?;
    Ok(items.iter().map(name).collect())
}

/// Copies the manifests to where an overlay of a test may name them.
async fn copied(bench: &Bench, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let directory = bench.output.join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context("old files")?;
    }
    std::fs::create_dir_all(&directory).context("directory")?;
    let from = bench.repository.join("config").display().to_string();
    let copied = done(Path::new("cp"), &["-r", &from, &directory.display().to_string()]).await?;
    ensure!(copied.is_empty(), "{copied}");
    Ok(directory)
}
