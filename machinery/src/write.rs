//! Every mutation that Dragoman makes.
//!
//! A [`Write`] is plain data that a pure plan can build and a test can compare.
//! Each form is safe when the reply is lost, when the object has changed or has
//! been replaced, and when two processes do it at once.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Api, Call, decode};
use crate::kind::Kind;
use crate::metrics::MachineryMetrics;
use crate::refusal::Refusal;
use dragoman_crds::wire::Meta;

/// A mutation of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What to do.
    pub action: Action,
}

/// What a [`Write`] does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates the object under its deterministic name: doing it twice is
    /// `AlreadyExists`, never a second object.
    Create {
        /// The whole object as JSON text.
        body: String,
    },
    /// Server-side apply of a subresource. `body` must carry `metadata.uid`:
    /// without it the apply reaches a namesake or brings a deleted object back.
    Apply {
        /// Subresource, for example `status`.
        subresource: &'static str,
        /// Field manager.
        manager: &'static str,
        /// Apply configuration.
        body: Value,
    },
    /// JSON patch that first tests uid and resourceVersion, so that it happens to
    /// exactly the version it was decided on. Fields it does not name survive.
    Patch {
        /// Subresource, if any.
        subresource: Option<&'static str>,
        /// The version decided on.
        guard: Guard,
        /// Operations after the tests.
        operations: Vec<Value>,
    },
    /// Delete of exactly this version.
    Delete {
        /// The version decided on.
        guard: Guard,
    },
}

/// The version of an object that a write is meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// What a successful write left behind.
#[derive(Debug, Clone)]
pub struct Written {
    /// Metadata of the object after the write.
    pub meta: Meta,
    /// The whole answer.
    pub body: Vec<u8>,
}

impl Action {
    /// The verb RBAC knows it by.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Apply { .. } | Self::Patch { .. } => "patch",
            Self::Delete { .. } => "delete",
        }
    }
}

impl Write {
    /// Sends the write.
    ///
    /// # Errors
    /// A [`Refusal`]; after one that is transient the write may have happened.
    pub async fn send(&self, api: &Api, metrics: &MachineryMetrics) -> Result<Written, Refusal> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Answer {
            metadata: Meta,
        }
        let outcome = match self.call() {
            Ok(call) => api.send(&call).await,
            Err(refusal) => Err(refusal),
        };
        let verb = self.action.verb();
        let word = outcome.as_ref().map_or_else(Refusal::reason, |_| "Done");
        metrics.write(self.kind.kind, verb, word);
        tracing::debug!(
            kind = self.kind.kind, namespace = %self.namespace, name = %self.name, verb, outcome = word, "write"
        );
        let body = outcome?;
        let answer: Answer = decode(&body)?;
        Ok(Written { meta: answer.metadata, body })
    }

    fn call(&self) -> Result<Call, Refusal> {
        let object = |sub| self.kind.object_path(&self.namespace, &self.name, sub);
        let unencodable = |e: serde_json::Error| Refusal::Invalid(format!("cannot encode: {e}"));
        let (method, uri, content_type, body, repeatable) = match &self.action {
            Action::Create { body } => (
                Method::POST,
                format!("{}?fieldManager=dragoman", self.kind.collection_path(&self.namespace)),
                "application/json",
                body.clone().into_bytes(),
                false,
            ),
            Action::Apply { subresource, manager, body } => (
                Method::PATCH,
                format!("{}?fieldManager={manager}&force=true", object(Some(subresource))),
                "application/apply-patch+yaml",
                serde_json::to_vec(body).map_err(unencodable)?,
                true,
            ),
            Action::Patch { subresource, guard, operations } => (
                Method::PATCH,
                format!("{}?fieldManager=dragoman", object(*subresource)),
                "application/json-patch+json",
                serde_json::to_vec(&guard.before(operations)).map_err(unencodable)?,
                true,
            ),
            Action::Delete { guard } => (
                Method::DELETE,
                object(None),
                "application/json",
                serde_json::to_vec(&json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": guard.uid, "resourceVersion": guard.resource_version},
                }))
                .map_err(unencodable)?,
                true,
            ),
        };
        let name = if method == Method::POST { String::new() } else { self.name.clone() };
        Ok(Call { method, uri, body, content_type, kind: self.kind, name, repeatable })
    }
}

impl Guard {
    fn before(&self, operations: &[Value]) -> Vec<Value> {
        let mut all = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": self.uid}),
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": self.resource_version}),
        ];
        all.extend_from_slice(operations);
        all
    }
}
