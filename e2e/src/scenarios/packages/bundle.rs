//! The OLM bundle and its catalog without a cluster: what the library of operator-sdk and the pipeline of the community
//! say about them, and that their rights are those of the other packages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{IMAGE, copied, said};
use crate::go;
use crate::manifest;
use crate::scenarios::{Standalone, standalone};
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(the_bundle_is_valid_and_a_planted_defect_is_found),
        standalone!(every_package_gives_the_same_rights),
    ]
}

/// Complaints of the validator about a valid bundle: an API whose objects the operator alone writes has no
/// example, and the validator takes Events of events.k8s.io for those of a group that was removed.
const FALSE_ALARMS: [&str; 2] =
    ["provided API should have an example annotation", "Migrate the API(s) for events"];

/// A bundle as files.
struct Bundle {
    directory: PathBuf,
    /// File name and object of each manifest.
    manifests: Vec<(String, Value)>,
}

impl Bundle {
    fn read(directory: PathBuf) -> anyhow::Result<Self> {
        let mut manifests = Vec::new();
        for entry in std::fs::read_dir(directory.join("manifests")).context("manifests")? {
            let entry = entry?;
            let object = serde_saphyr::from_str(&std::fs::read_to_string(entry.path()).context("manifest")?)?;
            manifests.push((entry.file_name().to_string_lossy().into_owned(), object));
        }
        manifests.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Self { directory, manifests })
    }

    fn version(&mut self) -> anyhow::Result<&mut Value> {
        let found = self.manifests.iter_mut().find(|(_, object)| object["kind"] == "ClusterServiceVersion");
        Ok(&mut found.context("no ClusterServiceVersion")?.1)
    }

    fn write(&self) -> anyhow::Result<()> {
        let manifests = self.directory.join("manifests");
        std::fs::remove_dir_all(&manifests).context("manifests")?;
        std::fs::create_dir_all(&manifests).context("manifests")?;
        for (name, object) in &self.manifests {
            std::fs::write(manifests.join(name), object.to_string()).context("manifest")?;
        }
        Ok(())
    }

    /// Returns the errors and warnings of the library about the bundle, and the reasons for which the
    /// community pipeline would refuse it.
    async fn findings(&self, tools: &Path) -> anyhow::Result<Vec<String>> {
        let directory = self.directory.display().to_string();
        let (Ok(said) | Err(said)) = said(&tools.join("bundle-validate"), &[&directory]).await?;
        let is_true =
            |line: &&str| !FALSE_ALARMS.iter().any(|alarm| line.contains(alarm)) && !line.is_empty();
        let mut findings: Vec<String> = said.lines().filter(is_true).map(str::to_owned).collect();
        findings.extend(self.community());
        Ok(findings)
    }

    /// The rules of the community operators' pipeline that the library does not know.
    fn community(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let mut refuse = |is_wrong: bool, what: String| findings.extend(is_wrong.then_some(what));
        let versions: Vec<&Value> = self
            .manifests
            .iter()
            .map(|(_, object)| object)
            .filter(|of| of["kind"] == "ClusterServiceVersion")
            .collect();
        refuse(versions.len() != 1, format!("{} ClusterServiceVersions in one bundle", versions.len()));
        for (name, object) in &self.manifests {
            let kind = object["kind"].as_str().unwrap_or_default();
            refuse(kind == "NetworkPolicy", format!("{name}: a bundle carries no NetworkPolicy"));
        }
        for version in versions {
            let spec = &version["spec"];
            let long = |pointer: &str| version.pointer(pointer).and_then(Value::as_str).map_or(0, str::len);
            let count =
                |pointer: &str| version.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
            let number = spec["version"].as_str().unwrap_or_default();
            let name = version["metadata"]["name"].as_str().unwrap_or_default();
            refuse(name != format!("dragoman.v{number}"), format!("{name} is version {number}"));
            refuse(
                !(3..=50).contains(&long("/spec/displayName")),
                "displayName has not 3 to 50 characters".to_owned(),
            );
            refuse(long("/spec/description") < 20, "description is too short".to_owned());
            refuse(long("/spec/icon/0/base64data") == 0, "no icon".to_owned());
            refuse(count("/spec/maintainers") == 0, "no maintainer".to_owned());
            refuse(count("/spec/links") == 0, "no link".to_owned());
            refuse(long("/spec/provider/name") < 3, "no provider".to_owned());
            let skips = version.pointer("/metadata/annotations/olm.skipRange").is_some();
            refuse(
                skips && spec["replaces"].is_null(),
                "skipRange without replaces prunes the graph".to_owned(),
            );
            let modes = spec["installModes"].as_array().cloned().unwrap_or_default();
            let all = modes.iter().any(|mode| mode["type"] == "AllNamespaces" && mode["supported"] == true);
            refuse(!all, "AllNamespaces is the only install mode of OLM v1".to_owned());
        }
        findings
    }
}

type Defect = (&'static str, &'static str, fn(&mut Bundle) -> anyhow::Result<()>);

