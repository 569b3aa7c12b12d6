//! Signals that people see: alerts that a real Prometheus fires on the metrics of real processes, and the
//! runbooks that end them.

mod claims;
mod incident;
mod panels;
mod pictures;
mod plugin;
mod processes;
mod rules;

use anyhow::ensure;

use self::incident::OnCall;
use super::{NotRun, Standalone, standalone};
use crate::control_plane::Backend;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    let mut all = vec![standalone!(every_alert_fires_and_its_runbook_ends_it)];
    all.extend(rules::all());
    all.extend(plugin::all());
    all.extend(pictures::all());
    all
}

/// Brings clusters into the state of each alert of `config/monitoring/rules.yaml`, sees it fire, runs the commands of its
/// runbook, and sees it end. Before and after, no alert fires. By then everything has happened that a dashboard shows: every
/// query of every panel has a result.
async fn every_alert_fires_and_its_runbook_ends_it(bench: &Bench) -> anyhow::Result<()> {
    if bench.backend == Backend::Sim {
        return Err(NotRun("simcluster has no admission policies".to_owned()).into());
    }
    let (claims, processes) = futures::try_join!(claims::incidents(bench), processes::incidents(bench))?;
    let (seen, empty) =
        ([claims.alerts, processes.alerts].concat(), panels::common(&claims.empty, &processes.empty));
    ensure!(empty.is_empty(), "queries of panels without data:\n{}", empty.join("\n"));
    let alerts = incident::alerts(bench)?;
    let unseen: Vec<&String> = alerts.iter().filter(|alert| !seen.contains(alert)).collect();
    ensure!(unseen.is_empty(), "alerts that nothing brought about: {unseen:?}");
    ensure!(seen.len() == alerts.len(), "{seen:?}");
    println!("        {} alerts fired and ended", seen.len());
    Ok(())
}
