//! Generated files, and the size limit of source files.

use anyhow::{Context as _, ensure};

use crate::chart::TEMPLATES;
use crate::{bundle, help, metrics, monitoring, output, root};

/// The generated templates of the chart.
const CHART: &str = "config/helm/dragoman/templates/generated";
/// The manifests of the OLM bundle.
const BUNDLE: &str = "config/olm/bundle/manifests";

/// The most lines of code in a source file, without blank lines and comments.
const MOST_LINES: usize = 500;

/// The generated files, each with the arguments of the cargo command that prints it.
const GENERATED: &[(&str, &[&str])] = &[
    ("config/base/roles.yaml", &["run", "--quiet", "--package", "dragoman-operator", "--", "rbac"]),
    (
        "config/components/gating/roles.yaml",
        &["run", "--quiet", "--package", "dragoman-operator", "--", "rbac", "gates"],
    ),
    (
        "config/components/holders/roles.yaml",
        &["run", "--quiet", "--package", "dragoman-operator", "--", "rbac", "holders"],
    ),
    (
        "config/components/allocator/roles.yaml",
        &["run", "--quiet", "--package", "dragoman-operator", "--", "rbac", "allocator"],
    ),
    (
        "config/components/delete-unbound/roles.yaml",
        &["run", "--quiet", "--package", "dragoman-operator", "--", "rbac", "delete-unbound"],
    ),
    ("config/drain/roles.yaml", &["run", "--quiet", "--package", "dragoman-operator", "--", "rbac", "drain"]),
    ("docs/kubectl-dra.schema.json", &["run", "--quiet", "--package", "dragoman-cli", "--", "schema"]),
    ("config/crds/crds.yaml", &["run", "--quiet", "--package", "dragoman-operator", "--", "crdgen"]),
];

/// Writes every generated file.
///
/// # Errors
/// A generator fails, or a file cannot be written.
pub(crate) fn generate() -> anyhow::Result<()> {
    for (file, command) in GENERATED {
        std::fs::write(root()?.join(file), output("cargo", command)?).context(*file)?;
    }
    for (path, text) in derived()? {
        std::fs::write(root()?.join(&path), text).context(path)?;
    }
    Ok(())
}

/// The files that follow from others, with their text: templates of the chart, the bundle, rules and dashboards, and the
/// page of metrics.
fn derived() -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for template in TEMPLATES {
        files.push((format!("{CHART}/{}", template.name), template.render(manifest)?));
    }
    files.push(("docs/metrics.md".to_owned(), metrics::page()?));
    files.push(("docs/commands.md".to_owned(), help::page()?));
    let monitoring = monitoring::files(manifest)?.into_iter();
    files.extend(monitoring.map(|(path, text)| (format!("config/{path}"), text)));
    let bundle = bundle::render(manifest)?.into_iter();
    files.extend(bundle.map(|(name, text)| (format!("{BUNDLE}/{name}"), text)));
    Ok(files)
}

/// A file under `config/`.
fn manifest(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root()?.join("config").join(path)).with_context(|| format!("config/{path}"))
}

/// Checks that generated files are up to date and that source files are not too long.
///
/// # Errors
/// A generated file is out of date, or a source file has too many lines of code.
pub(crate) fn check() -> anyhow::Result<()> {
    for (file, command) in GENERATED {
        let stands = std::fs::read_to_string(root()?.join(file)).context(*file)?;
        ensure!(stands == output("cargo", command)?, "{file} is out of date: run `cargo xtask gen`");
    }
    let derived = derived()?;
    for (path, text) in &derived {
        let stands = std::fs::read_to_string(root()?.join(path)).with_context(|| path.clone())?;
        ensure!(stands == *text, "{path} is out of date: run `cargo xtask gen`");
    }
    for directory in [CHART, BUNDLE] {
        for file in output("git", &["ls-files", directory])?.lines() {
            ensure!(
                derived.iter().any(|(path, _)| path == file),
                "{file} is generated from nothing: remove it"
            );
        }
    }
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.go"])?;
    for file in listed.lines() {
        let Ok(text) = std::fs::read_to_string(root()?.join(file)) else { continue };
        let code = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")).count();
        ensure!(code <= MOST_LINES, "{file} has {code} lines of code, more than {MOST_LINES}");
    }
    Ok(())
}
