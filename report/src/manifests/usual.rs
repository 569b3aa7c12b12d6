//! Objects in the form in which the API server stores them: in a namespace, and of the newest version of `resource.k8s.io`. People
//! write them without the one, and older clients without the other.

use serde_json::{Map, Value, json};

use super::{Found, Metadata};

/// The namespace of what names none, as kubectl has it.
const DEFAULT: &str = "default";

/// The kinds that live in a namespace.
const NAMESPACED: [&str; 7] =
    ["Pod", "ResourceClaim", "ResourceClaimTemplate", "ResourceQuota", "Event", "PodGroup", "Workload"];

/// The version that reads the requests of a claim in another place.
const BEFORE: &str = "resource.k8s.io/v1beta1";

/// The fields that belong to a request up to `v1beta1`, and to `exactly` of the request since.
const OF_EXACTLY: [&str; 8] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
];

/// The object in its usual form. Most are in it: they are not even parsed.
pub(super) fn usual(found: Found) -> Found {
    let kind = found.head.kind.as_deref().unwrap_or_default();
    let namespace = found.head.metadata.as_ref().and_then(|meta| meta.namespace.as_deref());
    let is_lost = NAMESPACED.contains(&kind) && namespace.unwrap_or_default().is_empty();
    let is_older = found.head.api_version.as_deref() == Some(BEFORE);
    if !is_lost && !is_older {
        return found;
    }
    let Ok(Value::Object(mut object)) = serde_json::from_slice::<Value>(&found.text) else { return found };
    let Found { place, mut head, .. } = found;
    if is_lost && let Value::Object(metadata) = object.entry("metadata").or_insert_with(|| json!({})) {
        metadata.insert("namespace".to_owned(), json!(DEFAULT));
        let known = head.metadata.take().unwrap_or_default();
        head.metadata = Some(Metadata { namespace: Some(DEFAULT.into()), ..known });
    }
    if is_older {
        let requests = match head.kind.as_deref() {
            Some("ResourceClaim") => "/spec/devices/requests",
            _ => "/spec/spec/devices/requests",
        };
        let mut whole = Value::Object(object);
        let requests = whole.pointer_mut(requests).and_then(Value::as_array_mut).into_iter().flatten();
        requests.filter_map(Value::as_object_mut).for_each(exactly);
        let text = whole.to_string().into_bytes();
        return Found { place, head, text: text.into() };
    }
    Found { place, head, text: Value::Object(object).to_string().into_bytes().into() }
}

/// Puts the fields of a request of `v1beta1` where they are since.
fn exactly(request: &mut Map<String, Value>) {
    if request.contains_key("exactly") || request.contains_key("firstAvailable") {
        return;
    }
    let fields = OF_EXACTLY.into_iter().filter_map(|field| Some((field.to_owned(), request.remove(field)?)));
    let fields: Map<String, Value> = fields.collect();
    request.insert("exactly".to_owned(), Value::Object(fields));
}
