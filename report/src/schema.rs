//! The JSON Schema of what `kubectl dra` prints with `-o json`, by command. Fields are only added.

use serde_json::{Map, Value, json};

use crate::lists::{self, Column, Type};

/// The schema of each command stands in `$defs` under the name of the command.
pub fn schema() -> Value {
    let mut of_commands = Map::new();
    for (command, columns) in lists::COLUMNS_OF_COMMANDS {
        of_commands.insert((*command).to_owned(), list(columns));
    }
    for (command, schema) in
        [("check", check()), ("explain", explain()), ("why", why()), ("ledger", ledger()), ("top", top())]
    {
        of_commands.insert(command.to_owned(), schema);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kubectl dra --output json",
        "description": "Each command prints one document; its schema stands in $defs under the name of the command. A value that is not known is null.",
        "$defs": of_commands,
    })
}

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn texts(about: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "description": about})
}

fn lacks() -> Value {
    texts("Objects that could not be read, in sentences. The answer may lack them. Absent if there are none.")
}

/// An object all of whose fields but `optional` are there.
fn object(fields: &Value, optional: &[&str]) -> Value {
    let names = fields.as_object().into_iter().flat_map(Map::keys);
    let required: Vec<&String> = names.filter(|name| !optional.contains(&name.as_str())).collect();
    json!({"type": "object", "required": required, "properties": fields})
}

/// The schema of a list.
fn list(columns: &[Column]) -> Value {
    let fields = columns.iter().map(|column| (column.field.to_owned(), field(column))).collect();
    object(
        &json!({"items": {"type": "array", "items": object(&Value::Object(fields), &[])}, "lacks": lacks()}),
        &["lacks"],
    )
}

fn field(column: &Column) -> Value {
    let strings = |names: &[&str]| {
        let fields = names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        object(&Value::Object(fields), &[])
    };
    let mut schema = match column.r#type {
        Type::Text => json!({"type": "string"}),
        Type::Number => json!({"type": ["integer", "null"]}),
        Type::Time => json!({"type": ["string", "null"], "format": "date-time"}),
        Type::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Type::Devices => json!({"type": "array", "items": strings(&["driver", "pool", "device", "request"])}),
        Type::Consumers => {
            json!({"type": "array", "items": strings(&["apiGroup", "resource", "name", "uid"])})
        }
    };
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), column.about.into());
    }
    schema
}

/// The fields of a verdict.
fn verdict() -> Map<String, Value> {
    let fields = json!({
        "reason": text("A word of a fixed set."),
        "blocked": {"type": "boolean", "description": "Whether something stands in the way."},
        "sentence": text("The sentence for people."),
        "advice": text("Advice to the reader; empty if there is nothing to do."),
    });
    fields.as_object().cloned().unwrap_or_default()
}

fn explain() -> Value {
    let link = object(
        &json!({
            "depth": {"type": "integer", "description": "A Pod is 0, its entries 1, their claims 2."},
            "object": text("Kind and name of the object."),
            "says": text("State of the object."),
        }),
        &[],
    );
    let mut fields = verdict();
    fields.insert("object".to_owned(), text("Kind, namespace and name of the object that is explained."));
    fields.insert("chain".to_owned(), json!({"type": "array", "items": link}));
    fields.insert("lacks".to_owned(), lacks());
    object(&Value::Object(fields), &["lacks"])
}

fn why() -> Value {
    let pod = object(
        &json!({
            "namespace": text("Namespace of the Pod."),
            "name": text("Name of the Pod."),
            "creationTimestamp": text("Time at which the Pod was created, in RFC 3339."),
        }),
        &["creationTimestamp"],
    );
    let mut group = verdict();
    let about =
        "Pods that wait for this cause, the one that waits longest first. The verdict is about that one.";
    group.insert("pods".to_owned(), json!({"type": "array", "items": pod, "description": about}));
    object(
        &json!({
            "items": {"type": "array", "items": object(&Value::Object(group), &[])},
            "pods": {"type": "integer", "description": "The number of Pods that wait."},
            "starting": {"type": "integer", "description": "The number of Pods that are starting on their node."},
            "lacks": lacks(),
        }),
        &["lacks"],
    )
}

