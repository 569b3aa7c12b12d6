//! Errors in the wording of the Kubernetes API server. Clients decide by reason, code and details.

use serde_json::{Value, json};

use crate::kinds::Resource;

/// A `v1` Status of a failed request.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The human-readable message.
    pub message: String,
    /// The machine-readable details.
    pub details: Value,
}

/// A validation error of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    /// The message without the field.
    pub(crate) message: String,
}

impl FieldError {
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { reason: "FieldValueInvalid", field: field.into(), message }
    }

    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {why}") }
    }

    pub(crate) fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {most} items");
        Self { reason: "FieldValueTooMany", field: field.into(), message }
    }

    pub(crate) fn too_long(field: impl Into<String>, most: u64) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self { reason: "FieldValueTooLong", field: field.into(), message }
    }

    pub(crate) fn wrong_type(field: &str, value: &Value, wanted: &str) -> Self {
        let is = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) if value.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let message = format!("Invalid value: {is:?}: {field} in body must be of type {wanted}: {is:?}");
        Self { reason: "FieldValueTypeInvalid", field: field.to_owned(), message }
    }

    pub(crate) fn unsupported<'a>(
        field: impl Into<String>,
        value: &Value,
        supported: impl Iterator<Item = &'a Value>,
    ) -> Self {
        let supported: Vec<String> = supported.map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    /// Returns the error of a CEL rule, which may state its own reason.
    pub(crate) fn broken_rule(rule: &Value, field: String, value: &Value, why: &str) -> Self {
        match rule["reason"].as_str() {
            Some("FieldValueForbidden") => Self::forbidden(field, why),
            Some("FieldValueRequired") => Self::required(field, why),
            Some("FieldValueDuplicate") => Self::duplicate(field, value),
            _ => Self { reason: "FieldValueInvalid", field, message: format!("Invalid value: {why}") },
        }
    }

    /// Returns the notice that CEL rules were skipped because the object has other errors.
    pub(crate) fn unchecked_rules() -> Self {
        let why = "some validation rules were not checked because the object was invalid; \
                   correct the existing errors to complete validation";
        Self::invalid("<nil>", &Value::Null, why)
    }

    /// Whether CEL rules still run after this error: the shape is right, and only the value is invalid or a
    /// duplicate.
    pub(crate) fn is_about_a_value(&self) -> bool {
        matches!(self.reason, "FieldValueInvalid" | "FieldValueDuplicate")
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {value}");
        Self { reason: "FieldValueDuplicate", field: field.into(), message }
    }

    pub(crate) fn immutable(field: impl Into<String>, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }
}

impl Status {
    fn about(resource: &Resource, name: &str) -> Value {
        let mut details = json!({"kind": resource.plural});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        details
    }

    /// The object does not exist.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: format!("{} {name:?} not found", resource.qualified()),
            details: Self::about(resource, name),
        }
    }

    /// The path is not served.
    pub(crate) fn unserved() -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: "the server could not find the requested resource".to_owned(),
            details: json!({}),
        }
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        Self {
            code: 409,
            reason: "AlreadyExists",
            message: format!("{} {name:?} already exists", resource.qualified()),
            details: Self::about(resource, name),
        }
    }

    /// The write conflicts with the stored object.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self {
            code: 409,
            reason: "Conflict",
            message: format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified()),
            details: Self::about(resource, name),
        }
    }

    /// A deletion has a precondition on another uid or resourceVersion.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let mut status = Self::conflict(resource, name, why);
        status.details["kind"] = json!(resource.kind);
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        status.message = format!("Operation cannot be fulfilled on {kind} {name:?}: {why}");
        status
    }

    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(crate) fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        let each: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
        let what = match each.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        let mut details = Self::about(resource, name);
        details["kind"] = json!(resource.kind);
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let message = format!("{kind} {name:?} is invalid: {what}");
        let causes = json!(causes);
        details["causes"] = causes;
        Self { code: 422, reason: "Invalid", message, details }
    }

    /// The options of a request are invalid.
    pub(crate) fn invalid_options(kind: &str, error: &FieldError) -> Self {
        let FieldError { reason, field, message } = error;
        let causes = json!([{"reason": reason, "message": message, "field": field}]);
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{kind}.meta.k8s.io \"\" is invalid: {field}: {message}"),
            details: json!({"group": "meta.k8s.io", "kind": kind, "causes": causes}),
        }
    }

    /// A `test` of a JSON patch fails, or the patch does not fit the object.
    pub(crate) fn unprocessable() -> Self {
        Self {
            code: 422,
            reason: "Invalid",
            message: "the server rejected our request due to an error in our request".to_owned(),
            details: json!({}),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.into(), details: Value::Null }
    }

    /// An error that kube-apiserver reports without a reason.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { code: 500, reason: "", message: message.into(), details: Value::Null }
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", resource.qualified());
        Self { code: 403, reason: "Forbidden", message, details: Self::about(resource, name) }
    }

    /// RBAC refuses a request to a resource. The answer is the same whether or not the object exists.
    pub(crate) fn forbidden_to(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let mut details = json!({"kind": plural});
        let mut what = qualified;
        for (field, value) in [("name", name), ("group", group)] {
            if !value.is_empty() {
                details[field] = json!(value);
            }
        }
        if !name.is_empty() {
            what += &format!(" {name:?}");
        }
        Self { code: 403, reason: "Forbidden", message: format!("{what} is forbidden: {why}"), details }
    }

    /// RBAC refuses a path that is not a resource.
    pub(crate) fn forbidden_path(why: &str) -> Self {
        Self { code: 403, reason: "Forbidden", message: format!("forbidden: {why}"), details: json!({}) }
    }

    /// The requested resourceVersion or continue token has expired.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self { code: 410, reason: "Expired", message: message.into(), details: Value::Null }
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "Unauthorized".to_owned();
        Self { code: 401, reason: "Unauthorized", message, details: Value::Null }
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self {
            code: 405,
            reason: "MethodNotAllowed",
            message: "the server does not allow this method on the requested resource".to_owned(),
            details: json!({}),
        }
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self { code: 415, reason: "UnsupportedMediaType", message, details: json!({}) }
    }

    /// The request needs a feature that is not simulated.
    pub(crate) fn not_simulated(what: &str) -> Self {
        let message = format!("simcluster does not simulate {what}");
        Self { code: 501, reason: "NotImplemented", message, details: json!({}) }
    }

    /// Returns the body of the answer.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}
