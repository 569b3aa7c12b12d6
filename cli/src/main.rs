//! `kubectl dra`: why a Pod waits, and what holds a device. Works without Dragoman in the cluster, and only reads.

mod arguments;
mod check;
mod client;
mod complete;
mod ledger;
mod load;
mod print;
mod source;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use dragoman_report::explain::{self, Answer};
use dragoman_report::lists::{self, Table};
use dragoman_report::readiness::readiness;
use dragoman_report::{html, schema, why};
use jiff::Timestamp;

use crate::arguments::{Arguments, Command, Completion, Explained, Place};
use crate::print::{Output, Screen, print};
use crate::source::Source;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    Some(print(&complete::candidates::<Arguments>(&words).await))
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { command, place } = arguments;
    // A report has one format.
    let is_report = matches!(command, Command::Report) && place.output.is_none();
    let screen = Screen::new(if is_report { Some(Output::Html) } else { place.output });
    match command {
        Command::Completion { shell: Completion::Install } => {
            return print(&complete::install()?).map(|()| ExitCode::SUCCESS);
        }
        Command::Completion { shell } => {
            return print(&complete::script::<Arguments>(shell)).map(|()| ExitCode::SUCCESS);
        }
        Command::Schema => {
            let schema = serde_json::to_string_pretty(&schema())? + "\n";
            return print(&schema).map(|()| ExitCode::SUCCESS);
        }
        _ => {}
    }
    // Before a cluster is asked: this is a wrong flag.
    let explained = match &command {
        Command::Explain { object } => Some(
            Explained::parse(object)
                .unwrap_or_else(|why| Arguments::command().error(ErrorKind::InvalidValue, why).exit()),
        ),
        _ => None,
    };
    if screen.is_html() != matches!(command, Command::Report) {
        let why = "html is the format of `kubectl dra report`, and of nothing else";
        Arguments::command().error(ErrorKind::ArgumentConflict, why).exit();
    }
    let source = Source::of(&place).await?;
    match explained {
        Some((kind, name)) => {
            let answer = explain(&source, &place, kind, &name, Timestamp::now()).await?;
            screen.answer(&answer)?;
            Ok(code_of(&answer))
        }
        None => listed(&source, &place, command, &screen).await,
    }
}

/// Answers the commands that are about many objects.
async fn listed(
    source: &Source,
    place: &Place,
    command: Command,
    screen: &Screen,
) -> anyhow::Result<ExitCode> {
    let now = Timestamp::now();
    let namespace = source.namespace(place);
    // Files have what was asked for when they were printed: all of it counts unless a namespace is given.
    let is_confined = !place.all_namespaces && (place.files.is_empty() || place.namespace.is_some());
    let scope = is_confined.then_some(namespace.as_str());
    let place_of = place_of(scope);
    let (table, nothing) = match command {
        Command::Claims => {
            (lists::claims(&source.claims(scope).await, now), format!("there are no claims{place_of}"))
        }
        Command::Devices => (lists::devices(&source.devices().await), "there are no devices".to_owned()),
        Command::Pools { by_class: false } => {
            (lists::pools(&source.devices().await), "there are no pools".to_owned())
        }
        Command::Pools { by_class: true } => {
            (lists::classes(&source.classes().await), "there are no classes".to_owned())
        }
        Command::Events => {
            (lists::events(&source.events(scope).await, now), format!("no Event{place_of} is about claims"))
        }
        Command::Drain { node, .. } => {
            let table = drained(source, place, &node).await?;
            (table, format!("no Pod on node {node} uses claims"))
        }
        Command::Reclaim { idle_for, .. } => {
            let table = lists::zombies(&source.consumers(scope).await, now, idle_for);
            let code = if table.rows.is_empty() { 0 } else { BLOCKED };
            screen.table(&table, &format!("no claim{place_of} holds devices for nothing"))?;
            return answered(&table, code);
        }
        other => return whole(source, place, other, screen, scope).await,
    };
    screen.table(&table, &nothing)?;
    answered(&table, 0)
}

/// Answers the commands that look at the cluster, or at what is taken from its nodes, as a whole.
async fn whole(
    source: &Source,
    place: &Place,
    command: Command,
    screen: &Screen,
    scope: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let now = Timestamp::now();
    match command {
        Command::Why => {
            let why = why::why(source.why(scope).await, scope, now);
            screen.why(&why, &place_of(scope))?;
            ensure!(why.is_known(), "no answer without them");
            Ok(ExitCode::from(if why.groups.is_empty() { 0 } else { BLOCKED }))
        }
        Command::Report => {
            let facts = source.report(scope).await;
            ensure!(!facts.lacks("resourceslices") || !facts.lacks("pods"), "{}", facts.partial().join("; "));
            print(&html(facts, scope, now))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Check => {
            let Source::Cluster(client) = source else { bail!("check asks a cluster, and no files") };
            let readiness = readiness(&check::check(client, now).await);
            screen.readiness(&readiness)?;
            Ok(ExitCode::from(if readiness.is_blocked() { BLOCKED } else { 0 }))
        }
        Command::Top { interval, once } => {
            let is_read = top::run(source, scope, screen, interval, once).await?;
            ensure!(is_read, "nothing could be read");
            Ok(ExitCode::SUCCESS)
        }
        Command::Ledger { nodes, overcommitted, pod, in_tree } => {
            let namespace = source.namespace(place);
            let pods = pod.iter().map(|name| format!("{namespace}/{name}")).collect();
            let report = ledger::report(source, nodes, pods, overcommitted, in_tree).await?;
            screen.report(&report)?;
            ensure!(report.missed().is_empty(), "{}", report.missed().join("; "));
            Ok(ExitCode::from(if report.is_clear() { 0 } else { BLOCKED }))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The namespace in words.
fn place_of(scope: Option<&str>) -> String {
    scope.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"))
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
    let table = lists::drained(&facts, node);
    let is_known = (place.files.is_empty() || !facts.nodes.is_empty()) && !facts.lacks("nodes");
    let is_there = facts.nodes.contains_key(node) || !table.rows.is_empty();
    ensure!(is_there || !is_known, "node {node} does not exist");
    Ok(table)
}

/// A table of which a part could not be read, and that has nothing, is no answer.
fn answered(table: &Table, code: u8) -> anyhow::Result<ExitCode> {
    ensure!(!table.rows.is_empty() || table.is_complete, "no answer without them");
    Ok(ExitCode::from(code))
}

async fn explain(
    source: &Source,
    place: &Place,
    kind: Explained,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Answer> {
    let namespace = source.namespace_of(place, kind, name)?;
    let namespace = namespace.as_str();
    match kind {
        Explained::Pod => Ok(explain::pod::explain(source.pod(namespace, name).await?, namespace, name, now)),
        Explained::Claim => {
            Ok(explain::claim::explain(source.claim(namespace, name).await?, namespace, name, now))
        }
        Explained::Template => {
            Ok(explain::template::explain(&source.template(namespace, name).await?, namespace, name, now))
        }
        Explained::Device => explain::device::explain(source.device(name).await, name, now),
        Explained::Node => Ok(explain::node::explain(&source.node(name).await, name, now)),
    }
}
