use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue, Response};
use prometheus_client::registry::Registry;

use super::*;
use crate::kind::{POD, RESOURCE_CLAIM};

/// Reaction of the server to the n-th request.
#[derive(Clone, Copy)]
enum Reply {
    Code(u16),
    RetryAfter(u64),
    Silence,
    /// Success, after these seconds.
    Late(u64),
}

/// An API server that plays a script; its last reply is repeated.
fn server(script: &'static [Reply]) -> (Api, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let service = tower::service_fn(move |_: Request<Body>| {
        let turn = counter.fetch_add(1, Ordering::Relaxed);
        let reply = script[turn.min(script.len() - 1)];
        async move {
            let mut headers = HeaderMap::new();
            let code = match reply {
                Reply::Silence => std::future::pending().await,
                Reply::Code(code) => code,
                Reply::Late(seconds) => {
                    sleep(Duration::from_secs(seconds)).await;
                    201
                }
                Reply::RetryAfter(seconds) => {
                    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                    429
                }
            };
            let mut response = Response::new(Body::from(b"{}".to_vec()));
            *response.status_mut() = StatusCode::from_u16(code).expect("code");
            *response.headers_mut() = headers;
            Ok::<_, std::io::Error>(response)
        }
    });
    let client = kube::Client::new(service, "default");
    let metrics = ClientMetrics::register(&mut Registry::default(), "server");
    (Api::new(client, Limits::default(), metrics), seen)
}

fn get() -> Call {
    Call::get(POD, POD.object_path("ns", "pod", None), "pod")
}

