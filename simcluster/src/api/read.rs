//! Reading: one object, or lists of them, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::selector::Selector;
use super::status::Status;
use super::{Answer, State, Target, events, table};
use crate::kinds::is_built_in;

/// Lists that somebody may come back to for the next page: the objects as they were when the
/// list began.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    next: u64,
    open: VecDeque<(u64, String, u64, Vec<Arc<Value>>)>,
}

/// Lists that can be open at once; the oldest goes first, and its reader is told to start anew.
const MOST_OPEN: usize = 64;

impl Pages {
    fn keep(&mut self, of: String, revision: u64, rest: Vec<Arc<Value>>) -> String {
        self.next += 1;
        self.open.push_back((self.next, of, revision, rest));
        if self.open.len() > MOST_OPEN {
            self.open.pop_front();
        }
        format!("page-{}", self.next)
    }

    /// The rest of a list; a page can be asked for again, after a reply that was lost.
    fn turn(&self, of: &str, token: &str) -> Option<(u64, Vec<Arc<Value>>)> {
        let number: u64 = token.strip_prefix("page-")?.parse().ok()?;
        let mut open = self.open.iter().filter(|(_, list, ..)| list == of);
        let (.., revision, rest) = open.find(|(known, ..)| *known == number)?;
        Some((*revision, rest.clone()))
    }
}

impl State {
    pub(super) fn get(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let object = self.current(target)?;
        let object = events::shown(&target.resource, Value::clone(&object));
        Ok(Answer::ok(table::shown(self, target, vec![object], None)))
    }

    /// The object that is asked for.
    ///
    /// # Errors
    /// It is not there.
    pub(super) fn current(&self, target: &Target<'_>) -> Result<Arc<Value>, Status> {
        let name = target.name.clone().unwrap_or_default();
        let key = (target.namespace.clone().unwrap_or_default(), name.clone());
        let object = self.store.get(&target.resource.stored_as(), &key);
        object.cloned().ok_or_else(|| Status::not_found(&target.resource, &name))
    }

    pub(super) fn list(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let query = &target.request.query;
        let resource = &target.resource;
        let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        // Whoever may read one list may not go on with another.
        let of = target.request.path.clone();
        let (revision, mut objects) = match query.get("continue") {
            "" => {
                let all = self.store.list(&resource.stored_as(), target.namespace.as_deref());
                let selected = all.map(|(_, object)| object).filter(|object| {
                    selector.is_empty() || selector.selects(&events::shown(resource, Value::clone(object)))
                });
                (self.store.revision(), selected.cloned().collect::<Vec<_>>())
            }
            token => {
                if !token.starts_with("page-") {
                    return Err(Status::bad_request("invalid continue token: continue key is not valid"));
                }
                let expired = "The provided continue parameter is too old to display a consistent list result. \
                               You must start a new list without the continue parameter.";
                self.pages.turn(&of, token).ok_or_else(|| Status::expired(expired))?
            }
        };
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if !is_built_in(resource) {
            metadata["continue"] = json!("");
        }
        let limit =
            query.number("limit").and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        if let Some(limit) = limit.filter(|limit| *limit < objects.len()) {
            let rest = objects.split_off(limit);
            if selector.is_empty() {
                metadata["remainingItemCount"] = json!(rest.len());
            }
            metadata["continue"] = json!(self.pages.keep(of, revision, rest));
        }
        let items: Vec<Value> =
            objects.iter().map(|object| events::shown(resource, Value::clone(object))).collect();
        Ok(Answer::ok(table::shown(self, target, items, Some(metadata))))
    }
}
