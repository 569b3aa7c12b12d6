//! Events for people, without ever being a load.
//!
//! [`Recorder::record`] and [`Recorder::alarm`] never wait. A task sends what is left after four
//! limits: the same event again only raises its series; each object and each namespace has a bucket;
//! namespaces take turns at the pace of all. What does not fit is dropped and counted. Warnings of
//! our own go through a lane that tenants' complaints cannot fill.

mod fair;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::fair::{Lane, Limits, Turn};
use crate::api::Api;
use crate::bounds::{Rate, Recent};
use crate::controller::LEVEL;
use crate::kind::{EVENT, Kind};
use crate::metrics::MachineryMetrics;
use crate::write::{Action, Guard, Write};

/// Severity of an event, its `type` in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For the record.
    Normal,
    /// A person should look.
    Warning,
}

/// The object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace of the object; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Uid of the object.
    pub uid: String,
}

impl Regarding {
    /// The namespace of Events about it: the API server takes those about cluster-scoped objects in
    /// `default` (and `kube-system`) only, which is where kubectl looks for them.
    fn events(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }
}

/// An event to be recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// The object its author looks at.
    pub regarding: Regarding,
    /// Severity of the event.
    pub severity: Severity,
    /// `UpperCamelCase`, from a fixed set.
    pub reason: &'static str,
    /// Action that was being taken, `UpperCamelCase`.
    pub action: &'static str,
    /// Text for people.
    pub note: String,
}

/// Tenants' complaints. In all 100 at once, then ten a second: an event costs the API server as much
/// as any other write. A namespace has half of that at once, and a fifth for long.
const COMPLAINTS: Limits = Limits {
    lane: Rate { size: 100.0, per_second: 10.0 },
    share: Rate { size: 50.0, per_second: 2.0 },
    by_reason: false,
};
/// Warnings of our own. A tenant who force-deletes Pods causes `ConsumerVanished`, but no reason takes
/// the share of another one.
const OWN: Limits = Limits { by_reason: true, ..COMPLAINTS };
/// Longest time between two events of a series: longer than the time after which the level timer
/// repeats everything, shorter than the hour that the API server keeps Events.
const SERIES: Duration = Duration::from_secs(LEVEL.as_secs() + 5 * 60);
/// Series that a generation of [`Recent`] remembers: those of `SERIES` at the pace of a lane.
const MOST_SERIES: usize = 10_000;
/// The characters of an object's name that are in that of an event: 253 less a dot and the 16 of the
/// time in nanoseconds, with room to spare.
const STEM: usize = 230;
/// Longest note the API takes is 1024 bytes.
const NOTE: usize = 1024;

/// A lane, shared by the recorders and the task that empties it.
type Shared = Arc<Mutex<Lane>>;

fn locked(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entrance of a lane.
#[derive(Clone)]
struct Entrance {
    lane: Shared,
    /// Wakes the task. It is closed once every recorder is gone.
    wake: mpsc::Sender<()>,
}

/// The exit of a lane.
struct Exit {
    lane: Shared,
    woken: mpsc::Receiver<()>,
}

fn lane(limits: Limits) -> (Entrance, Exit) {
    let lane = Arc::new(Mutex::new(Lane::new(limits, Instant::now())));
    let (wake, woken) = mpsc::channel(1);
    (Entrance { lane: Arc::clone(&lane), wake }, Exit { lane, woken })
}

/// Hands events to the sending task. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    complaints: Entrance,
    own: Entrance,
    metrics: MachineryMetrics,
}

/// Sends events.
pub struct Sender {
    complaints: Exit,
    own: Exit,
    outlet: Outlet,
}

/// Where events go, and under which name.
struct Outlet {
    api: Api,
    metrics: MachineryMetrics,
    controller: &'static str,
    instance: String,
}

/// A recorder and the task behind it. `controller` names us in the events,
/// `instance` this process.
pub fn recorder(
    api: Api,
    metrics: MachineryMetrics,
    controller: &'static str,
    instance: String,
) -> (Recorder, Sender) {
    let (complaints, complained) = lane(COMPLAINTS);
    let (own, warned) = lane(OWN);
    let recorder = Recorder { complaints, own, metrics: metrics.clone() };
    let outlet = Outlet { api, metrics, controller, instance };
    (recorder, Sender { complaints: complained, own: warned, outlet })
}

impl Recorder {
    /// Records what stands in the way of an object, or drops and counts it.
    pub fn record(&self, event: Event) {
        self.enter(&self.complaints, event);
    }

