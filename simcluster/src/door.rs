//! Ways in: a service in process, and a port on request.

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

use crate::api::{Answer, ApiServer, Body, Query, Request, User};

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// A way into the API server for one user, which a kube client can stand on. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    server: ApiServer,
    user: User,
}

/// A request that could not be read, or an answer that could not be given.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

impl Broken {
    /// The connection is gone, and the answer with it.
    pub(crate) fn lost() -> Self {
        Self("connection reset by peer".to_owned())
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Door {
    /// For `user`.
    pub fn new(server: ApiServer, user: User) -> Self {
        Self { server, user }
    }

    /// The server behind it.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, request: Request) -> Answer {
        self.server.answer(&Request { user: self.user.clone(), ..request })
    }
}

/// Bytes of a request at most, as upstream.
const MOST_BYTES: usize = 3 << 20;

/// A request as the server takes it.
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
        user: User::default(),
        impersonated: impersonated(&parts.headers),
    })
}

/// Whom a request is to be taken for. Somebody without a name where that cannot be told: he is
/// refused, and nobody acts as himself who meant to act as another.
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

/// An answer as HTTP.
pub(crate) fn response(answer: Answer) -> Result<Response<ResponseBody>, Broken> {
    let response = Response::builder().status(answer.code);
    let whole = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
    let (kind, body) = match answer.body {
        Body::Json(object) => ("application/json", whole(object.to_string())),
        Body::Text(text) => ("text/plain", whole(text)),
        Body::Watch(watch) => {
            let events = stream::unfold(watch, async |mut watch| Some((watch.next().await?, watch)));
            return watched(answer.code, events);
        }
    };
    response.header(CONTENT_TYPE, kind).body(body).map_err(|why| Broken(why.to_string()))
}

/// Events as HTTP, a line each.
pub(crate) fn watched(
    code: u16,
    events: impl Stream<Item = Value> + Send + 'static,
) -> Result<Response<ResponseBody>, Broken> {
    let lines = events.map(|event| Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{event}\n")))));
    let body = StreamBody::new(Box::pin(lines)).boxed_unsync();
    let response = Response::builder().status(code).header(CONTENT_TYPE, "application/json").body(body);
    response.map_err(|why| Broken(why.to_string()))
}

impl<B> tower::Service<http::Request<B>> for Door
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
        let door = self.clone();
        Box::pin(async move { response(door.ask(read(request).await?)) })
    }
}
