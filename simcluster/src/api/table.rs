//! Lists, and the tables that `kubectl get` prints.

use serde_json::{Value, json};

use super::{State, Target, json_path, meta};
use crate::kinds::Resource;

/// A column: name, type, whether it is shown only in wide output, and the value of a cell.
type Column = (&'static str, &'static str, bool, fn(&Value) -> Value);

/// Whether the client asks for a table.
pub(super) fn wanted(accept: &str) -> bool {
    accept.split(',').next().is_some_and(|first| first.contains("as=Table"))
}

/// Returns a list if there is list metadata, or else the single object, in the requested format.
pub(super) fn shown(
    state: &State,
    target: &Target<'_>,
    mut objects: Vec<Value>,
    list: Option<Value>,
) -> Value {
    let resource = &target.resource;
    if wanted(&target.request.accept) {
        return rows(state, resource, objects, list);
    }
    let Some(metadata) = list else { return objects.pop().unwrap_or_default() };
    let is_built_in =
        resource.group.is_empty() || resource.group.ends_with("k8s.io") || resource.group == "apps";
    if is_built_in {
        // Items of a built-in list omit kind and apiVersion, which the list implies.
        for object in objects.iter_mut().filter_map(Value::as_object_mut) {
            object.remove("kind");
            object.remove("apiVersion");
        }
    }
    json!({
        "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
        "metadata": metadata, "items": objects,
    })
}

/// Returns objects as the rows of a table.
pub(super) fn rows(state: &State, resource: &Resource, objects: Vec<Value>, list: Option<Value>) -> Value {
    let name: Column = ("Name", "string", false, |object| json!(meta::text(object, "name")));
    let age: Column = ("Age", "date", false, |object| object["metadata"]["creationTimestamp"].clone());
    let (before, after) = columns(&resource.kind);
    let printed = printed(state, resource);
    let built_in = [name].into_iter().chain(before.iter().copied());
    let late = if printed.is_empty() { vec![age] } else { Vec::new() };
    let columns: Vec<Column> = built_in.chain(late).chain(after.iter().copied()).collect();
    let definition = |name: &str, kind: &str, wide: bool| {
        let format = if name == "Name" { "name" } else { "" };
        let kind = if kind == "date" { "string" } else { kind };
        json!({"name": name, "type": kind, "format": format, "description": "", "priority": i32::from(wide)})
    };
    let definitions = columns.iter().map(|(name, kind, wide, _)| definition(name, kind, *wide));
    let custom = printed.iter().map(|column| {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        definition(text("name"), text("type"), column["priority"].as_i64().unwrap_or_default() > 0)
    });
    let definitions: Vec<Value> = definitions.chain(custom).collect();
    let now = jiff::Timestamp::now();
    let cell = |object: &Value, (_, kind, _, of): &Column| match *kind {
        "date" => since(&of(object), now),
        _ => of(object),
    };
    let row = |object: Value| {
        let own = columns.iter().map(|column| cell(&object, column));
        let custom = printed.iter().map(|column| {
            let value = json_path::first(&object, column["jsonPath"].as_str().unwrap_or_default());
            if column["type"] == "date" { since(&value, now) } else { value }
        });
        let cells: Vec<Value> = own.chain(custom).collect();
        json!({"cells": cells, "object": {
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
        }})
    };
    let mut metadata = list.unwrap_or_else(|| json!({}));
    if let (Some(object), true) = (objects.first(), metadata.get("resourceVersion").is_none()) {
        metadata["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    }
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": objects.into_iter().map(row).collect::<Vec<_>>(),
    })
}

/// Returns the built-in columns between Name and Age, and those after Age.
fn columns(kind: &str) -> (&'static [Column], &'static [Column]) {
    match kind {
        "Pod" => (
            &[
                ("Ready", "string", false, ready_containers),
                ("Status", "string", false, pod_status),
                ("Restarts", "string", false, |_| json!("0")),
            ],
            &[
                ("IP", "string", true, |pod| or_none(&pod["status"]["podIP"])),
                ("Node", "string", true, |pod| or_none(&pod["spec"]["nodeName"])),
                ("Nominated Node", "string", true, |pod| or_none(&pod["status"]["nominatedNodeName"])),
                ("Readiness Gates", "string", true, |_| json!("<none>")),
            ],
        ),
        "ResourceClaim" => (&[("State", "string", false, |claim| json!(claim_state(claim)))], &[]),
        "ResourceSlice" => (
            &[
                ("Node", "string", false, |slice| or_empty(&slice["spec"]["nodeName"])),
                ("Driver", "string", false, |slice| slice["spec"]["driver"].clone()),
                ("Pool", "string", false, |slice| slice["spec"]["pool"]["name"].clone()),
            ],
            &[],
        ),
        "Node" => (
            &[("Status", "string", false, node_status), ("Roles", "string", false, |_| json!("<none>"))],
            &[("Version", "string", false, |node| or_empty(&node["status"]["nodeInfo"]["kubeletVersion"]))],
        ),
        "Namespace" => {
            (&[("Status", "string", false, |namespace| namespace["status"]["phase"].clone())], &[])
        }
        "Lease" => (&[("Holder", "string", false, |lease| or_empty(&lease["spec"]["holderIdentity"]))], &[]),
        "Event" => (
            &[
                ("Type", "string", false, |event| event["type"].clone()),
                ("Reason", "string", false, |event| event["reason"].clone()),
                ("Object", "string", false, event_object),
                ("Message", "string", false, event_message),
            ],
            &[],
        ),
        _ => (&[], &[]),
    }
}

