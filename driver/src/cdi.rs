//! CDI files: what containers get with a device. A container runtime reads them when a container starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkpoint::write_and_rename;

/// What a container gets with a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edits {
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
    /// Its path on the node.
    pub host: PathBuf,
    /// Its path in the container.
    pub container: PathBuf,
}

/// A device node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// Its path, on the node and in the container.
    pub path: PathBuf,
    /// What the container may do: of `r`, `w` and `m`.
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
    container_edits: ContainerEdits,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerEdits {
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
    /// The CDI devices of the claim with `uid`, one for each of `edits`.
    pub(crate) fn of(driver: &str, uid: &str, edits: &[Edits]) -> Self {
        let devices = edits
            .iter()
            .enumerate()
            .map(|(number, edits)| Device { name: name(uid, number), container_edits: edits.into() });
        Self {
            cdi_version: VERSION.to_owned(),
            kind: format!("{driver}/{CLASS}"),
            devices: devices.collect(),
        }
    }

    /// The names by which kubelet asks the container runtime for them, in their order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = String> + '_ {
        self.devices.iter().map(|device| format!("{}={}", self.kind, device.name))
    }

    /// Writes the file of a claim, so that no reader ever sees a part of it.
    pub(crate) fn write(&self, directory: &Path, driver: &str, uid: &str) -> anyhow::Result<()> {
        write_and_rename(&path(directory, driver, uid), &serde_json::to_vec(self)?)
    }
}

/// The file of a claim.
pub(crate) fn path(directory: &Path, driver: &str, uid: &str) -> PathBuf {
    directory.join(format!("{driver}-{CLASS}_{uid}.json"))
}

fn name(uid: &str, number: usize) -> String {
    format!("{uid}-{number}")
}

impl From<&Edits> for ContainerEdits {
    fn from(edits: &Edits) -> Self {
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
