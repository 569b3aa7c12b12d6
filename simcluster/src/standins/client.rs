//! The client of the stand-ins.

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::lines::Lines;
use crate::api::{ApiServer, Body, Query, Request, User, Watch};
use crate::api_handle::{ApiHandle, KEEPS_BYTES};

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Received = UnsyncBoxBody<Bytes, BoxError>;
type Service = BoxCloneSyncService<http::Request<Vec<u8>>, http::Response<Received>, BoxError>;

const JSON: &str = "application/json";

/// A client of one stand-in, for simcluster in this process or for any API server over HTTP.
#[derive(Clone)]
pub(super) struct Client {
    access: Access,
    agent: &'static str,
}

#[derive(Clone)]
enum Access {
    /// Answers at once and without encoding: thousands of runs in virtual time stay cheap, and a seed stays
    /// one history.
    InProcess(ApiHandle),
    Http(Service),
}

/// A response of the server.
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) object: Value,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether there is no object of this name.
    pub(super) fn is_missing(&self) -> bool {
        self.code == 404
    }
}

/// An open watch.
pub(super) enum Events {
    InProcess(Box<Watch>),
    Http(Lines),
}

impl Events {
    /// Returns the next event, or `None` when the watch is over. Dropping the future loses no event.
    pub(super) async fn next(&mut self) -> Option<Value> {
        match self {
            Self::InProcess(watch) => watch.next().await,
            Self::Http(lines) => lines.next().await,
        }
    }
}

impl Client {
    pub(super) fn new(server: ApiServer, user: &str, agent: &'static str) -> Self {
        let user = User { name: user.to_owned(), groups: vec!["system:masters".to_owned()] };
        Self { access: Access::InProcess(ApiHandle::new(server, user)), agent }
    }

    /// Creates a client that sends its requests to a service, which adds address and credentials.
    pub(super) fn over_http<S, B>(service: S, agent: &'static str) -> Self
    where
        S: tower::Service<http::Request<Vec<u8>>, Response = http::Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let boxed =
            |response: http::Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync());
        let service = service.map_response(boxed).map_err(Into::into);
        Self { access: Access::Http(BoxCloneSyncService::new(service)), agent }
    }

    async fn ask(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Reply {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        match &self.access {
            Access::InProcess(handle) => {
                let answer = handle.ask(Request {
                    method,
                    path: path.to_owned(),
                    content_type: content_type.to_owned(),
                    user_agent: self.agent.to_owned(),
                    body,
                    keeps_bytes: true,
                    ..Request::default()
                });
                let object = match answer.body {
                    Body::Json(object) => object,
                    Body::Protobuf(_) | Body::Text(_) | Body::Watch(_) => Value::Null,
                };
                Reply { code: answer.code, object }
            }
            Access::Http(service) => {
                let answer = self.send(service, method, path, content_type, body).await;
                // A lost answer is one that the server could not give.
                answer.unwrap_or(Reply { code: 503, object: Value::Null })
            }
        }
    }

    async fn send(
        &self,
        service: &Service,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Reply, BoxError> {
        let response = self.respond(service, method, path, content_type, body).await?;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        // Some failures have plain text.
        Ok(Reply { code, object: serde_json::from_slice(&body).unwrap_or_default() })
    }

    async fn respond(
        &self,
        service: &Service,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<http::Response<Received>, BoxError> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, content_type)
            .header(USER_AGENT, self.agent)
            .header(KEEPS_BYTES, "true")
            .body(body)?;
        service.clone().oneshot(request).await
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path, JSON, &Value::Null).await
    }

    pub(super) async fn create(&self, path: &str, object: &Value) -> Reply {
        self.ask(Method::POST, path, JSON, object).await
    }

    pub(super) async fn update(&self, path: &str, object: &Value) -> Reply {
        self.ask(Method::PUT, path, JSON, object).await
    }

    /// Sends a strategic merge patch, which the original components use for status.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Reply {
        self.ask(Method::PATCH, path, "application/strategic-merge-patch+json", patch).await
    }

    /// Deletes a Pod with its own grace period.
    pub(super) async fn delete(&self, path: &str, uid: &str) -> Reply {
        self.ask(Method::DELETE, path, JSON, &json!({"preconditions": {"uid": uid}})).await
    }

    pub(super) async fn delete_at_once(&self, path: &str, uid: &str) -> Reply {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        self.ask(Method::DELETE, path, JSON, &options).await
    }

    /// Opens a watch of the changes after a version. Returns `None` if the server refuses it.
    pub(super) async fn watch(&self, path: &str, version: &str) -> Option<Events> {
        let query = format!("watch=1&resourceVersion={version}");
        match &self.access {
            Access::InProcess(handle) => {
                let query = Query::parse(&query);
                let request = Request { path: path.to_owned(), query, ..Request::default() };
                match handle.ask(request).body {
                    Body::Watch(watch) => Some(Events::InProcess(watch)),
                    Body::Json(_) | Body::Protobuf(_) | Body::Text(_) => None,
                }
            }
            Access::Http(service) => {
                let path = format!("{path}?{query}");
                let response = self.respond(service, Method::GET, &path, JSON, Vec::new()).await.ok()?;
                let open = response.status().is_success();
                open.then(|| Events::Http(Lines::new(response.into_body())))
            }
        }
    }
}
