//! The programs of a node: kubelet and containerd from Go modules, the rest from packages of Debian that are unpacked and
//! not installed.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::control_plane::{Programs, Release};
use crate::go;

/// Packages of Debian: runc with its library, the CNI plugins, and one program that is many.
const PACKAGES: [&str; 4] = ["runc", "libseccomp2", "containernetworking-plugins", "busybox-static"];

/// Where the programs are.
#[derive(Debug, Clone)]
pub(crate) struct NodePrograms {
    /// containerd, its shim and ctr.
    pub(crate) containerd: PathBuf,
    pub(crate) kubelet: PathBuf,
    /// The root of the unpacked packages.
    pub(crate) debian: PathBuf,
}

impl NodePrograms {
    /// Finds them, building and downloading them first where necessary.
    ///
    /// # Errors
    /// One of them cannot be had.
    pub(crate) async fn provide(repository: &Path) -> anyhow::Result<Self> {
        let containerd = go::tools(repository, "node").await?;
        let kubelet = Programs::kubelet(repository, Release::default()).await?;
        Ok(Self { containerd, kubelet, debian: debian().await? })
    }

    pub(crate) fn runc(&self) -> PathBuf {
        self.debian.join("usr/sbin/runc")
    }

    pub(crate) fn busybox(&self) -> PathBuf {
        self.debian.join("bin/busybox")
    }

    /// The plugins of CNI.
    pub(crate) fn network(&self) -> PathBuf {
        self.debian.join("usr/lib/cni")
    }

    /// Where programs look for themselves and each other, and for libraries.
    pub(crate) fn environment(&self) -> [String; 2] {
        [
            format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", self.containerd.display()),
            format!("LD_LIBRARY_PATH={}", self.debian.join(format!("usr/lib/{ARCH}-linux-gnu")).display()),
        ]
    }
}

async fn debian() -> anyhow::Result<PathBuf> {
    let directory = go::cache()?.join("tools/node-debian");
    let (root, complete) = (directory.join("root"), directory.join("complete"));
    if complete.exists() {
        return Ok(root);
    }
    println!("downloading {} into {}", PACKAGES.join(", "), directory.display());
    std::fs::create_dir_all(&root).context("cache")?;
    let run = async |program: &str, arguments: &[&str]| {
        let out = Command::new(program).args(arguments).current_dir(&directory).output().await;
        let out = out.with_context(|| program.to_owned())?;
        ensure!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
        anyhow::Ok(())
    };
    if run("apt-get", &[&["download"][..], &PACKAGES].concat()).await.is_err() {
        // The lists of packages may be missing or old.
        run("apt-get", &["update"]).await?;
        run("apt-get", &[&["download"][..], &PACKAGES].concat()).await?;
    }
    for entry in std::fs::read_dir(&directory).context("cache")? {
        let path = entry.context("cache")?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run("dpkg-deb", &["-x", &path.display().to_string(), "root"]).await?;
        }
    }
    std::fs::write(&complete, "").context("cache")?;
    Ok(root)
}
