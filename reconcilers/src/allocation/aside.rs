//! Searches that take longer than other Pods, watches, Lease and probes may wait: they run on another thread, without a lock,
//! on the snapshot that they began with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dragoman_allocator::{Alignment, Options, Outcome, Paused};
use dragoman_objects::Name;

use super::reasons::Why;

/// The work between two looks at the clock, in examined devices: some milliseconds.
const STEP: u64 = 2_000;
/// The work after which a node is given up, in examined devices: some tenths of a second.
const MOST_WORK: u64 = 200_000;
/// Time by which a search may exceed its limit before it is interrupted, where the evaluation of one device
/// takes that long.
const OVER: Duration = Duration::from_secs(2);

/// A search for devices on a node that has to go on aside.
#[derive(Debug)]
pub(super) struct Long {
    pub(super) node: Name,
    /// The change of the index at which it began.
    pub(super) at: u64,
    pub(super) paused: Paused,
    /// Whether devices that are close to each other are preferred.
    pub(super) align: Alignment,
    /// Why the node has refused the devices that were found so far.
    pub(super) refused: Option<Why>,
}

/// The search, as far as it has come.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) node: Name,
    pub(super) at: u64,
    pub(super) outcome: Outcome,
    pub(super) refused: Option<Why>,
    /// Duration of the search.
    pub(super) took: Duration,
}

impl Long {
    /// Goes on for so long at most.
    pub(super) async fn run(self, limit: Duration) -> Ended {
        let Self { node, at, paused, align, refused } = self;
        let began = Instant::now();
        let flag = Arc::new(AtomicBool::new(false));
        let interrupt = Arc::clone(&flag);
        let mut search = tokio::task::spawn_blocking(move || searched(paused, align, limit, &interrupt));
        let outcome = if let Ok(outcome) = tokio::time::timeout(limit + OVER, &mut search).await {
            outcome
        } else {
            flag.store(true, Ordering::Relaxed);
            search.await
        };
        // Without an outcome the process is ending.
        let outcome = outcome.unwrap_or(Outcome::Cancelled);
        Ended { node, at, outcome, refused, took: began.elapsed() }
    }
}

fn searched(paused: Paused, align: Alignment, limit: Duration, interrupt: &Arc<AtomicBool>) -> Outcome {
    let began = Instant::now();
    let mut outcome = Outcome::BudgetSpent(paused);
    loop {
        outcome = match outcome {
            Outcome::BudgetSpent(paused) if began.elapsed() < limit && paused.work() < MOST_WORK => paused
                .resume(Options {
                    budget: Some(STEP),
                    interrupt: Some(interrupt),
                    align,
                    ..Options::default()
                }),
            outcome => return outcome,
        };
    }
}

impl Ended {
    /// Whether the search stopped for want of time, and what it has evaluated is remembered: the next one on this node comes
    /// further.
    pub(super) fn comes_further(&self) -> bool {
        match &self.outcome {
            Outcome::BudgetSpent(paused) => paused.evaluated() > 0,
            Outcome::Cancelled => true,
            _ => false,
        }
    }
}
