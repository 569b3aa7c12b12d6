//! Every mutation that Dragoman makes.
//!
//! A [`Write`] is plain data that a pure plan can build and a test can compare.
//! Each form is safe when the reply is lost, when the object has changed or has
//! been replaced, and when two processes do it at once.

mod in_protobuf;

use std::collections::BTreeMap;

use dragoman_objects::Meta;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Api, Call, JSON, Live, PROTOBUF, Repeat, decode};
use crate::kind::{Kind, RESOURCE_CLAIM};
use crate::metrics::MachineryMetrics;
use crate::refusal::Refusal;

/// A mutation of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace of the object; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Change to the object.
    pub action: Action,
    /// Ask the API server what would happen (`dryRun=All`) instead of doing it.
    pub dry_run: bool,
    /// Send it promptly and once, or not at all: [`Repeat::Never`].
    pub once: bool,
}

/// Change that a [`Write`] makes.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates the object under its deterministic name: doing it twice is
    /// `AlreadyExists`, never a second object.
    Create {
        /// The whole object as JSON text.
        body: String,
    },
    /// Server-side apply. `body` must carry `metadata.uid`: without it the apply reaches a namesake
    /// or brings a deleted object back. Only an apply that is to create the object has none.
    Apply {
        /// Subresource, for example `status`; the object itself if absent.
        subresource: Option<&'static str>,
        /// Field manager.
        manager: &'static str,
        /// Whether fields that another manager owns are taken over; otherwise they are a conflict.
        force: bool,
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
    /// Update (PUT) of a whole object as it was read, changed in place: fields that its reader does
    /// not know survive. For Leases only, whose priority in an overload an update has and a patch
    /// has not.
    Update {
        /// The version decided on.
        guard: Guard,
        /// The object.
        object: Value,
    },
    /// Merge patch of labels and annotations, to exactly the version it was decided on. Keys that
    /// it does not name survive.
    Merge {
        /// The version decided on.
        guard: Guard,
        /// `metadata.labels`: a value, or absent to remove the key.
        labels: Changes,
        /// `metadata.annotations` likewise.
        annotations: Changes,
    },
    /// Delete of exactly this version.
    Delete {
        /// The version decided on.
        guard: Guard,
    },
}

/// Keys to be set, or removed where the value is absent.
pub type Changes = BTreeMap<String, Option<String>>;

/// The version of an object that a write is meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

impl Guard {
    /// The version of an object that was read with this metadata.
    pub fn of(meta: &Meta) -> Self {
        Self { uid: meta.uid.to_string(), resource_version: meta.resource_version.to_string() }
    }
}

/// Result of a successful write.
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
            Self::Update { .. } => "update",
            Self::Apply { .. } | Self::Patch { .. } | Self::Merge { .. } => "patch",
            Self::Delete { .. } => "delete",
        }
    }
}

impl Write {
    /// A write that is not a dry run.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>, action: Action) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into(), action, dry_run: false, once: false }
    }

    /// The same as a question: nothing is stored.
    #[must_use]
    pub fn dry(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// The same, sent promptly and once: the facts that it was decided on may be out of date later.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

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
        let (outcome, verb) = match outcome {
            Err(refusal) if self.may_be_in_protobuf() && in_protobuf::is_about_bytes(&refusal) => {
                tracing::debug!(namespace = %self.namespace, name = %self.name, %refusal, "no patch in JSON");
                (self.send_in_protobuf(api, metrics, refusal).await, "update")
            }
            outcome => (outcome, self.action.verb()),
        };
        let word = outcome.as_ref().map_or_else(Refusal::reason, |_| "Done");
        metrics.write(self.kind.kind, verb, word);
        tracing::debug!(
            kind = self.kind.kind, namespace = %self.namespace, name = %self.name, verb, outcome = word, "write"
        );
        let body = outcome?;
        let answer: Answer = decode(&body)?;
        Ok(Written { meta: answer.metadata, body })
    }

    fn may_be_in_protobuf(&self) -> bool {
        self.kind == RESOURCE_CLAIM && matches!(self.action, Action::Patch { .. } | Action::Merge { .. })
    }

    /// Reads the claim in protobuf, and sends it back changed. `refused`: why it takes no patch in JSON.
    async fn send_in_protobuf(
        &self,
        api: &Api,
        metrics: &MachineryMetrics,
        refused: Refusal,
    ) -> Result<Vec<u8>, Refusal> {
        metrics.live_get(self.kind.kind);
        let Live::Found(read) = api.read_as(PROTOBUF, self.kind, &self.namespace, &self.name).await? else {
            return Err(Refusal::NotFound);
        };
        let mut call = self.call()?;
        (call.method, call.content_type) = (Method::PUT, PROTOBUF);
        call.body = in_protobuf::after(&self.action, &read, refused)?;
        api.send(&call).await
    }

    fn call(&self) -> Result<Call, Refusal> {
        let object = |sub| self.kind.object_path(&self.namespace, &self.name, sub);
        let unencodable = |e: serde_json::Error| Refusal::Invalid(format!("cannot encode: {e}"));
        let encode = |value: &Value| serde_json::to_vec(value).map_err(unencodable);
        let (method, uri, content_type, body, repeat) = match &self.action {
            Action::Create { body } => (
                Method::POST,
                format!("{}?fieldManager=dragoman", self.kind.collection_path(&self.namespace)),
                "application/json",
                body.clone().into_bytes(),
                Repeat::Untaken,
            ),
            Action::Apply { subresource, manager, force, body } => (
                Method::PATCH,
                format!("{}?fieldManager={manager}&force={force}", object(*subresource)),
                "application/apply-patch+yaml",
                encode(body)?,
                Repeat::Harmless,
            ),
            Action::Patch { subresource, guard, operations } => (
                Method::PATCH,
                format!("{}?fieldManager=dragoman", object(*subresource)),
                "application/json-patch+json",
                encode(&guard.before(operations))?,
                Repeat::Harmless,
            ),
            Action::Update { guard, object: whole } => (
                Method::PUT,
                format!("{}?fieldManager=dragoman", object(None)),
                "application/json",
                encode(&guard.guarded(whole))?,
                Repeat::Harmless,
            ),
            Action::Merge { guard, labels, annotations } => (
                Method::PATCH,
                format!("{}?fieldManager=dragoman", object(None)),
                "application/merge-patch+json",
                encode(&guard.merged(labels, annotations))?,
                Repeat::Harmless,
            ),
            Action::Delete { guard } => (
                Method::DELETE,
                format!("{}?", object(None)),
                "application/json",
                encode(&json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": guard.uid, "resourceVersion": guard.resource_version},
                }))?,
                Repeat::Harmless,
            ),
        };
        let repeat = if self.once { Repeat::Never } else { repeat };
        let uri = if self.dry_run { format!("{uri}&dryRun=All") } else { uri };
        let uri = uri.replace("?&", "?").trim_end_matches('?').to_owned();
        let name = if method == Method::POST { String::new() } else { self.name.clone() };
        Ok(Call { method, uri, body, content_type, accept: JSON, kind: self.kind, name, repeat })
    }
}

