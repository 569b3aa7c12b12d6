//! How the stand-ins touch the API server: as any client does.

use http::Method;
use serde_json::{Value, json};

use crate::api::{ApiServer, Body, Query, Request, Status, User, Watch};
use crate::door::Door;

/// A client of one stand-in.
#[derive(Clone)]
pub(super) struct Hands {
    door: Door,
    agent: &'static str,
}

/// What the server says to it.
pub(super) struct Said {
    pub(super) code: u16,
    pub(super) object: Value,
}

impl Said {
    pub(super) fn is_fine(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Hands {
    pub(super) fn new(server: ApiServer, user: &str, agent: &'static str) -> Self {
        let user = User { name: user.to_owned(), groups: vec!["system:masters".to_owned()] };
        Self { door: Door::new(server, user), agent }
    }

    fn ask(&self, request: Request) -> Said {
        let answer = self.door.ask(Request { user_agent: self.agent.to_owned(), ..request });
        let object = match answer.body {
            Body::Json(object) => object,
            Body::Text(_) | Body::Watch(_) => Value::Null,
        };
        Said { code: answer.code, object }
    }

    pub(super) fn get(&self, path: &str) -> Said {
        self.ask(Request { method: Method::GET, path: path.to_owned(), ..Request::default() })
    }

    pub(super) fn create(&self, path: &str, object: &Value) -> Said {
        self.ask(Request {
            method: Method::POST,
            path: path.to_owned(),
            body: object.to_string().into_bytes(),
            ..Request::default()
        })
    }

    pub(super) fn update(&self, path: &str, object: &Value) -> Said {
        self.ask(Request {
            method: Method::PUT,
            path: path.to_owned(),
            body: object.to_string().into_bytes(),
            ..Request::default()
        })
    }

    /// A strategic merge patch, as the stand-ins' originals send for status.
    pub(super) fn patch(&self, path: &str, patch: &Value) -> Said {
        self.ask(Request {
            method: Method::PATCH,
            path: path.to_owned(),
            content_type: "application/strategic-merge-patch+json".to_owned(),
            body: patch.to_string().into_bytes(),
            ..Request::default()
        })
    }

    pub(super) fn delete_at_once(&self, path: &str, uid: &str) -> Said {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        self.ask(Request {
            method: Method::DELETE,
            path: path.to_owned(),
            body: options.to_string().into_bytes(),
            ..Request::default()
        })
    }

    /// A watch from just after a version.
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
