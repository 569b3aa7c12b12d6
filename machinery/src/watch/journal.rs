//! Journal of the watches: the course of each, for metrics and for people with a problem.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Failure;
use crate::metrics::MachineryMetrics;

/// The journal of all watches of the process. Cheap to clone.
#[derive(Clone)]
pub struct Journal {
    metrics: MachineryMetrics,
    watches: Arc<Mutex<BTreeMap<String, Entry>>>,
    sights: Arc<Mutex<BTreeMap<Scene, Sight>>>,
    /// Time at which every watch was last asked to show that nothing is missing.
    renewed: Arc<watch::Sender<Option<Instant>>>,
    /// Evidence that the API server has gone back behind a state that was seen; absent until then.
    forgotten: Arc<watch::Sender<Option<String>>>,
}

/// Kind and selectors of a watch, whatever the version of the kind.
type Scene = (&'static str, String);

/// The age of the last progress from which on a watch counts as stuck. One that is well ends in good
/// order, or brings something, within 45 s.
pub(super) const STALE: Duration = Duration::from_mins(1);

/// Current view through the watch of a scene.
#[derive(Debug, Clone, Copy)]
struct Sight {
    /// Whether the API server serves the kind.
    served: bool,
    /// Since when no watch has been open; absent while one is.
    blind: Option<Instant>,
    /// When something came last: a page of a list, an event, a bookmark, an orderly end.
    progress: Instant,
    /// Everything that was there at this moment has come: a list, or a watch that has ended in good
    /// order, began then.
    complete: Option<Instant>,
    /// Time at which the watch was last cut off, or failed: until everything has come that was there after
    /// that, something may be missing.
    interrupted: Option<Instant>,
}

impl Sight {
    /// Returns the view before a watch is open: nothing is seen.
    fn fresh(served: bool) -> Self {
        let now = Instant::now();
        Self { served, blind: Some(now), progress: now, complete: None, interrupted: None }
    }

    fn has_caught_up(&self) -> bool {
        self.interrupted.is_none_or(|at| self.complete > Some(at))
    }
}

#[derive(Default)]
struct Entry {
    indexes: String,
    lists: u64,
    opened: u64,
    events: u64,
    failures: u64,
    last_event: Option<Timestamp>,
    last_failure: Option<(Timestamp, String)>,
}

impl Journal {
    /// An empty journal that also counts in `metrics`.
    pub fn new(metrics: MachineryMetrics) -> Self {
        let (renewed, forgotten) = (Arc::new(watch::Sender::new(None)), Arc::new(watch::Sender::new(None)));
        Self { metrics, watches: Arc::default(), sights: Arc::default(), renewed, forgotten }
    }

    /// Waits until the API server has gone back: its store was restored from a backup. What a process remembers beside its indexes
    /// (decisions under way, expectations, pauses) is then of a history that is lost. Returns what shows it, for people.
    pub async fn went_back(&self) -> String {
        let mut forgotten = self.forgotten.subscribe();
        // The sender is part of this journal, so that the channel has no end.
        let why = forgotten.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_default()
    }

    /// The page of one watch: of the kind `kind` (a metric label) at `place` (a URL path), which
    /// feeds `indexes`.
    pub(super) fn page(&self, kind: &'static str, place: String, indexes: &str) -> Page {
        let selectors = place.split_once('?').map_or("", |(_, selectors)| selectors).to_owned();
        self.expect(kind, selectors.clone());
        let page = Page { journal: self.clone(), scene: (kind, selectors), place };
        page.note(|entry| indexes.clone_into(&mut entry.indexes));
        page
    }

    /// A watch of the kind `kind` and what `selectors` select is to be opened, once it is known in
    /// which version the kind is served.
    pub(super) fn expect(&self, kind: &'static str, selectors: String) {
        let fresh = Sight::fresh(true);
        let mut sights = self.sights();
        let sight = sights.entry((kind, selectors)).or_insert(fresh);
        if !sight.served {
            *sight = fresh;
        }
    }

    /// The API server does not serve the kind: there is nothing to be seen.
    pub(super) fn unserved(&self, kind: &'static str, selectors: String) {
        self.sights().insert((kind, selectors), Sight::fresh(false));
    }

    /// Since when at least one watch has not been open; absent while all are. Kinds that are not
    /// served do not count.
    pub fn blind(&self) -> Option<Instant> {
        self.sights().values().filter(|sight| sight.served).filter_map(|sight| sight.blind).min()
    }

    /// Has every watch opened anew for a short time, so that it shows that nothing is missing.
    pub fn renew(&self) {
        self.renewed.send_replace(Some(Instant::now()));
    }

    /// Whether every watch has shown since the last [`Journal::renew`] that nothing is missing that was
    /// there then. Kinds that are not served do not count.
    pub fn is_renewed(&self) -> bool {
        let wanted = *self.renewed.borrow();
        self.sights().values().filter(|sight| sight.served).all(|sight| sight.complete >= wanted)
    }

    /// Whether no watch that was cut off or failed has yet to bring what happened meanwhile. Kinds that are not served do not
    /// count. A watch that has been silent for a moment counts as open.
    pub fn has_caught_up(&self) -> bool {
        self.sights().values().filter(|sight| sight.served).all(Sight::has_caught_up)
    }

    /// Whether every watch has progressed lately.
    ///
    /// # Errors
    /// Names the kinds whose watches have not for a minute.
    pub fn ready(&self) -> Result<(), String> {
        let stale = self.ages().into_iter().filter(|(_, age)| *age >= STALE);
        let stale: Vec<String> =
            stale.map(|(kind, age)| format!("{} s from the watch of {kind}", age.as_secs())).collect();
        if stale.is_empty() { Ok(()) } else { Err(format!("nothing has come for {}", stale.join(", "))) }
    }

    /// Brings the gauges up to date that are computed when they are asked for.
    pub fn measure(&self) {
        self.ages().into_iter().for_each(|(kind, age)| self.metrics.watch_progress(kind, age));
        self.sights().iter().for_each(|((kind, _), sight)| self.metrics.served(kind, sight.served));
    }

    /// The age of the last progress of each kind that is served.
    fn ages(&self) -> BTreeMap<&'static str, Duration> {
        let now = Instant::now();
        let mut ages = BTreeMap::new();
        for ((kind, _), sight) in self.sights().iter().filter(|(_, sight)| sight.served) {
            let age = now.saturating_duration_since(sight.progress);
            let oldest = ages.entry(*kind).or_insert(age);
            *oldest = age.max(*oldest);
        }
        ages
    }

    fn sights(&self) -> MutexGuard<'_, BTreeMap<Scene, Sight>> {
        self.sights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for every watch there ever was: where it reads, how often it listed,
    /// was opened and failed, and when something came last.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let time = |at: Option<Timestamp>| at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}"));
        for (place, entry) in self.watches.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let Entry { indexes, lists, opened, events, failures, last_event, last_failure } = entry;
            // Writing into a String cannot fail.
            write!(
                text,
                "{place} for {indexes}: {lists} complete lists begun, watch opened {opened} times, {events} events, the last \
                 at {}, {failures} failures",
                time(*last_event)
            )
            .unwrap_or_default();
            if let Some((at, failure)) = last_failure {
                write!(text, ", the last at {}: {failure}", time(Some(*at))).unwrap_or_default();
            }
            text.push('\n');
        }
        text
    }
}

