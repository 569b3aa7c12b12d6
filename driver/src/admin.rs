//! `/metrics`, `/healthz`, and `/readyz`, which is the truth once kubelet knows the driver.

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
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// Serves until it is dropped.
///
/// # Errors
/// The address cannot be used.
pub(crate) async fn serve(address: SocketAddr, registry: Registry, registered: Gauge) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| address.to_string())?;
    let registry = Arc::new(registry);
    loop {
        let (stream, _) = listener.accept().await.context("accept")?;
        let (registry, registered) = (Arc::clone(&registry), registered.clone());
        let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (registry, is_registered) = (Arc::clone(&registry), registered.get() == 1);
            async move { Ok::<_, Infallible>(answer(request.uri().path(), &registry, is_registered)) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
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