/// Returns the `additionalPrinterColumns` of a custom resource.
fn printed(state: &State, resource: &Resource) -> Vec<Value> {
    let definition = state
        .store
        .get("customresourcedefinitions.apiextensions.k8s.io", &(String::new(), resource.qualified()));
    let versions = definition.into_iter().flat_map(|definition| meta::items(&definition["spec"]["versions"]));
    let mut version = versions.filter(|version| version["name"] == *resource.version);
    version
        .next()
        .map(|version| meta::items(&version["additionalPrinterColumns"]).cloned().collect())
        .unwrap_or_default()
}

fn or_none(value: &Value) -> Value {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>").into()
}

fn or_empty(value: &Value) -> Value {
    value.as_str().unwrap_or_default().into()
}

/// The number of ready containers and of all containers of a Pod.
fn ready_containers(pod: &Value) -> Value {
    let containers = meta::items(&pod["spec"]["containers"]).count();
    let ready = meta::items(&pod["status"]["containerStatuses"]).filter(|status| status["ready"] == true);
    json!(format!("{}/{containers}", ready.count()))
}

fn pod_status(pod: &Value) -> Value {
    if meta::is_deleting(pod) {
        return json!("Terminating");
    }
    let gated = meta::items(&pod["spec"]["schedulingGates"]).next().is_some();
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    json!(match phase {
        "Pending" if gated => "SchedulingGated",
        "Succeeded" => "Completed",
        "Failed" => "Error",
        other => other,
    })
}

fn node_status(node: &Value) -> Value {
    let ready = meta::items(&node["status"]["conditions"]).find(|condition| condition["type"] == "Ready");
    json!(match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    })
}

/// The kind and the name of the object that an event is about, in the spelling of either group.
fn event_object(event: &Value) -> Value {
    let of = if event["regarding"].is_object() { &event["regarding"] } else { &event["involvedObject"] };
    let text = |field: &str| of[field].as_str().unwrap_or_default();
    json!(format!("{}/{}", text("kind").to_lowercase(), text("name")))
}

/// The text of an event, in the spelling of either group.
fn event_message(event: &Value) -> Value {
    if event["note"].is_string() { event["note"].clone() } else { event["message"].clone() }
}

fn claim_state(claim: &Value) -> String {
    let mut states = Vec::new();
    if meta::is_deleting(claim) {
        states.push("deleted");
    }
    if claim["status"]["allocation"].is_null() {
        if states.is_empty() {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        if meta::items(&claim["status"]["reservedFor"]).next().is_some() {
            states.push("reserved");
        }
    }
    states.join(",")
}

/// Formats an age in the notation of kubectl.
fn since(time: &Value, now: jiff::Timestamp) -> Value {
    let Some(then) = time.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) else {
        return json!("<unknown>");
    };
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    json!(match seconds {
        ..120 => format!("{seconds}s"),
        120..600 if seconds % 60 > 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 > 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_claims() {
        let allocation = json!({"devices": {}});
        for (claim, state) in [
            (json!({}), "pending"),
            (json!({"status": {"allocation": allocation}}), "allocated"),
            (json!({"status": {"allocation": allocation, "reservedFor": [{}]}}), "allocated,reserved"),
            (
                json!({"metadata": {"deletionTimestamp": "x"}, "status": {"allocation": allocation}}),
                "deleted,allocated",
            ),
            (json!({"metadata": {"deletionTimestamp": "x"}}), "deleted"),
        ] {
            assert_eq!(claim_state(&claim), state);
        }
    }

    #[test]
    fn ages() {
        let now: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().expect("time");
        for (then, age) in [
            ("2026-01-01T23:59:55Z", "5s"),
            ("2026-01-01T23:57:30Z", "2m30s"),
            ("2026-01-01T23:30:00Z", "30m"),
            ("2026-01-01T20:00:00Z", "4h"),
            ("2026-01-01T00:00:00Z", "24h"),
            ("nonsense", "<unknown>"),
        ] {
            assert_eq!(since(&json!(then), now), age);
        }
    }
}
