//! The commands of the repository, for people and CI.

mod advisories;
mod awaits;
mod bundle;
mod chart;
mod check;
mod citations;
mod cited;
mod cross;
mod dashboards;
mod defects;
mod edges;
mod english;
mod files;
mod functions;
mod fuzz;
mod help;
mod image;
mod lanes;
mod licences;
mod metrics;
mod monitoring;
mod mutants;
mod needs;
mod packages;
mod planted;
mod plugin;
mod shipped;
mod supply;
mod upgrade;
mod waits;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Everything a person or CI runs")]
enum Task {
    /// Check format, lints, crate dependencies, file sizes, waits of scenarios, generated files, defects and licences, like CI.
    Check,
    /// Run what finds defects quickly and needs nothing but Rust: unit tests, the model of the gate protocol, runs with
    /// faults, and scenarios on simcluster.
    Test {
        /// Run the second level instead: scenarios on a real control plane, which this command builds.
        #[arg(long, conflicts_with_all = ["long", "turn"])]
        real: bool,
        /// Run the long lanes instead: every version, every oracle, both backends.
        #[arg(long, conflicts_with = "turn")]
        long: bool,
        /// Run the one long lane whose turn it is, as CI does.
        #[arg(long)]
        turn: bool,
    },
    /// Run only scenarios, on the real control plane.
    E2e {
        /// Only scenarios whose lane or name contains this; `node`, `node-pods/NAME` and `node-faults/NAME`: those on a real node.
        filter: Option<String>,
        /// Run them on simcluster.
        #[arg(long)]
        sim: bool,
        /// Run them with the binary as it is shipped, which takes longer to build.
        #[arg(long)]
        shipped: bool,
    },
    /// Try the packages: what they render, what they refuse, and their lives on a real control plane with the real
    /// installers, which this command builds.
    PackageTest {
        /// Only checks whose name contains this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Run the controller on a simulated cluster with seeded faults, in virtual time.
    Soak {
        /// Number of runs.
        #[arg(long, default_value_t = 100_000)]
        runs: u64,
        /// Seed of the first run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Run gated Pods, with the operator and the allocator, instead of the life of claims.
        #[arg(long)]
        gated: bool,
    },
    /// Run gated Pods beside Pods of others on a real control plane, and hold every event against the promises of the gate
    /// protocol; all arguments are those of `dragoman-e2e company`.
    Company {
        /// See `dragoman-e2e company --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Upgrade and roll back operator and allocator beside Pods at every stage: `company` with the binaries of this revision
    /// and of an earlier one, which is built in target/previous.
    Upgrade {
        /// The earlier revision.
        #[arg(default_value = upgrade::EARLIER)]
        from: String,
        /// Number of Pods of a run; there is one for each kind of cluster.
        #[arg(long, default_value_t = 500)]
        pods: usize,
    },
    /// Build the binary as it is shipped: static, so that the image needs nothing else.
    Static,
    /// Build the container image with the shipped binary into target/image: an OCI layout, an archive for each architecture for
    /// `docker load` and `kind load image-archive`, and the list of its dependencies.
    Image {
        /// Push it there, and print its digest.
        #[arg(long, value_name = "REPOSITORY:TAG")]
        push: Option<String>,
        /// Only for this architecture.
        #[arg(long, value_enum)]
        only: Option<shipped::Platform>,
    },
    /// Build the plugin of kubectl into target/plugin: archives, and the manifest for krew.
    Plugin {
        /// Where the archives will be published.
        #[arg(long, value_name = "URL", default_value = "https://dragoman.dev/releases")]
        from: String,
        /// Only for this architecture.
        #[arg(long, value_enum)]
        only: Option<shipped::Platform>,
    },
    /// Write overlays, chart and OLM bundle with an image into target/packages.
    Packages {
        /// The image by its digest, as `cargo xtask image --push` prints it.
        image: String,
    },
    /// Renew the list of known vulnerabilities from a checkout of the database of RustSec.
    Advisories {
        /// The checkout.
        database: PathBuf,
    },
    /// Plant every defect of `e2e/defects` and require that the tests find it.
    Defects {
        /// Only defects or scenarios whose name contains this.
        #[arg(default_value = "")]
        filter: String,
        /// Plant nothing, but run the scenarios with the built-in controller and require that exactly those
        /// fail whose defect it has.
        #[arg(long)]
        built_in: bool,
        /// Plant nothing, but count the defects that each level of the tests finds, and those that no other level does.
        #[arg(long, conflicts_with = "built_in")]
        levels: bool,
    },
    /// Make small changes of the controllers and require that a test notices each of them.
    Mutants {
        /// Only files whose path below `reconcilers/src` contains this, such as `gates/plan`.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Feed arbitrary bytes to the parsers of quantities, objects and device scenarios.
    Fuzz {
        /// Number of inputs for each target; the slow target `scenarios` gets a tenth.
        #[arg(long, default_value_t = 1_000_000)]
        runs: u64,
    },
    /// Write the generated files.
    Gen,
    /// Run a benchmark.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Requests of Pods and ledger updates: `dragoman-accounting` beside `k8s.io/component-helpers`.
    Accounting,
    /// Filling clusters: `dragoman-allocator` beside the published allocator of Kubernetes.
    Allocator {
        /// Only cases whose name contains this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// The cost of a Pod's life for Dragoman in clusters of 1 000 to 50 000 Pods, on simcluster.
    Scale {
        /// Only clusters with at most this many Pods.
        #[arg(long, default_value_t = 50_000)]
        pods: usize,
    },
    /// The cost of `kubectl dra explain` in a full cluster of a real control plane.
    Plugin {
        /// Number of nodes, with eight claims and ten Pods each.
        #[arg(long, default_value_t = 5_000)]
        nodes: usize,
    },
    /// The cost of hostile tenants for the others.
    Tenants,
    /// The built-in claim controller and Dragoman while their API server is slow, throttles, or is half dead.
    Overload,
    /// Claim lifecycles: the built-in controller and Dragoman side by side.
    Lifecycle {
        /// Number of Pods that run from creation to deletion.
        #[arg(long, default_value_t = 2000)]
        pods: usize,
        /// Number of gated Pods that are created in one burst.
        #[arg(long, default_value_t = 10_000)]
        gated: usize,
        /// Number of measurements of the lives; medians are printed.
        #[arg(long, default_value_t = 3)]
        runs: usize,
    },
}

fn main() -> ExitCode {
    // The reason alone: a backtrace would show the way through this program.
    match run_task(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_task(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Check => check::check(),
        Task::Test { real: true, .. } => lanes::real(),
        Task::Test { long: true, .. } => lanes::long(),
        Task::Test { turn: true, .. } => lanes::turn(),
        Task::Test { .. } => lanes::quick(),
        Task::E2e { filter, sim, shipped } => chosen(filter.as_deref(), sim, shipped),
        Task::PackageTest { filter } if filter == "image" => supply::check(),
        Task::PackageTest { filter } => {
            let [manifests, lives] = ["manifests", "packages"].map(|lane| format!("{lane}/{filter}"));
            e2e(&["scenarios", &manifests, &lives])?;
            if filter.is_empty() { supply::check() } else { Ok(()) }
        }
        Task::Soak { runs, seed, gated } => {
            let [runs, seed] = [runs, seed].map(|number| number.to_string());
            let which: &[&str] = if gated { &["--gated"] } else { &[] };
            soak(&[&["--runs", &runs, "--seed", &seed], which].concat())
        }
        Task::Company { arguments } => {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            e2e(&[&["company"], &*arguments].concat())
        }
        Task::Upgrade { from, pods } => upgrade::company(&from, pods),
        Task::Advisories { database } => advisories::renew(&database),
        Task::Static => shipped::build(),
        Task::Plugin { from, only } => {
            let platforms = only.map_or_else(|| shipped::Platform::ALL.to_vec(), |only| vec![only]);
            plugin::write(&platforms, &from)
        }
        Task::Packages { image } => packages::write(&image),
        Task::Image { push, only } => {
            let platforms = only.map_or_else(|| shipped::Platform::ALL.to_vec(), |only| vec![only]);
            image::build(&platforms, push.as_deref()).map(drop)
        }
        Task::Defects { filter, levels: true, .. } => defects::levels(&filter),
        Task::Defects { filter, built_in: true, .. } => {
            e2e(&["--patience", lanes::IMPATIENT, "built-in", &filter])
        }
        Task::Defects { filter, .. } => defects::find(&filter),
        Task::Mutants { filter } => mutants::find(&filter),
        Task::Fuzz { runs } => fuzz::fuzz(runs),
        Task::Gen => files::generate(),
        Task::Bench { what: Bench::Accounting } => lab(&["bench-accounting"]),
        Task::Bench { what: Bench::Allocator { filter } } => lab(&["bench-allocator", &filter]),
        Task::Bench { what: Bench::Scale { pods } } => lab(&["scale", "--pods", &pods.to_string()]),
        Task::Bench { what: Bench::Plugin { nodes } } => {
            run("cargo", &["build", "--release", "--package", "dragoman-cli"])?;
            lab(&["bench-plugin", "--nodes", &nodes.to_string(), "--plugin", "target/release/kubectl-dra"])
        }
        Task::Bench { what: Bench::Tenants } => lab(&["tenants"]),
        Task::Bench { what: Bench::Overload } => lab(&["overload"]),
        Task::Bench { what: Bench::Lifecycle { pods, gated, runs } } => {
            let [pods, gated, runs] = [pods, gated, runs].map(|number| number.to_string());
            lab(&["versus", "--pods", &pods, "--gated", &gated, "--runs", &runs])
        }
    }
}

/// Runs chosen scenarios.
fn chosen(filter: Option<&str>, sim: bool, shipped: bool) -> anyhow::Result<()> {
    if let Some(filter) = filter.filter(|filter| *filter == "node" || filter.starts_with("node-")) {
        lanes::build()?;
        return lanes::node(filter);
    }
    let on: &[&str] = if sim { &["--on", "sim"] } else { &[] };
    let filter: Vec<&str> = filter.into_iter().collect();
    let arguments = [&["scenarios"], on, &*filter].concat();
    if shipped { e2e(&arguments) } else { lanes::scenarios(&arguments) }
}

/// The root of the repository.
fn root() -> anyhow::Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("repository")?.to_owned())
}

/// Runs a program in the root of the repository. A failure of the program is an error.
fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    eprintln!("$ {program} {}", arguments.join(" "));
    let status = Command::new(program).args(arguments).current_dir(root()?).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program} {} failed: {status}", arguments.join(" "));
    Ok(())
}

/// Runs a program in the root of the repository and returns its standard output.
fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).current_dir(root()?).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("output is not UTF-8")
}

/// Runs the controller in the process of `dragoman-lab`, built for speed.
fn soak(arguments: &[&str]) -> anyhow::Result<()> {
    let build = ["--profile", "soak", "--package", "dragoman-lab"];
    run("cargo", &[&["build"], &build[..]].concat())?;
    // Runs start no operator, so that any program will do for `--binary`.
    let program = "target/soak/dragoman-lab";
    let bench = ["--binary", program, "--output", "target/e2e", "soak"];
    run(program, &[&bench, arguments].concat())
}

/// Builds the operator as it is shipped and runs `dragoman-e2e` with it.
fn e2e(arguments: &[&str]) -> anyhow::Result<()> {
    on_shipped("dragoman-e2e", arguments)
}

/// Builds the operator as it is shipped and runs `dragoman-lab` with it.
fn lab(arguments: &[&str]) -> anyhow::Result<()> {
    on_shipped("dragoman-lab", arguments)
}

fn on_shipped(package: &str, arguments: &[&str]) -> anyhow::Result<()> {
    shipped::build()?;
    let program = ["run", "--package", package, "--"];
    let bench = ["--binary", shipped::BINARY, "--output", "target/e2e"];
    run("cargo", &[&program[..], &bench, arguments].concat())
}
