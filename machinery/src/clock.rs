//! The wall clock. Times that stand in objects are [`Timestamp`]s; what a process measures and remembers of its own is an
//! [`Instant`], which no change of the wall clock moves. A simulation that winds the runtime's clock forward binds the
//! wall clock to it, so that what is written into objects is the same each time.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

thread_local! {
    static BOUND: Cell<Option<(Instant, Timestamp)>> = const { Cell::new(None) };
}

/// Now: by this machine, or by the runtime's clock where this thread's clock is bound to it.
pub fn now() -> Timestamp {
    let Some((began, at)) = BOUND.get() else { return Timestamp::now() };
    let passed = SignedDuration::try_from(began.elapsed()).unwrap_or_default();
    at.checked_add(passed).unwrap_or(at)
}

/// From now on the clock of this thread reads `at`, and goes on as the runtime's does. For
/// simulations on one thread.
pub fn bind(at: Timestamp) {
    BOUND.set(Some((Instant::now(), at)));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bound_clock_goes_as_the_runtimes_does() {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().expect("time");
        bind(at);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(now().to_string(), "2026-01-01T01:00:00Z");
        BOUND.set(None);
        assert_ne!(now(), at);
    }
}
