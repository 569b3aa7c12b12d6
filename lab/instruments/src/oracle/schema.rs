//! Types and comments of the API of claims and devices, in the version of `k8s.io/api` that everything here is built against, and in the
//! newest one of the registry. What differs is read by a person, who signs it off in `schema.json`: a comment may announce a rule
//! before any field does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use super::Judge;

/// The module that documents the API.
const MODULE: &str = "k8s.io/api";
/// The module that pins the version, and the file with what is signed off.
const PINNED: &str = "lab/instruments/oracle";
const SIGNED: &str = "lab/instruments/schema.json";

/// A field as a version documents it.
#[derive(Debug, Clone, Deserialize)]
struct Field {
    field: String,
    r#type: String,
    comment: String,
}

impl Field {
    /// Type and comment without what changes nothing: letters and quotes.
    fn meaning(&self) -> (String, String) {
        (self.r#type.clone(), self.comment.replace('`', "").to_lowercase())
    }
}

/// A difference that a person has read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    /// Digest of type and comment in the newest version.
    digest: String,
    /// The consequence for this repository.
    why: String,
}

/// Fields by their names.
type Fields = BTreeMap<String, Field>;

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

/// The differences that are not signed off, and what is signed off for nothing; in words.
fn unsigned(before: &Fields, after: &Fields, signed: &BTreeMap<String, Signed>) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).chain(signed.keys()).collect();
    let open = names.into_iter().filter_map(|name| {
        let (old, new) = (before.get(name), after.get(name));
        let differs = old.map(Field::meaning) != new.map(Field::meaning);
        let digest = digest(new);
        match signed.get(name) {
            None if !differs => None,
            Some(known) if differs && known.digest == digest && !known.why.is_empty() => None,
            Some(_) if !differs => Some(format!("{name}: signed off, and no difference")),
            _ => {
                let said = |of: Option<&Field>| {
                    of.map_or_else(|| "nothing".to_owned(), |of| format!("{}: {}", of.r#type, of.comment))
                };
                let (old, new) = (said(old), said(new));
                Some(format!("{name}, digest {digest}\n  before: {old}\n  now:    {new}"))
            }
        }
    });
    open.collect()
}

fn digest(of: Option<&Field>) -> String {
    let (kind, comment) = of.map(Field::meaning).unwrap_or_default();
    let digest = Sha256::digest(format!("{kind}\n{comment}"));
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&str, &str, &str)]) -> Fields {
        let field = |(name, kind, comment): &(&str, &str, &str)| Field {
            field: (*name).to_owned(),
            r#type: (*kind).to_owned(),
            comment: (*comment).to_owned(),
        };
        all.iter().map(|of| (of.0.to_owned(), field(of))).collect()
    }

    fn signs(name: &str, of: &Fields) -> BTreeMap<String, Signed> {
        let signed = Signed { digest: digest(of.get(name)), why: "read".to_owned() };
        [(name.to_owned(), signed)].into()
    }

    #[test]
    fn every_difference_has_to_be_signed_off() {
        let before = fields(&[("count", "int64", "Count is the number."), ("old", "string", "")]);
        let none = BTreeMap::new();
        assert!(unsigned(&before, &before, &none).is_empty());
        let spelled = fields(&[("count", "int64", "count is the `number`."), ("old", "string", "")]);
        assert!(unsigned(&before, &spelled, &none).is_empty(), "letters and quotes change nothing");
        for after in [
            fields(&[("count", "int64", "Count is the least number."), ("old", "string", "")]),
            fields(&[("count", "int32", "Count is the number."), ("old", "string", "")]),
            fields(&[("old", "string", "")]),
        ] {
            let open = unsigned(&before, &after, &none);
            assert!(matches!(&open[..], [one] if one.starts_with("count, digest")), "{open:?}");
            assert!(unsigned(&before, &after, &signs("count", &after)).is_empty());
            assert_eq!(unsigned(&before, &after, &signs("count", &before)).len(), 1, "another text was read");
        }
        let added = fields(&[
            ("count", "int64", "Count is the number."),
            ("old", "string", ""),
            ("new", "string", ""),
        ]);
        assert_eq!(unsigned(&before, &added, &none).len(), 1);
        let open = unsigned(&before, &before, &signs("count", &before));
        assert!(matches!(&open[..], [one] if one.ends_with("no difference")), "{open:?}");
        let mut silent = signs("new", &added);
        silent.values_mut().for_each(|signed| signed.why.clear());
        assert_eq!(unsigned(&before, &added, &silent).len(), 1, "nobody says what follows from it");
    }
}
