//! A local copy of a collection, fed by a list and a watch.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use tokio::time::Instant;

use super::client::{Client, Events};
use crate::api::meta;
use crate::api::meta::Name;

/// The pause before the next attempt while the resource is not served.
const PATIENCE: Duration = Duration::from_secs(1);

/// Delay behind the server with which a component sees and does something, drawn at random up to a maximum.
pub(super) struct Lag {
    rng: Rng,
    most: Duration,
}

impl Lag {
    pub(super) fn new(most: Duration, seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), most }
    }

    pub(super) fn draw(&mut self) -> Duration {
        self.most.mul_f64(self.rng.f64())
    }

    /// Another one of the same kind.
    pub(super) fn another(&mut self) -> Self {
        Self { rng: self.rng.fork(), most: self.most }
    }
}

/// Sleeps until this time, or for ever.
pub(super) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

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
    /// Events that are to be returned, each not before this time.
    ready: VecDeque<(Option<Instant>, Event)>,
    lag: Option<Lag>,
    watch: Option<Events>,
    /// The resourceVersion of the last event, or of the list if none came since.
    reached: Option<String>,
}

impl Follow {
    pub(super) fn new(client: Client, path: &'static str) -> Self {
        Self {
            client,
            path,
            known: BTreeMap::new(),
            ready: VecDeque::new(),
            lag: None,
            watch: None,
            reached: None,
        }
    }

    /// Events come later. The known objects are still those of the server.
    pub(super) fn lagging(self, lag: Option<Lag>) -> Self {
        Self { lag, ..self }
    }

    fn push(&mut self, event: Event) {
        let before = self.ready.back().and_then(|(due, _)| *due);
        let due = self.lag.as_mut().map(|lag| Instant::now() + lag.draw());
        // No event overtakes another.
        self.ready.push_back((due.max(before), event));
    }

    /// Returns the next event. Dropping the future loses no event.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            let due = self.ready.front().map(|(due, _)| *due);
            if due.is_some_and(|due| due.is_none_or(|due| due <= Instant::now()))
                && let Some((_, event)) = self.ready.pop_front()
            {
                return event;
            }
            let Some(watch) = &mut self.watch else {
                if let Some(Some(due)) = due {
                    tokio::time::sleep_until(due).await;
                } else if !self.open().await {
                    tokio::time::sleep(PATIENCE).await;
                }
                continue;
            };
            // What comes while an event is late is late from now on, not from when that one has been returned.
            let event = tokio::select! {
                biased;
                event = watch.next() => event,
                () = sleep_until(due.flatten()) => continue,
            };
            match event {
                Some(event) => self.take(&event),
                None => self.watch = None,
            }
        }
    }

    /// Returns the latest known state of an object.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.known.get(&(namespace.to_owned(), name.to_owned()))
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
            if let Some(before) = before {
                self.push(Event::Deleted(before));
            }
            self.known.insert(name, object.clone());
            self.push(Event::Applied(object.clone()));
        }
        gone.into_values().for_each(|object| self.push(Event::Deleted(object)));
        Some(meta::text(&list, "resourceVersion").to_owned())
    }

    fn take(&mut self, event: &Value) {
        let object = event["object"].clone();
        let name = meta::name_of(&object);
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                self.reached = Some(meta::text(&object, "resourceVersion").to_owned());
                self.known.insert(name, object.clone());
                self.push(Event::Applied(object));
            }
            Some("DELETED") => {
                self.reached = Some(meta::text(&object, "resourceVersion").to_owned());
                self.known.remove(&name);
                self.push(Event::Deleted(object));
            }
            // The watch is too far behind: the collection is listed again.
            _ => (self.watch, self.reached) = (None, None),
        }
    }
}
