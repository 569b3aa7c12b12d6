//! The client of the stand-ins.

use http::Method;
use serde_json::{Value, json};

use crate::api::{ApiServer, Body, Query, Request, Status, User, Watch};
use crate::door::Door;

/// A client of one stand-in.
#[derive(Clone)]
pub(super) struct Client {
    door: Door,
    agent: &'static str,
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
}

impl Client {
    pub(super) fn new(server: ApiServer, user: &str, agent: &'static str) -> Self {
        let user = User { name: user.to_owned(), groups: vec!["system:masters".to_owned()] };
        Self { door: Door::new(server, user), agent }
    }

    fn ask(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Reply {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.door.ask(Request {
            method,
            path: path.to_owned(),
            content_type: content_type.to_owned(),
            user_agent: self.agent.to_owned(),
            body,
            ..Request::default()
        });
        let object = match answer.body {
            Body::Json(object) => object,
            Body::Text(_) | Body::Watch(_) => Value::Null,
        };
        Reply { code: answer.code, object }
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path, "", &Value::Null)
    }

    pub(super) fn create(&self, path: &str, object: &Value) -> Reply {
        self.ask(Method::POST, path, "", object)
    }

    pub(super) fn update(&self, path: &str, object: &Value) -> Reply {
        self.ask(Method::PUT, path, "", object)
    }

    /// Sends a strategic merge patch, which the original components use for status.
    pub(super) fn patch(&self, path: &str, patch: &Value) -> Reply {
        self.ask(Method::PATCH, path, "application/strategic-merge-patch+json", patch)
    }

    pub(super) fn delete_at_once(&self, path: &str, uid: &str) -> Reply {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        self.ask(Method::DELETE, path, "", &options)
    }

    /// Opens a watch of the changes after a version.
    pub(super) fn watch(&self, path: &str, version: &str) -> Result<Watch, Status> {
        let query = Query::parse(&format!("watch=1&resourceVersion={version}"));
        let request = Request { path: path.to_owned(), query, ..Request::default() };
        let answer = self.door.ask(request);
        match answer.body {
            Body::Watch(watch) => Ok(*watch),
            Body::Json(_) | Body::Text(_) => Err(Status::unserved()),
        }
    }
}