fn post() -> Call {
    let uri = RESOURCE_CLAIM.collection_path("ns");
    Call {
        method: Method::POST,
        body: b"{}".to_vec(),
        repeat: Repeat::Untaken,
        ..Call::get(RESOURCE_CLAIM, uri, "")
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_and_a_creation_is_not() {
    let (api, seen) = server(&[Reply::Code(504), Reply::Code(200)]);
    assert!(api.send(&get()).await.is_ok());
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    let (api, seen) = server(&[Reply::Code(504), Reply::Code(200)]);
    assert!(matches!(api.send(&post()).await, Err(Refusal::Transient(_))));
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn repetition_ends() {
    let (api, seen) = server(&[Reply::Code(500)]);
    assert!(matches!(api.send(&get()).await, Err(Refusal::Transient(_))));
    assert_eq!(seen.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_on() {
    let (api, _) = server(&[Reply::Silence]);
    let started = Instant::now();
    assert!(matches!(api.send(&get()).await, Err(Refusal::Transient(_))));
    assert!(started.elapsed() <= Limits::default().total);
}

#[tokio::test(start_paused = true)]
async fn what_may_be_out_of_date_later_is_sent_at_once_or_not_at_all() {
    const REFUSED: [&[Reply]; 2] =
        [&[Reply::Code(503), Reply::Code(200)], &[Reply::RetryAfter(1), Reply::Code(200)]];
    let never = || Call { repeat: Repeat::Never, ..post() };
    for (script, waits) in REFUSED.into_iter().zip([0, 1]) {
        let (api, seen) = server(script);
        let began = Instant::now();
        assert!(api.send(&never()).await.is_err());
        assert_eq!(
            (seen.load(Ordering::Relaxed), began.elapsed().as_secs()),
            (1, waits),
            "the pause is kept"
        );
    }
    // The API server pauses the whole client: the call is refused at the end of the pause, and not sent.
    let (api, seen) = server(&[Reply::RetryAfter(2), Reply::RetryAfter(9), Reply::Code(200)]);
    let paused = tokio::spawn({
        let api = api.clone();
        async move { api.send(&get()).await }
    });
    answered(&seen, 1).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    answered(&seen, 2).await;
    assert!(matches!(api.send(&never()).await, Err(Refusal::Throttled)));
    assert!(paused.await.expect("no panic").is_ok());
    assert_eq!(seen.load(Ordering::Relaxed), 3, "the read alone");
}

/// Two webhooks of six seconds each, and a queue before them.
#[tokio::test(start_paused = true)]
async fn a_write_has_all_the_time_that_an_api_server_gives_it() {
    const LATE: [&[Reply]; 3] = [&[Reply::Late(12)], &[Reply::Late(34)], &[Reply::Late(49)]];
    for script in LATE {
        let (api, seen) = server(script);
        assert!(api.send(&post()).await.is_ok());
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }
    let (api, _) = server(LATE[0]);
    assert!(matches!(api.send(&get()).await, Err(Refusal::Transient(_))), "a read is not waited for");
}

#[tokio::test(start_paused = true)]
async fn a_silent_write_ends() {
    let (api, seen) = server(&[Reply::Silence]);
    let started = Instant::now();
    assert!(matches!(api.send(&post()).await, Err(Refusal::Transient(_))));
    assert_eq!(started.elapsed(), Limits::default().write);
    let repeatable = Call { method: Method::PATCH, repeat: Repeat::Harmless, ..post() };
    assert!(matches!(api.send(&repeatable).await, Err(Refusal::Transient(_))));
    assert_eq!(
        seen.load(Ordering::Relaxed),
        2,
        "a write that took a minute is not repeated in the same call"
    );
}

/// Waits until the server has seen so many requests, and has answered the last.
async fn answered(seen: &AtomicUsize, requests: usize) {
    while seen.load(Ordering::Relaxed) < requests {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_holds_its_own_request_back_while_others_are_taken() {
    let (api, seen) = server(&[Reply::RetryAfter(7), Reply::Code(200)]);
    let started = Instant::now();
    let first = tokio::spawn({
        let api = api.clone();
        async move { (api.send(&post()).await.is_ok(), Instant::now()) }
    });
    answered(&seen, 1).await;
    assert!(api.send(&get()).await.is_ok());
    assert!(started.elapsed() < Duration::from_secs(1), "another request waited");
    // 429 comes before the request is looked at: even a creation may be repeated.
    let (is_made, at) = first.await.expect("task");
    assert!(is_made && at - started >= Duration::from_secs(7), "the request did not wait");
    assert_eq!(seen.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_and_nothing_else_pause_the_whole_client() {
    let (api, seen) = server(&[Reply::RetryAfter(9), Reply::RetryAfter(7), Reply::Code(200)]);
    let send = |call: Call| {
        let api = api.clone();
        tokio::spawn(async move { api.send(&call).await.is_ok() })
    };
    let first = send(post());
    answered(&seen, 1).await;
    tokio::time::advance(NOTHING_ELSE).await;
    let second = send(get());
    answered(&seen, 2).await;
    let started = Instant::now();
    assert!(api.send(&get()).await.is_ok());
    assert!(started.elapsed() >= Duration::from_secs(7), "another request did not wait");
    assert!(first.await.expect("task") && second.await.expect("task"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_nothing_is_given_up_on_in_time() {
    let (api, seen) = server(&[Reply::RetryAfter(1)]);
    let started = Instant::now();
    assert!(matches!(api.send(&post()).await, Err(Refusal::Throttled)));
    assert!(started.elapsed() <= Limits::default().total);
    assert!(seen.load(Ordering::Relaxed) <= 31, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_an_error_not_absent() {
    let (api, _) = server(&[Reply::Code(200)]);
    let outcome = api.get::<Vec<u8>>(POD, "ns", "pod").await;
    assert!(matches!(outcome, Err(Refusal::Undecodable(_))), "{outcome:?}");
    let (api, _) = server(&[Reply::Code(404)]);
    let outcome = api.get::<serde_json::Value>(POD, "ns", "pod").await;
    assert!(matches!(outcome, Err(Refusal::Unserved(_))), "{outcome:?}");
}
