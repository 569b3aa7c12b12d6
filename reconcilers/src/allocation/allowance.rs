//! The time that long searches may take. They wait for each other, and what a namespace uses comes back slowly: a tenant
//! whose Pods are expensive to decide on waits for itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The time that long searches of a namespace may take at once: the selectors of a claim that cost the most evaluate the devices of
/// a node in about as long.
const MOST: Duration = Duration::from_millis(500);
/// With less than this no search is begun: half of a node's selectors are evaluated.
const LEAST: Duration = Duration::from_millis(250);
/// The rest for which search time comes back, in multiples of it: each namespace has a fortieth of a core.
const REST: u32 = 40;
/// A search that took longer than it may is paid for, but not for ever: a minute and a half.
const MOST_USED: Duration = MOST.saturating_add(Duration::from_secs(2));
/// The namespaces that are remembered before those that have their whole allowance again are forgotten.
const REMEMBERED: usize = 1_024;

/// Search time that each namespace has used.
#[derive(Debug, Default)]
pub(super) struct Allowances(HashMap<Arc<str>, Used>);

/// The search time that was used up to a time.
#[derive(Debug, Clone, Copy)]
struct Used {
    used: Duration,
    at: Instant,
}

impl Used {
    /// Returns the used time that still counts at `now`.
    fn left_over(self, now: Instant) -> Duration {
        self.used.saturating_sub((now - self.at) / REST)
    }
}

impl Allowances {
    /// Returns the time limit of a search of a namespace that begins at `now`.
    ///
    /// # Errors
    /// The wait until the namespace may begin a search: less than `LEAST` of its allowance is left.
    pub(super) fn of(&mut self, namespace: &str, now: Instant) -> Result<Duration, Duration> {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, used| !used.left_over(now).is_zero());
        }
        let used = self.0.get(namespace).map_or(Duration::ZERO, |used| used.left_over(now));
        // More may be used than is allowed at once.
        let too_much = (used + LEAST).saturating_sub(MOST);
        if too_much.is_zero() { Ok(MOST.saturating_sub(used)) } else { Err(too_much * REST) }
    }

    /// A search of a namespace has taken so long.
    pub(super) fn spend(&mut self, namespace: &Arc<str>, took: Duration, now: Instant) {
        let known = self.0.entry(Arc::clone(namespace)).or_insert(Used { used: Duration::ZERO, at: now });
        *known = Used { used: known.left_over(now).saturating_add(took).min(MOST_USED), at: now };
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
        let began = Instant::now();
        assert_eq!(allowances.of("dear", began), Ok(ms(500)));
        allowances.spend(&dear, ms(200), began);
        assert_eq!(allowances.of("dear", began), Ok(ms(300)));
        allowances.spend(&dear, ms(300), began);
        assert_eq!(allowances.of("dear", began), Err(ms(10_000)));
        assert_eq!(allowances.of("cheap", began), Ok(ms(500)), "others do not pay");
        assert_eq!(allowances.of("dear", began + ms(10_000)), Ok(ms(250)));
        assert_eq!(allowances.of("dear", began + ms(20_000)), Ok(ms(500)));
    }

    #[test]
    fn a_search_that_ran_over_is_paid_for() {
        let (mut allowances, dear, began) = (Allowances::default(), Arc::from("dear"), Instant::now());
        allowances.spend(&dear, Duration::from_secs(3_600), began);
        assert_eq!(allowances.of("dear", began), Err(ms(90_000)));
        assert_eq!(allowances.of("dear", began + ms(90_000)), Ok(ms(250)));
    }

    #[test]
    fn namespaces_that_owe_nothing_are_forgotten() {
        let (mut allowances, began) = (Allowances::default(), Instant::now());
        for number in 0..REMEMBERED {
            allowances.spend(&Arc::from(format!("ns-{number}")), ms(1), began);
        }
        assert_eq!(allowances.of("dear", began + ms(1_000)), Ok(ms(500)));
        assert_eq!(allowances.0.len(), 0);
    }
}
