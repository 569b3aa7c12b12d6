//! A local copy of a collection, fed by a list and a watch.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::client::{Client, Events};
use crate::api::meta;
use crate::api::meta::Name;

/// The pause before the next attempt while the resource is not served.
const PATIENCE: Duration = Duration::from_secs(1);

/// A change of an object.
pub(super) enum Event {
    Applied(Value),
    Deleted(Value),
}

/// A collection that is listed and watched.
pub(super) struct Follow {
    client: Client,
    path: &'static str,
    known: BTreeMap<Name, Value>,
    ready: VecDeque<Event>,
    watch: Option<Events>,
    /// The resourceVersion of the last event, or of the list if none came since.
    reached: Option<String>,
}

impl Follow {
    pub(super) fn new(client: Client, path: &'static str) -> Self {
        Self { client, path, known: BTreeMap::new(), ready: VecDeque::new(), watch: None, reached: None }
    }

    /// Returns the next event. Dropping the future loses no event.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            let Some(watch) = &mut self.watch else {
                if !self.open().await {
                    tokio::time::sleep(PATIENCE).await;
                }
                continue;
            };
            match watch.next().await {
                Some(event) => self.take(&event),
                None => self.watch = None,
            }
        }
    }

    /// Returns the latest known state of an object.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.known.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Value> {
        self.known.values()
    }

    /// Opens the watch and returns whether it is open. An outage does not remove the known objects. Dropping
    /// the future between list and watch does not repeat the list.
    async fn open(&mut self) -> bool {
        if self.reached.is_none() {
            self.reached = self.list().await;
        }
        let Some(version) = &self.reached else { return false };
        self.watch = self.client.watch(self.path, version).await;
        if self.watch.is_none() {
            // The version may be too old for the server.
            self.reached = None;
        }
        self.watch.is_some()
    }

    async fn list(&mut self) -> Option<String> {
        let said = self.client.get(self.path).await;
        if !said.is_success() {
            return None;
        }
        let list = said.object;
        let mut gone = std::mem::take(&mut self.known);
        for object in meta::items(&list["items"]) {
            let name = meta::name_of(object);
            // An object with the same name and another uid replaces the known one.
            let before =
                gone.remove(&name).filter(|before| before["metadata"]["uid"] != object["metadata"]["uid"]);
            self.ready.extend(before.map(Event::Deleted));
            self.known.insert(name, object.clone());
            self.ready.push_back(Event::Applied(object.clone()));
        }
        self.ready.extend(gone.into_values().map(Event::Deleted));
        Some(meta::text(&list, "resourceVersion").to_owned())
    }

    fn take(&mut self, event: &Value) {
        let object = event["object"].clone();
        let name = meta::name_of(&object);
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                self.reached = Some(meta::text(&object, "resourceVersion").to_owned());
                self.known.insert(name, object.clone());
                self.ready.push_back(Event::Applied(object));
            }
            Some("DELETED") => {
                self.reached = Some(meta::text(&object, "resourceVersion").to_owned());
                self.known.remove(&name);
                self.ready.push_back(Event::Deleted(object));
            }
            // The watch is too far behind: the collection is listed again.
            _ => (self.watch, self.reached) = (None, None),
        }
    }
}
