//! Dragoman's instruments: comparisons with Kubernetes, runs with faults, and benchmarks.

mod accounting_bench;
mod allocator_bench;
mod claim_writes;
mod conformance;
mod oracle;
mod plugin_bench;
mod scale;
mod soak;
mod tenants;
mod versus;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use dragoman_e2e::control_plane::Backend;
use dragoman_e2e::start::{self, Setting};
use dragoman_e2e::world::Bench;

/// Dragoman's instruments.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    setting: Setting,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare Dragoman's crates with published libraries of Kubernetes.
    Oracle {
        /// Only comparisons whose name contains this.
        #[arg(default_value = "")]
        filter: String,
        /// Number of questions for each comparison.
        #[arg(long)]
        count: Option<usize>,
        /// Seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Measure `dragoman-accounting` and `k8s.io/component-helpers` side by side.
    BenchAccounting,
    /// Measure `dragoman-allocator` and the published allocator side by side.
    BenchAllocator {
        /// Only cases whose name contains this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Run the controller on simcluster with seeded faults, in virtual time.
    Soak {
        /// Number of runs.
        #[arg(long, default_value_t = 2000)]
        runs: u64,
        /// Seed of the first run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of seeds that run twice and must give the same history.
        #[arg(long, default_value_t = 100)]
        twice: u64,
        /// Run gated Pods, with the operator and the allocator, instead of the life of claims.
        #[arg(long)]
        gated: bool,
    },
    /// Compare the answers of simcluster and of a real kube-apiserver to the same questions.
    Conformance {
        /// Only chapters whose name contains this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Measure the cost of a Pod's life for Dragoman in clusters of several sizes, on simcluster.
    Scale {
        /// Only clusters with at most this many Pods.
        #[arg(long, default_value_t = 50_000)]
        pods: usize,
        /// Only the memory of the allocator in a full cluster.
        #[arg(long, conflicts_with = "pods")]
        full: bool,
    },
    /// Measure `kubectl dra explain` in a full cluster of a real control plane.
    BenchPlugin {
        /// Number of nodes, with eight claims and ten Pods each.
        #[arg(long, default_value_t = 5_000)]
        nodes: usize,
        /// The `kubectl-dra` binary.
        #[arg(long)]
        plugin: PathBuf,
    },
    /// Measure what hostile tenants cost the others.
    Tenants {
        /// Number of Pods that are refused a claim.
        #[arg(long, default_value_t = 10_000)]
        refused: usize,
        /// Number of Pods that exist beside them while 200 clients scrape the metrics.
        #[arg(long, default_value_t = 50_000)]
        bystanders: usize,
        /// Number of Pods and templates with annotations of a quarter of a megabyte.
        #[arg(long, default_value_t = 10_000)]
        large: usize,
        /// Only the attacks beside gated Pods.
        #[arg(long)]
        gates: bool,
    },
    /// Measure the built-in claim controller and Dragoman while their API server is slow, throttles, or is
    /// half dead.
    Overload {
        /// Number of Pods that run from creation to deletion, for each side and fault.
        #[arg(long, default_value_t = 200)]
        pods: usize,
    },
    /// Measure what a write of a claim costs the API server, as a JSON patch and in protobuf.
    ClaimWrites {
        /// Claims of each kind in a round.
        #[arg(long, default_value_t = 500)]
        count: usize,
        /// Rounds.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Measure the built-in claim controller and Dragoman side by side.
    Versus {
        /// Number of Pods that run from creation to deletion.
        #[arg(long, default_value_t = 2000)]
        pods: usize,
        /// Number of gated Pods that are created in one burst.
        #[arg(long, default_value_t = 10_000)]
        gated: usize,
        /// Number of completed Pods that are kept.
        #[arg(long, default_value_t = 2500)]
        completed: usize,
        /// Seconds for which the completed Pods are watched.
        #[arg(long, default_value_t = 20)]
        idle: u64,
        /// Number of measurements of the lives; medians are printed.
        #[arg(long, default_value_t = 1)]
        runs: usize,
        /// Only the sides whose name contains one of these.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { setting, command } = Arguments::parse();
    start::ended("dragoman-lab", run(&setting, command).await)
}

/// Runs a command; one that needs no control plane, at once.
async fn run(setting: &Setting, command: Command) -> anyhow::Result<()> {
    let repository = setting.repository()?;
    match command {
        Command::Oracle { filter, count, seed } => oracle::run(&repository, &filter, count, seed).await,
        Command::Soak { runs, seed, twice, gated } => {
            // Runs build runtimes of their own.
            let run = if gated { soak::run_gated } else { soak::run };
            tokio::task::spawn_blocking(move || run(seed, runs, twice)).await?
        }
        Command::BenchAccounting => {
            accounting_bench::run(&setting.binary, &repository, &setting.output).await
        }
        Command::BenchAllocator { filter } => {
            allocator_bench::run(&repository, &setting.output, &filter).await
        }
        command => setting.work(Backend::Real, async |bench| run_on(bench, command).await).await,
    }
}

/// Runs a command that needs a control plane.
async fn run_on(bench: &Bench, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Oracle { .. }
        | Command::BenchAccounting
        | Command::Soak { .. }
        | Command::BenchAllocator { .. } => Ok(()),
        Command::ClaimWrites { count, rounds } => claim_writes::run(bench, count, rounds).await,
        Command::Versus { pods, gated, completed, idle, runs, only } => {
            let idle = Duration::from_secs(idle);
            versus::run(bench, versus::Load { pods, gated, completed, idle, runs }, &only).await
        }
        Command::Conformance { filter } => {
            let asked = conformance::run(bench, &filter).await?;
            println!("ok      conformance: {asked} answers are the same");
            Ok(())
        }
        Command::Overload { pods } => versus::overload(bench, pods).await,
        Command::Tenants { refused, bystanders, large, gates } => {
            tenants::run(bench, tenants::Load { refused, bystanders, large, gates }).await
        }
        Command::BenchPlugin { nodes, plugin } => {
            plugin_bench::run(bench, nodes, &plugin.canonicalize().context("plugin")?).await
        }
        Command::Scale { pods, full } => scale::run(bench, (!full).then_some(pods)).await,
    }
}
