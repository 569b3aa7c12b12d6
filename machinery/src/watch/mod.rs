//! Watch → indexes.
//!
//! [`drive`] keeps a [`Sink`] in step with one kind of the API. It lists in pages, watches, resumes,
//! and relists when the server has forgotten where the watch was. The sink learns of every object
//! and of every end of a complete list, which is when absence becomes a delete. [`Watches`] opens one
//! watch for each kind in the process, however many indexes it feeds.
//!
//! docs/adr/0006-no-kube-runtime.md says why kube's watcher is not used.

mod event;
#[cfg(test)]
mod fake;
mod item;
mod journal;
mod source;
mod store;
mod watches;

pub use event::Step;
pub use item::{Item, Unread, decode_item};
pub use journal::Journal;
pub use source::{Failure, Page, Selectors, Source, Watch, WatchClient, Watched};
pub use store::{Body, Record, Removed, Store, StoreState};
pub use watches::{Connection, Watches};

use std::time::Duration;

use dragoman_objects::{Meta, Object};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::kind::Kind;

/// Receiver of a watch. Its methods are called in order and must not block.
pub trait Sink: Send + 'static {
    /// The type of the objects.
    type Object: Object + Send;
    /// Returns the name of the sink, for people.
    fn name(&self) -> String;
    /// The kind is served, and watched in this version from now on.
    fn serving(&mut self, kind: Kind);
    /// A complete list begins: what is applied from here to [`Sink::completed`]
    /// was there when the list began. A list may begin again without completing.
    fn began(&mut self);
    /// An object was added or changed, or is part of a list.
    fn applied(&mut self, item: &Item<Self::Object>);
    /// An object was deleted.
    fn deleted(&mut self, meta: &Meta);
    /// The list is complete: what was not applied since [`Sink::began`] is gone.
    /// `version` is the resourceVersion of the list.
    fn completed(&mut self, version: &str);
    /// The watch has reached `version` without an event of its own.
    fn advanced(&mut self, version: &str);
    /// The list or watch failed; it will be tried again.
    fn failed(&mut self, failure: &Failure);
    /// The kind may not be read, and not only for a moment: nothing is known of its objects any more.
    fn forbidden(&mut self) {}
}

/// The longest that a server can have us wait.
const LONGEST_ASKED: Duration = Duration::from_mins(1);

/// The pause after so many failures, growing to half a minute.
fn pause_after(failures: u32, failure: &Failure) -> Duration {
    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(32));
    let jittered = BACKOFF.pause(failures.saturating_sub(1)).mul_f64(0.5 + fastrand::f64());
    match failure {
        Failure::Throttled(Some(wait)) => jittered.max((*wait).min(LONGEST_ASKED)),
        _ => jittered.min(Duration::from_secs(30)),
    }
}

/// The failures after which a kind counts as one that may not be read: an API server that has just started refuses for a moment. With the
/// pauses between them they take some eight seconds.
pub(crate) const REFUSED: u32 = 6;

/// Keeps `sink` in step with `source` until the kind is not served any more, or was refused so often in a row, and records in
/// `journal` how that goes. Returns which of both it is. `kind` is a metric label.
pub async fn drive_while_served<S: Source, K: Sink<Object = S::Object>>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    journal: &Journal,
    refused: u32,
) -> Failure {
    let ends = |failure: &Failure, failures| match failure {
        // Another version may be served: the caller knows them all.
        Failure::Unserved => true,
        Failure::Forbidden(_) => failures >= refused,
        _ => false,
    };
    follow(kind, source, sink, journal, ends).await
}

/// Keeps `sink` in step with `source` for ever, and records in `journal` how that goes. `kind` is a
/// metric label.
pub async fn drive<S: Source, K: Sink<Object = S::Object>>(
    kind: &'static str,
    mut source: S,
    mut sink: K,
    journal: Journal,
) {
    follow(kind, &mut source, &mut sink, &journal, |_, _| false).await;
}

