//! Reads and applies the shipped manifests as kubectl does.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::client::Client;

/// The objects of a YAML file.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    text.split("\n---\n")
        .map(|document| document.trim_start_matches("---\n"))
        .filter(|document| document.lines().any(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#')))
        .map(|document| serde_saphyr::from_str(document).context("YAML"))
        .collect()
}

/// The objects of a YAML file.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    parse(&text).with_context(|| file.display().to_string())
}

/// A kustomization, as far as the shipped ones go.
#[derive(Deserialize)]
struct Kustomization {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    components: Vec<String>,
    #[serde(default)]
    patches: Vec<Patch>,
}

#[derive(Deserialize)]
struct Patch {
    target: Target,
}

#[derive(Deserialize)]
struct Target {
    kind: String,
}

/// The objects of a directory of the shipped manifests. Patches are left out: they change Deployments, from which
/// simcluster makes no Pods.
pub(crate) fn overlay(directory: &Path) -> anyhow::Result<Vec<Value>> {
    let file = directory.join("kustomization.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let kustomization: Kustomization =
        serde_saphyr::from_str(&text).with_context(|| file.display().to_string())?;
    let other = kustomization.patches.iter().find(|patch| patch.target.kind != "Deployment");
    ensure!(other.is_none(), "{}: a patch of another kind than Deployment", file.display());
    let mut objects = Vec::new();
    for name in kustomization.resources.iter().chain(&kustomization.components) {
        let path = directory.join(name);
        objects.extend(if path.is_dir() { overlay(&path)? } else { read(&path)? });
    }
    Ok(objects)
}

/// The path of the collection of an object, by the API's own rules for names.
fn collection(object: &Value) -> anyhow::Result<String> {
    let [version, kind] = ["apiVersion", "kind"].map(|field| object[field].as_str());
    let (version, kind) = (version.context("apiVersion")?, kind.context("kind")?.to_lowercase());
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    Ok(format!("/{root}/{version}/{{}}/{plural}"))
}

/// Creates the objects, or brings them to what the manifests say.
pub(crate) async fn apply(client: &Client, objects: &[Value]) -> anyhow::Result<()> {
    for object in objects {
        let collection = collection(object)?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().context("name")?;
        match client.create(&collection, namespace, object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                client.merge(&collection, namespace, name, object).await?;
            }
            Err(error) => bail!("{collection} {name}: {error}"),
        }
    }
    Ok(())
}
