//! An API server for tests of watches: a function from the path of a request to its answer.

use http::{Request, Response, StatusCode};
use kube::client::Body;
use prometheus_client::registry::Registry;

use crate::api::{Api, Limits};
use crate::discovery::Discovery;
use crate::metrics::ClientMetrics;
use crate::watch::WatchClient;

/// A client of a server that answers with the code and text of `answer(path)`, and what it discovers
/// there.
pub(super) fn server(
    mut answer: impl FnMut(&str) -> (u16, &'static str) + Send + 'static,
) -> (WatchClient, Discovery) {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, text) = answer(request.uri().path());
        async move {
            let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
            *response.status_mut() = StatusCode::from_u16(code).expect("code");
            Ok::<_, std::io::Error>(response)
        }
    });
    let client = kube::Client::new(service, "default");
    let metrics = ClientMetrics::register(&mut Registry::default(), "server");
    let discovery = Discovery::new(Api::new(client.clone(), Limits::default(), metrics.clone()));
    (WatchClient::new(client, metrics), discovery)
}
