//! Files with API objects, as kubectl prints them: JSON or YAML, one object, several, or lists.

#![expect(clippy::indexing_slicing, reason = "reading a field of JSON that is not there gives null")]

use std::borrow::Cow;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

/// An object, and its place in the files.
#[derive(Debug)]
pub(crate) struct Found {
    /// File, line and number of the item, for people.
    pub(crate) place: String,
    /// The object; in a typed list it has the kind of the list.
    pub(crate) object: Value,
}

/// The objects of `files`, each with its place; `-` is standard input. A document that is neither
/// YAML nor JSON is an error in the place of its objects.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn read(files: &[PathBuf]) -> anyhow::Result<Vec<anyhow::Result<Found>>> {
    let mut all = Vec::new();
    for file in files {
        let mut text = String::new();
        if file.as_os_str() == "-" {
            std::io::stdin().read_to_string(&mut text).context("standard input")?;
        } else {
            text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        }
        let found = objects(file, &text);
        if found.is_empty() {
            all.push(Err(anyhow::anyhow!("{}: it is empty", file.display())));
        }
        all.extend(found);
    }
    Ok(all)
}

/// The objects of a text, each with its place.
pub(crate) fn objects(file: &Path, text: &str) -> Vec<anyhow::Result<Found>> {
    let name = file.display().to_string();
    let mut all = Vec::new();
    for (line, document) in documents(text) {
        let place = format!("{name}:{line}");
        match parsed(document) {
            Err(why) => {
                all.push(Err(why.context(format!("{place}: it is neither YAML nor JSON, or cut off"))));
            }
            Ok(values) => values.into_iter().for_each(|value| flatten(&place, value, &mut all)),
        }
    }
    all
}

/// The values of a document; JSON may hold several.
fn parsed(document: &str) -> anyhow::Result<Vec<Value>> {
    if document.trim_start().starts_with(['{', '[']) {
        let values = serde_json::Deserializer::from_str(document).into_iter::<Value>();
        return values.collect::<Result<_, _>>().map_err(anyhow::Error::from);
    }
    let value = serde_saphyr::from_str_with_options::<Value>(&endless_quoted(document), yaml());
    Ok(vec![value.map_err(|why| anyhow::anyhow!("{why}"))?])
}

/// Adds an object, or the items of a list.
fn flatten(place: &str, value: Value, all: &mut Vec<anyhow::Result<Found>>) {
    let of_list = value["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).map(str::to_owned);
    match (of_list, value) {
        (_, Value::Null) => {}
        (Some(kind), mut list) => match list["items"].take() {
            Value::Array(items) => {
                for (number, mut object) in items.into_iter().enumerate() {
                    // In typed lists objects do not say again what they are.
                    if object["kind"].is_null() && object.is_object() {
                        object["kind"] = kind.as_str().into();
                        object["apiVersion"] = list["apiVersion"].clone();
                    }
                    flatten(&format!("{place}: item {number}"), object, all);
                }
            }
            _ => all.push(Err(anyhow::anyhow!("{place}: a {kind}List without items"))),
        },
        (None, object) => all.push(Ok(Found { place: place.to_owned(), object })),
    }
}

/// YAML as Kubernetes has it: a name `n` or `off` is a name. The files are the user's own, and those of
/// a large cluster are large; nothing is bounded but aliases and depth, of which kubectl prints few.
fn yaml() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        // Quantities and names are texts; no field of Kubernetes is infinite.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
        },
    }
}

