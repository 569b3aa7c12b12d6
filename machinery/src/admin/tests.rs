use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::access::tests::access;
use super::connections::MOST;
use super::tls::tests::{Folder, localhost};
use super::*;

/// An admin server that counts how often its gauges are computed.
fn counting() -> (Arc<Admin>, Arc<AtomicUsize>) {
    let mut registry = Registry::default();
    registry.register("things", "Things", Counter::<u64>::default());
    let (admin, computed) = (Arc::new(Admin::new(registry)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&computed);
    admin.refresh(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    (admin, computed)
}

fn get(path: &str, accept: &str) -> Request<()> {
    Request::get(path).header(header::ACCEPT, accept).body(()).expect("request")
}

async fn listening(admin: &Arc<Admin>) -> SocketAddr {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), Endpoints::Public).await.expect("listener");
    let address = listener.local_addr().expect("address");
    tokio::spawn(serve(listener, Endpoints::Public, Arc::clone(admin)));
    address
}

/// Asks for a path. Returns what the server sent until it closed the connection.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut answer = Vec::new();
    // A connection that was closed for another one may be reset.
    let _reset = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(start_paused = true)]
async fn two_hundred_scrapes_in_a_second_compute_the_gauges_once() {
    let (admin, computed) = counting();
    for _ in 0..200 {
        assert_eq!(admin.answer(Endpoints::Public, &get("/metrics", "")).await.status, StatusCode::OK);
    }
    assert_eq!(computed.load(Ordering::Relaxed), 1);
    tokio::time::advance(AGE).await;
    admin.answer(Endpoints::Public, &get("/metrics", "")).await;
    assert_eq!(computed.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn readiness_is_looked_at_once_a_second() {
    let admin = Admin::default();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    admin.check(
        "first",
        Box::new(move || {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 { Err("not yet".to_owned()) } else { Ok(()) }
        }),
    );
    for _ in 0..200 {
        assert_eq!(admin.unready(), ["first: not yet"]);
    }
    tokio::time::advance(AGE).await;
    assert!(admin.unready().is_empty());
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_scraper_gets_the_format_that_it_names() {
    let (admin, _) = counting();
    let answer = async |accept| admin.answer(Endpoints::Public, &get("/metrics", accept)).await;
    let text = answer("*/*").await;
    assert_eq!(text.kind, "text/plain; version=0.0.4; charset=utf-8");
    assert!(text.body.starts_with(b"# HELP things_total Things."), "{:?}", text.body);
    assert!(!text.body.ends_with(b"# EOF\n"));
    let open_metrics = answer("application/openmetrics-text;version=1.0.0").await;
    assert!(open_metrics.kind.starts_with("application/openmetrics-text"));
    assert!(open_metrics.body.ends_with(b"# EOF\n"));
}

#[tokio::test]
async fn a_probe_is_answered_beside_any_number_of_idle_connections() {
    let (admin, _) = counting();
    let address = listening(&admin).await;
    let mut idle = Vec::new();
    for _ in 0..3 * MOST {
        idle.push(TcpStream::connect(address).await.expect("connect"));
    }
    let mut probe = TcpStream::connect(address).await.expect("connect");
    assert!(ask(&mut probe, "/livez").await.ends_with("ok\n"));
    // The oldest were closed without an answer, and those that are left are no more than may be.
    let mut answered = 0;
    for mut stream in idle {
        answered += usize::from(ask(&mut stream, "/livez").await.ends_with("ok\n"));
    }
    assert!((1..=MOST).contains(&answered), "{answered}");
}

#[tokio::test]
async fn a_guarded_door_wants_tls_and_for_metrics_a_token() {
    let (admin, _) = counting();
    let folder = Folder::new("guarded");
    let client = folder.renew();
    let (access, _) = access();
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), Endpoints::Public).await.expect("listener");
    let address = listener.local_addr().expect("address");
    tokio::spawn(serve_guarded(listener, folder.tls().expect("identity"), access, admin));
    for (path, token, status) in [
        ("/livez", "", "200 OK"),
        ("/readyz", "", "200 OK"),
        ("/metrics", "", "401 Unauthorized"),
        ("/metrics", "Authorization: Bearer made-up\r\n", "401 Unauthorized"),
        ("/metrics", "Authorization: Bearer stranger\r\n", "403 Forbidden"),
        ("/metrics", "Authorization: Bearer reader\r\n", "200 OK"),
    ] {
        let stream = TcpStream::connect(address).await.expect("connect");
        let mut stream = client.connect(localhost(), stream).await.expect("TLS");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{token}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path} {token}: {answer}");
    }
    let mut plain = TcpStream::connect(address).await.expect("connect");
    assert!(!ask(&mut plain, "/livez").await.contains("200"), "it is not served without TLS");
}

#[tokio::test]
async fn the_dump_is_shown_on_loopback_only() {
    let (admin, _) = counting();
    admin.dump("part", || "secret".to_owned());
    assert_eq!(admin.answer(Endpoints::Public, &get("/dump", "")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(admin.answer(Endpoints::Loopback, &get("/dump", "")).await.body, "== part\nsecret");
    let json = admin.answer(Endpoints::Loopback, &get("/dump?format=json", "")).await;
    assert_eq!((json.kind, &*json.body), ("application/json", &br#"{"part":["secret"]}"#[..]));
    let public = SocketAddr::from(([0, 0, 0, 0], 0));
    assert!(listen(public, Endpoints::Loopback).await.is_err());
}
