//! `dragoman conformance`: the reference allocator and the example in Python pass it, and allocators that
//! break a rule are found.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::control_plane::{Backend, Process, Scheduling, Shape};
use crate::scenarios::{NotRun, Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(allocators_that_keep_the_protocol_pass_the_kit),
        standalone!(the_kit_finds_what_is_broken),
    ]
}

/// Classes of `e2e/allocators/broken.py`: the scenario that finds each, and a word of what is said.
const BROKEN: [(&str, &str, &str); 17] = [
    ("Unreserved", "simple", "not reserved for its Pod in the same write"),
    ("Unprotected", "simple", "without the finalizer"),
    ("Timeless", "simple", "has no allocationTimestamp"),
    ("Scattered", "several", "on two nodes"),
    ("Selfish", "shared", "the reservation of the first Pod is gone"),
    ("Greedy", "foreign", "names no allocator"),
    ("Hasty", "ungated", "no Pod with the gate"),
    ("Pushy", "gates", "closed allocation gate"),
    ("Eager", "behind", "another scheduling gate"),
    ("Stubborn", "rejection", "refused just now"),
    ("Generous", "full", "promised to two claims"),
    ("Silent", "full", "no verdict says why"),
    ("Impatient", "order", "the claim before it"),
    ("Careless", "conflict", "finalizer of another owner is lost"),
    ("Blind", "deleted", "it is being deleted"),
    ("Partial", "whole", "no node has devices for all claims of its Pod"),
    // Once the API server knows the DriverOwner, its policy refuses what this one gives, and no verdict says why.
    ("Usurper", "owned", "claim owned-"),
];

/// Those of them that break a rule by what they leave undone: the kit waits for it in vain.
const WAITED_OUT: [&str; 3] = ["Silent", "Partial", "Usurper"];

async fn world(bench: &Bench, name: &str) -> anyhow::Result<World> {
    if bench.backend == Backend::Sim {
        return Err(NotRun("the kit and the example need a port of an API server".to_owned()).into());
    }
    let world =
        World::start(bench, name, Shape { scheduler: Scheduling::Kube, ..Shape::default() }, 0, 0).await?;
    world.install("config/gated").await?;
    Ok(world)
}

/// Runs the kit; returns whether all is well, and what it says.
async fn kit(
    world: &World,
    allocator: &str,
    patience: u64,
    scenarios: &[&str],
) -> anyhow::Result<(bool, String)> {
    let kubeconfig = world.plane.kubeconfig("admin");
    let output = Command::new(&world.bench.binary)
        .args(["conformance", "--allocator", allocator, "--patience", &patience.to_string(), "--kubeconfig"])
        .arg(kubeconfig)
        .args(scenarios)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("dragoman conformance")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(matches!(output.status.code(), Some(0 | 3)), "{said}{errors}");
    Ok((output.status.success(), said))
}

/// Starts an allocator in Python with the credentials of a kubeconfig.
pub(crate) fn python(
    world: &World,
    script: &str,
    first: &[&str],
    name: &str,
    kubeconfig: &Path,
) -> anyhow::Result<Process> {
    let text = std::fs::read_to_string(kubeconfig).context("kubeconfig")?;
    let config: Value = serde_json::from_str(&text).context("kubeconfig")?;
    let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
    let path = world.bench.repository.join("e2e/allocators").join(script);
    let mut arguments = vec!["-B".to_owned(), path.display().to_string()];
    arguments.extend(first.iter().map(|&argument| argument.to_owned()));
    for (flag, value) in [
        ("--server", &cluster["server"]),
        ("--ca", &cluster["certificate-authority"]),
        ("--cert", &user["client-certificate"]),
        ("--key", &user["client-key"]),
        ("--token", &user["token"]),
    ] {
        // A user has a certificate or a token.
        if let Some(value) = value.as_str() {
            arguments.extend([flag.to_owned(), value.to_owned()]);
        }
    }
    arguments.extend(["--name".to_owned(), name.to_owned()]);
    Process::spawn(Path::new("python3"), name, &arguments, &world.directory)
}

async fn allocators_that_keep_the_protocol_pass_the_kit(bench: &Bench) -> anyhow::Result<()> {
    let world = world(bench, "kit").await?;
    let ours = world.allocator(&[]).await?;
    let (is_well, said) = kit(&world, "dragoman", 300, &[]).await?;
    ensure!(is_well, "dragoman allocator:\n{said}");
    println!("        {}", said.lines().last().unwrap_or_default());
    let example = python(&world, "example.py", &[], "example", &world.plane.kubeconfig("admin"))?;
    let (is_well, said) = kit(&world, "example", 300, &[]).await?;
    ensure!(is_well, "e2e/allocators/example.py:\n{said}{}", example.output());
    println!("        {}", said.lines().last().unwrap_or_default());
    example.kill().await?;
    ours.stop().await?;
    // While an operator works, the kit does not.
    let operator = world.dragoman("assist", &[]).await?;
    wait::value("the kit is refused beside an operator", async || {
        let refused = kit(&world, "dragoman", 2, &["simple"]).await.err();
        Ok(refused.filter(|why| format!("{why:#}").contains("would judge the same Pods")).map(drop))
    })
    .await?;
    operator.stop().await?;
    world.stop().await
}

async fn the_kit_finds_what_is_broken(bench: &Bench) -> anyhow::Result<()> {
    let world = world(bench, "broken").await?;
    for (class, scenario, word) in BROKEN {
        let name = class.to_lowercase();
        let process = python(&world, "broken.py", &[class], &name, &world.plane.kubeconfig("admin"))?;
        // The patience of the kit is for the allocator, and not for the start of its process.
        wait::value("the allocator reads the cluster", async || {
            Ok(process.output().contains("it reads the cluster").then_some(()))
        })
        .await?;
        let patience = if WAITED_OUT.contains(&class) { 12 } else { 300 };
        let (is_well, said) = kit(&world, &name, patience, &[scenario]).await?;
        ensure!(
            !is_well && said.contains(word),
            "{class} passes, or breaks another rule:\n{said}{}",
            process.output()
        );
        println!("        {}", said.lines().next().unwrap_or_default());
        process.kill().await?;
    }
    // The judge of the world has seen devices promised twice, as it should.
    drop(world);
    Ok(())
}
