//! `/metrics`; `/healthz`; and `/readyz`, which answers 200 once kubelet has registered the driver.
//!
//! Every Pod of the cluster reaches the port: connections are few, short, and never the end of the driver.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at once. Others wait in the queue of the kernel.
const AT_ONCE: usize = 16;
/// The longest that a connection lives.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest head of a request: hyper takes no less.
const HEAD: usize = 8192;

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, registry: Registry, registered: Gauge) {
    let (registry, free) = (Arc::new(registry), Arc::new(Semaphore::new(AT_ONCE)));
    loop {
        let Ok(seat) = Arc::clone(&free).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Too many files are open, for example: that passes.
            Err(error) => {
                tracing::warn!("admin address: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (registry, registered) = (Arc::clone(&registry), registered.clone());
        let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (registry, is_registered) = (Arc::clone(&registry), registered.get() == 1);
            async move { Ok::<_, Infallible>(answer(request.uri().path(), &registry, is_registered)) }
        });
        let mut builder = http1::Builder::new();
        let connection =
            builder.keep_alive(false).max_buf_size(HEAD).serve_connection(TokioIo::new(stream), answer);
        tokio::spawn(async move {
            // A client that is slow or gone is of no interest.
            drop(tokio::time::timeout(PATIENCE, connection).await);
            drop(seat);
        });
    }
}

fn answer(path: &str, registry: &Registry, is_registered: bool) -> Response<Full<Bytes>> {
    let mut text = String::new();
    let mut status = StatusCode::OK;
    match path {
        "/metrics" if prometheus_client::encoding::text::encode(&mut text, registry).is_ok() => {}
        "/readyz" if !is_registered => {
            text.push_str("kubelet has not registered the driver yet\n");
            status = StatusCode::SERVICE_UNAVAILABLE;
        }
        "/healthz" | "/readyz" => text.push_str("ok\n"),
        _ => status = StatusCode::NOT_FOUND,
    }
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    if path == "/metrics" {
        let kind =
            http::HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_do_not_keep_others_out() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a port");
        tokio::spawn(serve(listener, Registry::default(), Gauge::default()));
        let mut idle = Vec::new();
        for _ in 0..AT_ONCE {
            idle.push(TcpStream::connect(address).await.expect("a connection"));
        }
        // They have their time, and then the next one is served.
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: d\r\n\r\n").await.expect("written");
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.expect("an answer");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(began.elapsed() <= PATIENCE * 2, "{:?}", began.elapsed());
    }

    #[test]
    fn it_is_ready_once_kubelet_knows_it() {
        let status =
            |path, is_registered| answer(path, &Registry::default(), is_registered).status().as_u16();
        assert_eq!((status("/readyz", false), status("/readyz", true)), (503, 200));
        assert_eq!(
            (status("/healthz", false), status("/metrics", false), status("/", true)),
            (200, 200, 404)
        );
    }
}
