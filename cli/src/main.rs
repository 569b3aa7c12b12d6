//! `kubectl dra`: why a Pod waits, and what holds a device. Works without Dragoman in the cluster, and only reads.

mod client;
mod complete;
mod ledger;
mod load;
mod print;
mod tables;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;

use crate::client::Client;
use crate::print::{Output, Screen};
use crate::tables::Table;
use dragoman_report::explain::{self, Answer};
use dragoman_report::facts::Facts;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a Pod waits, and what holds a device.
///
/// Exit code 0: nothing stands in the way. 1: there is no answer, or no such object. 2: a wrong flag. 3: something stands in the way, or there
/// is something to do.
#[derive(Debug, Parser)]
#[command(name = "kubectl dra", bin_name = "kubectl dra", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    place: Place,
}

/// Where to look, and how to print.
#[derive(Debug, Args)]
#[command(next_help_heading = "For every command")]
struct Place {
    /// Namespace of the object [default: that of the context].
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, global = true)]
    all_namespaces: bool,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    context: Option<String>,
    /// Path of the kubeconfig.
    #[arg(long, global = true)]
    kubeconfig: Option<String>,
    /// Format of the output [default: a table for people].
    #[arg(short, long, global = true, value_enum)]
    output: Option<Output>,
    /// Read these files in place of a cluster: objects in JSON or YAML, as `kubectl get` prints them.
    #[arg(short = 'f', long = "filename", global = true)]
    files: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say why, in one sentence, and show the chain of objects.
    #[command(subcommand)]
    Explain(Explained),
    /// List claims: their state, devices and consumers.
    Claims,
    /// List devices: where they are, and what holds them.
    Devices,
    /// List pools: how many devices they have, and how many are free.
    Pools {
        /// Count allocated devices by DeviceClass instead.
        #[arg(long)]
        by_class: bool,
    },
    /// List what Pods and claims take from nodes, and where Pods that wait would fit.
    Ledger {
        /// Only these nodes.
        nodes: Vec<String>,
        /// Only nodes that have promised more than they have.
        #[arg(long)]
        overcommitted: bool,
        /// Also say where this Pod of the namespace, which waits for a node, would fit.
        #[arg(long, value_name = "NAME")]
        pod: Vec<String>,
        /// Use the accounting rules of Kubernetes where they differ from those of Dragoman.
        #[arg(long)]
        in_tree: bool,
    },
    /// Say what a drain of a node would end.
    Drain {
        /// The node.
        node: String,
        /// Without effect: this program drains nothing.
        #[arg(long, hide = true)]
        check: bool,
    },
    /// List claims that hold devices for nothing, each with the evidence.
    Reclaim {
        /// Without effect: this program releases nothing.
        #[arg(long, hide = true)]
        dry_run: bool,
        /// A claim without a consumer counts from this age on, in seconds.
        #[arg(long, default_value_t = 3600)]
        idle_for: i64,
    },
    /// List Events about claims.
    Events,
    /// Show pools and waiting Pods, again and again.
    Top {
        /// Seconds between two looks.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
        interval: u64,
        /// Look once.
        #[arg(long)]
        once: bool,
    },
    /// Complete `kubectl dra` in shells.
    Completion {
        /// The action.
        #[arg(value_parser = ["install"])]
        action: String,
    },
}

#[derive(Debug, Subcommand)]
enum Explained {
    /// Why a Pod waits for its claims or its node.
    Pod { name: String },
    /// Why a claim has no devices, or what it has.
    Claim { name: String },
    /// Why a device is held or cannot be had: DRIVER/POOL/DEVICE, POOL/DEVICE or its name.
    Device { name: String },
    /// Which devices a node has, and which claims hold them.
    Node { name: String },
    /// Whether a template can be used, and which Pods use it.
    Template { name: String },
}

/// The exit code of an answer that something stands in the way.
const BLOCKED: u8 = 3;
/// The exit code of an answer that there is no such object, as kubectl has it.
const MISSING: u8 = 1;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match completes().await {
        Some(outcome) => outcome.map(|()| ExitCode::SUCCESS),
        None => run(Arguments::parse()).await,
    };
    outcome.unwrap_or_else(|error| {
        use std::io::Write as _;
        // Nothing is left to do where standard error is closed.
        drop(
            std::io::stderr().write_all(
                format!("error: {}\n", dragoman_report::printable(&format!("{error:#}"))).as_bytes(),
            ),
        );
        ExitCode::FAILURE
    })
}

