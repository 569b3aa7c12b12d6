//! Reads the shipped manifests as kubectl does.

use anyhow::Context as _;
use serde_json::Value;

/// The objects of a YAML file.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    text.split("\n---\n")
        .map(|document| document.trim_start_matches("---\n"))
        .filter(|document| document.lines().any(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#')))
        .map(|document| serde_saphyr::from_str(document).context("YAML"))
        .collect()
}
