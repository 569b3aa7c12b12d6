//! Types and comments of the API of claims and devices, in the version of `k8s.io/api` that everything here is built against, and in the
//! newest one of the registry. What differs is read by a person, who signs it off in `schema.json`: a comment may announce a rule
//! before any field does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use dragoman_judge::documented::{Field, Fields, Signed, unsigned};
use serde::Deserialize;
use tokio::process::Command;

use super::Judge;

/// The module that documents the API.
const MODULE: &str = "k8s.io/api";
/// The module that pins the version, and the file with what is signed off.
const PINNED: &str = "lab/instruments/oracle";
const SIGNED: &str = "lab/instruments/schema.json";

/// Compares the two versions. Returns the number of fields, and that of the differences.
///
/// # Errors
/// A difference is not signed off, or what is signed off is no difference any more.
pub(super) async fn compare(repository: &Path, judge: &Judge) -> anyhow::Result<(usize, usize)> {
    let module = repository.join(PINNED);
    let pinned = go(&module, &["list", "-m", "-f", "{{.Version}}", MODULE]).await?;
    let versions = go(&module, &["list", "-m", "-versions", MODULE]).await?;
    let newest = versions.split_whitespace().next_back().context("versions")?;
    let (before, after) =
        (fields(&module, judge, pinned.trim()).await?, fields(&module, judge, newest).await?);
    let text = std::fs::read_to_string(repository.join(SIGNED)).context(SIGNED)?;
    let signed: BTreeMap<String, Signed> = serde_json::from_str(&text).context(SIGNED)?;
    let open = unsigned(&before, &after, &signed);
    ensure!(open.is_empty(), "{MODULE} {} and {newest}, {SIGNED}:\n{}", pinned.trim(), open.join("\n"));
    Ok((after.len(), signed.len()))
}

async fn fields(module: &Path, judge: &Judge, version: &str) -> anyhow::Result<Fields> {
    let archive = archive(module, version).await?;
    let read = judge.read(&archive)?;
    let fields: Result<Vec<Field>, _> = read.lines().map(serde_json::from_str).collect();
    let fields: Fields = fields.context("fields")?.into_iter().map(|of| (of.field.clone(), of)).collect();
    // A version that moves the types would have none.
    ensure!(fields.len() > 100, "{MODULE} {version}: {} fields", fields.len());
    Ok(fields)
}

/// The archive of a version, which the go command downloads and verifies.
async fn archive(module: &Path, version: &str) -> anyhow::Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Downloaded {
        zip: Option<PathBuf>,
    }
    // Of a version for a newer Go it says so, and where the archive is.
    let arguments = ["mod", "download", "-json", &format!("{MODULE}@{version}")];
    let out = Command::new("go").args(arguments).current_dir(module).output().await.context("go")?;
    let said = String::from_utf8_lossy(&out.stdout);
    let downloaded: Downloaded = serde_json::from_str(&said).with_context(|| said.to_string())?;
    downloaded.zip.with_context(|| said.to_string())
}

async fn go(module: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let out = Command::new("go").args(arguments).current_dir(module).output().await.context("go")?;
    if !out.status.success() {
        bail!("go {}: {}", arguments.join(" "), String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
