//! `dragoman conformance`: does an allocator keep the claim gate protocol (docs/protocol.md)? The kit plays the
//! operator and the workload, on nodes and devices of its own, against any cluster.

mod bench;
mod scenarios;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::connect;
use prometheus_client::registry::Registry;

use crate::config::ClusterFlags;
use bench::Bench;
use scenarios::{Failure, NAMES};

/// Flags of `dragoman conformance`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceFlags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// The name of the allocator: the value of the label dragoman.dev/allocator. It has to run already.
    #[arg(long)]
    allocator: String,
    /// Timeout of each step, in seconds.
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// The scenarios [default: all].
    scenarios: Vec<String>,
}

/// The names of nodes and classes are the same in every run, so that two cannot disturb each other unseen.
const LEFT: &str = "set up: if a run was interrupted, or another one is at work, its objects are those of `kubectl get \
     nodes,namespaces,deviceclasses,resourceslices,driverowners.dragoman.dev -l app.kubernetes.io/managed-by=dragoman-conformance`";

/// Plays the scenarios and prints a verdict for each.
///
/// # Errors
/// The cluster cannot be reached, or an object of the kit is refused.
pub(crate) async fn conformance(flags: &ConformanceFlags) -> anyhow::Result<ExitCode> {
    if let Some(unknown) = flags.scenarios.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("{unknown:?} is none of {}", NAMES.join(", "));
    }
    let clients =
        connect(flags.cluster.kubeconfig.as_deref(), Limits::default(), &mut Registry::default()).await?;
    let patience = Duration::from_secs(flags.patience);
    let bench = Bench::set_up(clients.api, &flags.allocator, patience).await.context(LEFT)?;
    let is_chosen =
        |name: &&&str| flags.scenarios.is_empty() || flags.scenarios.iter().any(|of| of == **name);
    let outcome = all(&bench, NAMES.iter().filter(is_chosen).copied()).await;
    let cleared = bench.clear().await.context("clear up");
    let [passed, failed, not_played] = outcome?;
    cleared?;
    let not_played =
        if not_played == 0 { String::new() } else { format!(", {not_played} could not be played") };
    crate::print(&format!(
        "allocator {}: {passed} of {} scenarios passed{not_played}\n",
        flags.allocator,
        passed + failed
    ))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::NO) })
}

/// Plays scenarios. Returns how many passed, how many failed, and how many the cluster cannot play.
async fn all(bench: &Bench, names: impl Iterator<Item = &str>) -> anyhow::Result<[usize; 3]> {
    let (mut passed, mut failed, mut not_played) = (0, 0, 0);
    for name in names {
        let line = match scenarios::play(bench, name).await {
            Ok(()) => {
                passed += 1;
                format!("ok      {name}\n")
            }
            Err(Failure::Broken(rule, what)) => {
                failed += 1;
                format!("BROKEN  {name}: {what} (claim gate protocol, {rule})\n")
            }
            Err(Failure::NotPlayed(why)) => {
                not_played += 1;
                format!("-       {name}: {why}\n")
            }
            Err(Failure::Error(error)) => return Err(error.context(format!("scenario {name}"))),
        };
        crate::print(&line)?;
        bench.clear_namespace().await.with_context(|| format!("after scenario {name}"))?;
    }
    Ok([passed, failed, not_played])
}
