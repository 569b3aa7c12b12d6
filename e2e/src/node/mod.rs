//! A real node in namespaces of its own: kubelet, containerd and runc, beside the control plane and Dragoman. Nothing of the
//! machine changes, and the end of the first process in there ends everything.

mod image;
mod machine;
mod programs;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

pub(crate) use self::image::BOX;
pub(crate) use self::machine::{DRIVER, Machine, NODE, Parts};
pub(crate) use self::programs::NodePrograms;
use crate::control_plane::{Programs, Release};
use crate::world::Bench;

/// Makes the namespaces.
const ENTER: &str = include_str!("enter.sh");
/// The address of the node, and of the bridge that its Pods are on.
pub(crate) const ADDRESS: &str = "10.88.0.1";
/// The hierarchies of cgroup v1 that containers need.
const CONTROLLERS: [&str; 9] =
    ["cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "pids", "systemd"];
/// By this variable a process knows that it is inside.
const INSIDE: &str = "E2E_INSIDE_NODE";

/// Whether this process is inside.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Checks the privileges that a node needs, and builds or downloads its programs while the network of the machine is at
/// hand.
///
/// # Errors
/// No node can run here.
pub(crate) async fn provide(bench: &Bench) -> anyhow::Result<()> {
    if let Some(why) = lacks().await {
        // A lane that does not run is not one that passes: CI has what it needs.
        anyhow::bail!("not run: {why}");
    }
    Programs::provide(&bench.repository, Release::default()).await?;
    NodePrograms::provide(&bench.repository).await.map(drop)
}

/// Runs this program again for one scenario, on a machine of its own.
///
/// # Errors
/// The scenario fails, and has said why.
pub(crate) async fn enter(bench: &Bench, scenario: &str) -> anyhow::Result<()> {
    let groups = Groups::make()?;
    let work = bench.output.join("node-machine");
    std::fs::create_dir_all(&work).context("output")?;
    let status = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child", "--"])
        .args(["sh", "-c", ENTER, "enter.sh"])
        .arg(&work)
        .arg(format!("{ADDRESS}/16"))
        .arg(std::env::current_exe().context("this program")?)
        .arg("--binary")
        .arg(&bench.binary)
        .arg("--output")
        .arg(&bench.output)
        .arg("--repository")
        .arg(&bench.repository)
        .args(["node", scenario])
        .env(INSIDE, "1")
        .kill_on_drop(true)
        .status()
        .await;
    drop(groups);
    ensure!(status.context("unshare")?.success(), "{scenario} failed");
    Ok(())
}

/// Why there can be no node on this machine.
async fn lacks() -> Option<String> {
    if !Path::new("/sys/fs/cgroup/memory").exists() {
        return Some("the machine has no cgroup v1; with v2 alone this was not tried".to_owned());
    }
    let tried = Command::new("unshare")
        .args([
            "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "mount", "-t", "tmpfs",
            "tmpfs", "/mnt",
        ])
        .output()
        .await;
    match tried {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(format!("no privileges: {}", String::from_utf8_lossy(&out.stderr).trim())),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// A cgroup in each hierarchy, which is the root of the node's.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes them, and moves this process into them: what it starts is there from the beginning.
    fn make() -> anyhow::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let mut made = Vec::new();
        for controller in CONTROLLERS {
            let parent = Path::new("/sys/fs/cgroup").join(controller);
            let group = parent.join(format!("dragoman-node-{}-{number}", std::process::id()));
            std::fs::create_dir(&group).with_context(|| group.display().to_string())?;
            if controller == "cpuset" {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let of_parent = std::fs::read(parent.join(file)).context(file)?;
                    std::fs::write(group.join(file), of_parent).context(file)?;
                }
            }
            std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())
                .with_context(|| group.display().to_string())?;
            made.push(group);
        }
        Ok(Self(made))
    }
}

impl Drop for Groups {
    /// Moves this process out, and removes them with all that the node made below them. One that is still in use, because
    /// the processes of the node are on their way out, is left: it is empty then.
    fn drop(&mut self) {
        for group in &self.0 {
            let Some(parent) = group.parent() else { continue };
            let left = std::fs::write(parent.join("cgroup.procs"), std::process::id().to_string());
            if let Err(why) = left.context("cgroup").and_then(|()| remove(group)) {
                println!("        {} is left: {why:#}", group.display());
            }
        }
    }
}

/// Removes a cgroup, those below it first. Its files go with it.
fn remove(group: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(group).with_context(|| group.display().to_string())? {
        let entry = entry.context("cgroup")?;
        if entry.file_type().context("cgroup")?.is_dir() {
            remove(&entry.path())?;
        }
    }
    std::fs::remove_dir(group).with_context(|| group.display().to_string())
}
