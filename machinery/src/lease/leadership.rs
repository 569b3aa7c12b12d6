//! What the rest of the process knows of the election.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Proof of leadership that writers look at before each write. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership {
    valid_until: Arc<watch::Sender<Option<Instant>>>,
    at_work: Arc<watch::Sender<bool>>,
}

impl Default for Leadership {
    fn default() -> Self {
        Self { valid_until: Arc::new(watch::Sender::new(None)), at_work: Arc::new(watch::Sender::new(false)) }
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
        leadership.set(Some(Instant::now() + Duration::from_hours(8760)));
        leadership
    }

    /// Whether we lead now.
    pub fn holds(&self) -> bool {
        self.valid_until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Whether we lead, and for how long at least, in words.
    pub fn in_words(&self) -> String {
        let left = self.valid_until.borrow().map(|until| until.saturating_duration_since(Instant::now()));
        match left.filter(|left| !left.is_zero()) {
            Some(left) => format!("leading, for {} s if it is not renewed", left.as_secs()),
            None => "not leading".to_owned(),
        }
    }

    /// Waits until this process does not lead because it gave the lease up. A lease that runs out
    /// ends the process instead.
    pub async fn ended(&self) {
        // The sender lives as long as we do: there is always an answer.
        drop(self.valid_until.subscribe().wait_for(Option::is_none).await);
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

    pub(super) fn set(&self, until: Option<Instant>) {
        self.valid_until.send_replace(until);
    }
}