fn check() -> Value {
    let finding = object(
        &json!({
            "part": text("Part of the cluster."),
            "level": {"enum": ["ok", "warning", "missing", "unknown"], "description": "State of the part."},
            "says": text("The state in a sentence."),
            "advice": text("Advice to the reader; empty if there is nothing to do."),
        }),
        &[],
    );
    let of_use = object(
        &json!({
            "name": text("A use of DRA or Dragoman."),
            "ready": {"type": "boolean", "description": "Whether nothing stands in its way."},
            "because": texts("Reasons against it."),
        }),
        &[],
    );
    object(
        &json!({
            "findings": {"type": "array", "items": finding},
            "uses": {"type": "array", "items": of_use},
            "lacks": lacks(),
        }),
        &["lacks"],
    )
}

fn amount(about: &str) -> Value {
    text(&format!("{about}, as a quantity."))
}

/// The schema of whether a Pod fits on a node.
fn on_node() -> Value {
    let missing = object(
        &json!({"missing": amount("What is missing"), "needed": amount("What the Pod needs"), "left": amount("What is left of the node"),
            "heldBy": texts("The largest holders, each with its amount.")}),
        &[],
    );
    let optional = ["missing", "never", "unknown", "unaccounted", "refused", "devices"];
    object(
        &json!({
            "fits": {"type": ["boolean", "null"], "description": "Whether the Pod fits; null where it is not known."},
            "missing": {"type": "object", "additionalProperties": missing},
            "never": {"type": "object", "additionalProperties": amount("What the whole node has, which is less than the Pod wants")},
            "unknown": texts("Resources of which it is not known how much is left."),
            "unaccounted": texts("Facts about the Pod that are not known."),
            "refused": texts("What a scheduler has against the node."),
            "devices": texts("The devices with which the Pod fits, for claims that have none yet."),
        }),
        &optional,
    )
}

fn ledger() -> Value {
    let resource = object(
        &json!({
            "allocatable": amount("What the node has"),
            "pods": amount("What containers and Pods request"),
            "mapping": amount("What devices take by their mapping"),
            "overhead": amount("What devices take for each Pod and container"),
            "reservations": amount("What devices reserve"),
            "left": {"type": ["string", "null"], "description": "What is left, as a quantity; null where it is not known."},
        }),
        &[],
    );
    let node = object(
        &json!({
            "name": text("Name of the node."),
            "resources": {"type": "object", "additionalProperties": resource},
            "overcommitted": texts("Resources of which more is taken than the node has, in sentences."),
            "violations": texts("Rules about devices and Pods that are broken."),
            "unaccounted": texts("Facts that could not be read."),
            "notices": texts("What the reader of the amounts should know."),
        }),
        &[],
    );
    let pending = object(
        &json!({
            "pod": text("The Pod."),
            "nodes": {"type": "object", "additionalProperties": on_node()},
            "notLookedAt": texts("Rules of the Pod that decide about nodes too and were not looked at."),
        }),
        &["notLookedAt"],
    );
    object(
        &json!({
            "nodes": {"type": "array", "items": node},
            "ofNodes": {"type": "integer", "description": "The number of nodes that there are, shown or not."},
            "pending": {"type": "array", "items": pending, "description": "Pods that wait, and where they would fit."},
            "unreadable": texts("Objects that do not decode, each with why."),
            "notes": texts("Notes about the objects, for example about those that are missing or come twice."),
        }),
        &[],
    )
}

