//! Watch → indexes.
//!
//! [`drive`] keeps a [`Sink`] in step with one kind of the API. It lists in pages, watches, resumes,
//! and relists when the server has forgotten where the watch was. The sink learns of every object
//! and of every end of a complete list, which is when absence becomes a delete. [`Watches`] opens one
//! watch for each kind in the process, however many indexes it feeds.
//!
//! docs/adr/0006-no-kube-runtime.md says why kube's watcher is not used.

mod fanout;
mod journal;
mod source;
mod store;

pub use fanout::{Connection, Watches};
pub use journal::Journal;
pub use kube::Client as WatchClient;
pub use source::{Failure, Page, Selectors, Source, Step, Watch, Watched};
pub use store::{Body, Record, Removed, Store, StoreState};

use std::time::Duration;

use dragoman_crds::wire::{Meta, Object};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::kind::Kind;

/// An object as the API sent it. An object that does not decode is present all the same, known by
/// its metadata alone.
#[derive(Debug, Clone)]
pub enum Item<T> {
    /// It decodes.
    Readable(T),
    /// It does not.
    Unreadable {
        /// Its metadata; always at least name and uid.
        meta: Box<Meta>,
        /// Why it does not decode.
        why: String,
    },
}

impl<T: Object> Item<T> {
    /// Its metadata.
    pub fn meta(&self) -> &Meta {
        match self {
            Self::Readable(object) => object.meta(),
            Self::Unreadable { meta, .. } => meta,
        }
    }
}

/// What consumes a watch. Called in order; must not block.
pub trait Sink: Send + 'static {
    /// The wire type of the objects.
    type Object: Object + Send;
    /// Its name, for people.
    fn name(&self) -> &'static str;
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
}

#[derive(Deserialize)]
struct MetaOnly {
    #[serde(default)]
    metadata: Meta,
}

/// Decodes one object.
///
/// # Errors
/// Only where not even the metadata is readable: such an object has no name to
/// be remembered under, so the whole list or watch has to be tried again.
pub fn decode_item<T: Object>(raw: &RawValue) -> Result<Item<T>, String> {
    match serde_json::from_str::<T>(raw.get()) {
        Ok(object) => {
            check_named(object.meta())?;
            Ok(Item::Readable(object))
        }
        Err(why) => Ok(Item::Unreadable { meta: Box::new(decode_meta(raw)?), why: why.to_string() }),
    }
}

/// Decodes the metadata of an object, whatever else there is.
fn decode_meta(raw: &RawValue) -> Result<Meta, String> {
    let MetaOnly { metadata } = serde_json::from_str(raw.get()).map_err(|e| e.to_string())?;
    check_named(&metadata)?;
    Ok(metadata)
}

fn check_named(meta: &Meta) -> Result<(), String> {
    if meta.name.is_empty() || meta.uid.is_empty() {
        return Err("object without name or uid".to_owned());
    }
    Ok(())
}

/// The longest that a server can have us wait.
const LONGEST_ASKED: Duration = Duration::from_mins(1);

/// The pause after so many failures, growing to half a minute.
fn pause_after(failures: u32, failure: &Failure) -> Duration {
    let exponent = failures.saturating_sub(1).min(7);
    let grown = Duration::from_millis(250) * (1 << exponent);
    let jittered = grown.mul_f64(0.5 + fastrand::f64());
    match failure {
        Failure::Throttled(Some(wait)) => jittered.max((*wait).min(LONGEST_ASKED)),
        _ => jittered.min(Duration::from_secs(30)),
    }
}

/// Keeps `sink` in step with `source` until the kind is not served any more, and records in
/// `journal` how that goes. `kind` is a metric label.
pub async fn drive_while_served<S: Source, K: Sink>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    journal: &Journal,
) {
    follow(kind, source, sink, journal, true).await;
}

/// Keeps `sink` in step with `source` for ever, and records in `journal` how that goes. `kind` is a
/// metric label.
pub async fn drive<S: Source, K: Sink>(kind: &'static str, mut source: S, mut sink: K, journal: Journal) {
    follow(kind, &mut source, &mut sink, &journal, false).await;
}

