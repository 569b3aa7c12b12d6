//! `dragoman simulate`: what Dragoman would do with a cluster of which there is only a dump.

#![expect(clippy::indexing_slicing, reason = "reading a field of JSON that is not there gives null")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use dragoman_simcluster::{ApiServer, Clock, Profile};
use serde_json::Value;

use crate::simulated;

/// Flags of `dragoman simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateFlags {
    /// Files with objects as `kubectl get -o yaml` or `-o json` prints them: one, several, or lists.
    #[arg(short = 'f', long = "filename", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Leave out what cannot be loaded, instead of stopping there.
    #[arg(long)]
    skip_bad: bool,
    /// The version of Kubernetes the objects come from.
    #[arg(long, default_value = "1.36", value_name = "VERSION")]
    kubernetes: Profile,
}

/// An object and where it stands.
struct Found {
    place: String,
    object: Value,
}

/// Nothing is written any more when nothing has been for so long.
const QUIET: Duration = Duration::from_millis(1500);

/// Runs it.
///
/// # Errors
/// A file or an object that cannot be loaded, unless those are to be left out.
pub(crate) async fn simulate(flags: &SimulateFlags) -> anyhow::Result<()> {
    let server = ApiServer::new(flags.kubernetes.clone(), Clock::Real, 0);
    let (mut loaded, mut bad) = (0, Vec::new());
    for file in &flags.files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        for found in objects(file, &text) {
            match found.and_then(|found| load(&server, found)) {
                Ok(()) => loaded += 1,
                Err(why) => bad.push(format!("{why:#}")),
            }
        }
    }
    let mut out = std::io::stdout().lock();
    for why in &bad {
        writeln!(std::io::stderr(), "cannot load {why}").context("stderr")?;
    }
    ensure!(
        bad.is_empty() || flags.skip_bad,
        "{} of {} objects cannot be loaded (--skip-bad leaves them out)",
        bad.len(),
        bad.len() + loaded
    );
    ensure!(loaded > 0, "there is nothing to look at");
    writeln!(out, "{loaded} objects; what dragoman would do in mode own:").context("stdout")?;
    let dragoman = simulated::dragoman(&server);
    let (mut said, mut decided) = (server.writes(0).len(), 0);
    let mut quiet = tokio::time::Instant::now();
    while !dragoman.synced() || quiet.elapsed() < QUIET {
        let writes = server.writes(said);
        if !writes.is_empty() {
            quiet = tokio::time::Instant::now();
            said += writes.len();
        }
        let ours = writes.iter().filter(|write| write.user == simulated::USER && write.resource != "events");
        for write in ours {
            decided += 1;
            writeln!(out, "  {:<7}{:<24}{}/{}", write.verb, write.resource, write.namespace, write.name)
                .context("stdout")?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let dump = dragoman.dump();
    for line in dump.lines().filter_map(|line| line.trim_start().strip_prefix("unreadable ")) {
        writeln!(out, "  does not decode, and holds up whatever depends on it: {line}").context("stdout")?;
    }
    let events = server.all("events.events.k8s.io");
    for event in &events {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = &event["regarding"];
        writeln!(
            out,
            "  says   {} about {} {}/{}: {}",
            text(&event["reason"]),
            text(&of["kind"]),
            text(&of["namespace"]),
            text(&of["name"]),
            text(&event["note"])
        )
        .context("stdout")?;
    }
    if decided == 0 && events.is_empty() {
        writeln!(out, "  nothing").context("stdout")?;
    }
    Ok(())
}

/// The objects of a file, each with its place.
fn objects(file: &Path, text: &str) -> Vec<anyhow::Result<Found>> {
    let name = file.display().to_string();
    let mut all = Vec::new();
    for (line, document) in documents(text) {
        let place = format!("{name}:{line}");
        let value = if document.trim_start().starts_with('{') {
            serde_json::from_str::<Value>(document).map_err(anyhow::Error::from)
        } else {
            serde_saphyr::from_str_with_options::<Value>(document, yaml())
                .map_err(|why| anyhow::anyhow!("{why}"))
        };
        match value {
            Err(why) => {
                all.push(Err(why.context(format!("{place}: it is neither YAML nor JSON, or cut off"))));
            }
            Ok(Value::Null) => {}
            Ok(list) if list["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                match list["items"].as_array() {
                    None => all.push(Err(anyhow::anyhow!("{place}: a {} without items", list["kind"]))),
                    Some(items) => all.extend(items.iter().enumerate().map(|(number, object)| {
                        let mut object = object.clone();
                        // In typed lists objects do not say again what they are.
                        let kind = list["kind"]
                            .as_str()
                            .and_then(|kind| kind.strip_suffix("List"))
                            .unwrap_or_default();
                        if object["kind"].is_null() && object.is_object() {
                            object["kind"] = kind.into();
                            object["apiVersion"] = list["apiVersion"].clone();
                        }
                        Ok(Found { place: format!("{place}: item {number}"), object })
                    })),
                }
            }
            Ok(object) => all.push(Ok(Found { place, object })),
        }
    }
    all
}

/// YAML as Kubernetes has it: a name `n` or `off` is a name.
fn yaml() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

/// The documents of a file, each with the line on which it begins.
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

fn load(server: &ApiServer, Found { place, object }: Found) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&object["kind"]), text(&object["apiVersion"]));
    if kind.is_empty() || version.is_empty() {
        bail!("{place}: it is no Kubernetes object: it has no kind or no apiVersion");
    }
    let metadata = &object["metadata"];
    let name = format!("{kind} {}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    server.load(object).with_context(|| format!("{place}: {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        let found = objects(Path::new("f"), text);
        found
            .into_iter()
            .map(|found| found.map_or_else(|why| format!("{why:#}"), |found| found.place))
            .collect()
    }

    #[test]
    fn every_object_has_a_place() {
        let text = "kind: Pod\n---\napiVersion: v1\nkind: List\nitems: [{kind: Pod}, {kind: Node}]\n";
        assert_eq!(places(text), ["f:1", "f:3: item 0", "f:3: item 1"]);
        assert_eq!(places("{\"kind\": \"PodList\", \"items\": [{}]}"), ["f:1: item 0"]);
        assert!(
            places("{\"kind\": \"PodList\", \"items\": [{}")[0]
                .starts_with("f:1: it is neither YAML nor JSON")
        );
        assert!(places("kind: PodList\n")[0].contains("without items"));
    }

    #[test]
    fn what_is_no_object_is_named() {
        let server = ApiServer::new(Profile::default(), Clock::Real, 0);
        let loaded = |object: Value| {
            load(&server, Found { place: "f:1".to_owned(), object }).map_err(|why| format!("{why:#}"))
        };
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "uid": "u"}});
        assert_eq!(loaded(pod.clone()), Ok(()));
        assert!(loaded(pod).expect_err("twice").contains("f:1: Pod b/a"));
        assert!(loaded(serde_json::json!({"a": 1})).expect_err("no object").contains("no Kubernetes object"));
        assert!(
            loaded(serde_json::json!({"apiVersion": "v1", "kind": "Toaster", "metadata": {"name": "x"}}))
                .expect_err("unknown")
                .contains("Toaster")
        );
    }
}