fn top() -> Value {
    let number = json!({"type": ["integer", "null"]});
    json!({
        "type": "object",
        "required": ["devices", "pools", "waiting", "pods"],
        "properties": {
            "devices": object(&json!({"pools": number, "total": number, "free": number}), &[]),
            "pools": {"$ref": "#/$defs/pools"},
            "waiting": {"type": ["integer", "null"], "description": "The number of Pods that wait with claims."},
            "pods": list(lists::PODS),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what is wrong with a document; the few words of JSON Schema that the schemas here use are known.
    fn faults(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
            return faults(&root["$defs"][name], root, value, at);
        }
        let of_value = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_i64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let is_allowed = match &schema["type"] {
            Value::Null => schema["enum"].as_array().is_some_and(|all| all.contains(value)),
            Value::Array(all) => all.iter().any(|of| of == of_value),
            only => only == of_value,
        };
        if !is_allowed {
            return vec![format!("{at}: {of_value} in place of {}", schema["type"])];
        }
        match value {
            Value::Array(all) => all
                .iter()
                .enumerate()
                .flat_map(|(number, item)| faults(&schema["items"], root, item, &format!("{at}[{number}]")))
                .collect(),
            Value::Object(fields) => {
                let required = schema["required"].as_array().into_iter().flatten();
                let missing = required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
                let mut all: Vec<String> = missing.map(|name| format!("{at}.{name} is missing")).collect();
                for (name, item) in fields {
                    let at = format!("{at}.{name}");
                    match (schema["properties"].get(name), &schema["additionalProperties"]) {
                        (Some(of), _) | (None, of @ Value::Object(_)) => {
                            all.extend(faults(of, root, item, &at));
                        }
                        (None, _) => all.push(format!("{at} is not in the schema")),
                    }
                }
                all
            }
            _ => Vec::new(),
        }
    }

    /// Checks a document of a command.
    #[track_caller]
    fn check(command: &str, document: &impl serde::Serialize) {
        let schema = schema();
        let value = serde_json::to_value(document).expect("JSON");
        assert!(schema["$defs"][command].is_object(), "{command} has no schema");
        assert_eq!(faults(&schema["$defs"][command], &schema, &value, command), Vec::<String>::new());
    }

    #[test]
    fn what_every_command_prints_is_as_its_schema_says() {
        use jiff::Timestamp;

        use crate::facts::Facts;

        let text = include_str!("schema/cluster.json");
        let facts = || {
            let mut facts = Facts::default();
            facts.take_file(std::path::Path::new("f"), text).expect("objects");
            facts
        };
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        for (command, table) in [
            ("claims", lists::claims(&facts(), now)),
            ("devices", lists::devices(&facts())),
            ("pools", lists::pools(&facts())),
            ("pools --by-class", lists::classes(&facts())),
            ("drain", lists::drained(&facts(), "n1")),
            ("reclaim", lists::zombies(&facts(), now, 60)),
            ("events", lists::events(&facts(), now)),
        ] {
            assert!(!table.rows.is_empty(), "{command} shows nothing: the objects lack something");
            check(command, &table);
        }
        let explained = crate::explain::pod::explain(facts(), "ml", "waits", now);
        assert!(explained.verdict.blocked && !explained.chain.is_empty(), "{explained:?}");
        check("explain", &explained);
        let why = crate::why::why(facts(), None, now);
        assert_eq!(why.pods, 1, "{why:?}");
        check("why", &why);
        let seen = crate::readiness::Seen { facts: facts(), ..Default::default() };
        check("check", &crate::readiness::readiness(&seen));
        let mut objects = crate::Objects::default();
        crate::manifests::take(std::path::Path::new("f"), text, &mut |found| objects.take(found))
            .expect("objects");
        let filter = crate::Filter { waiting: true, ..crate::Filter::default() };
        let report = crate::Report::of(objects, dragoman_accounting::cluster::Rules::default(), &filter);
        assert!(report.nodes.len() == 2 && report.pending.len() == 1, "{report:?}");
        check("ledger", &report);
    }

    #[test]
    fn a_document_of_another_shape_is_found() {
        let schema = schema();
        let of = |value: &Value| faults(&schema["$defs"]["pools"], &schema, value, "pools").len();
        let mut pool = json!({"driver": "d", "pool": "p", "nodes": [], "total": 1, "allocated": 0, "free": null, "state": "Ready",
            "generation": 1, "slices": 1, "resourceSliceCount": 1});
        assert_eq!(of(&json!({"items": [pool.clone()]})), 0);
        pool["free"] = "1".into();
        pool["more"] = 1.into();
        assert_eq!(of(&json!({"items": [pool]})), 2);
        assert_eq!(of(&json!({})), 1);
    }
}
