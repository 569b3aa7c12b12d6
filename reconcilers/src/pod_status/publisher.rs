//! Which generation of the field the API server keeps: shared by all controllers that publish what claims take.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_accounting::claim::contribution::Generation;
use dragoman_accounting::ledger::holder::Scheduler;
use tokio::time::Instant;

/// Time for which it is taken for granted that the API server keeps no generation of the field. An upgrade of
/// the control plane, or a gate that is switched on, is found by then.
const KEEPS_NOTHING: Duration = Duration::from_mins(10);

/// The generation that the API server keeps, shared by the controllers that publish.
#[derive(Debug, Default)]
pub struct Publisher {
    /// The generation that the API server keeps, and when it was found out; absent while unknown.
    kept: Mutex<Option<(Option<Generation>, Instant)>>,
}

impl Publisher {
    fn kept(&self) -> MutexGuard<'_, Option<(Option<Generation>, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entries that a kube-scheduler can read; `None` while it is not known what the API server
    /// keeps.
    pub(crate) fn known(&self, now: Instant) -> Option<Scheduler> {
        match *self.kept() {
            Some((None, at)) if now >= at + KEEPS_NOTHING => None,
            known => known.map(|(kept, _)| kept.map_or(Scheduler::Unaware, Scheduler::Aware)),
        }
    }

    /// The wait until an API server that keeps no generation is asked again.
    pub(super) fn asked_again(&self, now: Instant) -> Duration {
        let at = self.kept().map_or(now, |(_, at)| at);
        (at + KEEPS_NOTHING).saturating_duration_since(now)
    }

    /// Takes in what the dry runs about one Pod have found; those about another Pod may have found a generation meanwhile.
    pub(crate) fn learnt(&self, kept: Option<Generation>, now: Instant) {
        tracing::info!(?kept, "generation of node-allocatable claim statuses that is kept");
        let mut known = self.kept();
        if kept.is_some() || !matches!(*known, Some((Some(_), _))) {
            *known = Some((kept, now));
        }
    }

    /// The API server has changed: it is asked again.
    pub(crate) fn forget(&self) {
        *self.kept() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_that_keeps_nothing_is_asked_again_after_ten_minutes() {
        let (publisher, began) = (Publisher::default(), Instant::now());
        publisher.learnt(None, began);
        assert_eq!(publisher.known(began + Duration::from_secs(599)), Some(Scheduler::Unaware));
        assert_eq!(publisher.asked_again(began + Duration::from_secs(590)), Duration::from_secs(10));
        assert_eq!(publisher.known(began + Duration::from_mins(10)), None);
        // What is kept stays known.
        publisher.learnt(Some(Generation::V1_37), began);
        assert!(publisher.known(began + Duration::from_hours(24)).is_some());
    }
}