    /// Records a warning of our own, which is for the engineer of the cluster: complaints about
    /// objects, however many, do not crowd it out.
    pub fn alarm(&self, event: Event) {
        self.enter(&self.own, event);
    }

    fn enter(&self, entrance: &Entrance, mut event: Event) {
        // What waits is bounded in bytes, too.
        event.note.truncate(cut(&event.note, NOTE).len());
        if locked(&entrance.lane).admit(event, Instant::now()) {
            // It fails if the task is already to be woken, or gone.
            let _woken = entrance.wake.try_send(());
        } else {
            self.metrics.events_dropped.inc();
        }
    }
}

/// An event object that is raised instead of making another.
#[derive(Debug, Clone)]
struct Series {
    count: u32,
    last: Instant,
    name: String,
    guard: Guard,
}

impl Sender {
    /// Sends events until every recorder is gone.
    pub async fn run(self) {
        // Beside each other: a complaint that the API server leaves without an answer does not hold up
        // a warning.
        tokio::join!(self.outlet.empty(self.complaints), self.outlet.empty(self.own));
    }
}

impl Outlet {
    async fn empty(&self, mut exit: Exit) {
        let mut series = Recent::new(SERIES, MOST_SERIES, Instant::now());
        let hashes = RandomState::new();
        loop {
            let turn = locked(&exit.lane).next(Instant::now());
            match turn {
                Turn::Send(event) => {
                    let key = hashes.hash_one(&event);
                    self.send(&event, key, &mut series).await;
                }
                Turn::Wait(until) => sleep_until(until).await,
                Turn::Idle => {
                    if exit.woken.recv().await.is_none() {
                        break;
                    }
                }
            }
        }
    }

    /// Sends one event. `key` stands for it among the series.
    async fn send(&self, event: &Event, key: u64, series: &mut Recent<u64, Option<Series>>) {
        let now = Instant::now();
        let known = series.entry(&key, now, || None).and_then(|entry| entry.clone());
        let known = known.filter(|series| now.saturating_duration_since(series.last) < SERIES);
        let (count, write) = match known {
            Some(known) => (known.count + 1, again(event, known.name, known.guard, known.count + 1)),
            None => (1, self.create(event)),
        };
        match write.send(&self.api, &self.metrics).await {
            Ok(written) => {
                self.metrics.events_sent.inc();
                let guard = Guard {
                    uid: written.meta.uid.to_string(),
                    resource_version: written.meta.resource_version.to_string(),
                };
                if let Some(entry) = series.entry(&key, now, || None) {
                    *entry = Some(Series { count, last: now, name: write.name, guard });
                }
            }
            Err(refusal) => {
                self.metrics.events_dropped.inc();
                series.forget(&key);
                tracing::debug!(error = %refusal, reason = event.reason, "event not sent");
            }
        }
    }

    fn create(&self, event: &Event) -> Write {
        let now = crate::clock::now();
        let regarding = &event.regarding;
        let name = name_of(&regarding.name, now.as_nanosecond());
        let severity = match event.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let body = json!({
            "apiVersion": EVENT.api_version(),
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": regarding.events()},
            "eventTime": format!("{now:.6}"),
            "type": severity,
            "reason": event.reason,
            "action": event.action,
            "note": cut(&event.note, NOTE),
            "regarding": {
                "apiVersion": regarding.kind.api_version(), "kind": regarding.kind.kind,
                "namespace": regarding.namespace, "name": regarding.name, "uid": regarding.uid,
            },
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        });
        let action = Action::Create { body: body.to_string() };
        Write::new(EVENT, regarding.events(), name, action)
    }
}

/// Raises the series of an event that exists.
fn again(event: &Event, name: String, guard: Guard, count: u32) -> Write {
    let last = format!("{:.6}", crate::clock::now());
    let series = json!({"count": count, "lastObservedTime": last});
    let action = Action::Patch {
        subresource: None,
        guard,
        operations: vec![json!({"op": "add", "path": "/series", "value": series})],
    };
    Write::new(EVENT, event.regarding.events(), name, action)
}

/// A name for an event, in the way of client-go: the object, a dot, something unique. No part of
/// a name may end with a dot or a dash, as a cut one might.
fn name_of(object: &str, unique: i128) -> String {
    let stem: String = object.chars().take(STEM).collect();
    format!("{}.{unique:x}", stem.trim_end_matches(['.', '-']))
}

/// The first `most` bytes of `text`, never half a character.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
