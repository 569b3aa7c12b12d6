//! The checks of every object that is written.

use serde_json::{Value, json};

use super::status::{FieldError, Status};
use super::{Target, meta};

/// Checks that the body is of the kind of the path.
///
/// # Errors
/// The body names another kind or version.
pub(super) fn check_kind(target: &Target<'_>, object: &Value) -> Result<(), Status> {
    let resource = &target.resource;
    let said = (object["apiVersion"].as_str(), object["kind"].as_str());
    if said == (Some(&resource.api_version()), Some(&resource.kind)) {
        return Ok(());
    }
    let (version, kind) = (said.0.unwrap_or_default(), said.1.unwrap_or_default());
    if kind.is_empty() && version.is_empty() {
        // A body without a kind has the kind of the path.
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: the path is of {}",
        resource.kind,
        resource.api_version()
    )))
}

/// Sets kind and namespace to those of the path.
///
/// # Errors
/// The object names another namespace.
pub(super) fn place(target: &Target<'_>, object: &mut Value) -> Result<(), Status> {
    let resource = &target.resource;
    meta::put(object, &["apiVersion"], json!(resource.api_version()));
    meta::put(object, &["kind"], json!(resource.kind));
    match &target.namespace {
        Some(namespace) => {
            let said = meta::text(object, "namespace");
            if !said.is_empty() && said != namespace {
                let message =
                    "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Status::bad_request(message));
            }
            meta::set(object, "namespace", json!(namespace));
        }
        None if !resource.namespaced => meta::set(object, "namespace", Value::Null),
        None => {}
    }
    Ok(())
}

/// Checks that an update refers to the stored object and its version.
///
/// # Errors
/// The name, the uid or the resourceVersion of `object` is another.
pub(super) fn check_version(target: &Target<'_>, before: &Value, object: &Value) -> Result<(), Status> {
    let (resource, name) = (&target.resource, meta::text(before, "name"));
    let said = meta::text(object, "name");
    if said != name {
        let message = format!("the name of the object ({said}) does not match the name on the URL ({name})");
        return Err(Status::bad_request(message));
    }
    let (uid, is) = (meta::text(object, "uid"), meta::text(before, "uid"));
    if !uid.is_empty() && uid != is {
        if target.request.method == http::Method::PATCH {
            // Upstream repeats the cause and prints it once in the message.
            let error = || FieldError::immutable("metadata.uid", &json!(uid));
            let mut status = Status::invalid(resource, name, &[error(), error()]);
            let once = Status::invalid(resource, name, &[error()]);
            status.message = once.message;
            return Err(status);
        }
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {is}");
        return Err(Status::conflict(resource, name, &why));
    }
    let version = meta::text(object, "resourceVersion");
    if !version.is_empty() && version != meta::text(before, "resourceVersion") {
        return Err(Status::modified(resource, name));
    }
    Ok(())
}

pub(super) fn validate_meta(namespaced: bool, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = meta::text(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = bad_name(name, object["kind"] == "Namespace") {
        errors.push(FieldError::invalid("metadata.name", &json!(name), why));
    }
    if namespaced && meta::text(object, "namespace").is_empty() {
        errors.push(FieldError::required("metadata.namespace", ""));
    }
    errors
}

const BAD_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const BAD_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn bad_name(name: &str, label: bool) -> Option<&'static str> {
    let fits = |part: &str| {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    if label {
        return (!fits(name) || name.len() > 63).then_some(BAD_LABEL);
    }
    // RBAC names may contain colons and capitals. A name with a colon is not checked at all.
    let path_like = name.contains(':');
    (!path_like && (!name.split('.').all(fits) || name.len() > 253)).then_some(BAD_SUBDOMAIN)
}

/// Returns an error if a terminating object gets new finalizers.
pub(super) fn validate_finalizers(before: &Value, object: &Value) -> Vec<FieldError> {
    let of = |object: &Value| meta::items(&object["metadata"]["finalizers"]).cloned().collect::<Vec<_>>();
    let (was, is) = (of(before), of(object));
    let new: Vec<Value> = is.into_iter().filter(|finalizer| !was.contains(finalizer)).collect();
    if !meta::is_deleting(before) || new.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = new.iter().filter_map(Value::as_str).collect();
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    );
    let error = || FieldError::forbidden("metadata.finalizers", &why);
    // Upstream repeats the error.
    vec![error(), error()]
}

/// Whether a write changes nothing, apart from resourceVersion and the times in `managedFields`.
pub(super) fn same(before: &Value, object: &Value) -> bool {
    let bare = |object: &Value| {
        let mut bare = object.clone();
        meta::set(&mut bare, "resourceVersion", Value::Null);
        let entries = bare.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        bare
    };
    bare(before) == bare(object)
}
