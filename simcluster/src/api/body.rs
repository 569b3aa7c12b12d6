//! What a request carries besides its path: the object, whether it is meant, and who writes.

use serde_json::Value;

use super::Target;
use super::status::Status;
use crate::patch::Managed;
use crate::protobuf::{self, Unreadable};

/// The object of a creation or a replacement.
pub(super) fn body(target: &Target<'_>) -> Result<Value, Status> {
    let kind = &*target.request.content_type;
    if !matches!(kind, "" | "application/json" | PROTOBUF) {
        let accepted =
            "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
        return Err(Status::unsupported_media_type(accepted));
    }
    json_body(target)
}

/// What typed clients send.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The body, however it is written.
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

/// Whether nothing is to be done really.
pub(super) fn dry_run(target: &Target<'_>) -> Result<bool, Status> {
    match target.request.query.get("dryRun") {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(Status::bad_request(format!(
            "Invalid value for dryRun: {other:?}: supported values: \"All\""
        ))),
    }
}

/// In whose name fields are owned.
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
