//! Scenarios of a cluster with Dragoman, one function each.

pub(crate) mod accounts;
pub mod built_in;
mod crash;
mod faults;
mod fields;
pub mod gates;
mod groups;
mod kinds;
mod ledger;
mod lives;
mod node;
mod packages;
pub mod parameters;
mod pod_resources;
mod pod_status;
mod reclaim;
mod releases;
mod rights;
mod scheduling;
mod seen;
mod sharing;
mod shipped;
mod takeover;
mod telemetry;
mod tenants;
mod trouble;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Instant;

use anyhow::ensure;
use futures::StreamExt as _;

use crate::control_plane::{Backend, Release, Shape};
use crate::dragoman::Dragoman;
use crate::node as machine;
use crate::wait;
use crate::world::{self, Bench, World};

type Outcome<'a, T = ()> = Pin<Box<dyn Future<Output = anyhow::Result<T>> + 'a>>;

/// A scenario in a cluster in which `dragoman run --mode own` runs.
struct Scenario {
    name: &'static str,
    /// Whether the scenario needs an API that an emulated older version does not serve.
    newest_only: bool,
    /// Judges what this release alone does.
    release: Option<Release>,
    run: for<'a> fn(&'a World, &'a Dragoman) -> Outcome<'a>,
}

/// A scenario from the function of the same name.
macro_rules! scenario {
    ($function:ident) => {
        $crate::scenarios::Scenario {
            name: stringify!($function),
            newest_only: false,
            release: None,
            run: |world, dragoman| Box::pin($function(world, dragoman)),
        }
    };
}
use scenario;

/// A lane that repeats one scenario: its name, the unit of its count, and the function that runs it.
type Counted = (&'static str, &'static str, for<'a> fn(&'a Bench) -> Outcome<'a, usize>);

/// A scenario that starts a cluster of its own.
struct Standalone {
    name: &'static str,
    run: for<'a> fn(&'a Bench) -> Outcome<'a>,
}

/// The reason why a scenario cannot run on this machine. The scenario counts as skipped, never as passed.
#[derive(Debug)]
struct NotRun(String);

impl std::fmt::Display for NotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotRun {}

/// A scenario from the function of the same name.
macro_rules! standalone {
    ($function:ident) => {
        $crate::scenarios::Standalone { name: stringify!($function), run: |bench| Box::pin($function(bench)) }
    };
}
use standalone;

/// A control plane and the scenarios that run on it side by side.
struct Lane {
    name: &'static str,
    shape: Shape,
    flags: &'static [&'static str],
    scenarios: Vec<Scenario>,
}

/// The ledgers of all nodes are published beside the life of claims.
const LEDGERS: &[&str] = &["--ledger-nodes", "all"];

fn lanes() -> Vec<Lane> {
    let ordinary = || -> Vec<Scenario> {
        [
            lives::all(),
            sharing::all(),
            parameters::all(),
            trouble::all(),
            tenants::all(),
            kinds::all(),
            fields::all(),
            pod_resources::all(),
        ]
        .into_iter()
        .flatten()
        .collect()
    };
    let of_groups = || [groups::all(), fields::of_groups()].into_iter().flatten().collect();
    // The newest release has its lane of kubectl apart: on simcluster the others need no program of Kubernetes.
    let with_kubectl = || ordinary().into_iter().chain(kinds::by_kubectl()).collect();
    let shape = Shape::default;
    let before = || Shape { release: Release::V1_36, ..Shape::default() };
    vec![
        Lane { name: "1.37", shape: shape(), flags: LEDGERS, scenarios: ordinary() },
        Lane { name: "kubectl", shape: shape(), flags: LEDGERS, scenarios: kinds::by_kubectl() },
        Lane {
            name: "1.37-groups",
            shape: Shape { pod_groups: true, ..shape() },
            flags: &[],
            scenarios: of_groups(),
        },
        Lane { name: "1.36", shape: before(), flags: LEDGERS, scenarios: with_kubectl() },
        Lane {
            name: "1.36-groups",
            shape: Shape { pod_groups: true, ..before() },
            flags: &[],
            scenarios: of_groups(),
        },
        Lane {
            name: "1.35",
            shape: Shape { emulated: Some("1.35"), ..before() },
            flags: LEDGERS,
            scenarios: with_kubectl(),
        },
        Lane {
            name: "1.34",
            shape: Shape { emulated: Some("1.34"), ..before() },
            flags: LEDGERS,
            scenarios: with_kubectl(),
        },
    ]
}

/// Scenarios with a cluster of their own that run at once.
const SINGLE_AT_ONCE: usize = 5;

