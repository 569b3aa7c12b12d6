//! Where dependencies come from, and under which licences.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};

use crate::output;

/// The licences that a dependency may be under: permissive ones.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks every dependency, whatever features and targets want it.
///
/// # Errors
/// Names the dependencies that come from elsewhere than the registry, or whose licence is not allowed.
pub(crate) fn check() -> anyhow::Result<()> {
    let metadata = output("cargo", &["metadata", "--locked", "--all-features", "--format-version=1"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("packages")?;
    ensure!(packages.len() > 100, "only {} packages: is that all?", packages.len());
    let registries: BTreeSet<&str> =
        packages.iter().filter_map(|package| package["source"].as_str()).collect();
    ensure!(registries.len() == 1, "dependencies come from several places: {registries:?}");
    let wrong: Vec<String> = packages.iter().filter_map(wrong).collect();
    ensure!(wrong.is_empty(), "dependencies:\n{}", wrong.join("\n"));
    Ok(())
}

/// Returns what is wrong with the source or the licence of a package.
fn wrong(package: &Value) -> Option<String> {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let name = format!("{} {}", text("name"), text("version"));
    // Packages of the workspace have no source.
    let is_known = package["source"].is_null() || text("source").starts_with("registry+");
    if !is_known {
        return Some(format!("{name} comes from {}", text("source")));
    }
    let expression = match Expression::parse_mode(text("license"), ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("{name}: licence {:?}: {}", text("license"), error.reason)),
    };
    let is_allowed = |licence: &LicenseReq| ALLOWED.contains(&&*licence.to_string());
    (!expression.evaluate(is_allowed)).then(|| format!("{name}: licence {expression} is not allowed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::wrong;

    #[test]
    fn a_foreign_source_and_a_licence_that_is_not_permissive_are_found() {
        let registry = "registry+https://example.com/index";
        let said = |licence: &str, source: &str| {
            wrong(&json!({"name": "a", "version": "1.0.0", "license": licence, "source": source}))
        };
        for fine in
            ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "Apache-2.0 WITH LLVM-exception AND Unicode-3.0"]
        {
            assert_eq!(said(fine, registry), None);
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "", "Apache-2.0 WITH Classpath-exception-2.0", "my own"] {
            assert!(said(bad, registry).is_some(), "{bad}");
        }
        assert!(said("MIT", "git+https://example.com/a").is_some_and(|why| why.contains("comes from git+")));
    }
}
