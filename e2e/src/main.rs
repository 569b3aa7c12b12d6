//! Dragoman's end-to-end tests: scenarios on control planes, and runs beside neighbours.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dragoman_e2e::control_plane::{Backend, Programs, Release};
use dragoman_e2e::start::{self, Setting};
use dragoman_e2e::world::Bench;
use dragoman_e2e::{company, scenarios};

/// Dragoman's end-to-end tests.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    setting: Setting,
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
    /// Run scenarios with the built-in claim controller and require that exactly its known defects show.
    BuiltIn {
        /// Only scenarios whose name contains this.
        #[arg(default_value = "")]
        filter: String,
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
        /// The binary of another version: an operator of each runs beside the other, and an allocator that was killed is started again in
        /// the version that it was not, so that the cluster is upgraded and rolled back with Pods at every stage.
        #[arg(long, value_name = "BINARY")]
        previous: Option<PathBuf>,
        /// Instead of that, let so many pairs of a gated and an ordinary Pod race for all the cpus of a node.
        #[arg(long, value_name = "PAIRS")]
        races: Option<usize>,
        /// Judge the record of an earlier run instead.
        #[arg(long, value_name = "FILE")]
        replay: Option<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { setting, command } = Arguments::parse();
    let backend = if let Command::Scenarios { on, .. } = &command { *on } else { Backend::Real };
    let outcome = setting.work(backend, async |bench| run(bench, command).await).await;
    start::ended("dragoman-e2e", outcome)
}

async fn run(bench: &Bench, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Provide => Programs::provide(&bench.repository, Release::default()).await.map(drop),
        Command::Company { replay: Some(file), .. } => company::replay(&file),
        Command::Company { seed, only, races: Some(pairs), .. } => {
            company::races::run(bench, &only, seed, pairs).await
        }
        Command::Company { pods, seeds, seed, only, kills, previous, .. } => {
            let kind = company::Kind::Held;
            let like = company::Run { kind, seed, pods, kills, previous: previous.as_deref() };
            company::run(bench, &only, (seed, seeds), like).await
        }
        Command::BuiltIn { filter } => scenarios::built_in::run(bench, &filter).await,
        Command::Node { filters } => scenarios::on_node(bench, &filters).await,
        Command::Scenarios { filters, .. } => scenarios::run(bench, &filters).await,
    }
}
