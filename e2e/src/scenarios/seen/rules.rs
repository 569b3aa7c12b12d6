//! Rules, dashboards and metrics without an incident: what the tools of Prometheus say about them.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::{incident, panels};
use crate::control_plane::Shape;
use crate::go;
use crate::objects::Pod;
use crate::scenarios::packages::done;
use crate::scenarios::{Standalone, standalone};
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(the_rules_are_valid_and_pass_their_cases),
        standalone!(the_mixin_has_every_rule_and_dashboard),
        standalone!(promtool_finds_nothing_wrong_with_the_metrics),
    ]
}

/// promtool accepts the rules and the cases, which have every alert silent once and firing once. Every alert has a runbook,
/// every runbook an alert, and the link leads to it.
async fn the_rules_are_valid_and_pass_their_cases(bench: &Bench) -> anyhow::Result<()> {
    let promtool = go::tools(&bench.repository, "prometheus").await?.join("promtool");
    let directory = bench.repository.join("config/monitoring");
    let path = |name: &str| directory.join(name).display().to_string();
    done(&promtool, &["check", "rules", "--lint=all", "--lint-fatal", &path("rules.yaml")]).await?;
    done(&promtool, &["test", "rules", &path("rules.test.yaml")]).await?;
    let (rules, cases) =
        (std::fs::read_to_string(path("rules.yaml"))?, std::fs::read_to_string(path("rules.test.yaml"))?);
    let alerts = incident::alerts(bench)?;
    for alert in &alerts {
        let case = cases.split("  - name: ").find(|case| case.starts_with(&format!("{alert}\n")));
        let case = case.with_context(|| format!("{alert} has no case"))?;
        ensure!(
            case.matches("- expr: ").count() == 2 && case.matches("exp_samples:").count() == 1,
            "{alert}"
        );
        ensure!(rules.contains(&format!("/docs/runbooks/{alert}\n")), "{alert} has no link to its runbook");
    }
    let pages = std::fs::read_dir(bench.repository.join("docs/runbooks")).context("docs/runbooks")?;
    let mut pages: Vec<String> = pages
        .filter_map(|page| page.ok()?.file_name().to_str()?.strip_suffix(".md").map(str::to_owned))
        .filter(|page| page != "README")
        .collect();
    pages.sort();
    let mut sorted = alerts.clone();
    sorted.sort();
    ensure!(pages == sorted, "runbooks {pages:?}\nalerts {sorted:?}");
    println!("        {} alerts", alerts.len());
    Ok(())
}

async fn the_mixin_has_every_rule_and_dashboard(bench: &Bench) -> anyhow::Result<()> {
    let jsonnet = go::tools(&bench.repository, "prometheus").await?.join("jsonnet");
    let mixin = bench.repository.join("config/monitoring/mixin.libsonnet").display().to_string();
    // Users of mixins add to these fields, which are hidden in the output.
    let fields = "{[of]: mixin[of] for of in ['prometheusAlerts', 'prometheusRules', 'grafanaDashboards']}";
    let code = format!("local mixin = import {mixin:?}; {fields}");
    let mixin: Value = serde_json::from_str(&done(&jsonnet, &["--exec", &code]).await?)?;
    let rules = |part: &str| {
        let groups = mixin[part]["groups"].as_array().into_iter().flatten();
        groups.map(|group| group["rules"].as_array().map_or(0, Vec::len)).sum::<usize>()
    };
    let (alerts, dashboards) = (incident::alerts(bench)?.len(), mixin["grafanaDashboards"].as_object());
    ensure!(rules("prometheusAlerts") == alerts, "{mixin}");
    ensure!(rules("prometheusRules") == 3 && dashboards.is_some_and(|all| all.len() == 2), "{mixin}");
    ensure!(panels::queries(bench)?.len() > 70, "dashboards are missing");
    Ok(())
}

/// `promtool check metrics` on what the operator serves after a life.
async fn promtool_finds_nothing_wrong_with_the_metrics(bench: &Bench) -> anyhow::Result<()> {
    let promtool = go::tools(&bench.repository, "prometheus").await?.join("promtool");
    let world = World::start(bench, "seen-metrics", Shape::default(), 1, 1).await?;
    let dragoman = world.dragoman("own", &["--metrics-per-node"]).await?;
    let ns = world.namespace("life").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one")).await?;
    world.phase(&ns, "pod", "Succeeded").await?;
    let mut check = tokio::process::Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("promtool")?;
    let metrics = dragoman.metrics().await?;
    check.stdin.take().context("stdin")?.write_all(metrics.as_bytes()).await?;
    let out = check.wait_with_output().await?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success() && said.is_empty(), "{said}");
    dragoman.stop().await?;
    world.stop().await
}
