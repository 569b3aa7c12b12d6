//! CDI files: what containers get with a device. A container runtime reads them when a container starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{TEMPORARY, write_and_rename};

/// Additions to a container that has a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEdits {
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Files and folders of the node.
    pub mounts: Vec<Mount>,
    /// Device nodes.
    pub device_nodes: Vec<DeviceNode>,
}

/// A file or folder of the node in the container, read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path of the file or folder on the node.
    pub host: PathBuf,
    /// Path of the file or folder in the container.
    pub container: PathBuf,
}

/// A device node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// Path of the device node, on the node and in the container.
    pub path: PathBuf,
    /// Permissions of the container: any of `r`, `w` and `m`.
    pub permissions: String,
}

/// The oldest version that has everything used here.
const VERSION: &str = "0.6.0";
/// The class of all CDI devices of this kit: one is a device in a claim.
const CLASS: &str = "claim";

/// The CDI devices of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: WireEdits,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireEdits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<MountEdit>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<DeviceNode>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MountEdit {
    host_path: PathBuf,
    container_path: PathBuf,
    options: Vec<String>,
}

impl Spec {
    /// The CDI devices of the claim with `uid`, one for each of `edits` that says anything: CDI refuses a file with one that
    /// does not.
    pub(crate) fn of(driver: &str, uid: &str, edits: &[ContainerEdits]) -> Self {
        let edits = edits.iter().enumerate().filter(|(_, edits)| **edits != ContainerEdits::default());
        let devices =
            edits.map(|(number, edits)| Device { name: name(uid, number), container_edits: edits.into() });
        Self {
            cdi_version: VERSION.to_owned(),
            kind: format!("{driver}/{CLASS}"),
            devices: devices.collect(),
        }
    }

    /// The name by which kubelet asks the container runtime for the device at a position, if it has one.
    pub(crate) fn id(&self, uid: &str, number: usize) -> Option<String> {
        let name = name(uid, number);
        self.devices.iter().any(|device| device.name == name).then(|| format!("{}={name}", self.kind))
    }

    /// Writes the file of a claim, so that no reader ever sees a part of it. Without devices there is none.
    pub(crate) fn write(&self, directory: &Path, driver: &str, uid: &str) -> anyhow::Result<()> {
        if self.devices.is_empty() {
            return Ok(());
        }
        write_and_rename(&path(directory, driver, uid), &serde_json::to_vec(self)?)
    }
}

/// Removes files of the driver that a process left half written.
pub(crate) fn clean(directory: &Path, driver: &str) -> anyhow::Result<()> {
    let named = || directory.display().to_string();
    for entry in std::fs::read_dir(directory).with_context(named)? {
        let path = entry.with_context(named)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(&format!("{driver}-{CLASS}_")) && name.ends_with(TEMPORARY) {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// The file of a claim.
pub(crate) fn path(directory: &Path, driver: &str, uid: &str) -> PathBuf {
    directory.join(format!("{driver}-{CLASS}_{uid}.json"))
}

fn name(uid: &str, number: usize) -> String {
    format!("{uid}-{number}")
}

impl From<&ContainerEdits> for WireEdits {
    fn from(edits: &ContainerEdits) -> Self {
        let mounts = edits.mounts.iter().map(|mount| MountEdit {
            host_path: mount.host.clone(),
            container_path: mount.container.clone(),
            options: ["ro", "nosuid", "nodev", "bind"].map(str::to_owned).into(),
        });
        Self {
            env: edits.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            mounts: mounts.collect(),
            device_nodes: edits.device_nodes.clone(),
        }
    }
}