/// Scenarios of one lane that run at once; each has a namespace of its own.
const AT_ONCE: usize = 6;

/// A namespace whose Pods with claims get the gate.
pub async fn gated_namespace(world: &World, name: &str) -> anyhow::Result<String> {
    gates::namespace(world, name, "enabled").await
}

/// Runs every scenario and lane whose name contains one of `filters`, or all of them without filters.
pub async fn run(bench: &Bench, filters: &[String]) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    for lane in lanes() {
        lane.run(bench, filters, &mut tally).await?;
    }
    // Most of their time is waiting: for a Lease to end, for a watch to time out.
    let single = single(bench).into_iter().filter(|single| is_chosen(&single.name, filters));
    let each = single.map(|Single { name, run }| async move {
        let started = Instant::now();
        let (outcome, logs) = world::logs_of(run).await;
        reported(bench, &name, started, &logs, outcome)
    });
    let mut outcomes = futures::stream::iter(each).buffer_unordered(SINGLE_AT_ONCE);
    while let Some(outcome) = outcomes.next().await {
        tally.take(outcome);
    }
    tally.verdict()
}

/// Runs the scenarios of a real node one after the other, each on a machine of its own. Filters are those of [`run`].
pub async fn on_node(bench: &Bench, filters: &[String]) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    let is_inside = machine::is_inside();
    let chosen =
        node::all().into_iter().map(|(lane, scenario)| (format!("{lane}/{}", scenario.name), scenario));
    let mut chosen = chosen.filter(|(name, _)| is_chosen(name, filters)).peekable();
    if !is_inside && chosen.peek().is_some() {
        machine::provide(bench).await?;
    }
    for (name, Standalone { run, .. }) in chosen {
        let started = Instant::now();
        // What is printed inside is the report.
        tally.count(if is_inside {
            let (outcome, logs) = world::logs_of(run(bench)).await;
            report(bench, &name, started, &logs, outcome)
        } else {
            machine::enter(bench, &name).await.map_err(|_| name)
        });
    }
    if is_inside { tally.inside() } else { tally.verdict() }
}

/// Whether a name contains one of the filters; `LANE/PART` is contained where the lane and the name behind it contain
/// the two.
fn is_chosen(name: &str, filters: &[String]) -> bool {
    let is_in = |filter: &String| match (filter.split_once('/'), name.split_once('/')) {
        (Some((lane, part)), Some((of, rest))) => of.contains(lane) && rest.contains(part),
        _ => name.contains(filter),
    };
    filters.is_empty() || filters.iter().any(is_in)
}

/// The outcomes of the scenarios.
#[derive(Default)]
struct Tally {
    passed: usize,
    /// The names of the scenarios that failed.
    failed: Vec<String>,
    not_run: usize,
}

impl Tally {
    /// Counts an outcome of [`report`].
    fn count(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(name) => self.failed.push(name),
        }
    }

    /// Counts an outcome of [`reported`].
    fn take(&mut self, outcome: Option<Result<(), String>>) {
        match outcome {
            Some(outcome) => self.count(outcome),
            None => self.not_run += 1,
        }
    }

    /// The verdict of one scenario, which has been reported.
    fn inside(&self) -> anyhow::Result<()> {
        ensure!(self.passed == 1 && self.failed.is_empty(), "{}", self.failed.join(", "));
        Ok(())
    }

    /// Prints the counts.
    ///
    /// # Errors
    /// A scenario failed, or the filters choose no scenario.
    fn verdict(&self) -> anyhow::Result<()> {
        let Self { passed, failed, not_run } = self;
        let longest = wait::longest().as_secs();
        println!("        the longest wait took {longest} s of {}", wait::patience().as_secs());
        println!("{passed} passed, {} failed, {not_run} skipped", failed.len());
        ensure!(passed + failed.len() > 0, "no scenario matches");
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }
}

/// Reports an outcome, or why a scenario cannot run here (`None`).
fn reported(
    bench: &Bench,
    name: &str,
    started: Instant,
    logs: &[PathBuf],
    outcome: anyhow::Result<()>,
) -> Option<Result<(), String>> {
    if let Some(why) = outcome.as_ref().err().and_then(|error| error.downcast_ref::<NotRun>()) {
        println!("not run {name}: {why}");
        return None;
    }
    Some(report(bench, name, started, logs, outcome))
}