impl Guard {
    /// A JSON patch that fails unless the object has this version.
    fn before(&self, operations: &[Value]) -> Value {
        let mut all = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": self.uid}),
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": self.resource_version}),
        ];
        all.extend_from_slice(operations);
        all.into()
    }

    /// The object, as an update that conflicts unless the object has this version.
    fn guarded(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), json!(self.uid));
            metadata.insert("resourceVersion".to_owned(), json!(self.resource_version));
        }
        object
    }

    /// A merge patch that conflicts unless the object has this version. What is not changed is not
    /// named.
    fn merged(&self, labels: &Changes, annotations: &Changes) -> Value {
        let mut metadata = json!({"uid": self.uid, "resourceVersion": self.resource_version});
        if let Some(metadata) = metadata.as_object_mut() {
            for (field, changes) in [("labels", labels), ("annotations", annotations)] {
                if !changes.is_empty() {
                    metadata.insert(field.to_owned(), json!(changes));
                }
            }
        }
        json!({"metadata": metadata})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{NODE, POD};

    fn guard() -> Guard {
        Guard { uid: "u".to_owned(), resource_version: "7".to_owned() }
    }

    fn sent(write: &Write) -> (String, Value) {
        let call = write.call().expect("a call");
        (format!("{} {}", call.method, call.uri), serde_json::from_slice(&call.body).expect("json"))
    }

    #[test]
    fn labels_and_annotations_are_merged_into_one_version() {
        let changes = |key: &str, value: Option<&str>| [(key.to_owned(), value.map(str::to_owned))].into();
        let (labels, annotations) = (changes("a", Some("1")), changes("b", None));
        let write = Write::new(NODE, "", "n", Action::Merge { guard: guard(), labels, annotations });
        let body = json!({"metadata": {
            "uid": "u", "resourceVersion": "7", "labels": {"a": "1"}, "annotations": {"b": null},
        }});
        assert_eq!(sent(&write), ("PATCH /api/v1/nodes/n?fieldManager=dragoman".to_owned(), body));
    }

    #[test]
    fn a_delete_names_the_uid_and_the_version() {
        let (_, body) = sent(&Write::new(POD, "a", "p", Action::Delete { guard: guard() }));
        assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    }

    #[test]
    fn a_dry_run_says_so_for_every_action() {
        let at = "/api/v1/namespaces/a/pods";
        let apply = |subresource| Action::Apply {
            subresource,
            manager: "m",
            force: subresource.is_none(),
            body: json!({}),
        };
        let patch = Action::Patch { subresource: None, guard: guard(), operations: Vec::new() };
        for (action, wanted) in [
            (Action::Create { body: "{}".to_owned() }, format!("POST {at}?fieldManager=dragoman&dryRun=All")),
            (apply(None), format!("PATCH {at}/p?fieldManager=m&force=true&dryRun=All")),
            (apply(Some("status")), format!("PATCH {at}/p/status?fieldManager=m&force=false&dryRun=All")),
            (patch, format!("PATCH {at}/p?fieldManager=dragoman&dryRun=All")),
            (Action::Delete { guard: guard() }, format!("DELETE {at}/p?dryRun=All")),
        ] {
            let write = Write::new(POD, "a", "p", action);
            assert!(!sent(&write).0.contains("dryRun"));
            assert!(!sent(&write).0.ends_with('?'));
            assert_eq!(sent(&write.dry()).0, wanted);
        }
    }
}
