//! The parts of a request besides its path: the object, the dry-run flag and the field manager.

use serde_json::Value;

use super::Target;
use super::status::Status;
use crate::patch::Managed;
use crate::protobuf::{self, Unreadable};

/// Returns the object of a create or replace request.
///
/// # Errors
/// The content type is neither JSON nor protobuf, or the body cannot be read.
pub(super) fn body(target: &Target<'_>) -> Result<Value, Status> {
    let kind = &*target.request.content_type;
    if !matches!(kind, "" | "application/json" | PROTOBUF) {
        let accepted =
            "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
        return Err(Status::unsupported_media_type(accepted));
    }
    json_body(target)
}

/// The content type that typed clients send.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Returns the body as JSON, decoded from protobuf if necessary.
///
/// # Errors
/// The body cannot be read, or its protobuf message type is not simulated.
pub(super) fn json_body(target: &Target<'_>) -> Result<Value, Status> {
    if target.request.content_type == PROTOBUF {
        return protobuf::read(&target.request.body).map_err(|why| match why {
            Unreadable::Broken => Status::bad_request(why.to_string()),
            Unreadable::Unknown { .. } => Status::not_simulated(&why.to_string()),
        });
    }
    serde_json::from_slice(&target.request.body)
        .map_err(|why| Status::bad_request(format!("cannot read the body: {why}")))
}

/// Whether the request is a dry run.
///
/// # Errors
/// `dryRun` has a value other than `All`.
pub(super) fn dry_run(target: &Target<'_>) -> Result<bool, Status> {
    match target.request.query.get("dryRun") {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(Status::bad_request(format!(
            "Invalid value for dryRun: {other:?}: supported values: \"All\""
        ))),
    }
}

/// Returns the field manager of the request: `fieldManager`, the first part of the user agent, or `unknown`.
pub(super) fn manager(target: &Target<'_>, operation: &'static str) -> Managed {
    let said = target.request.query.get("fieldManager");
    let agent = target.request.user_agent.split('/').next().unwrap_or_default();
    let manager = [said, agent, "unknown"].into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    Managed {
        manager: manager.to_owned(),
        operation,
        api_version: target.resource.api_version(),
        subresource: if target.subresource == "binding" { String::new() } else { target.subresource.clone() },
    }
}
