//! Refusals: the answers of an API server that does not carry out a request.
//!
//! A refusal is sorted by what has to happen next, not by its HTTP code: the
//! same 404, 403 and 422 mean very different things (docs/kubernetes-facts.md 2.1).

use serde::Deserialize;

use crate::kind::Kind;
use crate::protobuf::{MAGIC, Message, RAW};

/// `v1` Status, as far as it decides anything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Machine-readable reason, for example `NotFound`.
    pub reason: String,
    /// Text for people.
    pub message: String,
    /// Subject, causes and waiting time of the refusal.
    pub details: Option<Details>,
}

impl Status {
    /// A Status in protobuf; `None` if the bytes are none.
    pub(crate) fn of_protobuf(body: &[u8]) -> Option<Self> {
        let text = |of: &Message, number: u64| {
            of.one(number).map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
        };
        let status = Message::read(body.strip_prefix(MAGIC)?)?.message(RAW)?;
        let details = status.message(5)?;
        let causes = details.all(4).filter_map(Message::read).map(|cause| Cause {
            reason: text(&cause, 1),
            message: text(&cause, 2),
            field: text(&cause, 3),
        });
        let details = Details {
            name: text(&details, 1),
            kind: text(&details, 3),
            causes: causes.collect(),
            // Of answers that are repeated, which say it in a header, too.
            retry_after_seconds: 0,
        };
        Some(Self { message: text(&status, 3), reason: text(&status, 4), details: Some(details) })
    }
}

/// `details` of a Status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// Plural resource name, despite the field's name.
    pub kind: String,
    /// Single causes.
    pub causes: Vec<Cause>,
    /// Seconds to wait before the next attempt.
    pub retry_after_seconds: u64,
}

/// One of `details.causes`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// Machine-readable reason.
    pub reason: String,
    /// Text for people.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

/// Why a request had no effect, sorted by what follows from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The object asked for does not exist; the answer named that object.
    #[error("not found")]
    NotFound,
    /// A 404 that does not name the object: the group version may not be served.
    #[error("not found, but the answer does not name the object: {0}")]
    Unserved(String),
    /// The object there has another uid: the one we meant is gone.
    #[error("the object was replaced by another one of the same name")]
    Replaced,
    /// The object changed since it was read.
    #[error("the object has changed")]
    Conflict,
    /// Another manager owns a field of an apply without force; the text names both.
    #[error("{0}")]
    OwnedByAnother(String),
    /// An object of that name exists.
    #[error("already exists")]
    AlreadyExists,
    /// The namespace is being deleted.
    #[error("the namespace is being deleted")]
    NamespaceTerminating,
    /// A `ResourceQuota` is exhausted.
    #[error("{0}")]
    Quota(String),
    /// The namespace lacks the label that allows admin access.
    #[error("{0}")]
    AdminAccess(String),
    /// RBAC: the text names the missing rule.
    #[error("{0}")]
    Rbac(String),
    /// Validation or admission refused the content; repeating it is useless
    /// until something changes.
    #[error("{0}")]
    Invalid(String),
    /// The server asked for patience longer than the call may last.
    #[error("throttled by the API server")]
    Throttled,
    /// Server or network trouble; the request may or may not have had effect.
    #[error("{0}")]
    Transient(String),
    /// The server's answer could not be understood.
    #[error("answer does not decode: {0}")]
    Undecodable(String),
}

/// Reaction to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Read again and decide again, at once.
    Conflict,
    /// Try again with backoff.
    Backoff,
    /// Try again when the world has changed, else at a slow pace.
    Change,
    /// Nothing to do any more.
    Never,
}

/// Gives each variant of an enum its word, in one place: a label of metrics. `$all` has every word that `$word` returns.
#[macro_export]
macro_rules! words {
    ($of:ident, $all:ident, $word:ident; $($variant:pat => $text:expr,)*) => {
        impl $of {
            /// Every word.
            pub const $all: &'static [&'static str] = &[$($text),*];

            /// A short fixed word: a label of metrics and a reason of Events.
            pub fn $word(&self) -> &'static str {
                match self {
                    $($variant => $text,)*
                }
            }
        }
    };
}

