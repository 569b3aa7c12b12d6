//! A person on call: is alerted, follows the runbook, and sees the alert end.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use dragoman_judge::pages::commands;

use super::panels;
use crate::prometheus::Prometheus;
use crate::terminal::Terminal;
use crate::wait;
use crate::world::{Bench, World};

/// The names of the shipped alerts.
pub(super) fn alerts(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let rules =
        std::fs::read_to_string(bench.repository.join("config/monitoring/rules.yaml")).context("rules")?;
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    Ok(names.map(str::to_owned).collect())
}

/// Alerts and queries that were seen in a cluster.
pub(super) struct Seen {
    /// The alerts that fired and ended.
    pub alerts: Vec<String>,
    /// The queries of panels that had no result.
    pub empty: Vec<String>,
}

/// The person, with what was seen to fire and to end.
pub(super) struct OnCall<'a> {
    world: &'a World,
    /// The Prometheus that alerts.
    pub prometheus: Prometheus,
    terminal: Terminal,
    seen: Mutex<Vec<String>>,
}

impl<'a> OnCall<'a> {
    /// Starts a Prometheus for a cluster.
    pub(super) async fn start(world: &'a World) -> anyhow::Result<Self> {
        let prometheus = Prometheus::start(&world.bench.repository, &world.directory).await?;
        let terminal = Terminal::open(world, world.plane.kubeconfig("admin"), &[]).await?;
        Ok(Self { world, prometheus, terminal, seen: Mutex::default() })
    }

    /// Waits until no alert fires.
    pub(super) async fn quiet(&self) -> anyhow::Result<()> {
        let mut last = Vec::new();
        let quiet = wait::until("no alert fires", async || {
            last = self.prometheus.firing().await.unwrap_or_default();
            last.is_empty()
        });
        quiet.await.with_context(|| format!("{last:?}"))
    }

    /// Waits until an alert fires, and runs the commands of its runbook with these names of objects. What they print has to
    /// show the cause: `shown` is a part of it.
    pub(super) async fn answer(
        &self,
        alert: &str,
        names: &[(&str, &str)],
        shown: &str,
    ) -> anyhow::Result<()> {
        self.until(alert, true).await?;
        let page = self.world.bench.repository.join(format!("docs/runbooks/{alert}.md"));
        let page = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let commands = commands(&page);
        ensure!(!commands.is_empty(), "the runbook of {alert} has no command");
        let said = self.terminal.shell(&commands, names).await;
        let said = said.with_context(|| format!("the runbook of {alert}"))?;
        let shows = said.lines().any(|line| !line.starts_with('+') && line.contains(shown));
        ensure!(shows, "the runbook of {alert} does not show {shown:?}: {said}");
        std::fs::write(self.world.directory.join(format!("{alert}.txt")), said).context("what it printed")?;
        Ok(())
    }

    /// Waits until an alert does not fire any more.
    pub(super) async fn ended(&self, alert: &str) -> anyhow::Result<()> {
        self.until(alert, false).await?;
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(alert.to_owned());
        Ok(())
    }

    /// An alert that the commands of its runbook end.
    pub(super) async fn ends(&self, alert: &str, names: &[(&str, &str)], shown: &str) -> anyhow::Result<()> {
        self.answer(alert, names, shown).await?;
        self.ended(alert).await
    }

    /// Stops Prometheus.
    pub(super) async fn stop(self) -> anyhow::Result<Seen> {
        let empty = panels::empty(&self.world.bench, &self.prometheus).await?;
        self.prometheus.stop().await?;
        Ok(Seen { alerts: self.seen.into_inner().unwrap_or_else(PoisonError::into_inner), empty })
    }

    async fn until(&self, alert: &str, fires: bool) -> anyhow::Result<()> {
        let what = format!("{alert} {}", if fires { "fires" } else { "ends" });
        wait::value(&what, async || {
            let fires_now = self.prometheus.firing().await?.iter().any(|name| name == alert);
            Ok((fires_now == fires).then_some(()))
        })
        .await?;
        println!("        {what}");
        Ok(())
    }
}