async fn follow<S: Source, K: Sink<Object = S::Object>>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    journal: &Journal,
    ends: impl Fn(&Failure, u32) -> bool,
) -> Failure {
    let journal = journal.page(kind, source.place(), &sink.name());
    let mut position: Option<String> = None;
    let mut failures = 0_u32;
    // Whether the server has shown that it knows the position.
    let mut shown = true;
    // The position before: a list may have to begin anew because of it.
    let mut seen: Option<String> = None;
    loop {
        let (mut course, mut stayed) = (Course::default(), false);
        let outcome = match position.take() {
            None => {
                journal.lists();
                shown = true;
                // A list that fails leaves the question to the next one.
                list(kind, source, sink, &journal)
                    .await
                    .and_then(|next| not_older(next, seen.take().as_deref()))
            }
            Some(version) => {
                seen = Some(version.clone());
                let outcome = watch(kind, source, sink, (version, shown), &journal, &mut course).await;
                if outcome.is_ok() {
                    journal.ended();
                }
                // A watch from a version that a restored server does not have yet is silent, and ends in good order.
                shown = course.shown && outcome.is_ok();
                stayed = outcome.is_ok() && course.opened.is_some_and(|opened| opened.elapsed() >= BRIEF);
                // A server that closes every watch at once, or has always just forgotten
                // where we were, must not be asked in a loop.
                let fruitless = !course.progress && !stayed;
                outcome.and_then(|next| if fruitless { Err((next, Failure::Fruitless)) } else { Ok(next) })
            }
        };
        // Neither a list that took its time nor one that completed shows that the server can cope:
        // only a watch that brought something, or stayed open, does.
        if course.progress || stayed {
            failures = 0;
        }
        match outcome {
            Ok(next) => position = next,
            Err((next, failure)) => {
                failures += 1;
                journal.failed(&failure);
                if let Failure::WentBack { .. } = failure {
                    journal.went_back(format!("{kind}: {failure}"));
                }
                tracing::warn!(kind, error = %failure, failures, "list or watch failed");
                if ends(&failure, failures) {
                    return failure;
                }
                sink.failed(&failure);
                position = next;
                tokio::time::sleep(pause_after(failures, &failure)).await;
            }
        }
    }
}

/// Duration of a watch that shows that nothing is missing: the server ends it in good order after
/// everything that it knew when the watch was opened, and for some time more.
const RENEWAL: Duration = Duration::from_secs(1);

/// A watch that ends sooner than this without having brought anything was of no use.
const BRIEF: Duration = Duration::from_secs(2);

/// Where to go on: a position to watch from, or `None` for a complete list.
type Next = Result<Option<String>, (Option<String>, Failure)>;

/// One complete list; returns the version to watch from.
///
/// The token of a page may expire on the way. The server then continues from a newer state: what the
/// list lacks in the end did not exist after it began, so that it is complete. But of the pages
/// before, changes between the two states went unseen. So it is followed by another list, not by a
/// watch.
async fn list<S: Source, K: Sink<Object = S::Object>>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    journal: &journal::Page,
) -> Next {
    let begun = Instant::now();
    sink.began();
    let mut page = None;
    let mut oldest = None;
    let (mut mixed, mut renewed) = (false, false);
    loop {
        let each = |item| {
            apply(kind, sink, &item);
        };
        let Page { next, version } = match source.list(page.as_deref(), each).await {
            Ok(page) => page,
            // Once for each page: a server whose tokens are never good must not be asked in a loop.
            Err(Failure::PageExpired(token)) if !renewed => {
                (page, mixed, renewed) = (Some(token), true, true);
                continue;
            }
            Err(failure) => return Err((None, failure)),
        };
        renewed = false;
        journal.progress();
        let oldest = oldest.get_or_insert(version);
        if let Some(token) = next {
            page = Some(token);
            continue;
        }
        sink.completed(oldest);
        if mixed {
            return Err((None, Failure::Expired));
        }
        journal.complete(begun);
        return Ok(Some(oldest.clone()));
    }
}

/// Hands an object to `sink`; returns its resourceVersion.
fn apply<K: Sink>(kind: &'static str, sink: &mut K, item: &Item<K::Object>) -> String {
    if let Item::Unreadable { meta, unread: Unread { why, .. } } = item {
        let Meta { namespace, name, .. } = &**meta;
        tracing::warn!(kind, %namespace, %name, error = %why, "object does not decode; it is kept as present and unreadable");
    }
    sink.applied(item);
    item.meta().resource_version.to_string()
}

/// Returns a watch that shows that nothing is missing, and when it was asked for. The open watch is closed
/// only after that: while an API server accepts no new watch, the index stays in step.
///
/// # Errors
/// The server has gone back.
async fn renewed<S: Source>(
    kind: &str,
    source: &mut S,
    version: &str,
) -> Result<Option<(S::Events, Instant)>, Failure> {
    let asked = Instant::now();
    let outcome = match knows(source, version).await {
        Ok(()) => source.watch(version, RENEWAL).await,
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(events) => Ok(Some((events, asked))),
        Err(failure @ Failure::WentBack { .. }) => Err(failure),
        Err(failure) => {
            tracing::warn!(kind, error = %failure, "the watch cannot be renewed now");
            Ok(None)
        }
    }
}

