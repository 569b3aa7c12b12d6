//! What became of every watch: for metrics, and for people with a problem.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::Failure;
use crate::metrics::MachineryMetrics;

/// The journal of all watches of the process. Cheap to clone.
#[derive(Clone)]
pub struct Journal {
    metrics: MachineryMetrics,
    watches: Arc<Mutex<BTreeMap<String, Entry>>>,
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
        Self { metrics, watches: Arc::default() }
    }

    /// The page of one watch: of the kind `kind` (a metric label) at `place` (a URL path), which
    /// feeds `indexes`.
    pub(super) fn page(&self, kind: &'static str, place: String, indexes: &str) -> Page {
        let page = Page { journal: self.clone(), kind, place };
        page.note(|entry| indexes.clone_into(&mut entry.indexes));
        page
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

/// What one watch writes into the journal.
pub(super) struct Page {
    journal: Journal,
    kind: &'static str,
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

    /// A complete list begins.
    pub(super) fn lists(&self) {
        self.journal.metrics.relist(self.kind);
        self.note(|entry| entry.lists += 1);
    }

    /// A watch is open.
    pub(super) fn opened(&self) {
        self.note(|entry| entry.opened += 1);
    }

    /// An event has come.
    pub(super) fn event(&self) {
        self.journal.metrics.watch_event(self.kind);
        self.note(|entry| {
            entry.events += 1;
            entry.last_event = Some(crate::clock::now());
        });
    }

    /// List or watch has failed.
    pub(super) fn failed(&self, failure: &Failure) {
        self.journal.metrics.watch_failure(self.kind, failure.reason());
        self.note(|entry| {
            entry.failures += 1;
            entry.last_failure = Some((crate::clock::now(), failure.to_string()));
        });
    }
}
