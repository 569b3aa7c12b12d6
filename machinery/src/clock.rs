//! The wall clock, and one that is never set. A simulation that winds the runtime's clock forward binds both to it, so that
//! what is written into objects is the same each time.

use std::cell::Cell;
use std::sync::LazyLock;

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

/// Now, for what a process measures and remembers: it begins with the wall clock, and goes on by itself. A wall clock that is set
/// back would prolong each rest by that much. It is not for times that stand in objects.
pub fn steady() -> Timestamp {
    static BEGAN: LazyLock<(std::time::Instant, Timestamp)> =
        LazyLock::new(|| (std::time::Instant::now(), Timestamp::now()));
    if BOUND.get().is_some() {
        return now();
    }
    let (began, at) = *BEGAN;
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
        assert_eq!(steady(), now());
        BOUND.set(None);
        assert_ne!(now(), at);
    }

    #[test]
    fn the_steady_clock_goes_on_from_where_the_wall_clock_was() {
        let (before, first, second) = (steady(), now(), steady());
        assert!(
            before <= second && (second - first).total(jiff::Unit::Second).is_ok_and(|of| of.abs() < 60.0)
        );
    }
}
