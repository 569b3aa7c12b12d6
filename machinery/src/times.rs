//! Arithmetic of times. Those that stand in objects are of a clock that may be set back, or an author has made them up; the instants of
//! this process are not.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Returns the time from `since` to `now`; none where `since` is still to come: it is of another clock, or made up.
pub fn passed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Returns the time that is left at `now` until `then`, if there is any.
pub fn left(then: Instant, now: Instant) -> Option<Duration> {
    let left = then.saturating_duration_since(now);
    (!left.is_zero()).then_some(left)
}

/// Returns the time that is so much after `since`, or the last one that there is.
pub fn after(since: Timestamp, passed: Duration) -> Timestamp {
    let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
    since.checked_add(passed).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_have_an_end() {
        let at = |text: &str| text.parse::<Timestamp>().expect("time");
        let (early, late) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:01.5Z"));
        assert_eq!(passed(early, late), Duration::from_millis(1_500));
        assert_eq!(passed(late, early), Duration::ZERO);
        assert_eq!(after(early, Duration::from_millis(1_500)), late);
        assert_eq!(after(early, Duration::MAX), Timestamp::MAX);
    }

    #[tokio::test]
    async fn nothing_is_left_at_the_end() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(left(now + second, now), Some(second));
        assert_eq!((left(now, now), left(now, now + second)), (None, None));
    }
}
