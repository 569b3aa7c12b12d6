//! The time in the cluster.

use jiff::Timestamp;
use tokio::time::Instant;

/// Where the API server has the time from.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// This machine.
    Real,
    /// The runtime's clock, which may stand still or be wound forward, counted from a moment.
    Runtime {
        /// The moment on the runtime's clock.
        began: Instant,
        /// The same on the wall.
        at: Timestamp,
    },
}

impl Clock {
    /// The runtime's clock from now on, which is called the beginning of 2026.
    pub fn runtime() -> Self {
        // 2026-01-01T00:00:00Z.
        let at = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH);
        Self::Runtime { began: Instant::now(), at }
    }

    /// Now.
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

/// As `metadata` spells it: whole seconds.
pub(crate) fn seconds(now: Timestamp) -> String {
    let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
    whole.to_string()
}
