//! Arithmetic of the times that stand in objects. A clock may be set back, and an author may have made a time up.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Returns the time from `since` to `now`; none where `since` is still to come: it is of another clock, or made up.
pub fn passed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
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
}
