//! Reads: get, and list in pages.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::body::PROTOBUF;
use super::selector::Selector;
use super::status::Status;
use super::{Answer, Body, State, Target, events, meta, table};
use crate::kinds::is_built_in;

/// Lists with further pages. Each entry keeps the objects as they were when the list began.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    next: u64,
    open: VecDeque<(u64, String, u64, Vec<Arc<Value>>)>,
}

/// The number of lists that can be open at once. The oldest is dropped, and its token expires.
const MOST_OPEN: usize = 64;

/// The prefixes of continue tokens: `page-` continues a list from its snapshot, `rest-` continues an expired
/// list with the current objects.
const PAGE: &str = "page-";
const REST: &str = "rest-";

impl Pages {
    fn keep(&mut self, of: String, revision: u64, rest: Vec<Arc<Value>>) -> String {
        self.next += 1;
        self.open.push_back((self.next, of, revision, rest));
        if self.open.len() > MOST_OPEN {
            self.open.pop_front();
        }
        format!("{PAGE}{}", self.next)
    }

    /// Returns the rest of a list and the revision of its snapshot. The entry stays open, so that a client
    /// can repeat the request after a lost reply.
    ///
    /// # Errors
    /// The token is malformed or expired, or belongs to another list.
    fn turn(&self, of: &str, token: &str) -> Result<(u64, Vec<Arc<Value>>), Status> {
        let invalid = || Status::bad_request("invalid continue token: continue key is not valid");
        let number = token.strip_prefix(PAGE).or_else(|| token.strip_prefix(REST)).ok_or_else(invalid)?;
        let mut open = self.open.iter().filter(|(_, list, ..)| list == of);
        let expired = "The provided continue parameter is too old to display a consistent list result. \
                       You must start a new list without the continue parameter.";
        let found = open.find(|(known, ..)| known.to_string() == number);
        let (.., revision, rest) = found.ok_or_else(|| Status::expired(expired))?;
        Ok((*revision, rest.clone()))
    }
}

/// Returns the answer that the snapshot of a list has expired, with a token for the rest of the list in its
/// current state.
fn too_old(token: &str) -> Answer {
    let message = "The provided continue parameter is too old to display a consistent list result. You can \
                   start a new list without the continue parameter, or use the continue token in this \
                   response to retrieve the remainder of the results. Continuing with the provided token \
                   results in an inconsistent list - objects that were created, modified, or deleted \
                   between the time the first chunk was returned and now may show up in the list.";
    let status = Status::expired(message);
    let mut body = status.body();
    body["metadata"]["continue"] = json!(token);
    Answer { code: status.code, body: Body::Json(body) }
}

impl State {
    pub(super) fn get(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let object = self.current(target)?;
        let object = events::shown(&target.resource, Value::clone(&object));
        if target.request.accept == PROTOBUF
            && let Some(bytes) = self.in_protobuf(object.clone())
        {
            return Ok(Answer { code: 200, body: Body::Protobuf(bytes) });
        }
        Ok(Answer::ok(table::shown(self, target, vec![object], None)))
    }

    /// Returns the object that the target names.
    ///
    /// # Errors
    /// The object does not exist.
    pub(super) fn current(&self, target: &Target<'_>) -> Result<Arc<Value>, Status> {
        let name = target.name.clone().unwrap_or_default();
        let key = (target.namespace.clone().unwrap_or_default(), name.clone());
        let object = self.store.get(&target.resource.stored_as(), &key);
        object.cloned().ok_or_else(|| Status::not_found(&target.resource, &name))
    }

    /// Returns the selected objects in their current state, from the name of `first` on.
    fn from(&self, target: &Target<'_>, selector: &Selector, first: Option<&Arc<Value>>) -> Vec<Arc<Value>> {
        let resource = &target.resource;
        let all = self.store.list(&resource.stored_as(), target.namespace.as_deref());
        let first = first.map(|first| meta::name_of(first));
        let rest = all.filter(|(name, _)| first.as_ref().is_none_or(|first| *name >= first));
        let selected = rest.map(|(_, object)| object).filter(|object| {
            selector.is_empty() || selector.selects(&events::shown(resource, Value::clone(object)))
        });
        selected.cloned().collect()
    }

    pub(super) fn list(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let query = &target.request.query;
        let resource = &target.resource;
        let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        // A token is bound to the path of its list: read access to one list does not open another.
        let of = target.request.path.clone();
        let (revision, mut objects) = match query.get("continue") {
            "" => (self.store.revision(), self.from(target, &selector, None)),
            token => {
                let (revision, rest) = self.pages.turn(&of, token)?;
                let is_known = self.store.since(&resource.stored_as(), revision).is_ok();
                match token.strip_prefix(PAGE) {
                    Some(_) if is_known => (revision, rest),
                    Some(number) => return Ok(too_old(&format!("{REST}{number}"))),
                    None => (self.store.revision(), self.from(target, &selector, rest.first())),
                }
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
