//! Where the programs of the control plane come from.
//!
//! They are built from Go modules, once for each content of the two `go.mod`
//! files, into a cache outside the checkout. `KUBEBUILDER_ASSETS` can replace etcd
//! and kube-apiserver.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::go;

/// The version that the pinned module builds.
pub(crate) const VERSION: &str = "v1.36.3";

/// Paths of the programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    directory: PathBuf,
    assets: Option<PathBuf>,
}

impl Programs {
    /// The path of `name`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match &self.assets {
            Some(assets) if matches!(name, "etcd" | "kube-apiserver") => assets.join(name),
            _ => self.directory.join(name),
        }
    }

    /// Finds the programs, building them first where necessary.
    pub(crate) async fn provide(repository: &Path) -> anyhow::Result<Self> {
        let sources = repository.join("e2e/control-plane");
        let files = ["etcd/go.mod", "etcd/go.sum", "kubernetes/go.mod", "kubernetes/go.sum"];
        let directory = go::cache()?.join("control-plane").join(go::digest(&sources, &files)?);
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let complete = directory.join("complete");
        if !complete.exists() {
            println!("building the control plane into {} (four minutes on two cores)", directory.display());
            std::fs::create_dir_all(&directory).context("cache")?;
            build_etcd(&sources.join("etcd"), &directory).await?;
            build_kubernetes(&sources.join("kubernetes"), &directory).await?;
            std::fs::write(&complete, "").context("cache")?;
        }
        Ok(Self { directory, assets })
    }
}

async fn build_etcd(module: &Path, out: &Path) -> anyhow::Result<()> {
    // The package is called v3; its program is etcd.
    let target = out.join("etcd").display().to_string();
    go::build(module, "-s -w", &["-o", &target, "go.etcd.io/etcd/server/v3"]).await
}

async fn build_kubernetes(module: &Path, out: &Path) -> anyhow::Result<()> {
    // Without these the programs call themselves v0.0.0-master+$Format:%H$.
    let mut flags = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [
            ("gitVersion", VERSION),
            ("gitMajor", "1"),
            ("gitMinor", "36"),
            ("gitTreeState", "clean"),
            ("buildDate", "2026-07-01T00:00:00Z"),
        ] {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    let target = format!("{}/", out.display());
    let package = |name: &str| format!("k8s.io/kubernetes/cmd/{name}");
    let packages = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"].map(package);
    let mut arguments = vec!["-o", &target];
    arguments.extend(packages.iter().map(String::as_str));
    go::build(module, &flags, &arguments).await
}