/// Quotes plain scalars that look like a number beyond all numbers, such as the label `12e4567`: kubectl
/// prints them without quotes, because its own library reads them as text.
fn endless_quoted(document: &str) -> Cow<'_, str> {
    let mut quoted: Option<String> = None;
    // The indentation of the line that begins a block scalar: its text is left alone.
    let mut block: Option<usize> = None;
    let mut at = 0;
    for line in document.split_inclusive('\n') {
        let end = at + line.len();
        let text = line.trim_end();
        let indent = text.len() - text.trim_start().len();
        let is_inside = block.is_some_and(|outer| text.is_empty() || indent > outer);
        if !is_inside {
            let value = text.rsplit([' ', '\t']).next().unwrap_or_default();
            let head = text.strip_suffix(value).unwrap_or_default();
            // A line of a folded text has neither a key nor a dash before its last word.
            let is_value = head.trim_end().ends_with([':', '-']);
            // The keys of an item begin behind its dash.
            let dashes = text.trim_start().len() - text.trim_start().trim_start_matches("- ").len();
            block = (is_value && value.starts_with(['|', '>']))
                .then(|| if head.trim_end().ends_with(':') { indent + dashes } else { indent });
            if is_value && is_endless(value) {
                let before = document.get(..at).unwrap_or_default();
                let quoted = quoted.get_or_insert_with(|| before.to_owned());
                quoted.push_str(&format!("{head}\"{value}\"\n"));
                at = end;
                continue;
            }
        }
        if let Some(quoted) = &mut quoted {
            quoted.push_str(line);
        }
        at = end;
    }
    quoted.map_or(Cow::Borrowed(document), Cow::Owned)
}

/// Whether a text is written as a number, and none is that large.
fn is_endless(value: &str) -> bool {
    let digits = value.trim_start_matches(['+', '-']);
    digits.starts_with(|first: char| first.is_ascii_digit())
        && value.parse::<f64>().is_ok_and(f64::is_infinite)
}

/// The documents of a text, each with the line on which it begins.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let (mut documents, mut begins, mut line, mut at) = (Vec::new(), (1, 0), 1, 0);
    for whole in text.split_inclusive('\n') {
        if whole.trim_end() == "---" {
            documents.push((begins.0, text.get(begins.1..at).unwrap_or_default()));
            begins = (line + 1, at + whole.len());
        }
        line += 1;
        at += whole.len();
    }
    documents.push((begins.0, text.get(begins.1..).unwrap_or_default()));
    documents.retain(|(_, document)| !document.trim().is_empty());
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let told = |found: Found| format!("{} {}", found.place, found.object["kind"]);
        let found = objects(Path::new("f"), text).into_iter();
        found.map(|found| found.map_or_else(|why| format!("{why:#}"), told)).collect()
    }

    #[test]
    fn yaml_of_any_size_is_read_as_kubectl_prints_it() {
        let pod = "- kind: Pod\n  metadata:\n    labels:\n      hash: 12e4567\n      off: n\n    name: p\n";
        let script = "  spec:\n    args:\n    - |\n      x: 1e999\n      ---\n    - 9e999\n    - \"ends in\n      \
                      1e999\n      or 1e999\n      not\"\n    env:\n    - text: |\n        - 1e999\n      name: 2e999\n";
        let text = format!("apiVersion: v1\nitems:\n{}kind: List\n", [pod, script].concat().repeat(20_000));
        let objects = objects(Path::new("f"), &text);
        assert_eq!(objects.len(), 20_000);
        for found in objects {
            let object = found.expect("a Pod").object;
            assert_eq!(object["metadata"]["labels"], serde_json::json!({"hash": "12e4567", "off": "n"}));
            assert_eq!(
                object["spec"]["args"],
                serde_json::json!(["x: 1e999\n---\n", "9e999", "ends in 1e999 or 1e999 not"])
            );
            assert_eq!(object["spec"]["env"], serde_json::json!([{"text": "- 1e999\n", "name": "2e999"}]));
        }
    }

    #[test]
    fn every_object_has_a_place_and_a_kind() {
        let text = "kind: Pod\n---\napiVersion: v1\nkind: List\nitems: [{kind: Pod}, {kind: Node}]\n";
        assert_eq!(found(text), ["f:1 \"Pod\"", "f:3: item 0 \"Pod\"", "f:3: item 1 \"Node\""]);
        assert_eq!(found("{\"kind\": \"PodList\", \"items\": [{}]}"), ["f:1: item 0 \"Pod\""]);
        assert_eq!(found("{\"kind\": \"Pod\"}\n{\"kind\": \"Node\"}"), ["f:1 \"Pod\"", "f:1 \"Node\""]);
        let cut = &found("{\"kind\": \"PodList\", \"items\": [{}")[0];
        assert!(cut.starts_with("f:1: it is neither YAML nor JSON"), "{cut}");
        assert!(found("kind: PodList\n")[0].contains("without items"));
        assert!(found("---\n---\n").is_empty());
    }
}
