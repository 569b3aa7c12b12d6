//! Spans by the conventions of OpenTelemetry: a request is of kind client and named by verb and
//! resource; what failed has the status of an error.

use http::Method;
use tracing::Span;
use tracing::field::Empty;

use crate::api::Call;
use crate::refusal::Refusal;

/// The span of a call with all its attempts.
pub fn request(call: &Call) -> Span {
    tracing::debug_span!(
        "request",
        otel.name = name(call),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        error.r#type = Empty,
        http.request.method = %call.method,
        url.path = path(call),
        kind = call.kind.kind,
    )
}

/// Notes in the span how the call ended.
pub fn answered<T>(span: &Span, outcome: &Result<T, Refusal>) {
    if let Err(refusal) = outcome {
        span.record("error.type", refusal.reason());
        failed(span, &refusal.to_string());
    }
}

/// Gives a span the status of an error. It needs the fields `otel.status_code` and
/// `otel.status_description`.
pub fn failed(span: &Span, why: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", why);
}

/// Notes in the span of the reconciliation under way that it sends a request. One without is not
/// exported.
pub fn requested() {
    Span::current().record("requests", true);
}

/// The verb of RBAC and the resource with its subresource: a small set, so that spans can be grouped.
fn name(call: &Call) -> String {
    let plural = call.kind.plural;
    let object = format!("/{plural}/{}", call.name);
    let of_object = path(call).split_once(&object).filter(|_| !call.name.is_empty());
    let verb = match call.method {
        Method::GET if of_object.is_some() => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "request",
    };
    let subresource = of_object.map_or("", |(_, subresource)| subresource);
    format!("{verb} {plural}{subresource}")
}

/// The path without its query.
fn path(call: &Call) -> &str {
    call.uri.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{NODE, POD, RESOURCE_CLAIM};

    #[test]
    fn a_request_is_named_by_its_verb_and_its_resource() {
        let get = |kind: crate::kind::Kind, name: &str, sub| {
            Call::get(kind, kind.object_path("ns", name, sub), name)
        };
        let create = Call {
            method: Method::POST,
            ..Call::get(RESOURCE_CLAIM, RESOURCE_CLAIM.collection_path("ns") + "?fieldManager=d", "claim")
        };
        let patch = Call { method: Method::PATCH, ..get(RESOURCE_CLAIM, "claim", Some("status")) };
        let delete = Call { method: Method::DELETE, ..get(RESOURCE_CLAIM, "resourceclaims", None) };
        let list = Call::get(POD, POD.all_path() + "?limit=1", "");
        for (call, expected) in [
            (get(POD, "pods", None), "get pods"),
            (get(NODE, "node-1", None), "get nodes"),
            (create, "create resourceclaims"),
            (patch, "patch resourceclaims/status"),
            (delete, "delete resourceclaims"),
            (list, "list pods"),
        ] {
            assert_eq!(name(&call), expected);
        }
    }
}
