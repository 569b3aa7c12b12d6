//! Where the programs of the control plane come from.
//!
//! They are built from Go modules, once for each content of the two `go.mod`
//! files, into a cache outside the checkout. `KUBEBUILDER_ASSETS` can replace etcd
//! and kube-apiserver.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::{go, only};

/// A release of Kubernetes that real control planes are built of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Release {
    /// 1.37.2.
    #[default]
    V1_37,
    /// 1.36.3.
    V1_36,
}

impl Release {
    /// The folder of its Go module.
    fn module(self) -> &'static str {
        match self {
            Self::V1_37 => "kubernetes",
            Self::V1_36 => "kubernetes-1.36",
        }
    }

    /// As the programs call themselves.
    fn version(self) -> &'static str {
        match self {
            Self::V1_37 => "v1.37.2",
            Self::V1_36 => "v1.36.3",
        }
    }

    /// The minor version, for example `1.37`.
    pub fn minor(self) -> &'static str {
        match self {
            Self::V1_37 => "1.37",
            Self::V1_36 => "1.36",
        }
    }

    /// The version in which it serves PodGroups, where that is switched on.
    pub fn pod_groups(self) -> &'static str {
        match self {
            Self::V1_37 => "v1beta1",
            Self::V1_36 => "v1alpha2",
        }
    }

    /// The path of the collection of PodGroups.
    pub fn pod_groups_path(self) -> String {
        format!("/apis/scheduling.k8s.io/{}/{{}}/podgroups", self.pod_groups())
    }
}

/// Paths of the programs.
#[derive(Debug, Clone)]
pub struct Programs {
    directory: PathBuf,
    assets: Option<PathBuf>,
}

impl Programs {
    /// The path of `name`.
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.assets {
            Some(assets) if matches!(name, "etcd" | "kube-apiserver") => assets.join(name),
            _ => self.directory.join(name),
        }
    }

    /// Finds the programs of a release, building them first where necessary.
    pub async fn provide(repository: &Path, release: Release) -> anyhow::Result<Self> {
        let sources = repository.join("e2e/control-plane");
        let module = release.module();
        let files = ["etcd/go.mod", "etcd/go.sum", &format!("{module}/go.mod"), &format!("{module}/go.sum")];
        let directory = go::cache()?.join("control-plane").join(go::digest(&sources, &files)?);
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let complete = directory.join("complete");
        if complete.exists() {
            return Ok(Self { directory, assets });
        }
        std::fs::create_dir_all(&directory).context("cache")?;
        let _turn = only::lock_in_turn(&directory).await?;
        if !complete.exists() {
            let version = release.version();
            println!(
                "building Kubernetes {version} into {} (five minutes on two cores, once)",
                directory.display()
            );
            build_etcd(&sources.join("etcd"), &directory).await?;
            let programs = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
            build_kubernetes(&sources.join(module), release, &directory, &programs).await?;
            std::fs::write(&complete, "").context("cache")?;
        }
        Ok(Self { directory, assets })
    }
}

impl Programs {
    /// Finds kubelet of a release, building it first where necessary. Only a real node needs it.
    pub async fn kubelet(repository: &Path, release: Release) -> anyhow::Result<PathBuf> {
        let module = repository.join("e2e/control-plane").join(release.module());
        let digest = go::digest(&module, &["go.mod", "go.sum"])?;
        let directory = go::cache()?.join("tools").join(format!("kubelet-{digest}"));
        let kubelet = directory.join("kubelet");
        if !kubelet.exists() {
            println!("building kubelet into {}", directory.display());
            std::fs::create_dir_all(&directory).context("cache")?;
            build_kubernetes(&module, release, &directory, &["kubelet"]).await?;
        }
        Ok(kubelet)
    }
}

async fn build_etcd(module: &Path, out: &Path) -> anyhow::Result<()> {
    // The package is called v3; its program is etcd.
    let target = out.join("etcd").display().to_string();
    go::build(module, "-s -w", &["-o", &target, "go.etcd.io/etcd/server/v3"]).await
}

async fn build_kubernetes(
    module: &Path,
    release: Release,
    out: &Path,
    programs: &[&str],
) -> anyhow::Result<()> {
    // Without these the programs call themselves v0.0.0-master+$Format:%H$.
    let mut flags = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [
            ("gitVersion", release.version()),
            ("gitMajor", "1"),
            ("gitMinor", release.minor().trim_start_matches("1.")),
            ("gitTreeState", "clean"),
            ("buildDate", "2026-07-01T00:00:00Z"),
        ] {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    let target = format!("{}/", out.display());
    let packages: Vec<String> = programs.iter().map(|name| format!("k8s.io/kubernetes/cmd/{name}")).collect();
    let mut arguments = vec!["-o", &target];
    arguments.extend(packages.iter().map(String::as_str));
    go::build(module, &flags, &arguments).await
}
