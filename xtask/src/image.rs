//! The container image: the static binary and nothing else, for each architecture, and what goes with it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::shipped::{self, Platform, SOURCE};
use crate::{output, root, run};

/// The version of cargo-cyclonedx that is installed if there is none.
const CARGO_CYCLONEDX: &str = "0.5.9";
/// Where everything is written.
pub(crate) const PLACE: &str = "target/image";
/// The image as an OCI layout.
pub(crate) const LAYOUT: &str = "target/image/oci";
/// The file of an archive that names its images and their layers.
const MANIFEST: &str = "manifest.json";
/// The list of dependencies beside the image.
pub(crate) const LIST: &str = "target/image/dragoman.cdx.json";

/// Builds the image for some architectures into an OCI layout and an archive for each; pushes it where that is asked for. Returns
/// its digest.
///
/// # Errors
/// A tool, a binary or the image does not build, or the registry does not take it.
pub(crate) fn build(platforms: &[Platform], push: Option<&str>) -> anyhow::Result<String> {
    let tools = tools()?;
    let crane = tools.join("crane").display().to_string();
    let place = root()?.join(PLACE);
    std::fs::create_dir_all(&place).context(PLACE)?;
    shipped::export()?;
    let registry = Registry::serve(&crane)?;
    let mut parts = Vec::new();
    for platform in platforms {
        let name = format!("{}/dragoman:{}", registry.address, platform.architecture());
        let layer = layer(*platform)?;
        run(&crane, &["append", "--oci-empty-base", "--new_layer", &layer, "--new_tag", &name])?;
        let set = format!("linux/{}", platform.architecture());
        let version = format!("org.opencontainers.image.version={}", env!("CARGO_PKG_VERSION"));
        let title = "org.opencontainers.image.title=dragoman";
        let labels = [
            "--label",
            title,
            "--label",
            &version,
            "--label",
            "org.opencontainers.image.licenses=Apache-2.0",
        ];
        let run_as =
            ["--entrypoint", "/dragoman", "--cmd", "run", "--user", "65532:65532", "--set-platform", &set];
        run(&crane, &[&["mutate", &name, "--tag", &name][..], &labels, &run_as].concat())?;
        println!("{}", archive(&crane, &name, *platform)?);
        parts.push(name);
    }
    let whole = format!("{}/dragoman:{}", registry.address, env!("CARGO_PKG_VERSION"));
    let manifests: Vec<&str> = parts.iter().flat_map(|part| ["--manifest", part]).collect();
    run(&crane, &[&["index", "append", "--tag", &whole][..], &manifests].concat())?;
    let layout = root()?.join(LAYOUT);
    if layout.exists() {
        std::fs::remove_dir_all(&layout).context("old image")?;
    }
    run(&crane, &["pull", "--format", "oci", &whole, LAYOUT])?;
    list()?;
    let digest = digest_of(&layout)?;
    println!("{LAYOUT}: {digest}");
    if let Some(name) = push {
        run(&crane, &["copy", &whole, name])?;
        println!("pushed: {}", output(&crane, &["digest", "--full-ref", name])?.trim());
    }
    Ok(digest)
}

/// The digest of the image in a layout.
///
/// # Errors
/// There is no such layout, or not one image in it.
pub(crate) fn digest_of(layout: &Path) -> anyhow::Result<String> {
    let index = layout.join("index.json");
    let text = std::fs::read_to_string(&index).with_context(|| index.display().to_string())?;
    let index: Value = serde_json::from_str(&text)?;
    let images = index["manifests"].as_array().map_or(0, Vec::len);
    ensure!(images == 1, "{images} images in one layout");
    Ok(index["manifests"][0]["digest"].as_str().context("digest")?.to_owned())
}

/// The tools of images, built from their module.
///
/// # Errors
/// Go is missing, or a tool does not build.
pub(crate) fn tools() -> anyhow::Result<PathBuf> {
    let place = root()?.join("target/tools/image");
    let arguments = ["build", "-C", "e2e/tools/image", "-trimpath", "-o"];
    let to = format!("{}/", place.display());
    run("go", &[&arguments[..], &[&to, "tool"]].concat())?;
    Ok(place)
}

/// A layer with the binary: the same bytes whenever and by whomever it is made.
fn layer(platform: Platform) -> anyhow::Result<String> {
    let binary = shipped::auditable(platform)?;
    let directory = root()?.join(PLACE).join(platform.architecture());
    std::fs::create_dir_all(&directory).context("image")?;
    std::fs::copy(&binary, directory.join("dragoman")).with_context(|| binary.display().to_string())?;
    let layer = format!("{}.tar", directory.display());
    pack(&directory, &["dragoman"], &layer)?;
    Ok(layer)
}

