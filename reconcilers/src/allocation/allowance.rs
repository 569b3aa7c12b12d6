//! The time that long searches may take. They wait for each other, and what a namespace uses comes back slowly: a tenant
//! whose Pods are expensive to decide on waits for itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The milliseconds that long searches of a namespace may take at once: the selectors of a claim that cost the most evaluate
/// the devices of a node in about as long.
const MOST: i64 = 500;
/// With less than this no search is begun: half of a node's selectors are evaluated.
const LEAST: i64 = 250;
/// The milliseconds of rest after which one millisecond comes back: each namespace has a fortieth of a core.
const REST: i64 = 40;
/// A search that took longer than it may is paid for, but not for ever: a minute and a half.
const MOST_USED: i64 = MOST + 2_000;
/// The namespaces that are remembered before those that have their whole allowance again are forgotten.
const REMEMBERED: usize = 1_024;

/// Search time that each namespace has used.
#[derive(Debug, Default)]
pub(super) struct Allowances(HashMap<Arc<str>, Used>);

/// The milliseconds that were used, at a time in milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
struct Used {
    used: i64,
    at: i64,
}

impl Used {
    /// Returns the used milliseconds that still count at `now`. A clock that was set back gives nothing back.
    fn left_over(self, now: i64) -> i64 {
        (self.used - now.saturating_sub(self.at).max(0) / REST).max(0)
    }
}

impl Allowances {
    /// Returns the time limit of a search of a namespace that begins at `now`, in milliseconds since the
    /// epoch.
    ///
    /// # Errors
    /// The wait until the namespace may begin a search: less than `LEAST` of its allowance is left.
    pub(super) fn of(&mut self, namespace: &str, now: i64) -> Result<Duration, Duration> {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, used| used.left_over(now) > 0);
        }
        let left = MOST - self.0.get(namespace).map_or(0, |used| used.left_over(now));
        let milliseconds = |count: i64| Duration::from_millis(count.unsigned_abs());
        if left < LEAST { Err(milliseconds((LEAST - left) * REST)) } else { Ok(milliseconds(left)) }
    }

    /// A search of a namespace has taken so long.
    pub(super) fn spend(&mut self, namespace: &Arc<str>, took: Duration, now: i64) {
        let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        let known = self.0.entry(Arc::clone(namespace)).or_insert(Used { used: 0, at: now });
        *known =
            Used { used: known.left_over(now).saturating_add(took).min(MOST_USED), at: now.max(known.at) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn what_a_namespace_uses_comes_back_slowly_and_is_its_own() {
        let (mut allowances, dear) = (Allowances::default(), Arc::from("dear"));
        assert_eq!(allowances.of("dear", 0), Ok(ms(500)));
        allowances.spend(&dear, ms(200), 0);
        assert_eq!(allowances.of("dear", 0), Ok(ms(300)));
        allowances.spend(&dear, ms(300), 0);
        assert_eq!(allowances.of("dear", 0), Err(ms(10_000)));
        assert_eq!(allowances.of("cheap", 0), Ok(ms(500)), "others do not pay");
        assert_eq!(allowances.of("dear", 10_000), Ok(ms(250)));
        assert_eq!(allowances.of("dear", 20_000), Ok(ms(500)));
    }

    #[test]
    fn a_search_that_ran_over_is_paid_for_and_no_clock_gives_it_back() {
        let (mut allowances, dear) = (Allowances::default(), Arc::from("dear"));
        allowances.spend(&dear, Duration::from_secs(3_600), 1_000_000);
        assert_eq!(allowances.of("dear", 1_000_000), Err(ms(90_000)));
        assert_eq!(allowances.of("dear", 400_000), Err(ms(90_000)), "the clock was set back");
        assert_eq!(allowances.of("dear", 1_090_000), Ok(ms(250)));
    }

    #[test]
    fn namespaces_that_owe_nothing_are_forgotten() {
        let mut allowances = Allowances::default();
        for number in 0..REMEMBERED {
            allowances.spend(&Arc::from(format!("ns-{number}")), ms(1), 0);
        }
        assert_eq!(allowances.of("dear", 1_000), Ok(ms(500)));
        assert_eq!(allowances.0.len(), 0);
    }
}
