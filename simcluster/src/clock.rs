//! The time in the cluster.

use jiff::Timestamp;
use tokio::time::Instant;

/// The clock of the API server.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The clock of this machine.
    Real,
    /// The clock of the tokio runtime, which may be paused or advanced.
    Runtime {
        /// A moment on the clock of the runtime.
        began: Instant,
        /// The time in the cluster at that moment.
        at: Timestamp,
    },
}

impl Clock {
    /// Returns a clock that starts at the beginning of 2026 and follows the runtime.
    pub fn runtime() -> Self {
        // 2026-01-01T00:00:00Z.
        let at = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH);
        Self::Runtime { began: Instant::now(), at }
    }

    /// Returns the current time in the cluster.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::Real => Timestamp::now(),
            Self::Runtime { began, at } => {
                let passed = jiff::SignedDuration::try_from(began.elapsed()).unwrap_or_default();
                at.checked_add(passed).unwrap_or(*at)
            }
        }
    }
}

/// Formats a time as `metadata` does, in whole seconds.
pub(crate) fn seconds(now: Timestamp) -> String {
    let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
    whole.to_string()
}
