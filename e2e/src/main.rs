//! Dragoman's end-to-end tests: scenarios, comparisons with Kubernetes, runs with faults, and benchmarks.

mod accounting_bench;
mod allocator_bench;
mod claim_writes;
mod client;
mod collector;
mod company;
mod conformance;
mod control_plane;
mod differential;
mod dragoman;
mod go;
mod installed;
mod manifest;
mod node;
mod objects;
mod only;
mod oracle;
mod plugin_bench;
mod prometheus;
mod promises;
mod proxy;
mod scale;
mod scenarios;
mod soak;
mod tenants;
mod terminal;
mod usage;
mod versus;
mod wait;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use control_plane::{Backend, Programs, Release};
use tokio::signal::unix::{SignalKind, signal};
use world::Bench;

/// Dragoman's end-to-end tests.
#[derive(Parser)]
struct Arguments {
    /// The `dragoman` binary.
    #[arg(long)]
    binary: PathBuf,
    /// The directory for logs.
    #[arg(long)]
    output: PathBuf,
    /// The tree with the manifests and budgets, instead of the one that this program was built from.
    #[arg(long)]
    repository: Option<PathBuf>,
    /// The seconds after which a wait is in vain.
    #[arg(long, value_name = "SECONDS", default_value_t = wait::DEFAULT_PATIENCE)]
    patience: u64,
    /// End as soon as the process that started this one has ended.
    #[arg(long)]
    with_parent: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the programs of the control plane, unless they are in the cache.
    Provide,
    /// Run scenarios.
    Scenarios {
        /// Only scenarios whose lane or name contains one of these.
        filters: Vec<String>,
        /// The control plane to run them on.
        #[arg(long, value_enum, default_value = "real")]
        on: Backend,
    },
    /// Run scenarios on a real node in namespaces of its own.
    Node {
        /// Only scenarios whose name contains one of these.
        filters: Vec<String>,
    },
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
    /// Run scenarios with the built-in claim controller and require that exactly its known defects show.
    BuiltIn {
        /// Only scenarios whose name contains this.
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
    /// Run gated Pods beside Pods of others, and hold every event against the promises of the gate protocol.
    Company {
        /// Number of Pods of a run.
        #[arg(long, default_value_t = 500)]
        pods: usize,
        /// Number of runs of each kind of cluster.
        #[arg(long, default_value_t = 1)]
        seeds: u64,
        /// Seed of the first run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only these kinds of clusters.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<company::Kind>,
        /// Processes that are killed in turn.
        #[arg(long, value_enum, num_args = 0..=1, default_value = "none", default_missing_value = "parties")]
        kills: company::Kills,
        /// The binary of another version: a process that was killed is started again in the version that it was not, so that the
        /// cluster is upgraded and rolled back with Pods at every stage.
        #[arg(long, value_name = "BINARY")]
        previous: Option<PathBuf>,
        /// Instead of that, let so many pairs of a gated and an ordinary Pod race for all the cpus of a node.
        #[arg(long, value_name = "PAIRS")]
        races: Option<usize>,
        /// Judge the record of an earlier run instead.
        #[arg(long, value_name = "FILE")]
        replay: Option<PathBuf>,
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
    let arguments = Arguments::parse();
    // The reason alone: a backtrace would show the way through the harness.
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dragoman-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    wait::set_patience(arguments.patience);
    let parent = std::os::unix::process::parent_id();
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("repository")?;
    let repository = arguments.repository.clone().unwrap_or_else(|| built_from.to_owned());
    if let Command::Oracle { filter, count, seed } = &arguments.command {
        return oracle::run(&repository, filter, *count, *seed).await;
    }
    if let Command::Soak { runs, seed, twice, gated } = arguments.command {
        // Runs build runtimes of their own.
        let run = if gated { soak::run_gated } else { soak::run };
        return tokio::task::spawn_blocking(move || run(seed, runs, twice)).await?;
    }
    if matches!(arguments.command, Command::BenchAccounting) {
        return accounting_bench::run(&arguments.binary, &repository, &arguments.output).await;
    }
    if let Command::BenchAllocator { filter } = &arguments.command {
        return allocator_bench::run(&repository, &arguments.output, filter).await;
    }
    std::fs::create_dir_all(&arguments.output).context("output")?;
    // The paths go into kubeconfigs and must be absolute.
    let output = arguments.output.canonicalize().context("output")?;
    let binary = arguments.binary.canonicalize().context("binary")?;
    let _alone = only::lock(&output)?;
    let backend = if let Command::Scenarios { on, .. } = &arguments.command { *on } else { Backend::Real };
    let bench = Bench { repository, binary, output, backend };
    let work = run_on(&bench, arguments.command);
    // A signal drops the work, and with it every process that the work started.
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    tokio::select! {
        outcome = work => outcome,
        _ = terminate.recv() => anyhow::bail!("terminated"),
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        () = orphaned(parent), if arguments.with_parent => anyhow::bail!("the process that started this one has ended"),
    }
}

/// Runs a command that needs a control plane.
async fn run_on(bench: &Bench, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Provide => Programs::provide(&bench.repository, Release::default()).await.map(drop),
        Command::Oracle { .. }
        | Command::BenchAccounting
        | Command::Soak { .. }
        | Command::BenchAllocator { .. } => Ok(()),
        Command::Company { replay: Some(file), .. } => company::replay(&file),
        Command::Company { seed, only, races: Some(pairs), .. } => {
            company::races::run(bench, &only, seed, pairs).await
        }
        Command::Company { pods, seeds, seed, only, kills, previous, .. } => {
            let kind = company::Kind::Held;
            let like = company::Run { kind, seed, pods, kills, previous: previous.as_deref() };
            company::run(bench, &only, (seed, seeds), like).await
        }
        Command::ClaimWrites { count, rounds } => claim_writes::run(bench, count, rounds).await,
        Command::Versus { pods, gated, completed, idle, runs, only } => {
            let idle = std::time::Duration::from_secs(idle);
            versus::run(bench, versus::Load { pods, gated, completed, idle, runs }, &only).await
        }
        Command::Conformance { filter } => {
            let asked = conformance::run(bench, &filter).await?;
            println!("ok      conformance: {asked} answers are the same");
            Ok(())
        }
        Command::Overload { pods } => versus::overload(bench, pods).await,
        Command::Tenants { refused, bystanders, large } => {
            tenants::run(bench, tenants::Load { refused, bystanders, large }).await
        }
        Command::BenchPlugin { nodes, plugin } => {
            plugin_bench::run(bench, nodes, &plugin.canonicalize().context("plugin")?).await
        }
        Command::Scale { pods, full } => scale::run(bench, (!full).then_some(pods)).await,
        Command::BuiltIn { filter } => scenarios::built_in::run(bench, &filter).await,
        Command::Node { filters } => scenarios::on_node(bench, &filters).await,
        Command::Scenarios { filters, .. } => scenarios::run(bench, &filters).await,
    }
}

/// Ends when this process has another parent than at its start.
async fn orphaned(parent: u32) {
    while std::os::unix::process::parent_id() == parent {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}