/// Packs files of a directory into an archive: the same bytes whenever and by whomever it is made.
fn pack(directory: &Path, files: &[&str], archive: &str) -> anyhow::Result<()> {
    let from = directory.display().to_string();
    let same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=0755"];
    run("tar", &[&["--create", "--file", archive, "--directory", &from][..], &same, files].concat())
}

/// Writes the image of one architecture, which is in the registry under `name`, as an archive that `docker load`, `podman load` and
/// `kind load image-archive` take; returns its path. The image in it has the name that overlays and bundle have.
fn archive(crane: &str, name: &str, platform: Platform) -> anyhow::Result<String> {
    let place = root()?.join(PLACE).join(platform.architecture()).join("archive");
    if place.exists() {
        std::fs::remove_dir_all(&place).context("old archive")?;
    }
    std::fs::create_dir_all(&place).context("archive")?;
    let [pulled, directory] =
        [place.with_extension("pulled"), place.clone()].map(|path| path.display().to_string());
    run(crane, &["pull", name, &pulled])?;
    run("tar", &["--extract", "--file", &pulled, "--directory", &directory])?;
    let manifest = place.join(MANIFEST);
    let mut images: Value = serde_json::from_str(&std::fs::read_to_string(&manifest).context(MANIFEST)?)?;
    let image = images.get_mut(0).context("the archive has no image")?;
    image["RepoTags"] = json!([format!("dragoman:{}", env!("CARGO_PKG_VERSION"))]);
    std::fs::write(&manifest, images.to_string()).context(MANIFEST)?;
    let files = std::fs::read_dir(&place).context("archive")?;
    let names: std::io::Result<Vec<String>> =
        files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect();
    let mut names = names.context("archive")?;
    names.sort();
    let file = archive_of(platform);
    pack(
        &place,
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
        &root()?.join(&file).display().to_string(),
    )?;
    Ok(file)
}

/// The archive with the image for an architecture.
pub(crate) fn archive_of(platform: Platform) -> String {
    format!("{PLACE}/dragoman-{}.tar", platform.architecture())
}

/// Writes the list of the binary's dependencies, without what changes from one run to the next.
fn list() -> anyhow::Result<()> {
    if run("cargo", &["cyclonedx", "--version"]).is_err() {
        run("cargo", &["install", "--locked", "--version", CARGO_CYCLONEDX, "cargo-cyclonedx"])?;
    }
    let (manifest, name) = (format!("{SOURCE}/operator/Cargo.toml"), "dragoman.cdx");
    let arguments = ["cyclonedx", "--manifest-path", &manifest, "--format", "json"];
    let more = ["--spec-version", "1.5", "--target", "all", "--override-filename", name, "--no-build-deps"];
    run("cargo", &[&arguments[..], &shipped::FEATURES, &more].concat())?;
    let text =
        std::fs::read_to_string(root()?.join(format!("{SOURCE}/operator/{name}.json"))).context("list")?;
    let mut list: Value = serde_json::from_str(&text)?;
    let object = list.as_object_mut().context("list")?;
    object.remove("serialNumber");
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("timestamp");
    }
    // Packages of the workspace are named by where they stand in the repository, not on this machine.
    let here = root()?.join(SOURCE).display().to_string();
    let text = serde_json::to_string_pretty(&list)?.replace(&here, "");
    std::fs::write(root()?.join(LIST), text + "\n").context(LIST)
}

/// The packages that are compiled into the binary, as cargo knows them: name and version, itself left out.
///
/// # Errors
/// cargo cannot tell.
pub(crate) fn dependencies(platform: Platform) -> anyhow::Result<BTreeSet<String>> {
    let whose = ["--package", "dragoman-operator", "--target", platform.target()];
    let tree = ["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe"];
    let mut known = BTreeSet::new();
    for line in output("cargo", &[&tree[..], &shipped::FEATURES, &whose].concat())?.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            known.insert(format!("{name} {}", version.trim_start_matches('v')));
        }
    }
    known.retain(|name| !name.starts_with("dragoman-operator "));
    Ok(known)
}

/// Name and version of a component.
pub(crate) fn named(component: &Value) -> String {
    let text = |field: &str| component[field].as_str().unwrap_or_default();
    format!("{} {}", text("name"), text("version"))
}

/// A registry on loopback, for as long as the image is put together.
pub(crate) struct Registry {
    process: Child,
    /// Host and port.
    pub address: String,
}

impl Registry {
    /// Starts one.
    ///
    /// # Errors
    /// It ends at once.
    pub(crate) fn serve(crane: &str) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").context("port")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let mut process = Command::new(crane)
            .args(["registry", "serve", "--address", &address])
            .spawn()
            .context("crane")?;
        while std::net::TcpStream::connect(&address).is_err() {
            ensure!(process.try_wait()?.is_none(), "the registry on {address} has ended");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(Self { process, address })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("the registry on {} does not end: {error}", self.address);
        }
    }
}
