use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;

use super::*;
use crate::api::Limits;
use crate::metrics::ClientMetrics;

/// An API server that knows the tokens `reader` and `stranger`, lets the first read, and counts
/// the questions.
pub(in crate::admin) fn access() -> (Access, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move {
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await?).expect("json");
            let spec = &body["spec"];
            let status = if parts.uri.path() == "/apis/authentication.k8s.io/v1/tokenreviews" {
                match spec["token"].as_str() {
                    Some(user @ ("reader" | "stranger")) => json!({"authenticated": true, "user": {
                        "username": user, "uid": "u", "groups": ["g"], "extra": {"e": ["1"]},
                    }}),
                    _ => json!({"error": "unknown"}),
                }
            } else {
                assert_eq!(parts.uri.path(), "/apis/authorization.k8s.io/v1/subjectaccessreviews");
                let user = json!({"groups": ["g"], "uid": "u", "extra": {"e": ["1"]}, "user": spec["user"],
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
                assert_eq!(*spec, user);
                json!({"allowed": spec["user"] == "reader"})
            };
            let answer = json!({"status": status}).to_string();
            Ok::<_, kube::Error>(Response::new(Body::from(answer.into_bytes())))
        }
    });
    let metrics = ClientMetrics::register(&mut Registry::default(), "server");
    let api = Api::new(kube::Client::new(service, "default"), Limits::default(), metrics);
    (Access::new(api), asked)
}

async fn check(access: &Access, authorization: &str) -> u16 {
    let value = HeaderValue::from_str(authorization).expect("header");
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    access.check(&headers).await.err().unwrap_or(StatusCode::OK).as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_token_is_allowed_refused_or_unknown() {
    let (access, _) = access();
    assert_eq!(check(&access, "Bearer reader").await, 200);
    assert_eq!(check(&access, "bearer reader").await, 200);
    assert_eq!(check(&access, "Bearer stranger").await, 403);
    assert_eq!(check(&access, "Bearer made-up").await, 401);
    for malformed in ["Basic reader", "Bearer ", "reader", &format!("Bearer {}", "x".repeat(LONGEST + 1))] {
        assert_eq!(check(&access, malformed).await, 401, "{malformed}");
    }
    assert_eq!(access.check(&HeaderMap::new()).await, Err(StatusCode::UNAUTHORIZED));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_believed_for_a_while() {
    let (access, asked) = access();
    for _ in 0..100 {
        assert_eq!(check(&access, "Bearer reader").await, 200);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    tokio::time::advance(ALLOWED).await;
    assert_eq!(check(&access, "Bearer reader").await, 200);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert_eq!(check(&access, "Bearer made-up").await, 401);
    assert_eq!(check(&access, "Bearer made-up").await, 401);
    tokio::time::advance(DENIED).await;
    assert_eq!(check(&access, "Bearer made-up").await, 401);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn made_up_tokens_are_no_load_for_the_api_server() {
    let (access, asked) = access();
    assert_eq!(check(&access, "Bearer reader").await, 200);
    for number in 0..1000 {
        check(&access, &format!("Bearer {number}")).await;
    }
    assert_eq!(check(&access, "Bearer another").await, 429);
    assert_eq!(check(&access, "Bearer reader").await, 200, "it is known");
    assert!(asked.load(Ordering::Relaxed) <= 21, "{asked:?}");
}