words! {
    Refusal, REASONS, reason;
    Self::NotFound => "NotFound",
    Self::Unserved(_) => "Unserved",
    Self::Replaced => "Replaced",
    Self::Conflict => "Conflict",
    Self::OwnedByAnother(_) => "OwnedByAnother",
    Self::AlreadyExists => "AlreadyExists",
    Self::NamespaceTerminating => "NamespaceTerminating",
    Self::Quota(_) => "QuotaExceeded",
    Self::AdminAccess(_) => "AdminAccessForbidden",
    Self::Rbac(_) => "Forbidden",
    Self::Invalid(_) => "Invalid",
    Self::Throttled => "Throttled",
    Self::Transient(_) => "Transient",
    Self::Undecodable(_) => "Undecodable",
}

impl Refusal {
    /// Whether the write had no effect for certain. After a conflict it may have had: the one that came
    /// before may be our own, whose answer was lost.
    pub fn is_without_effect(&self) -> bool {
        !matches!(self, Self::Conflict | Self::Throttled | Self::Transient(_) | Self::Undecodable(_))
    }

    /// The retry class.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict | Self::OwnedByAnother(_) | Self::AlreadyExists => Retry::Conflict,
            Self::NotFound | Self::Replaced | Self::NamespaceTerminating => Retry::Never,
            Self::Quota(_) | Self::AdminAccess(_) | Self::Invalid(_) => Retry::Change,
            Self::Unserved(_)
            | Self::Rbac(_)
            | Self::Throttled
            | Self::Transient(_)
            | Self::Undecodable(_) => Retry::Backoff,
        }
    }

    /// Sorts an answer outside 2xx to a request about `kind` and `name` (empty
    /// for a creation).
    pub fn classify(code: u16, status: &Status, kind: Kind, name: &str) -> Self {
        let message = || {
            if status.message.is_empty() { format!("HTTP {code}") } else { status.message.clone() }
        };
        match code {
            404 if names_object(status, kind, name) => Self::NotFound,
            404 => Self::Unserved(message()),
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists,
            409 if causes(status).any(|cause| cause.reason == "FieldManagerConflict") => {
                Self::OwnedByAnother(message())
            }
            // A DELETE with a wrong uid precondition answers 409, as a wrong
            // resourceVersion does; a second look tells them apart.
            409 => Self::Conflict,
            403 => forbidden(status, message(), kind),
            422 => unprocessable(status, message(), name),
            429 => Self::Throttled,
            // Authentication fails while tokens cannot be looked up; 408 and 425 ask for the same
            // request again. None says anything about its content.
            401 | 408 | 425 => Self::Transient(message()),
            400..=499 => Self::Invalid(message()),
            // An apply of a field that this version of the API does not have (1.36, 1.37). Repeated, it
            // would be answered like that for ever.
            500 if status.message.contains("field not declared in schema") => Self::Invalid(message()),
            _ => Self::Transient(message()),
        }
    }
}

fn names_object(status: &Status, kind: Kind, name: &str) -> bool {
    status.details.as_ref().is_some_and(|d| d.kind == kind.plural && d.name == name && !name.is_empty())
}

fn causes(status: &Status) -> impl Iterator<Item = &Cause> {
    status.details.iter().flat_map(|d| &d.causes)
}

/// The reason within the text of a 403, which is `RESOURCE "NAME" is forbidden: REASON` where the API
/// server itself refuses. A webhook's text begins with its name, so that its author cannot feign this.
fn own_reason(message: &str, kind: Kind) -> Option<&str> {
    let rest = message.strip_prefix(kind.plural)?;
    let rest = rest.strip_prefix('.').and_then(|r| r.strip_prefix(kind.group)).unwrap_or(rest);
    if let Some(reason) = rest.strip_prefix(" is forbidden: ") {
        return Some(reason);
    }
    // Names of objects have no quotes.
    rest.strip_prefix(" \"")?.split_once('"')?.1.strip_prefix(" is forbidden: ")
}

fn forbidden(status: &Status, message: String, kind: Kind) -> Refusal {
    if causes(status).any(|c| c.reason == "NamespaceTerminating") {
        return Refusal::NamespaceTerminating;
    }
    let reason = own_reason(&message, kind).unwrap_or_default();
    if reason.starts_with("exceeded quota: ") || reason.starts_with("failed quota: ") {
        Refusal::Quota(message)
    } else if message.contains("resource.k8s.io/admin-access") {
        Refusal::AdminAccess(message)
    } else if reason.starts_with("User \"") && reason.contains("\" cannot ") {
        // RBAC's text: User "…" cannot VERB resource "…" in API group "…". A policy of the API
        // server begins with its kind, for example ValidatingAdmissionPolicy.
        Refusal::Rbac(message)
    } else {
        Refusal::Invalid(message)
    }
}