impl Lane {
    /// Runs the chosen scenarios. A lane without any starts no control plane.
    ///
    /// # Errors
    /// The control plane or Dragoman does not start or stop.
    async fn run(&self, bench: &Bench, filters: &[String], tally: &mut Tally) -> anyhow::Result<()> {
        let wanted =
            self.scenarios.iter().filter(|s| is_chosen(&format!("{}/{}", self.name, s.name), filters));
        let (lacking, chosen): (Vec<_>, Vec<_>) = wanted.partition(|scenario| self.lacks(scenario));
        for scenario in lacking {
            println!("not run {}/{}: it is about another version", self.name, scenario.name);
            tally.not_run += 1;
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let world = World::start(bench, self.name, self.shape.clone(), 4, 32).await?;
        let dragoman = world.dragoman("own", self.flags).await?;
        let each = chosen.into_iter().map(|scenario| async {
            let started = Instant::now();
            let outcome = (scenario.run)(&world, &dragoman).await;
            let name = format!("{}/{}", self.name, scenario.name);
            reported(bench, &name, started, std::slice::from_ref(&world.directory), outcome)
        });
        let mut outcomes = futures::stream::iter(each).buffer_unordered(AT_ONCE);
        while let Some(outcome) = outcomes.next().await {
            tally.take(outcome);
        }
        drop(outcomes);
        dragoman.stop().await?;
        world.stop().await
    }

    /// Whether the control plane is not of the version that a scenario is about.
    fn lacks(&self, scenario: &Scenario) -> bool {
        (scenario.newest_only && self.shape.emulated.is_some())
            || scenario.release.is_some_and(|release| release != self.shape.release)
    }
}

/// A scenario, or a lane that repeats one, with a cluster of its own.
struct Single<'a> {
    name: String,
    run: Outcome<'a>,
}

/// The scenarios and lanes with a cluster of their own, the longest first.
fn single(bench: &Bench) -> Vec<Single<'_>> {
    let counted: [Counted; 3] = [
        ("differential", "objects with the same history", |bench| Box::pin(crate::differential::run(bench))),
        ("crash", "lives interrupted", |bench| Box::pin(crash::run(bench))),
        ("rights", "rights, each needed", |bench| Box::pin(rights::run(bench))),
    ];
    let counted = counted.into_iter().map(|(name, what, run)| Single {
        name: name.to_owned(),
        run: Box::pin(async move {
            let count = run(bench).await?;
            println!("        {count} {what}");
            Ok(())
        }),
    });
    // Those apart need the shipped binary, or the release before. Races take minutes.
    let alone = [
        faults::all(),
        takeover::all(),
        reclaim::all(),
        trouble::alone(),
        telemetry::alone(),
        ledger::alone(),
        tenants::alone(),
        kinds::alone(),
        pod_status::alone(),
        scheduling::alone(),
        releases::alone(),
        gates::alone(),
        parameters::alone(),
    ];
    let lane = |scenario: Standalone| match scenario.name {
        name if name.ends_with("_in_1_36") => ("apart", scenario),
        name if name.ends_with("_a_thousand_times") => ("races", scenario),
        _ => ("alone", scenario),
    };
    let alone = alone.into_iter().flatten().map(lane);
    let apart = [shipped::alone(), accounts::alone()].into_iter().flatten();
    let manifests = packages::manifests().into_iter().map(|scenario| ("manifests", scenario));
    let lives = packages::lives().into_iter().map(|scenario| ("packages", scenario));
    let seen = seen::all().into_iter().map(|scenario| ("seen", scenario));
    let standalone =
        seen.chain(alone).chain(apart.map(|scenario| ("apart", scenario))).chain(manifests).chain(lives);
    let standalone = standalone
        .map(|(lane, Standalone { name, run })| Single { name: format!("{lane}/{name}"), run: run(bench) });
    counted.chain(standalone).collect()
}

/// The characters of a reason that a report shows.
const MOST_SHOWN: usize = 4000;

/// Prints the outcome of a scenario: of one that failed what was expected and seen, where the logs are, and the command
/// that runs it alone. `Err` holds the name of a scenario that failed.
fn report(
    bench: &Bench,
    name: &str,
    started: Instant,
    logs: &[PathBuf],
    outcome: anyhow::Result<()>,
) -> Result<(), String> {
    let took = started.elapsed().as_secs_f32();
    let Err(error) = outcome else {
        println!("ok      {name} ({took:.1} s)");
        return Ok(());
    };
    // An object in a report may be long.
    let reason: String = format!("{error:#}").chars().take(MOST_SHOWN).collect();
    let logs: Vec<String> = logs.iter().map(|directory| directory.display().to_string()).collect();
    let on = if bench.backend == Backend::Sim { " --sim" } else { "" };
    println!(
        "FAILED  {name} ({took:.1} s)\n        {reason}\n        logs: {}\n        alone: cargo xtask e2e {name}{on}",
        logs.join(", ")
    );
    Err(name.to_owned())
}
