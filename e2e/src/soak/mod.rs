//! The laboratory for faults: thousands of seeded runs of the production controller on simcluster,
//! hours of virtual time in seconds, every step judged.

mod instance;
mod invariants;
mod run;
mod workload;

use std::time::Instant;

use anyhow::ensure;

use self::run::Case;

/// Runs `runs` seeds from `first` on; of the first `twice` each is run twice and has to be the
/// same, to the byte.
pub(crate) fn run(first: u64, runs: u64, twice: u64) -> anyhow::Result<()> {
    let started = Instant::now();
    run::notice_panics();
    let (mut struck, mut lasted, mut requests, mut succeeded) = (0, 0, 0, 0);
    for seed in first..first + runs {
        let case = Case::of(seed);
        let outcome = case.run()?;
        if let Some(why) = &outcome.broken {
            return Err(failure(&case, why)?);
        }
        if seed - first < twice {
            let again = case.run()?;
            let differs = outcome.history.iter().zip(&again.history).find(|(one, other)| one != other);
            ensure!(
                outcome.history == again.history,
                "seed {seed} is not the same twice: {} and {} requests, first {differs:?}",
                outcome.history.len(),
                again.history.len()
            );
        }
        struck += outcome.struck;
        succeeded += outcome.succeeded;
        lasted += outcome.lasted;
        requests += outcome.history.len();
    }
    // Runs in which nothing happens prove nothing.
    ensure!(succeeded as u64 >= runs, "only {succeeded} Pods with claims have succeeded in {runs} runs");
    println!(
        "ok      soak: {runs} runs from seed {first} in {:.0} s: {succeeded} Pods with claims succeeded, {struck} faults, {requests} requests, {} hours; {} the same twice",
        started.elapsed().as_secs_f32(),
        lasted / 3600,
        twice.min(runs),
    );
    Ok(())
}

/// The shortest history that still fails.
fn failure(case: &Case, why: &str) -> anyhow::Result<anyhow::Error> {
    let kind = why.split(':').next().unwrap_or_default();
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
