//! Known vulnerabilities of dependencies. The database of RustSec is not within reach of every build, so that what it says of our
//! dependencies stands here, with its date; `cargo xtask advisories DIRECTORY` renews it from a checkout of the database.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, ensure};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use crate::planted::files;
use crate::root;

/// The list.
const LIST: &str = "xtask/advisories.json";

/// Advisories about the packages in `Cargo.lock`, as they were on a day.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    /// The date of the newest advisory that the database had, of whichever package.
    as_of: String,
    /// The packages that were looked up.
    packages: BTreeSet<String>,
    advisories: Vec<Advisory>,
}

/// The facts of an advisory.
#[derive(Debug, Clone, Deserialize, Serialize)]
struct Advisory {
    id: String,
    package: String,
    date: String,
    /// `unsound`, `unmaintained` or `notice`, where it is no vulnerability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    informational: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patched: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unaffected: Vec<String>,
}

/// The head of an advisory in the database, which is TOML.
#[derive(Debug, Deserialize)]
struct Head {
    advisory: About,
    #[serde(default)]
    versions: Versions,
}

#[derive(Debug, Deserialize)]
struct About {
    id: String,
    package: String,
    date: String,
    informational: Option<String>,
    withdrawn: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

type Packages = BTreeMap<String, BTreeSet<Version>>;

/// Checks every version in `Cargo.lock`. That a package is unmaintained does not count.
///
/// # Errors
/// Names the packages in a version that is vulnerable or unsound.
pub(crate) fn check() -> anyhow::Result<()> {
    let list = std::fs::read_to_string(root()?.join(LIST)).context(LIST)?;
    let list: List = serde_json::from_str(&list).context(LIST)?;
    let packages = packages(&std::fs::read_to_string(root()?.join("Cargo.lock")).context("Cargo.lock")?)?;
    let mut found = Vec::new();
    for advisory in &list.advisories {
        let versions = packages.get(&advisory.package).into_iter().flatten();
        for version in versions {
            if advisory.concerns(version)? {
                found.push(format!("{} {version}: {}", advisory.package, advisory.id));
            }
        }
    }
    ensure!(found.is_empty(), "vulnerable dependencies, as of {}:\n{}", list.as_of, found.join("\n"));
    let unknown: Vec<&str> =
        packages.keys().filter(|name| !list.packages.contains(*name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        println!("not looked up yet (cargo xtask advisories DIRECTORY): {}", unknown.join(", "));
    }
    println!("{} advisories about dependencies, as of {}, concern none", list.advisories.len(), list.as_of);
    Ok(())
}

/// Writes the list anew from a checkout of <https://github.com/rustsec/advisory-db>.
///
/// # Errors
/// There is no such database, or an advisory does not decode.
pub(crate) fn renew(database: &Path) -> anyhow::Result<()> {
    let packages = packages(&std::fs::read_to_string(root()?.join("Cargo.lock")).context("Cargo.lock")?)?;
    let (mut as_of, mut advisories) = (String::new(), Vec::new());
    for file in files(&database.join("crates")) {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let Some(advisory) = read(&text).with_context(|| file.display().to_string())? else { continue };
        as_of = as_of.max(advisory.date.clone());
        if packages.contains_key(&advisory.package) {
            advisories.push(advisory);
        }
    }
    ensure!(!as_of.is_empty(), "{} has no advisories", database.display());
    advisories.sort_by(|a, b| a.id.cmp(&b.id));
    let list = List { as_of, packages: packages.into_keys().collect(), advisories };
    let text = serde_json::to_string_pretty(&list).context(LIST)? + "\n";
    std::fs::write(root()?.join(LIST), text).context(LIST)?;
    check()
}

/// Reads an advisory; nothing of one that was withdrawn.
fn read(text: &str) -> anyhow::Result<Option<Advisory>> {
    let head = text.split("```toml").nth(1).and_then(|rest| rest.split("```").next());
    let Head { advisory, versions } = toml::from_str(head.context("no head")?)?;
    let About { id, package, date, informational, withdrawn } = advisory;
    let Versions { patched, unaffected } = versions;
    Ok(withdrawn.is_none().then_some(Advisory { id, package, date, informational, patched, unaffected }))
}

impl Advisory {
    /// Whether a version is vulnerable or unsound.
    fn concerns(&self, version: &Version) -> anyhow::Result<bool> {
        if matches!(self.informational.as_deref(), Some("unmaintained" | "notice")) {
            return Ok(false);
        }
        for range in self.patched.iter().chain(&self.unaffected) {
            let range = VersionReq::parse(range).with_context(|| format!("{}: {range}", self.id))?;
            if range.matches(version) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The packages of a lock file that come from elsewhere, with their versions.
fn packages(lock: &str) -> anyhow::Result<Packages> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        version: Version,
        source: Option<String>,
    }
    let lock: Lock = toml::from_str(lock).context("Cargo.lock")?;
    let mut packages = Packages::new();
    for package in lock.package.into_iter().filter(|package| package.source.is_some()) {
        packages.entry(package.name).or_default().insert(package.version);
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2030-0001\"\npackage = \"one\"\ndate = \"2030-01-02\"\n\
        [versions]\npatched = [\n  \">= 1.2.3, < 2.0.0\",\n  \"^2.1\",\n]\nunaffected = [\"< 1.0.0\"]\n```\n# One\n";

    #[test]
    fn a_version_between_the_ranges_is_concerned() {
        let advisory = read(ONE).expect("it decodes").expect("it stands");
        let concerned =
            |version: &str| advisory.concerns(&version.parse().expect("a version")).expect("ranges");
        assert_eq!(
            ["0.9.0", "1.0.0", "1.2.2", "1.2.3", "2.0.0", "2.1.0"].map(concerned),
            [false, true, true, false, true, false]
        );
        let unmaintained = Advisory { informational: Some("unmaintained".to_owned()), ..advisory };
        assert!(!unmaintained.concerns(&Version::new(1, 0, 0)).expect("ranges"));
    }

    #[test]
    fn what_was_withdrawn_says_nothing() {
        let withdrawn = ONE.replace("[versions]", "withdrawn = \"2030-02-02\"\n[versions]");
        assert!(read(&withdrawn).expect("it decodes").is_none());
        assert!(read("# no head").is_err());
    }

    #[test]
    fn packages_of_the_workspace_are_left_out() {
        let lock = "version = 4\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n\
            [[package]]\nname = \"theirs\"\nversion = \"1.0.0\"\nsource = \"registry+there\"\n";
        let packages = packages(lock).expect("a lock file");
        assert_eq!(packages.keys().collect::<Vec<_>>(), ["theirs"]);
    }
}
