//! Seeded runs of the production controller on simcluster, with faults and in virtual time. Every step is
//! judged.

mod actor;
mod case;
mod gated;
mod instance;
mod invariants;
mod run;
mod workload;

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{bail, ensure};

use self::case::{Case, Play};
use self::workload::Action;

/// Totals over several runs.
#[derive(Default)]
struct Sum {
    struck: usize,
    lasted: u64,
    requests: usize,
    succeeded: usize,
}

/// The number of runs between two lines of progress.
const TELL_EVERY: u64 = 10_000;

/// Runs the life of claims: `runs` seeds from `first` on, on all cores. Each of the first `twice` seeds
/// runs twice and must give the same history, to the byte.
pub(crate) fn run(first: u64, runs: u64, twice: u64) -> anyhow::Result<()> {
    all::<Action>("soak", first, runs, twice)
}

/// The same of gated Pods, with the operator and the allocator.
pub(crate) fn run_gated(first: u64, runs: u64, twice: u64) -> anyhow::Result<()> {
    all::<gated::Action>("soak of gates", first, runs, twice)
}

fn all<A: Play>(name: &str, first: u64, runs: u64, twice: u64) -> anyhow::Result<()> {
    let started = Instant::now();
    case::notice_panics();
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let work = || -> anyhow::Result<Sum> {
        let mut sum = Sum::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + runs || stop.load(Ordering::Relaxed) {
                return Ok(sum);
            }
            if let Err(why) = one::<A>(seed, seed - first < twice, &mut sum) {
                // The first failure stops the other workers. Further failures are dropped.
                return if stop.swap(true, Ordering::Relaxed) { Ok(sum) } else { Err(why) };
            }
            let done = seed - first + 1;
            if done.is_multiple_of(TELL_EVERY) && done < runs {
                println!("        {done} runs in {:.0} s", started.elapsed().as_secs_f32());
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let sums: Vec<anyhow::Result<Sum>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| match worker.join() {
            Ok(sum) => sum,
            Err(_) => bail!("a thread failed"),
        });
        ended.collect()
    });
    let mut all = Sum::default();
    for sum in sums {
        let Sum { struck, lasted, requests, succeeded } = sum?;
        all.struck += struck;
        all.lasted += lasted;
        all.requests += requests;
        all.succeeded += succeeded;
    }
    let Sum { struck, lasted, requests, succeeded } = all;
    // Runs in which no Pod succeeds prove nothing. The limit is low, because many scripts stop their Pods.
    ensure!(succeeded as u64 >= runs / 2, "only {succeeded} Pods with claims have succeeded in {runs} runs");
    println!(
        "ok      {name}: {runs} runs from seed {first} in {:.0} s: {succeeded} Pods with claims succeeded, {struck} faults, {requests} requests, {} hours; {} the same twice",
        started.elapsed().as_secs_f32(),
        lasted / 3600,
        twice.min(runs),
    );
    Ok(())
}

fn one<A: Play>(seed: u64, twice: bool, sum: &mut Sum) -> anyhow::Result<()> {
    let case = A::draw(seed);
    let outcome = case.run()?;
    if let Some(why) = &outcome.broken {
        return Err(failure(&case, why)?);
    }
    if twice {
        let again = case.run()?;
        let differs = outcome.history.iter().zip(&again.history).find(|(one, other)| one != other);
        ensure!(
            outcome.history == again.history,
            "seed {seed} is not the same twice: {} and {} requests, first {differs:?}",
            outcome.history.len(),
            again.history.len()
        );
    }
    sum.struck += outcome.struck;
    sum.succeeded += outcome.succeeded;
    sum.lasted += outcome.lasted;
    sum.requests += outcome.history.len();
    Ok(())
}

/// Shrinks a failed case and describes it.
fn failure<A: Play>(case: &Case<A>, why: &str) -> anyhow::Result<anyhow::Error> {
    let kind = why.split(':').next().unwrap_or_default();
    println!("seed {} fails: {why}; it is made smaller", case.seed);
    let small = case.shrunk(kind)?;
    let outcome = small.run()?;
    let why = outcome.broken.unwrap_or_default();
    let script: Vec<String> =
        small.script.iter().map(|(when, action)| format!("  {when:?} {action:?}")).collect();
    Ok(anyhow::anyhow!(
        "seed {}: {why}\nfaults: {:?}\nscript:\n{}\nhistory:\n  {}",
        small.seed,
        small.schedule,
        script.join("\n"),
        outcome.history.join("\n  ")
    ))
}
