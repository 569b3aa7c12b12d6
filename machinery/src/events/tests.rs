use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::*;
use crate::api;
use crate::kind::{POD, RESOURCE_CLAIM};
use crate::metrics::ClientMetrics;

/// A warning about an object of a namespace; the object's name is its uid, too.
pub(super) fn event_in(namespace: &str, object: &str, note: &str) -> Event {
    let regarding =
        Regarding { kind: POD, namespace: namespace.into(), name: object.into(), uid: object.into() };
    Event { regarding, severity: Severity::Warning, reason: "R", action: "A", note: note.into() }
}

/// A request as the API server got it.
#[derive(Debug)]
struct Seen {
    method: Method,
    body: Value,
}

/// A recorder whose events arrive in the channel. The API server answers those about Pods after
/// `patience`.
fn recording(patience: Duration) -> (Recorder, mpsc::UnboundedReceiver<Seen>) {
    let (seen, receiver) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await?).expect("json");
            if body["regarding"]["kind"] == "Pod" {
                tokio::time::sleep(patience).await;
            }
            // The test may have seen enough.
            let _enough = seen.send(Seen { method: parts.method, body });
            let answer = json!({"metadata": {"uid": "u", "resourceVersion": "1"}}).to_string();
            Ok::<_, kube::Error>(Response::new(Body::from(answer.into_bytes())))
        }
    });
    let client = kube::Client::new(service, "default");
    let metrics = ClientMetrics::register(&mut Registry::default(), "server");
    let api = Api::new(client, api::Limits::default(), metrics);
    let (recorder, sender) = recorder(api, MachineryMetrics::default(), "c", "i".to_owned());
    tokio::spawn(sender.run());
    (recorder, receiver)
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_level_timer_repeats_raises_one_series() {
    let (recorder, mut seen) = recording(Duration::ZERO);
    let mut requests = Vec::new();
    for _ in 0..4 {
        recorder.record(event_in("n", "p", "a"));
        requests.push(seen.recv().await.expect("request"));
        tokio::time::sleep(LEVEL).await;
    }
    let methods: Vec<_> = requests.iter().map(|seen| &seen.method).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::PATCH, Method::PATCH]);
    let last = requests.last().expect("last").body.to_string();
    assert!(last.contains("\"count\":4"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn another_note_or_a_long_silence_is_another_event() {
    let (recorder, mut seen) = recording(Duration::ZERO);
    recorder.record(event_in("n", "p", "a"));
    recorder.record(event_in("n", "p", "b"));
    assert_eq!(seen.recv().await.expect("first").method, Method::POST);
    assert_eq!(seen.recv().await.expect("second").method, Method::POST);
    tokio::time::sleep(SERIES).await;
    recorder.record(event_in("n", "p", "a"));
    assert_eq!(seen.recv().await.expect("third").method, Method::POST);
}

#[tokio::test(start_paused = true)]
async fn a_warning_of_our_own_passes_a_flood_that_the_api_server_answers_slowly() {
    let (recorder, mut seen) = recording(Duration::from_secs(5));
    for namespace in 0..100 {
        for object in 0..100 {
            recorder.record(event_in(&namespace.to_string(), &object.to_string(), "note"));
        }
    }
    // The flood is under way.
    seen.recv().await.expect("a complaint");
    let began = Instant::now();
    for reason in ["SecondWriter", "ConsumerVanished"] {
        let mut event = event_in("0", "claim", "note");
        event.reason = reason;
        event.regarding.kind = RESOURCE_CLAIM;
        recorder.alarm(event);
    }
    let mut said = Vec::new();
    while said.len() < 2 {
        let event = tokio::time::timeout(Duration::from_secs(60), seen.recv()).await.expect("in time");
        let reason = event.expect("event").body["reason"].clone();
        if reason != "R" {
            said.push(reason);
        }
    }
    assert_eq!(said, ["SecondWriter", "ConsumerVanished"]);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_counted() {
    let (recorder, _seen) = recording(Duration::ZERO);
    (0..100).for_each(|_| recorder.record(event_in("n", "p", "a")));
    assert_eq!(recorder.metrics.events_dropped.get(), 75);
}

#[tokio::test(start_paused = true)]
async fn a_long_note_does_not_wait_in_full() {
    let (recorder, mut seen) = recording(Duration::ZERO);
    recorder.record(event_in("n", "p", &"é".repeat(100_000)));
    let note = seen.recv().await.expect("event").body["note"].clone();
    assert_eq!(note.as_str().map(str::len), Some(NOTE));
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
    let mut regarding = event_in("n", "1", "a").regarding;
    assert_eq!(regarding.events(), "n");
    regarding.namespace.clear();
    assert_eq!(regarding.events(), "default");
}

#[test]
fn a_note_is_cut_between_characters() {
    assert_eq!(cut("aé", 2), "a");
    assert_eq!(cut("aé", 3), "aé");
}
