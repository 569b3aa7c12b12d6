//! Access in process: a service for one user, and the conversion from and to HTTP.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Frame;
use serde_json::Value;

use crate::api::{Answer, ApiServer, Body, PROTOBUF, Query, Request, User};

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Access to the API server for one user, as the service of a kube client. Clones are cheap.
#[derive(Clone)]
pub struct ApiHandle {
    server: ApiServer,
    user: User,
}

/// A request cannot be read, or a response cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

impl Broken {
    /// The connection is lost, and the answer with it.
    pub(crate) fn lost() -> Self {
        Self("connection reset by peer".to_owned())
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl ApiHandle {
    /// Creates a handle that acts as `user`.
    pub fn new(server: ApiServer, user: User) -> Self {
        Self { server, user }
    }

    /// Returns the server.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Sends a request as the user of this handle.
    pub fn ask(&self, request: Request) -> Answer {
        self.server.answer(&Request { user: self.user.clone(), ..request })
    }
}

/// The maximum size of a request body, as upstream.
const MOST_BYTES: usize = 3 << 20;

/// Reads an HTTP request.
///
/// # Errors
/// The body cannot be read or is too large.
pub(crate) async fn read<B>(request: http::Request<B>) -> Result<Request, Broken>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MOST_BYTES).collect().await;
    let body = body.map_err(|why| Broken(why.to_string()))?.to_bytes();
    let content_type = header(&parts.headers, &CONTENT_TYPE);
    Ok(Request {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        content_type: content_type.split(';').next().unwrap_or_default().trim().to_owned(),
        accept: header(&parts.headers, &ACCEPT),
        user_agent: header(&parts.headers, &USER_AGENT),
        body: body.to_vec(),
        keeps_bytes: parts.headers.contains_key(KEEPS_BYTES),
        user: User::default(),
        impersonated: impersonated(&parts.headers),
    })
}

/// The header of the stand-ins by which [`Request::keeps_bytes`] is said.
pub(crate) const KEEPS_BYTES: &str = "simcluster-keeps-bytes";

/// Returns the user to impersonate. Malformed or unsupported Impersonate-* headers yield an empty user, which
/// is rejected. The request never falls back to the caller's identity.
fn impersonated(headers: &HeaderMap) -> Option<User> {
    let mut said = headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).peekable();
    said.peek()?;
    let simulated = said.all(|name| matches!(name.as_str(), "impersonate-user" | "impersonate-group"));
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).ok();
    let name = headers.get("impersonate-user").and_then(text);
    let groups: Option<Vec<String>> = headers.get_all("impersonate-group").iter().map(text).collect();
    Some(
        name.zip(groups)
            .filter(|_| simulated)
            .map_or_else(User::default, |(name, groups)| User { name, groups }),
    )
}

fn header(headers: &HeaderMap, name: &http::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Converts an answer to an HTTP response.
pub(crate) fn response(answer: Answer) -> Result<Response<ResponseBody>, Broken> {
    let response = Response::builder().status(answer.code);
    let whole = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
    let (kind, body) = match answer.body {
        Body::Json(object) => ("application/json", whole(object.to_string())),
        Body::Protobuf(bytes) => (PROTOBUF, Full::new(Bytes::from(bytes)).boxed_unsync()),
        Body::Text(text) => ("text/plain", whole(text)),
        Body::Watch(watch) => {
            let events = stream::unfold(watch, async |mut watch| Some((watch.next().await?, watch)));
            return watched(answer.code, events);
        }
    };
    response.header(CONTENT_TYPE, kind).body(body).map_err(|why| Broken(why.to_string()))
}

/// Converts events to an HTTP response with one line for each.
pub(crate) fn watched(
    code: u16,
    events: impl Stream<Item = Value> + Send + 'static,
) -> Result<Response<ResponseBody>, Broken> {
    let lines = events.map(|event| Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{event}\n")))));
    let body = StreamBody::new(Box::pin(lines)).boxed_unsync();
    let response = Response::builder().status(code).header(CONTENT_TYPE, "application/json").body(body);
    response.map_err(|why| Broken(why.to_string()))
}

impl<B> tower::Service<http::Request<B>> for ApiHandle
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let handle = self.clone();
        Box::pin(async move { response(handle.ask(read(request).await?)) })
    }
}
