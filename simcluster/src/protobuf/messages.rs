//! The field numbers from the `.proto` files of `k8s.io/api`, for reviews, tokens, delete options, and the
//! types that `kubectl create` builds by name. Those of claims are in `claims.rs`.

/// The fields of a message that are decoded.
pub(super) struct Message(pub(super) &'static [Field]);

/// A field.
pub(super) struct Field {
    pub(super) number: u64,
    /// The name in JSON.
    pub(super) name: &'static str,
    pub(super) form: Form,
}

/// The type of a field.
pub(super) enum Form {
    Text,
    /// Bytes, which are base 64 in JSON.
    Bytes,
    Bool,
    Int,
    Quantity,
    /// A time, which is a text in JSON.
    Time,
    /// Any object in JSON, as the text that its author wrote.
    Raw,
    Message(&'static Message),
    /// A message whose fields are those of the object around it in JSON.
    Inline(&'static Message),
    Many(&'static Self),
    /// A map with string keys.
    Map(&'static Self),
}

use Form::{Bool, Bytes, Int, Many, Map, Quantity, Text};

pub(super) const fn f(number: u64, name: &'static str, form: Form) -> Field {
    Field { number, name, form }
}

pub(super) static TYPE_META: Message = Message(&[f(1, "apiVersion", Text), f(2, "kind", Text)]);
pub(super) static QUANTITY: Message = Message(&[f(1, "string", Text)]);

pub(super) const TEXTS: Form = Many(&Text);
const LABELS: Form = Map(&Text);

static META: Message = Message(&[
    f(1, "name", Text),
    f(2, "generateName", Text),
    f(3, "namespace", Text),
    f(5, "uid", Text),
    f(6, "resourceVersion", Text),
    f(11, "labels", LABELS),
    f(12, "annotations", LABELS),
    f(13, "ownerReferences", Many(&Form::Message(&OWNER))),
    f(14, "finalizers", TEXTS),
]);
static OWNER: Message = Message(&[
    f(1, "kind", Text),
    f(3, "name", Text),
    f(4, "uid", Text),
    f(5, "apiVersion", Text),
    f(6, "controller", Bool),
    f(7, "blockOwnerDeletion", Bool),
]);
pub(super) const METADATA: Field = f(1, "metadata", Form::Message(&META));

static NAMESPACE: Message = Message(&[METADATA, f(2, "spec", Form::Message(&NAMESPACE_SPEC))]);
static NAMESPACE_SPEC: Message = Message(&[f(1, "finalizers", TEXTS)]);
static CONFIG_MAP: Message =
    Message(&[METADATA, f(2, "data", LABELS), f(3, "binaryData", Map(&Bytes)), f(4, "immutable", Bool)]);
static SECRET: Message = Message(&[
    METADATA,
    f(2, "data", Map(&Bytes)),
    f(3, "type", Text),
    f(4, "stringData", LABELS),
    f(5, "immutable", Bool),
]);
static SERVICE_ACCOUNT: Message = Message(&[
    METADATA,
    f(2, "secrets", Many(&Form::Message(&REFERENCE))),
    f(3, "imagePullSecrets", Many(&Form::Message(&LOCAL_REFERENCE))),
    f(4, "automountServiceAccountToken", Bool),
]);
static REFERENCE: Message = Message(&[f(1, "kind", Text), f(2, "namespace", Text), f(3, "name", Text)]);
static LOCAL_REFERENCE: Message = Message(&[f(1, "name", Text)]);
static QUOTA: Message = Message(&[METADATA, f(2, "spec", Form::Message(&QUOTA_SPEC))]);
static QUOTA_SPEC: Message = Message(&[f(1, "hard", Map(&Quantity)), f(2, "scopes", TEXTS)]);
static PRIORITY_CLASS: Message = Message(&[
    METADATA,
    f(2, "value", Int),
    f(3, "globalDefault", Bool),
    f(4, "description", Text),
    f(5, "preemptionPolicy", Text),
]);

static ROLE: Message = Message(&[METADATA, f(2, "rules", Many(&Form::Message(&RULE)))]);
static RULE: Message = Message(&[
    f(1, "verbs", TEXTS),
    f(2, "apiGroups", TEXTS),
    f(3, "resources", TEXTS),
    f(4, "resourceNames", TEXTS),
    f(5, "nonResourceURLs", TEXTS),
]);
static BINDING: Message = Message(&[
    METADATA,
    f(2, "subjects", Many(&Form::Message(&SUBJECT))),
    f(3, "roleRef", Form::Message(&ROLE_REF)),
]);
static SUBJECT: Message =
    Message(&[f(1, "kind", Text), f(2, "apiGroup", Text), f(3, "name", Text), f(4, "namespace", Text)]);
static ROLE_REF: Message = Message(&[f(1, "apiGroup", Text), f(2, "kind", Text), f(3, "name", Text)]);

static TOKEN_REQUEST: Message = Message(&[METADATA, f(2, "spec", Form::Message(&TOKEN_SPEC))]);
static TOKEN_SPEC: Message = Message(&[f(1, "audiences", TEXTS), f(4, "expirationSeconds", Int)]);
static ACCESS_REVIEW: Message = Message(&[METADATA, f(2, "spec", Form::Message(&ACCESS_SPEC))]);
static ACCESS_SPEC: Message = Message(&[
    f(1, "resourceAttributes", Form::Message(&RESOURCE_ATTRIBUTES)),
    f(2, "nonResourceAttributes", Form::Message(&PATH_ATTRIBUTES)),
]);
static RESOURCE_ATTRIBUTES: Message = Message(&[
    f(1, "namespace", Text),
    f(2, "verb", Text),
    f(3, "group", Text),
    f(4, "version", Text),
    f(5, "resource", Text),
    f(6, "subresource", Text),
    f(7, "name", Text),
]);
static PATH_ATTRIBUTES: Message = Message(&[f(1, "path", Text), f(2, "verb", Text)]);
static REVIEW: Message = Message(&[METADATA]);
static RULES_REVIEW: Message = Message(&[METADATA, f(2, "spec", Form::Message(&RULES_SPEC))]);
static RULES_SPEC: Message = Message(&[f(1, "namespace", Text)]);

static DELETE_OPTIONS: Message = Message(&[
    f(1, "gracePeriodSeconds", Int),
    f(2, "preconditions", Form::Message(&PRECONDITIONS)),
    f(4, "propagationPolicy", Text),
    f(5, "dryRun", TEXTS),
]);
static PRECONDITIONS: Message = Message(&[f(1, "uid", Text), f(2, "resourceVersion", Text)]);

/// Returns the message of a type, or `None` for a type that is not simulated.
pub(super) fn of(version: &str, kind: &str) -> Option<&'static Message> {
    let group = version.split_once('/').map_or("", |(group, _)| group);
    Some(match (group, kind) {
        ("resource.k8s.io", "ResourceClaim") if version == "resource.k8s.io/v1" => &super::claims::CLAIM,
        ("", "Namespace") => &NAMESPACE,
        ("", "ConfigMap") => &CONFIG_MAP,
        ("", "Secret") => &SECRET,
        ("", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("", "ResourceQuota") => &QUOTA,
        ("scheduling.k8s.io", "PriorityClass") => &PRIORITY_CLASS,
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => &ROLE,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &BINDING,
        ("authentication.k8s.io", "TokenRequest") => &TOKEN_REQUEST,
        ("authorization.k8s.io", "SelfSubjectAccessReview") => &ACCESS_REVIEW,
        ("authorization.k8s.io", "SelfSubjectRulesReview") => &RULES_REVIEW,
        ("authentication.k8s.io", "SelfSubjectReview") => &REVIEW,
        (_, "DeleteOptions") => &DELETE_OPTIONS,
        _ => return None,
    })
}