async fn follow<S: Source, K: Sink>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    journal: &Journal,
    ends_unserved: bool,
) {
    let journal = journal.page(kind, source.place(), sink.name());
    let mut position: Option<String> = None;
    let mut failures = 0_u32;
    loop {
        let begun = Instant::now();
        let (mut progress, mut stayed) = (false, false);
        let outcome = match position.take() {
            None => {
                journal.lists();
                list(kind, source, sink, &journal).await
            }
            Some(version) => {
                let outcome = watch(kind, source, sink, version, &journal, &mut progress).await;
                if outcome.is_ok() {
                    journal.ended();
                }
                stayed = outcome.is_ok() && begun.elapsed() >= BRIEF;
                // A server that closes every watch at once, or has always just forgotten
                // where we were, must not be asked in a loop.
                let fruitless = !progress && !stayed;
                outcome.and_then(|next| if fruitless { Err((next, Failure::Fruitless)) } else { Ok(next) })
            }
        };
        // Neither a list that took its time nor one that completed shows that the server can cope:
        // only a watch that brought something, or stayed open, does.
        if progress || stayed {
            failures = 0;
        }
        match outcome {
            Ok(next) => position = next,
            Err((next, failure)) => {
                failures += 1;
                journal.failed(&failure);
                tracing::warn!(kind, error = %failure, failures, "list or watch failed");
                sink.failed(&failure);
                if ends_unserved && matches!(failure, Failure::Unserved) {
                    return;
                }
                position = next;
                tokio::time::sleep(pause_after(failures, &failure)).await;
            }
        }
    }
}

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
async fn list<S: Source, K: Sink>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    journal: &journal::Page,
) -> Next {
    sink.began();
    let mut page = None;
    let mut oldest = None;
    let (mut mixed, mut renewed) = (false, false);
    loop {
        let Page { items, next, version } = match source.list(page.as_deref()).await {
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
        for raw in items {
            apply(kind, sink, &raw).map_err(|e| (None, Failure::Undecodable(e)))?;
        }
        let oldest = oldest.get_or_insert(version);
        if let Some(token) = next {
            page = Some(token);
            continue;
        }
        sink.completed(oldest);
        return if mixed { Err((None, Failure::Expired)) } else { Ok(Some(oldest.clone())) };
    }
}

/// Decodes an object for `sink`; returns its resourceVersion.
fn apply<K: Sink>(kind: &'static str, sink: &mut K, raw: &RawValue) -> Result<String, String> {
    let item = decode_item(raw)?;
    if let Item::Unreadable { meta, why } = &item {
        let Meta { namespace, name, .. } = &**meta;
        tracing::warn!(kind, %namespace, %name, error = %why, "object does not decode; it is kept as present and unreadable");
    }
    sink.applied(&item);
    Ok(item.meta().resource_version.to_string())
}

/// One watch from `version` until it ends; `progress` is set once anything has come.
async fn watch<S: Source, K: Sink>(
    kind: &'static str,
    source: &mut S,
    sink: &mut K,
    mut version: String,
    journal: &journal::Page,
    progress: &mut bool,
) -> Next {
    let mut events = match source.watch(&version).await {
        Ok(events) => events,
        Err(Failure::Expired) => return Ok(None),
        Err(failure) => return Err((Some(version), failure)),
    };
    journal.opened();
    loop {
        let step = match events.next().await {
            Ok(step) => step,
            Err(Failure::Expired) => return Ok(None),
            Err(failure) => return Err((Some(version), failure)),
        };
        let relist = |e| (None, Failure::Undecodable(e));
        *progress |= !matches!(step, Step::End);
        match step {
            Step::End => return Ok(Some(version)),
            Step::Bookmark(reached) => {
                journal.progress();
                sink.advanced(&reached);
                version = reached;
            }
            Step::Applied(raw) => {
                journal.event();
                version = apply(kind, sink, &raw).map_err(relist)?;
            }
            Step::Deleted(raw) => {
                journal.event();
                let meta = decode_meta(&raw).map_err(relist)?;
                version = meta.resource_version.to_string();
                sink.deleted(&meta);
            }
        }
    }
}

#[cfg(test)]
mod tests;
