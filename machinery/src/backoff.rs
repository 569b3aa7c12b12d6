//! Pauses that grow: each is twice as long as the one before, up to the longest.

use std::time::Duration;

/// The pauses between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// Returns the pause after one that has been doubled so many times: the first one after 0.
    pub fn pause(&self, doubled: u32) -> Duration {
        let factor = 1_u32.checked_shl(doubled).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Returns how often the first pause was doubled to become this one, rounded down. A pause that was cut at the longest counts as
    /// if it had not reached its next doubling.
    pub fn doubled(&self, pause: Duration) -> u32 {
        let first = self.first.as_millis().max(1);
        (pause.as_millis() / first).max(1).ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_the_longest() {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_mins(1));
        let pauses = [0, 1, 10, 11, 31, 32, u32::MAX].map(|doubled| backoff.pause(doubled).as_millis());
        assert_eq!(pauses, [50, 100, 51_200, 60_000, 60_000, 60_000, 60_000]);
        let longest = Backoff::new(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(longest.pause(0), Duration::from_secs(1));
    }

    #[test]
    fn a_pause_says_how_often_it_was_doubled() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        let doubled = [0, 500, 1_000, 1_999, 2_000, 32_000, 60_000]
            .map(|millis| backoff.doubled(Duration::from_millis(millis)));
        assert_eq!(doubled, [0, 0, 0, 0, 1, 5, 5]);
    }
}