/// Completes, if this program was called by that name.
async fn completes() -> Option<anyhow::Result<()>> {
    let mut words = std::env::args();
    let program = PathBuf::from(words.next()?);
    if program.file_name()?.to_str()? != complete::NAME {
        return None;
    }
    let words: Vec<String> = words.collect();
    Some(print::print(&complete::candidates::<Arguments>(&words).await))
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { command, place } = arguments;
    let screen = Screen::new(place.output);
    if matches!(command, Command::Completion { .. }) {
        return print::print(&complete::install()?).map(|()| ExitCode::SUCCESS);
    }
    let source = Source::of(&place).await?;
    let now = Timestamp::now();
    let namespace = source.namespace(&place);
    // Files have what was asked for when they were printed: all of it counts unless a namespace is given.
    let is_confined = !place.all_namespaces && (place.files.is_empty() || place.namespace.is_some());
    let scope = is_confined.then_some(namespace.as_str());
    let place_of = scope.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
    let (table, nothing) = match command {
        Command::Explain(what) => {
            let answer = explained(&source, &what, &namespace, now).await?;
            screen.answer(&answer)?;
            return Ok(code_of(&answer));
        }
        Command::Top { interval, once } => {
            let is_read = top::run(&source, scope, &screen, interval, once).await?;
            ensure!(is_read, "nothing could be read");
            return Ok(ExitCode::SUCCESS);
        }
        Command::Completion { .. } => return Ok(ExitCode::SUCCESS),
        Command::Ledger { nodes, overcommitted, pod, in_tree } => {
            let pods = pod.iter().map(|name| format!("{namespace}/{name}")).collect();
            let report = ledger::report(&source, nodes, pods, overcommitted, in_tree).await?;
            screen.report(&report)?;
            ensure!(report.missed().is_empty(), "{}", report.missed().join("; "));
            return Ok(ExitCode::from(if report.is_overcommitted() { BLOCKED } else { 0 }));
        }
        Command::Claims => {
            (tables::claims(&source.claims(scope).await, now), format!("there are no claims{place_of}"))
        }
        Command::Devices => (tables::devices(&source.devices().await), "there are no devices".to_owned()),
        Command::Pools { by_class: false } => {
            (tables::pools(&source.devices().await), "there are no pools".to_owned())
        }
        Command::Pools { by_class: true } => {
            (tables::classes(&source.classes().await), "there are no classes".to_owned())
        }
        Command::Events => {
            (tables::events(&source.events(scope).await, now), format!("no Event{place_of} is about claims"))
        }
        Command::Drain { node, .. } => {
            let table = drained(&source, &place, &node).await?;
            (table, format!("no Pod on node {node} uses claims"))
        }
        Command::Reclaim { idle_for, .. } => {
            let table = tables::zombies(&source.consumers(scope).await, now, idle_for);
            let code = if table.items.is_empty() { 0 } else { BLOCKED };
            screen.table(&table, &format!("no claim{place_of} holds devices for nothing"))?;
            return answered(&table, code);
        }
    };
    screen.table(&table, &nothing)?;
    answered(&table, 0)
}

/// The exit code of an answer.
fn code_of(answer: &Answer) -> ExitCode {
    ExitCode::from(match (answer.is_missing, answer.verdict.blocked) {
        (true, _) => MISSING,
        (false, true) => BLOCKED,
        (false, false) => 0,
    })
}

/// # Errors
/// The node does not exist. A dump may have no nodes at all.
async fn drained(source: &Source, place: &Place, node: &str) -> anyhow::Result<Table> {
    let facts = source.drain(node).await;
    let table = tables::drained(&facts, node);
    let is_known = (place.files.is_empty() || !facts.nodes.is_empty()) && !facts.lacks("nodes");
    let is_there = facts.nodes.contains_key(node) || !table.items.is_empty();
    ensure!(is_there || !is_known, "node {node} does not exist");
    Ok(table)
}

/// A table of which a part could not be read, and that has nothing, is no answer.
fn answered(table: &Table, code: u8) -> anyhow::Result<ExitCode> {
    ensure!(!table.items.is_empty() || table.lacks.is_empty(), "no answer without them");
    Ok(ExitCode::from(code))
}

