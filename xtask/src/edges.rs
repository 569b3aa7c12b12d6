//! The allowed dependencies between the crates.

use anyhow::{Context as _, ensure};

use crate::root;

/// Each crate with the crates that it may depend on. Dev-dependencies are not checked.
const ALLOWED: &[(&str, &[&str])] = &[
    ("quantity", &[]),
    ("objects", &["quantity"]),
    ("accounting", &["quantity", "objects"]),
    ("allocator", &["quantity", "objects"]),
    ("crds", &["quantity", "objects", "accounting"]),
    ("cluster", &["objects", "accounting", "allocator", "crds"]),
    ("machinery", &["objects", "crds"]),
    // simcluster judges the reconcilers and must not depend on them.
    ("simcluster", &["quantity"]),
    ("reconcilers", &["objects", "accounting", "allocator", "cluster", "crds", "machinery"]),
    ("driver", &["quantity"]),
    ("report", &["quantity", "objects", "accounting", "allocator", "cluster", "crds"]),
    (
        "operator",
        &[
            "quantity",
            "objects",
            "accounting",
            "allocator",
            "cluster",
            "crds",
            "machinery",
            "simcluster",
            "reconcilers",
            "report",
        ],
    ),
    ("cli", &["objects", "accounting", "report"]),
    (
        "e2e",
        &[
            "quantity",
            "objects",
            "accounting",
            "allocator",
            "cluster",
            "crds",
            "machinery",
            "simcluster",
            "reconcilers",
            "judge",
            "operator",
        ],
    ),
    (
        "instruments",
        &[
            "quantity",
            "objects",
            "accounting",
            "allocator",
            "cluster",
            "crds",
            "machinery",
            "simcluster",
            "reconcilers",
            "judge",
            "e2e",
        ],
    ),
    ("judge", &["crds", "simcluster"]),
    ("model", &[]),
    ("xtask", &[]),
];

/// External crates, each with the only crates that may depend on it.
const CONFINED: &[(&str, &[&str])] = &[
    // Dragoman sends all requests through the client of machinery. The plugin of kubectl, drivers and the tests are clients of their own.
    ("kube", &["machinery", "cli", "driver", "e2e", "instruments"]),
    // The version of the API types is chosen in the binaries only; simcluster describes them.
    ("k8s-openapi", &["operator", "cli", "simcluster", "e2e", "instruments"]),
];

/// The folders of the crates that a crate may depend on.
pub(crate) fn of(room: &str) -> Vec<String> {
    let allowed = ALLOWED.iter().find(|(name, _)| *name == room).map_or(&[][..], |(_, allowed)| allowed);
    allowed.iter().map(|room| folder(room)).collect()
}

/// The folder of a crate: pure cores and instruments have a folder each.
fn folder(room: &str) -> String {
    match room {
        "quantity" | "objects" | "accounting" | "allocator" | "cluster" => format!("core/{room}"),
        "judge" | "model" | "instruments" => format!("lab/{room}"),
        other => other.to_owned(),
    }
}

/// Checks the dependencies of every crate.
///
/// # Errors
/// A manifest cannot be read, or a crate has a dependency that is not allowed.
pub(crate) fn check() -> anyhow::Result<()> {
    for (room, allowed) in ALLOWED {
        let path = root()?.join(folder(room)).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for dependency in dependencies(&text) {
            if let Some(other) = dependency.strip_prefix("dragoman-") {
                ensure!(allowed.contains(&other), "{room} must not depend on {other}");
            }
            for (confined, rooms) in CONFINED {
                ensure!(
                    dependency != *confined || rooms.contains(room),
                    "{room} must not depend on {confined}"
                );
            }
        }
    }
    Ok(())
}

/// The names in `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_those_of_their_table_only() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nserde.workspace = true\nkube = { version = \"5\" }\n\n[dev-dependencies]\ndhat.workspace = true\n";
        assert_eq!(dependencies(manifest), ["serde", "kube"]);
    }

    #[test]
    fn the_repository_keeps_to_its_edges() {
        check().expect("edges");
    }
}
