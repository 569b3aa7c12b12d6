use std::sync::{Arc, Mutex};

use dragoman_objects::ResourceClaim;
use http::Response;
use kube::client::Body;
use prometheus_client::registry::Registry;

use super::*;
use crate::api::{Api, Limits};
use crate::kind::RESOURCE_CLAIM;
use crate::metrics::ClientMetrics;
use crate::watch::fake;

const GROUP: &str = "/apis/resource.k8s.io/v1";
const NOT_THERE: &str = r#"{"kind":"Status","status":"Failure","reason":"NotFound","details":{},"code":404}"#;

/// Claims on a server that answers with `answer(path, how many requests came before)`;
/// also the paths asked for.
fn claims(
    answer: fn(&str, usize) -> (u16, &'static str),
) -> (Watched<ResourceClaim>, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let (client, discovery) = fake::server(move |path| {
        let mut log = log.lock().unwrap();
        log.push(path.to_owned());
        answer(path, log.len() - 1)
    });
    (Watched::new(client, RESOURCE_CLAIM, discovery), asked)
}

#[tokio::test]
async fn a_group_that_is_gone_when_a_watch_is_resumed_is_not_watched() {
    let (mut claims, asked) = claims(|path, before| match path {
        GROUP if before == 0 => (200, r#"{"resources":[{"name":"resourceclaims"}]}"#),
        GROUP => (404, NOT_THERE),
        _ => (200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#),
    });
    assert_eq!(claims.list(None, |_| {}).await.expect("list").version, "7");
    assert!(matches!(claims.watch("7", WATCH_LASTS).await, Err(Failure::Unserved)));
    assert_eq!(*asked.lock().unwrap(), [GROUP, "/apis/resource.k8s.io/v1/resourceclaims", GROUP]);
}

#[tokio::test]
async fn a_group_version_without_the_kind_lists_nothing() {
    let (mut claims, _) = claims(|path, _| match path {
        GROUP => (200, r#"{"resources":[{"name":"deviceclasses"}]}"#),
        _ => (200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#),
    });
    assert!(matches!(claims.list(None, |_| {}).await, Err(Failure::Unserved)));
}

#[tokio::test]
async fn discovery_without_an_answer_is_no_reason_not_to_look() {
    let (mut claims, _) = claims(|path, _| match path {
        GROUP => (403, r#"{"kind":"Status","reason":"Forbidden","code":403}"#),
        _ => (200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#),
    });
    assert_eq!(claims.list(None, |_| {}).await.expect("list").version, "7");
}

#[tokio::test]
async fn the_token_in_a_410_goes_on_with_the_list() {
    let (mut claims, _) = claims(|path, _| match path {
        GROUP => (200, r#"{"resources":[{"name":"resourceclaims"}]}"#),
        _ => (
            410,
            r#"{"kind":"Status","status":"Failure","reason":"Expired","metadata":{"continue":"t2"},"message":"too old","code":410}"#,
        ),
    });
    let outcome = claims.list(Some("t1"), |_| {}).await;
    assert!(matches!(&outcome, Err(Failure::PageExpired(token)) if token == "t2"), "{outcome:?}");
}

/// A watch whose connection delivers `body`.
async fn watch_of<S>(body: fn() -> S) -> Lines<ResourceClaim>
where
    S: futures::Stream<Item = Result<http_body::Frame<hyper::body::Bytes>, std::io::Error>> + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = if query.contains("watch=1") {
            http_body_util::Either::Left(http_body_util::StreamBody::new(body()))
        } else {
            let group = r#"{"resources":[{"name":"resourceclaims"}]}"#;
            http_body_util::Either::Right(http_body_util::Full::new(group.into()))
        };
        Ok::<_, std::io::Error>(Response::new(body))
    });
    let client = kube::Client::new(service, "default");
    let metrics = ClientMetrics::register(&mut Registry::default(), "server");
    let discovery = Discovery::new(Api::new(client.clone(), Limits::default(), metrics.clone()));
    let client = WatchClient::new(client, metrics);
    let mut claims = Watched::<ResourceClaim>::new(client, RESOURCE_CLAIM, discovery);
    claims.watch("7", WATCH_LASTS).await.expect("open")
}

/// A proxy that forwards nothing any more and closes nothing: no keepalive of TCP notices.
#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_noticed_within_a_minute() {
    let mut events = watch_of(futures::stream::pending).await;
    let opened = Instant::now();
    assert!(matches!(events.next().await, Err(Failure::Other(_))));
    assert!(opened.elapsed() < Duration::from_mins(1), "{:?}", opened.elapsed());
}

/// An end in good order shows that everything has come. A connection that breaks does not.
#[tokio::test]
async fn a_connection_that_breaks_is_no_end_in_good_order() {
    let mut events = watch_of(futures::stream::empty).await;
    assert!(matches!(events.next().await, Ok(Step::End)));
    let mut events = watch_of(|| futures::stream::iter([Err(std::io::Error::other("reset"))])).await;
    assert!(matches!(events.next().await, Ok(Step::Cut)));
    let half = || futures::stream::iter([Ok(http_body::Frame::data(r#"{"type":"ADD"#.into()))]);
    assert!(matches!(watch_of(half).await.next().await, Ok(Step::Cut)));
}
