//! A case: a script and faults from a seed, run in virtual time, and made smaller when it fails.

use std::cell::RefCell;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::Context as _;
use dragoman_simcluster::{Fault, FaultInjector, Schedule};
use fastrand::Rng;

/// The actions of a kind of runs.
pub(super) trait Play: Clone + Debug {
    /// Draws the case of a seed.
    fn draw(seed: u64) -> Case<Self>;

    /// Runs a case.
    fn play(case: &Case<Self>) -> impl Future<Output = Outcome>;
}

/// The script and the faults of a run.
#[derive(Debug, Clone)]
pub(super) struct Case<A> {
    pub(super) seed: u64,
    /// The actions, each with its time.
    pub(super) script: Vec<(Duration, A)>,
    pub(super) schedule: Schedule,
}

/// The result of a run.
pub(super) struct Outcome {
    pub(super) broken: Option<String>,
    /// The requests of the controller, one line each.
    pub(super) history: Vec<String>,
    pub(super) struck: usize,
    /// The number of Pods with claims that have succeeded.
    pub(super) succeeded: usize,
    /// The virtual time of the run, in seconds.
    pub(super) lasted: u64,
}

/// A fault strikes from a random request on, at most this one. Half of the faults are drawn up to `EARLY`
/// only, while watches are opened.
pub(super) const REQUESTS: u64 = 150;
const EARLY: u64 = 25;
/// The time from the end of the script until the cluster must be correct. It is longer than the longest
/// back-off plus the wait for the index to see a write, and shorter than the period of the level timer.
pub(super) const SOON: Duration = Duration::from_mins(6);
/// The time from the end of the script until the cluster must be at rest. The level timer fires several
/// times in it.
pub(super) const REST: Duration = Duration::from_mins(40);

/// The most requests of all runs that shrink a case: hundreds of short runs, or a few that do not end.
const MOST_SPENT: usize = 30_000;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records panics. In a release a panic ends the process; here it would end only a task.
pub(super) fn notice_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANIC.with_borrow_mut(|first| first.get_or_insert_with(|| panic.to_string()).truncate(500));
    }));
}

pub(super) fn endless(handle: &FaultInjector) -> Option<String> {
    handle.endless().map(|requests| format!("endless: {requests} requests"))
}

pub(super) fn panicked() -> Option<String> {
    PANIC.with_borrow(|panic| panic.as_ref().map(|panic| format!("panicked: {panic}")))
}

/// Draws at most this many faults, and when each strikes.
pub(super) fn faults(rng: &mut Rng, most: usize) -> Schedule {
    let faults = if most == 0 { 0 } else { rng.usize(..=most) };
    // Half of the runs prefer one or two kinds of faults, because some failures need several of a kind.
    let preferred = rng.bool().then(|| [Fault::any(rng), Fault::any(rng)]);
    let mut fault = || match preferred {
        Some([one, other]) if rng.u32(..4) > 0 => {
            if rng.bool() {
                one
            } else {
                other
            }
        }
        _ => Fault::any(rng),
    };
    let faults: Vec<Fault> = (0..faults).map(|_| fault()).collect();
    let mut from = || {
        let last = if rng.bool() { EARLY } else { REQUESTS };
        rng.u64(1..=last)
    };
    faults.into_iter().map(|fault| (from(), fault)).collect()
}

impl<A: Play> Case<A> {
    /// Runs the case in a runtime of its own, with paused time.
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.context("runtime")?;
        // Jitter and back-off draw from the random numbers of this thread.
        fastrand::seed(self.seed);
        PANIC.set(None);
        Ok(runtime.block_on(A::play(self)))
    }

    /// Removes faults and actions one by one, as long as the case fails with the same kind of failure.
    pub(super) fn shrunk(&self, kind: &str) -> anyhow::Result<Self> {
        let mut spent = 0;
        let mut fails = |case: &Self| -> anyhow::Result<bool> {
            if spent > MOST_SPENT {
                return Ok(false);
            }
            let outcome = case.run()?;
            spent += outcome.history.len();
            Ok(outcome.broken.is_some_and(|why| why.starts_with(kind)))
        };
        let mut case = self.clone();
        loop {
            let before = (case.schedule.len(), case.script.len());
            for number in case.schedule.keys().copied().collect::<Vec<_>>() {
                let mut without = case.clone();
                without.schedule.remove(&number);
                if fails(&without)? {
                    case = without;
                }
            }
            for place in (0..case.script.len()).rev() {
                let mut without = case.clone();
                without.script.remove(place);
                if fails(&without)? {
                    case = without;
                }
            }
            if before == (case.schedule.len(), case.script.len()) {
                return Ok(case);
            }
        }
    }
}
