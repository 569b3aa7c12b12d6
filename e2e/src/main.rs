//! Scenarios against a real control plane.

mod accounting_bench;
mod allocator_bench;
mod client;
mod collector;
mod conformance;
mod control_plane;
mod differential;
mod dragoman;
mod go;
mod kubelet;
mod manifest;
mod objects;
mod oracle;
mod promises;
mod proxy;
mod scale;
mod scenarios;
mod soak;
mod usage;
mod versus;
mod wait;
mod world;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use control_plane::{Backend, Programs};
use tokio::signal::unix::{SignalKind, signal};
use world::Bench;

/// Dragoman's end-to-end tests.
#[derive(Parser)]
struct Arguments {
    /// The `dragoman` binary.
    #[arg(long)]
    binary: PathBuf,
    /// Where logs are left.
    #[arg(long)]
    output: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the control plane, if it is not there yet.
    Provide,
    /// Run scenarios.
    Scenarios {
        /// Only those whose lane or name contains one of these.
        filters: Vec<String>,
        /// The control plane to run them on.
        #[arg(long, value_enum, default_value = "real")]
        on: Backend,
    },
    /// Compare with published libraries of Kubernetes.
    Oracle {
        /// Only those whose name contains this.
        #[arg(default_value = "")]
        filter: String,
        /// How many questions, for each of them.
        #[arg(long)]
        count: Option<usize>,
        /// Of the random numbers.
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
    /// Run scenarios with the built-in claim controller: its defects must show.
    BuiltIn {
        /// Only those whose name contains this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Run the controller on simcluster, with faults, in virtual time.
    Soak {
        /// How many runs.
        #[arg(long, default_value_t = 2000)]
        runs: u64,
        /// The seed of the first.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many of them are run twice and must be the same.
        #[arg(long, default_value_t = 100)]
        twice: u64,
    },
    /// Ask simcluster and a real kube-apiserver the same questions.
    Conformance {
        /// Only chapters whose name contains this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Measure what a life costs Dragoman in clusters of several sizes, on simcluster.
    Scale {
        /// Only clusters with at most so many Pods.
        #[arg(long, default_value_t = 50_000)]
        pods: usize,
        /// Only clusters with at least so many.
        #[arg(long, default_value_t = 0)]
        least: usize,
    },
    /// Measure the built-in claim controller and Dragoman side by side.
    Versus {
        /// Pods that live through their whole life.
        #[arg(long, default_value_t = 2000)]
        pods: usize,
        /// Gated Pods at once.
        #[arg(long, default_value_t = 10_000)]
        gated: usize,
        /// Completed Pods that stand around.
        #[arg(long, default_value_t = 2500)]
        completed: usize,
        /// Seconds for which they are watched.
        #[arg(long, default_value_t = 20)]
        idle: u64,
        /// How often the lives are measured; medians are printed.
        #[arg(long, default_value_t = 1)]
        runs: usize,
        /// Only the sides whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().context("repository")?.to_owned();
    if let Command::Oracle { filter, count, seed } = &arguments.command {
        return oracle::run(&repository, filter, *count, *seed).await;
    }
    if let Command::Soak { runs, seed, twice } = arguments.command {
        // It brings runtimes of its own.
        return tokio::task::spawn_blocking(move || soak::run(seed, runs, twice)).await?;
    }
    if matches!(arguments.command, Command::BenchAccounting) {
        return accounting_bench::run(&repository, &arguments.output).await;
    }
    if let Command::BenchAllocator { filter } = &arguments.command {
        return allocator_bench::run(&repository, &arguments.output, filter).await;
    }
    let programs = Programs::provide(&repository).await?;
    std::fs::create_dir_all(&arguments.output).context("output")?;
    // Absolute: the paths go into kubeconfigs.
    let output = arguments.output.canonicalize().context("output")?;
    let binary = arguments.binary.canonicalize().context("binary")?;
    let backend = if let Command::Scenarios { on, .. } = &arguments.command { *on } else { Backend::Real };
    let bench = Bench { repository, binary, output, backend, programs };
    let work = async {
        match arguments.command {
            Command::Provide
            | Command::Oracle { .. }
            | Command::BenchAccounting
            | Command::Soak { .. }
            | Command::BenchAllocator { .. } => Ok(()),
            Command::Versus { pods, gated, completed, idle, runs, only } => {
                let idle = std::time::Duration::from_secs(idle);
                versus::run(&bench, versus::Load { pods, gated, completed, idle, runs }, &only).await
            }
            Command::Conformance { filter } => {
                let asked = conformance::run(&bench, &filter).await?;
                println!("ok      conformance: {asked} answers are the same");
                Ok(())
            }
            Command::Scale { pods, least } => scale::run(&bench, least, pods).await,
            Command::BuiltIn { filter } => scenarios::built_in::run(&bench, &filter).await,
            Command::Scenarios { filters, .. } => scenarios::run(&bench, &filters).await,
        }
    };
    // Whatever was started ends with us, also when we are told to stop.
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    tokio::select! {
        outcome = work => outcome,
        _ = terminate.recv() => anyhow::bail!("terminated"),
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
}
