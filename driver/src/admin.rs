//! `/metrics` and `/healthz`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// Serves until it is dropped.
///
/// # Errors
/// The address cannot be used.
pub(crate) async fn serve(address: SocketAddr, registry: Registry) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| address.to_string())?;
    let registry = Arc::new(registry);
    loop {
        let (stream, _) = listener.accept().await.context("accept")?;
        let registry = Arc::clone(&registry);
        let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let registry = Arc::clone(&registry);
            async move { Ok::<_, Infallible>(answer(request.uri().path(), &registry)) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

fn answer(path: &str, registry: &Registry) -> Response<Full<Bytes>> {
    let mut text = String::new();
    let is_known = match path {
        "/metrics" => prometheus_client::encoding::text::encode(&mut text, registry).is_ok(),
        "/healthz" => {
            text.push_str("ok\n");
            true
        }
        _ => false,
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    if path == "/metrics" {
        let kind =
            http::HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    }
    if !is_known {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}
