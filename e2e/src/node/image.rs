//! The image of all containers, sandboxes too: one static program that is many.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

/// Name of the image.
pub(crate) const BOX: &str = "dragoman.dev/box:1";

/// Writes the image as an archive of OCI below `directory`: busybox, and `programs` with the libraries that they need.
pub(crate) async fn write(directory: &Path, busybox: &Path, programs: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let root = directory.join("root");
    let bin = root.join("bin");
    std::fs::create_dir_all(&bin).context("image")?;
    std::fs::copy(busybox, bin.join("busybox")).context("busybox")?;
    let applets = Command::new(busybox).arg("--list").output().await.context("busybox")?;
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|name| *name != "busybox") {
        std::os::unix::fs::symlink("busybox", bin.join(applet)).context("image")?;
    }
    for program in programs {
        let name = program.file_name().context("a program")?;
        std::fs::copy(program, root.join(name)).with_context(|| program.display().to_string())?;
        for library in libraries(program).await? {
            let to = root.join(library.strip_prefix("/").context("a library")?);
            std::fs::create_dir_all(to.parent().context("a library")?).context("image")?;
            std::fs::copy(&library, to).with_context(|| library.display().to_string())?;
        }
    }
    let layer = directory.join("layer.tar");
    tar(&root, &layer).await?;
    let archive = directory.join("archive");
    let blobs = archive.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).context("image")?;
    let keep = |content: &[u8]| -> anyhow::Result<(String, usize)> {
        let digest: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(blobs.join(&digest), content).context("image")?;
        Ok((format!("sha256:{digest}"), content.len()))
    };
    let descriptor = |kind: &str, (digest, size): (String, usize)| json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": size});
    let (layer, size) = keep(&std::fs::read(&layer).context("layer")?)?;
    let config: Value = json!({
        "architecture": if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" }, "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    });
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json", keep(config.to_string().as_bytes())?),
        "layers": [descriptor("layer.v1.tar", (layer, size))],
    });
    let mut manifest = descriptor("manifest.v1+json", keep(manifest.to_string().as_bytes())?);
    manifest["annotations"] =
        json!({"io.containerd.image.name": BOX, "org.opencontainers.image.ref.name": "1"});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(archive.join("index.json"), index.to_string()).context("image")?;
    std::fs::write(archive.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).context("image")?;
    let image = directory.join("box.tar");
    tar(&archive, &image).await?;
    Ok(image)
}

/// The shared libraries of a program, and what loads them.
async fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let out = Command::new("ldd").arg(program).output().await.context("ldd")?;
    ensure!(out.status.success(), "ldd {}: {}", program.display(), String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

async fn tar(directory: &Path, to: &Path) -> anyhow::Result<()> {
    let out = Command::new("tar").arg("-cf").arg(to).arg("-C").arg(directory).arg(".").output().await;
    let out = out.context("tar")?;
    ensure!(out.status.success(), "tar: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}
