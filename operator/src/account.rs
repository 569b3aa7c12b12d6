//! `dragoman account`: what Pods and claims take from every node of a dump, and what fits.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use dragoman_accounting::claim::allocation::Judgement;
use dragoman_accounting::cluster::Rules;
use dragoman_accounting::ledger::Charging;
use dragoman_accounting::pod::requests::Variant;
use dragoman_machinery::controller::Shared;
use dragoman_reconcilers::indexes::Indexes;
use dragoman_report::{Filter, Keep, Objects, Report, manifests, render};

/// Flags of `dragoman account`.
#[derive(Debug, Args)]
pub(crate) struct AccountFlags {
    /// Files with objects as `kubectl get -o yaml` or `-o json` prints them: one, several, or lists;
    /// - is standard input.
    #[arg(short = 'f', long = "filename", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Use the accounting rules of Kubernetes where they differ from those of Dragoman.
    #[arg(long)]
    in_tree: bool,
    /// Count what is per container only while the container runs.
    #[arg(long)]
    peak: bool,
    /// Only these nodes.
    #[arg(long, value_name = "NAME")]
    node: Vec<String>,
    /// Only the waiting Pods of these namespaces.
    #[arg(long, short = 'n', value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// Only these waiting Pods.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pod: Vec<String>,
    /// Only nodes that are overcommitted, and no waiting Pods but those that --pod names.
    #[arg(long)]
    overcommitted: bool,
    /// Print for a waiting Pod every node, not only the nearest.
    #[arg(long)]
    all_nodes: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Prints the ledgers. The exit code says whether a node of them is overcommitted, an amount is not known, or a Pod that --pod names
/// fits nowhere.
///
/// # Errors
/// A file cannot be read, or holds something that is no Kubernetes object.
pub(crate) fn account(flags: &AccountFlags) -> anyhow::Result<ExitCode> {
    let mut objects = Objects::new(Keep::Everything);
    let mut wrong = Vec::new();
    manifests::each(&flags.files, &mut |found| {
        if let Err(why) = found.and_then(|found| objects.take(found)) {
            wrong.push(format!("{why:#}"));
        }
    })?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(!objects.is_empty(), "there are no nodes, Pods, claims, slices or footprints in these files");
    let rules = Rules {
        variant: if flags.peak { Variant::Peak } else { Variant::WholeLife },
        charging: if flags.in_tree { Charging::InTree } else { Charging::PerClaim },
        judgement: if flags.in_tree { Judgement::Upstream } else { Judgement::Ours },
    };
    let filter = Filter {
        nodes: flags.node.clone(),
        namespaces: flags.namespace.clone(),
        pods: flags.pod.clone(),
        overcommitted: flags.overcommitted,
        waiting: !flags.overcommitted || !flags.pod.is_empty(),
    };
    let report = Report::of(objects, rules, &filter);
    let text = match flags.output {
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        Output::Table => render(&report, !flags.all_nodes),
    };
    crate::print(&text)?;
    ensure!(report.missed().is_empty(), "{}", report.missed().join("; "));
    Ok(if report.is_clear() { ExitCode::SUCCESS } else { ExitCode::from(crate::NO) })
}

/// Nodes that are read of a running process at once: their rows take about a millisecond.
const PORTION: usize = 64;

/// The table of a running process: what `dragoman account` prints of a dump, without the Pods that wait.
/// Watches and workers go on between the portions.
pub(crate) async fn of_index(indexes: Arc<Shared<Indexes>>) -> String {
    let names: Vec<Arc<str>> =
        indexes.read(|of| of.cluster.ledger().nodes().map(|(name, _)| Arc::clone(name)).collect());
    let mut report = Report::default();
    for portion in names.chunks(PORTION) {
        indexes.read(|of| report.add(of.cluster.ledger(), portion));
        tokio::task::yield_now().await;
    }
    render(&report, true)
}