async fn explained(
    source: &Source,
    what: &Explained,
    namespace: &str,
    now: Timestamp,
) -> anyhow::Result<Answer> {
    match what {
        Explained::Pod { name } => {
            Ok(explain::pod::explain(source.pod(namespace, name).await?, namespace, name, now))
        }
        Explained::Claim { name } => {
            Ok(explain::claim::explain(source.claim(namespace, name).await?, namespace, name, now))
        }
        Explained::Template { name } => {
            Ok(explain::template::explain(&source.template(namespace, name).await?, namespace, name, now))
        }
        Explained::Device { name } => explain::device::explain(source.device(name).await, name, now),
        Explained::Node { name } => Ok(explain::node::explain(&source.node(name).await, name, now)),
    }
}

/// Where objects come from.
pub(crate) enum Source {
    /// A cluster.
    Cluster(Client),
    /// Files, which have everything at once.
    Files(Vec<(PathBuf, String)>),
}

impl Source {
    async fn of(place: &Place) -> anyhow::Result<Self> {
        if place.files.is_empty() {
            return Ok(Self::Cluster(
                Client::connect(place.kubeconfig.as_deref(), place.context.as_deref()).await?,
            ));
        }
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Ok((path.clone(), text))
        };
        let texts = place.files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        let source = Self::Files(texts);
        source.facts()?;
        Ok(source)
    }

    fn namespace(&self, place: &Place) -> String {
        place.namespace.clone().unwrap_or_else(|| match self {
            Self::Cluster(client) => client.namespace.clone(),
            Self::Files(_) => "default".to_owned(),
        })
    }

    /// The objects of the files; none of a cluster.
    fn facts(&self) -> anyhow::Result<Facts> {
        let mut facts = Facts::default();
        if let Self::Files(texts) = self {
            for (file, text) in texts {
                facts.take_file(file, text)?;
            }
            facts.ensure_any()?;
        }
        Ok(facts)
    }
}

/// A question to a cluster, or the objects of the files.
macro_rules! ask {
    ($name:ident($($argument:ident: $type:ty),*) -> Facts) => {
        impl Source {
            pub(crate) async fn $name(&self, $($argument: $type),*) -> Facts {
                match self {
                    Self::Cluster(client) => load::$name(client, $($argument),*).await,
                    // They were read once before.
                    Self::Files(_) => self.facts().unwrap_or_default(),
                }
            }
        }
    };
    ($name:ident($($argument:ident: $type:ty),*) -> Result) => {
        impl Source {
            async fn $name(&self, $($argument: $type),*) -> anyhow::Result<Facts> {
                match self {
                    Self::Cluster(client) => load::$name(client, $($argument),*).await,
                    Self::Files(_) => self.facts(),
                }
            }
        }
    };
}

ask!(pod(namespace: &str, name: &str) -> Result);
ask!(template(namespace: &str, name: &str) -> Result);
ask!(devices() -> Facts);
ask!(node(node: &str) -> Facts);
ask!(device(wanted: &str) -> Facts);
ask!(classes() -> Facts);
ask!(drain(node: &str) -> Facts);

/// A question about the objects of one namespace, or of all.
macro_rules! ask_within {
    ($name:ident) => {
        impl Source {
            pub(crate) async fn $name(&self, namespace: Option<&str>) -> Facts {
                match self {
                    Self::Cluster(client) => load::$name(client, namespace).await,
                    Self::Files(_) => self.facts_within(namespace),
                }
            }
        }
    };
}

ask_within!(claims);
ask_within!(waiting);
ask_within!(events);

impl Source {
    async fn claim(&self, namespace: &str, name: &str) -> anyhow::Result<Facts> {
        let Self::Cluster(client) = self else {
            let mut facts = self.facts()?;
            facts.expect_pods(Some(&(namespace.to_owned(), name.to_owned())));
            return Ok(facts);
        };
        load::claim(client, namespace, name).await
    }

    /// Claims and their consumers, of one namespace or of all.
    async fn consumers(&self, namespace: Option<&str>) -> Facts {
        let Self::Cluster(client) = self else {
            let mut facts = self.facts_within(namespace);
            facts.expect_pods(None);
            return facts;
        };
        load::consumers(client, namespace).await
    }

    /// The objects of the files that are in one namespace, or in any.
    fn facts_within(&self, namespace: Option<&str>) -> Facts {
        // They were read once before.
        let mut facts = self.facts().unwrap_or_default();
        namespace.into_iter().for_each(|namespace| facts.confine(namespace));
        facts
    }
}