/// Whether the store of the server is as far as `version`. Versions of a kind are numbers that grow (KEP-5504); of others nothing is said.
///
/// # Errors
/// It is not: it was restored from a backup, or cannot be asked.
async fn knows<S: Source>(source: &mut S, version: &str) -> Result<(), Failure> {
    goes_on(version, &source.newest().await?)
}

/// Whether a state is not older than one that was seen.
fn goes_on(seen: &str, newest: &str) -> Result<(), Failure> {
    match (seen.parse::<u64>(), newest.parse::<u64>()) {
        (Ok(before), Ok(now)) if now < before => {
            Err(Failure::WentBack { seen: seen.to_owned(), newest: newest.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Goes on from a list, unless its state is older than the one that was seen before it.
fn not_older(next: Option<String>, seen: Option<&str>) -> Next {
    match seen.iter().zip(&next).try_for_each(|(seen, newest)| goes_on(seen, newest)) {
        Ok(()) => Ok(next),
        Err(failure) => Err((next, failure)),
    }
}

/// Opens a watch, for a short time where it is to show that nothing is missing.
async fn open<S: Source>(
    source: &mut S,
    version: &str,
    shown: bool,
    renews: bool,
) -> Result<S::Events, Failure> {
    if renews || !shown {
        // An answer that does not decode says nothing of the events that follow the position.
        knows(source, version).await.map_err(|failure| match failure {
            Failure::Undecodable(why) => Failure::Other(why),
            other => other,
        })?;
    }
    source.watch(version, if renews { RENEWAL } else { source::WATCH_LASTS }).await
}

/// Where to go on after a failure at `version`.
fn after(failure: Failure, version: String) -> Next {
    match failure {
        Failure::Expired => Ok(None),
        // What the event was about is unknown, or it is of another history: only a list finds out.
        Failure::Undecodable(_) | Failure::WentBack { .. } => Err((None, failure)),
        _ => Err((Some(version), failure)),
    }
}

/// Course of a watch.
#[derive(Default)]
struct Course {
    /// Time at which the watch was open.
    opened: Option<Instant>,
    /// The watch was of use: something has come, or it was short on purpose.
    progress: bool,
    /// Something has come, and the end was in good order: the server knows where the watch ended.
    shown: bool,
}

/// One watch from `version` until it ends. Where the server has not `shown` that it knows the
/// version, it is asked first.
async fn watch<S: Source, K: Sink<Object = S::Object>>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    (mut version, shown): (String, bool),
    journal: &journal::Page,
    course: &mut Course,
) -> Next {
    let mut begun = Instant::now();
    // Before it is looked at whether one is wanted: a wish in between is not missed.
    let mut renewal = journal.renewal();
    let mut events = match open(source, &version, shown, journal.renews()).await {
        Ok(events) => events,
        Err(failure) => return after(failure, version),
    };
    journal.opened();
    course.opened = Some(Instant::now());
    loop {
        let step = tokio::select! {
            biased;
            () = renewal.wanted() => {
                match renewed(kind, source, &version).await {
                    Ok(Some(renewed)) => (events, begun) = renewed,
                    Ok(None) => {}
                    Err(failure) => return after(failure, version),
                }
                continue;
            }
            step = events.next() => step,
        };
        let step = match step {
            Ok(step) => step,
            Err(failure) => return after(failure, version),
        };
        let has_come = !matches!(step, Step::End | Step::Cut);
        course.progress |= has_come;
        course.shown |= has_come;
        match step {
            Step::End => {
                // One that was short on purpose is not fruitless.
                course.progress |= journal.renews();
                journal.complete(begun);
                return Ok(Some(version));
            }
            Step::Cut => {
                course.shown = false;
                return Ok(Some(journal.cut(version)));
            }
            Step::Bookmark(reached) => {
                journal.progress();
                sink.advanced(&reached);
                version = reached;
            }
            Step::Applied(item) => version = changed(journal, || apply(kind, sink, &item)),
            Step::Deleted(item) => version = changed(journal, || deleted(sink, &item)),
        }
    }
}

/// Notes an event, and hands it on.
fn changed(journal: &journal::Page, hand: impl FnOnce() -> String) -> String {
    journal.event();
    hand()
}

/// Tells `sink` that an object is gone; returns its last resourceVersion.
fn deleted<K: Sink>(sink: &mut K, item: &Item<K::Object>) -> String {
    sink.deleted(item.meta());
    item.meta().resource_version.to_string()
}

#[cfg(test)]
mod tests;