const DEFECTS: &[Defect] = &[
    ("no icon", "no icon", |bundle| {
        let spec = bundle.version()?["spec"].as_object_mut().context("spec")?;
        spec.remove("icon").map(drop).context("icon")
    }),
    ("an unknown capability level", "capabilities", |bundle| {
        bundle.version()?["metadata"]["annotations"]["capabilities"] = json!("Everything");
        Ok(())
    }),
    ("a NetworkPolicy", "a bundle carries no NetworkPolicy", |bundle| {
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "dragoman"}, "spec": {"podSelector": {}}});
        bundle.manifests.push(("networkpolicy.yaml".to_owned(), policy));
        Ok(())
    }),
    ("two versions of one number", "2 ClusterServiceVersions in one bundle", |bundle| {
        let other = bundle.version()?.clone();
        bundle.manifests.push(("other.clusterserviceversion.yaml".to_owned(), other));
        Ok(())
    }),
    ("a definition that is not in the bundle", "Kind=ClaimGate\" not found in bundle", |bundle| {
        bundle.manifests.retain(|(name, _)| !name.starts_with("claimgates"));
        Ok(())
    }),
    ("another version than its name", "is version 7.0.0", |bundle| {
        bundle.version()?["spec"]["version"] = json!("7.0.0");
        Ok(())
    }),
    ("a range that prunes the graph", "skipRange without replaces", |bundle| {
        bundle.version()?["metadata"]["annotations"]["olm.skipRange"] = json!("<0.1.0");
        Ok(())
    }),
    ("no install mode", "AllNamespaces is the only install mode", |bundle| {
        bundle.version()?["spec"]["installModes"] = json!([]);
        Ok(())
    }),
];

/// The bundle has no finding and each defect has one; the catalog is whole, and a dangling entry is found.
async fn the_bundle_is_valid_and_a_planted_defect_is_found(bench: &Bench) -> anyhow::Result<()> {
    let tools = go::tools(&bench.repository, "olm").await?;
    let directory = copied(bench, "packages-bundle").await?.join("config/olm");
    let findings = Bundle::read(directory.join("bundle"))?.findings(&tools).await?;
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    for (what, finding, plant) in DEFECTS {
        let directory = copied(bench, "packages-bundle-defect").await?.join("config/olm/bundle");
        let mut bundle = Bundle::read(directory)?;
        plant(&mut bundle)?;
        bundle.write()?;
        let findings = bundle.findings(&tools).await?.join("\n");
        ensure!(findings.contains(finding), "{what} is not found: {findings}");
    }
    let catalog = directory.join("catalog");
    let opm = tools.join("opm");
    let bundle =
        said(&opm, &["render", &directory.join("bundle").display().to_string(), "--output", "yaml"]).await?;
    let bundle = bundle.map_err(anyhow::Error::msg)?;
    std::fs::write(catalog.join("bundle.yaml"), bundle).context("catalog")?;
    let validate = async || said(&opm, &["validate", &catalog.display().to_string()]).await;
    validate().await?.map_err(anyhow::Error::msg)?;
    let package = catalog.join("package.yaml");
    let text = std::fs::read_to_string(&package).context("package")?;
    std::fs::write(&package, format!("{text}  - name: dragoman.v9.9.9\n")).context("package")?;
    let Err(complaint) = validate().await? else { anyhow::bail!("a dangling entry is not found") };
    ensure!(complaint.contains("dragoman.v9.9.9"), "{complaint}");
    Ok(())
}

/// The rules that the operator has where nothing else is asked for, in the overlay, in the chart, and in the bundle.
async fn every_package_gives_the_same_rights(bench: &Bench) -> anyhow::Result<()> {
    let helm = go::tools(&bench.repository, "helm").await?.join("helm");
    let read = |path: &str| {
        std::fs::read_to_string(bench.repository.join("config").join(path)).with_context(|| path.to_owned())
    };
    let files = ["base/roles.yaml", "base/bindings.yaml", "base/assist.yaml"].map(read);
    let overlay = manifest::parse(&files.into_iter().collect::<anyhow::Result<Vec<_>>>()?.join("---\n"))?;
    let chart = bench.repository.join("config/helm/dragoman").display().to_string();
    let drain = "drain.onUninstall=false";
    let release = said(&helm, &[&["template", "d", &chart, "--set", drain][..], &IMAGE].concat()).await?;
    let release = release.map_err(anyhow::Error::msg)?;
    let release = manifest::parse(&release)?;
    let mut bundle = Bundle::read(bench.repository.join("config/olm/bundle"))?;
    let install = bundle.version()?["spec"]["install"]["spec"].clone();
    let rules = |of: &str| -> BTreeSet<String> {
        let permissions = install[of].as_array().into_iter().flatten();
        permissions.filter_map(|of| of["rules"].as_array()).flatten().map(Value::to_string).collect()
    };
    for (role, of) in [("ClusterRole", "clusterPermissions"), ("Role", "permissions")] {
        let overlay = bound(&overlay, role);
        ensure!(!overlay.is_empty(), "no {role} is bound");
        ensure!(overlay == bound(&release, role), "the chart binds another {role}");
        ensure!(overlay == rules(of), "the bundle has other {of}: {overlay:?} {:?}", rules(of));
    }
    Ok(())
}

/// The rules of the roles of a kind that are bound.
fn bound(objects: &[Value], kind: &str) -> BTreeSet<String> {
    let bindings = objects.iter().filter(|of| of["kind"] == format!("{kind}Binding"));
    let names: Vec<&Value> = bindings.map(|binding| &binding["roleRef"]["name"]).collect();
    let roles = objects.iter().filter(|of| of["kind"] == kind && names.contains(&&of["metadata"]["name"]));
    roles.filter_map(|role| role["rules"].as_array()).flatten().map(Value::to_string).collect()
}
