//! Events for people, without ever being a load.
//!
//! [`Recorder::record`] never waits. A task sends what is left after three limits:
//! the same event again only raises its series; each object has a bucket of its
//! own; all together have one. What does not fit is dropped and counted.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::Api;
use crate::kind::{EVENT, Kind};
use crate::metrics::MachineryMetrics;
use crate::write::{Action, Guard, Write};

/// How loud an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For the record.
    Normal,
    /// Somebody should look.
    Warning,
}

/// The object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
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
    /// How loud.
    pub severity: Severity,
    /// `UpperCamelCase`, from a fixed set.
    pub reason: &'static str,
    /// What was being done, `UpperCamelCase`.
    pub action: &'static str,
    /// Text for people.
    pub note: String,
}

/// Hands events to the sending task. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Event>,
    metrics: MachineryMetrics,
}

/// Sends events.
pub struct Sender {
    receiver: mpsc::Receiver<Event>,
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
    // A burst larger than this is beyond the global bucket anyway.
    let (sender, receiver) = mpsc::channel(1024);
    let recorder = Recorder { sender, metrics: metrics.clone() };
    (recorder, Sender { receiver, api, metrics, controller, instance })
}

impl Recorder {
    /// Records `event`, or drops and counts it.
    pub fn record(&self, event: Event) {
        if self.sender.try_send(event).is_err() {
            self.metrics.events_dropped.inc();
        }
    }
}

/// A token bucket.
#[derive(Debug, Clone)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn full(size: f64, now: Instant) -> Self {
        Self { tokens: size, filled: now }
    }

    /// Takes a token, if there is one after refilling at `rate` per second.
    fn take(&mut self, size: f64, rate: f64, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * rate;
        self.tokens = (self.tokens + gained).min(size);
        self.filled = now;
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }
}

/// Per object: 25 at once, then one in five minutes, as client-go's spam filter.
const OBJECT: (f64, f64) = (25.0, 1.0 / 300.0);
/// All objects together: 100 at once, then ten a second; an event costs the API
/// server as much as any other write.
const GLOBAL: (f64, f64) = (100.0, 10.0);
/// How long a repetition belongs to the series of the first.
const SERIES: Duration = Duration::from_mins(6);
/// What of an object's name is in that of an event: 253 characters less a dot and the 16 of the
/// time in nanoseconds, with room to spare.
const STEM: usize = 230;
/// Longest note the API takes is 1024 bytes.
const NOTE: usize = 1024;

/// What an event has to pass; plain data with the time passed in.
#[derive(Debug)]
struct RateLimiter {
    global: Bucket,
    objects: HashMap<String, Bucket>,
    series: HashMap<Event, Series>,
}

#[derive(Debug, Clone)]
struct Series {
    count: u32,
    last: Instant,
    /// The event object, once it exists.
    object: Option<(String, Guard)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Passed {
    /// Send it as a new object.
    New,
    /// Raise the count of its series.
    Again(u32),
    /// Drop it.
    No,
}

impl RateLimiter {
    fn new(now: Instant) -> Self {
        Self { global: Bucket::full(GLOBAL.0, now), objects: HashMap::new(), series: HashMap::new() }
    }

    fn pass(&mut self, event: &Event, now: Instant) -> Passed {
        self.series.retain(|_, series| now.saturating_duration_since(series.last) < SERIES);
        if self.objects.len() > 4096 {
            self.objects.clear();
        }
        let bucket =
            self.objects.entry(event.regarding.uid.clone()).or_insert_with(|| Bucket::full(OBJECT.0, now));
        if !bucket.take(OBJECT.0, OBJECT.1, now) || !self.global.take(GLOBAL.0, GLOBAL.1, now) {
            return Passed::No;
        }
        if let Some(series) = self.series.get_mut(event) {
            series.count += 1;
            series.last = now;
            Passed::Again(series.count)
        } else {
            self.series.insert(event.clone(), Series { count: 1, last: now, object: None });
            Passed::New
        }
    }
}

impl Sender {
    /// Sends events until every recorder is gone.
    pub async fn run(mut self) {
        let mut limiter = RateLimiter::new(Instant::now());
        while let Some(event) = self.receiver.recv().await {
            let passed = limiter.pass(&event, Instant::now());
            let object = limiter.series.get(&event).and_then(|s| s.object.clone());
            let write = match (passed, object) {
                (Passed::No, _) => {
                    self.metrics.events_dropped.inc();
                    continue;
                }
                (Passed::Again(count), Some((name, guard))) => Self::again(&event, name, guard, count),
                (Passed::New | Passed::Again(_), _) => self.create(&event),
            };
            match write.send(&self.api, &self.metrics).await {
                Ok(written) => {
                    self.metrics.events_sent.inc();
                    let guard = Guard {
                        uid: written.meta.uid.into(),
                        resource_version: written.meta.resource_version.into(),
                    };
                    if let Some(series) = limiter.series.get_mut(&event) {
                        series.object = Some((write.name, guard));
                    }
                }
                Err(refusal) => {
                    self.metrics.events_dropped.inc();
                    limiter.series.remove(&event);
                    tracing::debug!(error = %refusal, reason = event.reason, "event not sent");
                }
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
}

/// A name for an event, in the way of client-go: the object, a dot, something unique. No part of
/// a name may end with a dot or a dash, which is how a cut one may end.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::POD;

    fn event(uid: &str, note: &str) -> Event {
        let regarding = Regarding { kind: POD, namespace: "n".into(), name: "p".into(), uid: uid.into() };
        Event { regarding, severity: Severity::Warning, reason: "R", action: "A", note: note.into() }
    }

    #[test]
    fn the_same_event_again_is_a_series_and_another_note_another_event() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new(now);
        assert_eq!(limiter.pass(&event("1", "a"), now), Passed::New);
        assert_eq!(limiter.pass(&event("1", "a"), now), Passed::Again(2));
        assert_eq!(limiter.pass(&event("1", "b"), now), Passed::New);
        assert_eq!(limiter.pass(&event("1", "a"), now + SERIES), Passed::New);
    }

    #[test]
    fn one_object_cannot_use_up_what_all_share() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new(now);
        let passed = |s: &mut RateLimiter, uid: &str, n: usize| {
            (0..n).filter(|_| s.pass(&event(uid, "a"), now) != Passed::No).count()
        };
        assert_eq!(passed(&mut limiter, "1", 100), 25);
        assert_eq!(passed(&mut limiter, "2", 1), 1);
        let rest: usize = (3..200).map(|i| passed(&mut limiter, &i.to_string(), 1)).sum();
        assert_eq!(rest, 100 - 26);
    }

    #[test]
    fn a_long_name_is_cut_where_a_name_may_end() {
        assert_eq!(name_of("pod", 255), "pod.ff");
        let cut_at = |end: &str| format!("{}{end}{}", "a".repeat(STEM - end.len()), "b".repeat(20));
        for end in [".", "-", "-.", ".-"] {
            assert_eq!(name_of(&cut_at(end), 1), format!("{}.1", "a".repeat(STEM - end.len())));
        }
        assert!(name_of(&"a".repeat(253), i128::from(i64::MAX)).len() <= 253);
    }

    #[test]
    fn an_event_about_a_node_is_in_the_default_namespace() {
        let mut regarding = event("1", "a").regarding;
        assert_eq!(regarding.events(), "n");
        regarding.namespace.clear();
        assert_eq!(regarding.events(), "default");
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }
}
