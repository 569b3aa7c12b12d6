//! Watches: the changes of a collection from a revision on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::selector::Selector;
use super::status::Status;
use super::store::{Change, Happened};
use super::{Shared, State, Target, events, meta, table};
use crate::kinds::Resource;

/// An open watch. It ends at its timeout, with an expired revision, when the server restarts, or when its
/// resource is no longer served.
pub struct Watch {
    shared: Arc<Shared>,
    resource: Arc<Resource>,
    namespace: Option<String>,
    selector: Selector,
    revision: u64,
    bookmarks: bool,
    as_table: bool,
    ends: Instant,
    next_bookmark: Instant,
    ready: VecDeque<Value>,
    /// The restart count of the server when the watch was opened.
    life: u64,
    over: bool,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch of {} from {}", self.resource.qualified(), self.revision)
    }
}

/// The interval between bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The maximum lifetime of a watch.
const LONGEST: Duration = Duration::from_hours(24);
/// The lifetime of a watch without `timeoutSeconds`. Upstream draws between this and twice this.
const LASTS: Duration = Duration::from_mins(30);

impl Watch {
    pub(super) fn open(shared: Arc<Shared>, state: &State, target: &Target<'_>) -> Result<Self, Status> {
        let query = &target.request.query;
        let resource = &target.resource;
        let mut fields = query.get("fieldSelector").to_owned();
        if let Some(name) = &target.name {
            fields = format!("metadata.name={name}");
        }
        let selector = Selector::parse(resource, query.get("labelSelector"), &fields)?;
        let asked = query.get("resourceVersion");
        let now = Instant::now();
        let lasts = query.number("timeoutSeconds").filter(|seconds| *seconds > 0);
        let mut watch = Self {
            shared,
            resource: resource.clone(),
            namespace: target.namespace.clone(),
            selector,
            revision: 0,
            bookmarks: query.is_on("allowWatchBookmarks"),
            as_table: table::wanted(&target.request.accept),
            ends: now + lasts.map_or(LASTS, Duration::from_secs).min(LONGEST),
            next_bookmark: now + BOOKMARK_EVERY,
            ready: VecDeque::new(),
            life: state.life,
            over: false,
        };
        match asked {
            // A watch from any state starts with the existing objects.
            "" | "0" => {
                let all = state.store.list(&resource.stored_as(), target.namespace.as_deref());
                let there: Vec<Arc<Value>> = all.map(|(_, object)| object.clone()).collect();
                for object in there {
                    let change = Change { revision: 0, happened: Happened::Added, object, before: None };
                    watch.take(state, &change);
                }
                watch.revision = state.store.revision();
                if query.is_on("sendInitialEvents") {
                    watch.bookmark(true);
                }
            }
            asked => {
                watch.revision = asked.parse().map_err(|_| {
                    Status::internal(format!(
                        "resourceVersion: Invalid value: {asked:?}: strconv.ParseUint: parsing {asked:?}: invalid syntax"
                    ))
                })?;
            }
        }
        Ok(watch)
    }

    /// Returns the next event, or `None` when the watch is over.
    pub async fn next(&mut self) -> Option<Value> {
        let shared = self.shared.clone();
        loop {
            // The listener is registered before the history is read: a change in between is not missed.
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.ready.is_empty() && !self.over {
                self.look();
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let until = if self.bookmarks { self.ends.min(self.next_bookmark) } else { self.ends };
            if self.over || Instant::now() >= self.ends {
                return None;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(until) => {
                    if self.bookmarks && Instant::now() >= self.next_bookmark {
                        self.next_bookmark += BOOKMARK_EVERY;
                        self.bookmark(false);
                    }
                }
            }
        }
    }

    /// Queues the events since the last read revision.
    fn look(&mut self) {
        let shared = self.shared.clone();
        let state = shared.state();
        let Resource { group, version, plural, .. } = &*self.resource;
        if state.life != self.life || state.resource(group, version, plural).is_none() {
            self.over = true;
            return;
        }
        let changes = match state.store.since(&self.resource.stored_as(), self.revision) {
            Ok(changes) => changes,
            Err(kept_from) => {
                let message = format!("too old resource version: {} ({kept_from})", self.revision);
                self.ready.push_back(json!({"type": "ERROR", "object": Status::expired(message).body()}));
                self.over = true;
                return;
            }
        };
        for change in changes {
            self.take(&state, change);
        }
        self.revision = self.revision.max(state.store.revision());
    }

    fn take(&mut self, state: &State, change: &Change) {
        let in_place =
            self.namespace.as_deref().is_none_or(|of| of == meta::text(&change.object, "namespace"));
        if !in_place {
            return;
        }
        let shown = |object: &Value| events::shown(&self.resource, object.clone());
        let object = shown(&change.object);
        let is = change.happened != Happened::Deleted && self.selector.selects(&object);
        let was = match (change.happened, &change.before) {
            (Happened::Added, _) | (_, None) => false,
            (_, Some(before)) => self.selector.is_empty() || self.selector.selects(&shown(before)),
        };
        let (kind, object) = match (was, is) {
            (false, true) => ("ADDED", object),
            (true, true) => ("MODIFIED", object),
            (true, false) if change.happened == Happened::Deleted => ("DELETED", object),
            // An object that leaves the selector is reported as deleted, in its previous state with the new
            // version.
            (true, false) => {
                let mut last = change.before.as_deref().map(shown).unwrap_or_default();
                meta::set(&mut last, "resourceVersion", change.revision.to_string().into());
                ("DELETED", last)
            }
            (false, false) => return,
        };
        let object =
            if self.as_table { table::rows(state, &self.resource, vec![object], None) } else { object };
        self.ready.push_back(json!({"type": kind, "object": object}));
    }

    fn bookmark(&mut self, initial: bool) {
        let mut object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": {"resourceVersion": self.revision.to_string(), "creationTimestamp": null},
        });
        if initial {
            meta::put(&mut object, &["metadata", "annotations", "k8s.io/initial-events-end"], "true".into());
        }
        self.ready.push_back(json!({"type": "BOOKMARK", "object": object}));
    }
}