/// Page of one watch in the journal.
pub(super) struct Page {
    journal: Journal,
    scene: Scene,
    place: String,
}

impl Page {
    fn note(&self, note: impl FnOnce(&mut Entry)) {
        let mut watches = self.journal.watches.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked up before it is inserted: an event must not cost an allocation.
        match watches.get_mut(&self.place) {
            Some(entry) => note(entry),
            None => note(watches.entry(self.place.clone()).or_default()),
        }
    }

    /// Notes what is seen: something has come, or the watch has ended.
    fn see(&self, see: impl FnOnce(&mut Sight, Instant)) {
        if let Some(sight) = self.journal.sights().get_mut(&self.scene) {
            see(sight, Instant::now());
        }
    }

    /// Something has come: a page of a list, or a bookmark.
    pub(super) fn progress(&self) {
        self.see(|sight, now| sight.progress = now);
    }

    /// The watch has ended in good order.
    pub(super) fn ended(&self) {
        self.see(|sight, now| {
            sight.progress = now;
            sight.blind.get_or_insert(now);
        });
    }

    /// The API server has gone back.
    pub(super) fn went_back(&self, why: String) {
        self.journal.forgotten.send_replace(Some(why));
    }

    /// The watch was cut off at a version, from which the next one goes on.
    pub(super) fn cut(&self, version: String) -> String {
        self.see(|sight, now| sight.interrupted = Some(now));
        version
    }

    /// Everything has come that was there at `begun`.
    pub(super) fn complete(&self, begun: Instant) {
        self.see(|sight, _| sight.complete = Some(begun));
    }

    /// Whether this watch has yet to show that nothing is missing.
    pub(super) fn renews(&self) -> bool {
        let wanted = *self.journal.renewed.borrow();
        let sights = self.journal.sights();
        sights.get(&self.scene).is_some_and(|sight| sight.complete < wanted || !sight.has_caught_up())
    }

    /// Tells when this watch is to show that nothing is missing, from now on.
    pub(super) fn renewal(&self) -> Renewal {
        Renewal(self.journal.renewed.subscribe())
    }

    /// A complete list begins.
    pub(super) fn lists(&self) {
        self.journal.metrics.relist(self.scene.0);
        self.note(|entry| entry.lists += 1);
    }

    /// A watch is open.
    pub(super) fn opened(&self) {
        self.see(|sight, now| {
            *sight = Sight { served: true, blind: None, progress: now, ..*sight };
        });
        self.note(|entry| entry.opened += 1);
    }

    /// An event has come.
    pub(super) fn event(&self) {
        self.journal.metrics.watch_event(self.scene.0);
        self.progress();
        self.note(|entry| {
            entry.events += 1;
            entry.last_event = Some(crate::clock::now());
        });
    }

    /// List or watch has failed.
    pub(super) fn failed(&self, failure: &Failure) {
        self.see(|sight, now| {
            sight.blind.get_or_insert(now);
            // A watch that was of no use has ended in good order all the same.
            if !matches!(failure, Failure::Fruitless) {
                sight.interrupted = Some(now);
            }
        });
        self.journal.metrics.watch_failure(self.scene.0, failure.reason());
        self.note(|entry| {
            entry.failures += 1;
            entry.last_failure = Some((crate::clock::now(), failure.to_string()));
        });
    }
}

/// Tells when a watch is to show that nothing is missing.
pub(super) struct Renewal(watch::Receiver<Option<Instant>>);

impl Renewal {
    /// Waits until that is wanted.
    pub(super) async fn wanted(&mut self) {
        // The sender is part of the journal. Without it no renewal can be wanted.
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
