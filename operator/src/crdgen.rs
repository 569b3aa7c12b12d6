//! `dragoman crdgen`: the definitions of our own kinds, as YAML.

use anyhow::Context as _;
use dragoman_crds::crdgen::definitions;

/// The manifest.
///
/// # Errors
/// A definition cannot be written as YAML.
pub(crate) fn render() -> anyhow::Result<String> {
    let mut text = String::from("# Rendered by `cargo xtask gen` from the types in crds/; do not edit.\n");
    for definition in definitions() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&definition).context("YAML")?);
    }
    Ok(text)
}