fn unprocessable(status: &Status, message: String, name: &str) -> Refusal {
    // A synthetic resource such as resourceclaims/binding is checked while the
    // object is validated, so the missing right comes back as an invalid field.
    let of_status = causes(status).any(|c| c.field.starts_with("status."));
    if causes(status).any(|c| c.field == "metadata.uid") {
        Refusal::Replaced
    } else if of_status && message.contains("is forbidden: User \"") {
        Refusal::Rbac(message)
    } else if message.contains("resource.k8s.io/admin-access") {
        Refusal::AdminAccess(message)
    } else if !name.is_empty() && status.details.as_ref().is_some_and(Details::is_empty) {
        // A failed `test` of a JSON patch: its details are there and empty. Those of a validation
        // have causes, a webhook's refusal has none at all, and a creation tests nothing.
        Refusal::Conflict
    } else {
        Refusal::Invalid(message)
    }
}

impl Details {
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.kind.is_empty() && self.causes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{POD, RESOURCE_CLAIM};

    fn status(json: &str) -> Status {
        serde_json::from_str(json).expect("status")
    }

    #[test]
    fn not_found_counts_only_for_the_object_asked_for() {
        let named = status(r#"{"reason":"NotFound","details":{"name":"a","kind":"pods"}}"#);
        let empty = status(
            r#"{"reason":"NotFound","details":{},"message":"the server could not find the requested resource"}"#,
        );
        assert_eq!(Refusal::classify(404, &named, POD, "a"), Refusal::NotFound);
        assert!(matches!(Refusal::classify(404, &named, POD, "b"), Refusal::Unserved(_)));
        assert!(matches!(Refusal::classify(404, &named, RESOURCE_CLAIM, "a"), Refusal::Unserved(_)));
        assert!(matches!(Refusal::classify(404, &empty, POD, "a"), Refusal::Unserved(_)));
    }

    #[test]
    fn forbidden_has_classes() {
        let terminating = status(
            r#"{"reason":"Forbidden","message":"unable to create new content","details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#,
        );
        let quota = status(
            r#"{"reason":"Forbidden","message":"resourceclaims.resource.k8s.io \"c\" is forbidden: exceeded quota: q, requested: 1"}"#,
        );
        let rbac = status(
            r#"{"reason":"Forbidden","message":"resourceclaims.resource.k8s.io is forbidden: User \"x\" cannot create resource \"resourceclaims\" in API group \"resource.k8s.io\""}"#,
        );
        let class = |s| Refusal::classify(403, s, RESOURCE_CLAIM, "");
        assert_eq!(class(&terminating), Refusal::NamespaceTerminating);
        assert!(matches!(class(&quota), Refusal::Quota(_)));
        assert!(matches!(class(&rbac), Refusal::Rbac(_)));
        let pod = status(
            r#"{"reason":"Forbidden","message":"pods \"p\" is forbidden: User \"x\" cannot patch resource \"pods/status\""}"#,
        );
        assert!(matches!(Refusal::classify(403, &pod, POD, "p"), Refusal::Rbac(_)));
    }

    /// The message of a policy is for the author of the Pod, and says nothing about our rights or quotas.
    #[test]
    fn a_policy_may_use_any_words() {
        let mut texts = vec![
            r#"admission webhook "gpu.example.com" denied the request: GPUs cannot be claimed in this namespace"#,
            r#"admission webhook "q.example.com" denied the request: exceeded quota: of my own"#,
            r#"resourceclaims.resource.k8s.io "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: User "x" cannot create resource "y""#,
        ];
        texts.push(r#"admission webhook "w" denied the request: resourceclaims "c" is forbidden: User "x" cannot create"#);
        for text in texts {
            let denied = Status { message: text.to_owned(), reason: "Forbidden".to_owned(), details: None };
            let refusal = Refusal::classify(403, &denied, RESOURCE_CLAIM, "");
            assert_eq!(refusal, Refusal::Invalid(text.to_owned()));
        }
    }

    #[test]
    fn failing_authentication_is_no_judgement_of_the_content() {
        for code in [401, 408, 425, 500, 503, 504] {
            let refusal = Refusal::classify(code, &Status::default(), RESOURCE_CLAIM, "");
            assert_eq!(refusal, Refusal::Transient(format!("HTTP {code}")));
        }
        assert!(matches!(Refusal::classify(413, &Status::default(), POD, ""), Refusal::Invalid(_)));
        let text = "failed to create typed patch object (ns/p; /v1, Kind=Pod): .status.x: field not declared in schema";
        let undeclared = Status { message: text.to_owned(), ..Status::default() };
        assert_eq!(Refusal::classify(500, &undeclared, POD, "p"), Refusal::Invalid(text.to_owned()));
    }

    #[test]
    fn a_422_without_causes_is_said_unless_it_is_a_failed_test() {
        let webhook = status(r#"{"message":"admission webhook \"w\" denied the request: no"}"#);
        let class = |s, name| Refusal::classify(422, s, RESOURCE_CLAIM, name);
        assert!(matches!(class(&webhook, ""), Refusal::Invalid(_)));
        assert!(matches!(class(&webhook, "a"), Refusal::Invalid(_)));
        let empty =
            status(r#"{"reason":"Invalid","message":"the server rejected our request","details":{}}"#);
        assert_eq!(class(&empty, "a"), Refusal::Conflict);
        assert!(matches!(class(&empty, ""), Refusal::Invalid(_)), "a creation tests nothing");
    }

    #[test]
    fn a_409_tells_an_owned_field_from_a_changed_object() {
        let owned = status(
            r#"{"reason":"Conflict","message":"Apply failed with 1 conflict: conflict with \"x\": .status.y",
                "details":{"causes":[{"reason":"FieldManagerConflict","field":".status.y"}]}}"#,
        );
        let changed = status(r#"{"reason":"Conflict","message":"uid mismatch"}"#);
        let class = |s| Refusal::classify(409, s, POD, "p");
        assert_eq!(class(&owned), Refusal::OwnedByAnother(owned.message.clone()));
        assert_eq!(class(&changed), Refusal::Conflict);
    }

    #[test]
    fn unprocessable_tells_replaced_from_conflict_from_invalid() {
        let uid = status(r#"{"reason":"Invalid","details":{"causes":[{"field":"metadata.uid"}]}}"#);
        let test_failed = status(
            r#"{"reason":"Invalid","message":"the server rejected our request due to an error in our request","details":{}}"#,
        );
        let invalid = status(r#"{"reason":"Invalid","details":{"causes":[{"field":"spec.x"}]}}"#);
        let binding = status(
            r#"{"reason":"Invalid","message":"status.allocation: Forbidden: requires resource=\"resourceclaims/binding\" permission: claims is forbidden: User \"x\" cannot patch","details":{"causes":[{"field":"status.allocation"}]}}"#,
        );
        let class = |s| Refusal::classify(422, s, RESOURCE_CLAIM, "a");
        assert!(matches!(class(&binding), Refusal::Rbac(_)));
        assert_eq!(class(&uid), Refusal::Replaced);
        assert_eq!(class(&test_failed), Refusal::Conflict);
        assert!(matches!(class(&invalid), Refusal::Invalid(_)));
    }

    #[test]
    fn a_refusal_in_protobuf_is_understood() {
        let message = |fields: &[(u64, &[u8])]| {
            let mut message = Message::default();
            fields.iter().for_each(|(number, content)| message.add(*number, content));
            message.bytes()
        };
        let cause = message(&[(1, b"FieldValueInvalid"), (2, b"why"), (3, b"spec.x")]);
        let details = message(&[(1, b"p"), (3, b"pods"), (4, &cause)]);
        let status = message(&[(2, b"Failure"), (3, b"not found"), (4, b"NotFound"), (5, &details)]);
        let body = [MAGIC, &message(&[(1, b"types"), (RAW, &status)])].concat();
        let status = Status::of_protobuf(&body).expect("a status");
        assert_eq!((&*status.message, &*status.reason), ("not found", "NotFound"));
        assert_eq!(causes(&status).map(|cause| &*cause.field).collect::<Vec<_>>(), ["spec.x"]);
        assert_eq!(Refusal::classify(404, &status, POD, "p"), Refusal::NotFound);
        assert!(Status::of_protobuf(b"{}").is_none());
    }
}
