//! State of the election, for the rest of the process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Term of leadership that the last renewal of the Lease gives.
#[derive(Debug, Clone, Copy)]
struct Term {
    /// Time at which the renewal was sent.
    renewed: Instant,
    /// This process leads until then.
    until: Instant,
}

/// Proof of leadership that writers look at before each write. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership {
    term: Arc<watch::Sender<Option<Term>>>,
    at_work: Arc<watch::Sender<bool>>,
}

impl Default for Leadership {
    fn default() -> Self {
        Self { term: Arc::new(watch::Sender::new(None)), at_work: Arc::new(watch::Sender::new(false)) }
    }
}

/// Marks that workers run; dropping it says that none does.
#[must_use]
pub struct AtWork(Arc<watch::Sender<bool>>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl Leadership {
    /// Leadership that never ends, for processes that run without a Lease.
    pub fn without_lease() -> Self {
        let leadership = Self::default();
        // A year: this is not a protocol constant, only "never".
        leadership.renewed(Instant::now(), Duration::from_hours(8760));
        leadership
    }

    /// Whether we lead now.
    pub fn holds(&self) -> bool {
        self.term.borrow().is_some_and(|term| Instant::now() < term.until)
    }

    /// Whether we lead, and for how long at least, in words.
    pub fn in_words(&self) -> String {
        let left = self.term.borrow().map(|term| term.until.saturating_duration_since(Instant::now()));
        match left.filter(|left| !left.is_zero()) {
            Some(left) => format!("leading, for {} s if it is not renewed", left.as_secs()),
            None => "not leading".to_owned(),
        }
    }

    /// Waits until this process does not lead because it gave the lease up. A lease that runs out
    /// ends the process instead.
    pub async fn ended(&self) {
        // The sender lives as long as we do: there is always an answer.
        drop(self.term.subscribe().wait_for(Option::is_none).await);
    }

    /// Workers begin. The lease is not freed before they have ended.
    pub fn work(&self) -> AtWork {
        self.at_work.send_replace(true);
        AtWork(Arc::clone(&self.at_work))
    }

    /// Waits until no workers run.
    pub(super) async fn idle(&self) {
        drop(self.at_work.subscribe().wait_for(|at_work| !*at_work).await);
    }

    /// Returns the time since the Lease was renewed; `None` while this process does not lead.
    pub fn age(&self) -> Option<Duration> {
        let now = Instant::now();
        self.term.borrow().filter(|term| now < term.until).map(|term| now - term.renewed)
    }

    /// This process has renewed the Lease at `at`, and leads for so long since then.
    pub(super) fn renewed(&self, at: Instant, valid: Duration) {
        self.term.send_replace(Some(Term { renewed: at, until: at + valid }));
    }

    /// This process leads no more.
    pub(super) fn withdraw(&self) {
        self.term.send_replace(None);
    }
}
