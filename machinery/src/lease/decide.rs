//! The decisions of an election, on plain data: no clock, no request.

use std::time::Duration;

use tokio::time::Instant;

/// Periods of the election; the defaults are those of every Kubernetes component.
#[derive(Debug, Clone, Copy)]
pub struct Periods {
    /// Validity of a lease after its last renewal.
    pub lease: Duration,
    /// Time for which the leader goes on without a successful renewal.
    pub renew: Duration,
    /// Pause between attempts.
    pub retry: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// The Lease as read last, and when we saw it change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Holder; empty when given up.
    pub holder: String,
    /// The validity the holder claims.
    pub lease: Duration,
    /// When we first saw this version of it.
    pub changed: Instant,
}

/// Fitness of a process to lead: the completeness of its view, and its rights to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fitness {
    /// Whether every index is complete.
    pub complete: bool,
    /// Since when at least one watch has not been open; absent while all are.
    pub blind: Option<Instant>,
    /// Since when a right to write has been known to be missing.
    pub barred: Option<Instant>,
}

/// Why a leader gives its lease up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A watch has not been open for [`PATIENCE`].
    Blind,
    /// A right to write has been missing for [`PATIENCE`].
    Barred,
}

impl Reason {
    /// A sentence for the log.
    pub fn text(self) -> &'static str {
        match self {
            Self::Blind => "a watch has not been open for 30 s",
            Self::Barred => "a right to write has been missing for 30 s",
        }
    }
}

/// Time for which a leader goes on while a watch is not open or a right to write is missing.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A watch that ended a moment ago is being resumed: that is no reason not to stand.
const RESUMES: Duration = Duration::from_secs(5);
/// Time for which a leader that gave up for want of a right leaves the Lease to the others.
const STANDS_BACK: Duration = Duration::from_secs(30);
/// All replicas may lack the same right. So that the Lease does not go round between them, each
/// gives it up for that reason once in this time.
const BARRED_AGAIN: Duration = Duration::from_mins(10);

impl Fitness {
    /// The fitness of a process that sees everything and may write.
    pub const FIT: Self = Self { complete: true, blind: None, barred: None };

    /// Whether a process like this may become the leader.
    pub fn stands(&self, now: Instant) -> bool {
        self.complete && self.blind.is_none_or(|since| now.saturating_duration_since(since) < RESUMES)
    }

    /// Why a leader like this has to give up, if it has to.
    fn fails(&self, now: Instant) -> Option<Reason> {
        let long =
            |since: Option<Instant>| since.is_some_and(|s| now.saturating_duration_since(s) >= PATIENCE);
        let blind = long(self.blind).then_some(Reason::Blind);
        blind.or_else(|| long(self.barred).then_some(Reason::Barred))
    }
}

/// Everything that a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Our identity.
    pub me: &'a str,
    /// The Lease; absent where it does not exist.
    pub seen: Option<&'a Seen>,
    /// The start of our last successful acquisition or renewal; absent where we do not lead.
    pub renewed: Option<Instant>,
    /// Our fitness to lead.
    pub fitness: Fitness,
    /// When we last gave the Lease up for want of a right.
    pub barred_at: Option<Instant>,
}

/// Next action of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write ourselves in as the holder.
    Acquire,
    /// Renew our lease.
    Renew,
    /// Another process leads, or we are not fit to: look again after this time.
    Wait(Duration),
    /// We lead and must not: stop writing, then free the Lease.
    Resign(Reason),
    /// We led and do no longer.
    Lost,
}

/// Decides.
pub fn decide(view: View<'_>, now: Instant, periods: Periods) -> Decision {
    let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
    if let Some(renewed) = view.renewed {
        let ours = view.seen.is_some_and(|s| s.holder == view.me);
        if !ours || now.saturating_duration_since(renewed) >= periods.renew {
            return Decision::Lost;
        }
        return match view.fitness.fails(now) {
            Some(Reason::Barred) if since(view.barred_at).is_some_and(|ago| ago < BARRED_AGAIN) => {
                Decision::Renew
            }
            Some(reason) => Decision::Resign(reason),
            None => Decision::Renew,
        };
    }
    let free = match view.seen {
        Some(s) if !s.holder.is_empty() && s.holder != view.me => {
            let expires = s.changed + s.lease;
            if now < expires {
                return Decision::Wait(periods.retry.min(expires - now));
            }
            true
        }
        _ => true,
    };
    let stands_back = since(view.barred_at).is_some_and(|ago| ago < STANDS_BACK);
    if free && view.fitness.stands(now) && !stands_back {
        Decision::Acquire
    } else {
        Decision::Wait(periods.retry)
    }
}

/// The shortest pause between attempts, when the time is short.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a write. One that took its time counts from before it began, so that a full pause
/// could outlast what is left: never more than half.
pub fn pause(renewed: Option<Instant>, now: Instant, periods: Periods) -> Duration {
    let Some(renewed) = renewed else { return periods.retry };
    let left = (renewed + periods.renew).saturating_duration_since(now);
    periods.retry.min((left / 2).max(SHORTEST_PAUSE))
}
