//! The commands of the pages, run as a reader would run them.

use std::path::Path;

use anyhow::{Context as _, ensure};
use dragoman_judge::pages::Page;

use super::pods::Pods;
use super::{cluster, done};
use crate::control_plane::Shape;
use crate::go;
use crate::scenarios::{Standalone, standalone};
use crate::terminal::Terminal;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(every_command_of_the_pages_works)]
}

/// Commands that another test runs, and which one does.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cargo run --release --package dragoman-operator -- demo", "tests of the demo run it in the process"),
    ("cargo xtask test", "CI runs it"),
    ("cargo test", "CI runs it, as a part of `cargo xtask test`"),
    ("cargo xtask check", "CI runs it"),
    ("cargo xtask soak --runs 2000", "CI runs as many, as a part of `cargo xtask test`"),
    ("cargo xtask e2e NAME", "CI runs scenarios by the same program"),
    ("cargo xtask e2e NAME --sim", "CI runs scenarios on simcluster by the same program"),
    ("dragoman allocate -f scenario.json", "tests of the command run it on scenarios of every form"),
];
/// The namespace and the release that a page may leave behind, and the command that cleans up.
const CLEAN: &str = "helm uninstall dragoman --namespace kube-system --wait --ignore-not-found";

/// Whether another test runs a command; a remark behind it is none of the command.
fn is_elsewhere(command: &str) -> bool {
    let command = command.split(" #").next().unwrap_or(command).trim();
    ELSEWHERE.iter().any(|(known, _)| command == *known)
}

/// Runs the commands of every page, page by page, in a cluster. Those of the runbooks need an incident, and are run with one.
async fn every_command_of_the_pages_works(bench: &Bench) -> anyhow::Result<()> {
    let world = cluster(bench, "packages-pages", 8, Shape::default()).await?;
    let pods = Pods::start(&world);
    let helm = go::tools(&bench.repository, "helm").await?.join("helm");
    let programs = [("helm", helm), ("dragoman", bench.binary.clone())];
    let terminal = Terminal::open(&world, world.plane.kubeconfig("admin"), &programs).await?;
    let listed = done(
        Path::new("git"),
        &["-C", &bench.repository.display().to_string(), "ls-files", "*.md", ":!docs/runbooks"],
    )
    .await?;
    let (mut pages, mut commands) = (0, 0);
    for file in listed.lines() {
        let text = std::fs::read_to_string(bench.repository.join(file)).with_context(|| file.to_owned())?;
        let page = Page::read(&text);
        let untried: Vec<&String> = page.outside.iter().filter(|command| !is_elsewhere(command)).collect();
        ensure!(untried.is_empty(), "{file}: commands that no test runs: {untried:?}");
        let mut ran = 0;
        for block in page.blocks {
            let here: Vec<String> = block.into_iter().filter(|command| !is_elsewhere(command)).collect();
            ran += here.len();
            let outcome = terminal.shell(&here.join("\n"), &[]).await;
            outcome.with_context(|| format!("{file}; of the Pods: {}", pods.failures()))?;
        }
        if ran > 0 {
            terminal.shell(CLEAN, &[]).await.with_context(|| format!("after {file}"))?;
            (pages, commands) = (pages + 1, commands + ran);
        }
    }
    ensure!(pages >= 3 && commands > 15, "only {commands} commands on {pages} pages");
    println!("        {commands} commands on {pages} pages");
    drop(pods);
    world.stop().await
}
