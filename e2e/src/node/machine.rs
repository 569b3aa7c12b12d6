//! The processes of the node: each can be stopped, killed and started alone.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::process::Command;

use super::{ADDRESS, BOX, NodePrograms, image};
use crate::control_plane::{Process, free_port};
use crate::wait;
use crate::world::World;

/// The name of the node.
pub(crate) const NODE: &str = "node-0";
/// The driver of its devices, `driver/examples/simulated.rs`.
pub(crate) const DRIVER: &str = "simulated.dragoman.dev";

/// Parts of a node besides kubelet and containerd.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts<'a> {
    /// The number of its devices.
    pub(crate) devices: usize,
    /// Flags of the driver.
    pub(crate) flags: &'a [&'a str],
    /// Feature gates of kubelet that are on.
    pub(crate) gates: &'a [&'a str],
    /// Programs of the image, besides busybox.
    pub(crate) programs: &'a [PathBuf],
}

/// The node.
pub(crate) struct Machine {
    programs: NodePrograms,
    directory: PathBuf,
    kubeconfig: PathBuf,
    account: PathBuf,
    authority: PathBuf,
    devices: usize,
    flags: Vec<String>,
    admin: u16,
    containerd: Option<Process>,
    kubelet: Option<Process>,
    driver: Option<Process>,
}

impl Machine {
    /// Starts a node of the cluster, for a driver that comes later.
    pub(crate) async fn without_driver(world: &World, parts: &Parts<'_>) -> anyhow::Result<Self> {
        let directory = world.directory.join("node");
        std::fs::create_dir_all(&directory).context("node")?;
        let programs = NodePrograms::provide(&world.bench.repository).await?;
        let mut machine = Self {
            directory,
            kubeconfig: world.plane.kubeconfig("node"),
            account: PathBuf::new(),
            authority: world.plane.authority(),
            devices: parts.devices,
            flags: parts.flags.iter().map(|flag| (*flag).to_owned()).collect(),
            admin: free_port()?,
            programs,
            containerd: None,
            kubelet: None,
            driver: None,
        };
        machine.configure(parts.gates)?;
        machine.start_containerd().await?;
        let busybox = machine.programs.busybox();
        let image = image::write(&machine.directory.join("image"), &busybox, parts.programs).await?;
        machine.ctr(&["images", "import", &image.display().to_string()]).await?;
        machine.start_kubelet().await?;
        Ok(machine)
    }

    /// The driver of `driver/examples`.
    pub(crate) fn driver_program() -> anyhow::Result<PathBuf> {
        let program = std::env::current_exe().context("this program")?.with_file_name("examples/simulated");
        ensure!(program.exists(), "{}: cargo build --package dragoman-driver --examples", program.display());
        Ok(program)
    }

    fn configure(&self, gates: &[&str]) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.static_pods()).context("static Pods")?;
        let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]]}}]});
        let etc = std::path::Path::new("/etc/cni/net.d");
        std::fs::create_dir_all(etc).context("cni")?;
        std::fs::write(etc.join("10-pods.conflist"), network.to_string()).context("cni")?;
        let runtime = format!(
            r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{BOX}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{}"]
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{}"
SystemdCgroup = false
"#,
            self.programs.network().display(),
            self.programs.runc().display()
        );
        std::fs::write(self.directory.join("containerd.toml"), runtime).context("containerd.toml")?;
        let gates: serde_json::Map<_, _> =
            gates.iter().map(|gate| ((*gate).to_owned(), true.into())).collect();
        let kubelet = json!({
            "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": self.authority}},
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false, "oomScoreAdj": 0,
            "volumePluginDir": "/var/lib/kubelet/volume-plugins", "resolvConf": "",
            "staticPodPath": self.static_pods(), "fileCheckFrequency": "1s",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%",
                "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%"},
            "imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": false, "featureGates": gates,
        });
        std::fs::write(self.directory.join("kubelet.json"), kubelet.to_string()).context("kubelet.json")
    }

    /// Starts a program in the environment of the node's programs.
    fn spawn(&self, name: &str, program: &std::path::Path, arguments: &[String]) -> anyhow::Result<Process> {
        let environment = self.programs.environment();
        let all: Vec<String> = environment
            .into_iter()
            .chain([program.display().to_string()])
            .chain(arguments.iter().cloned())
            .collect();
        Process::spawn(std::path::Path::new("/usr/bin/env"), name, &all, &self.directory)
    }

    pub(crate) async fn start_containerd(&mut self) -> anyhow::Result<()> {
        let arguments = ["--config".to_owned(), self.directory.join("containerd.toml").display().to_string()];
        self.containerd =
            Some(self.spawn("containerd", &self.programs.containerd.join("containerd"), &arguments)?);
        let serves = async || self.ctr(&["version"]).await.is_ok();
        wait::until("containerd serves", serves).await.with_context(|| self.log())
    }

    /// Starts kubelet, and waits until it works: it ends at once where containerd does not answer.
    pub(crate) async fn start_kubelet(&mut self) -> anyhow::Result<()> {
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--config={}", self.directory.join("kubelet.json").display()),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={ADDRESS}"),
            "--root-dir=/var/lib/kubelet".to_owned(),
            "--v=2".to_owned(),
        ];
        self.kubelet = Some(self.spawn("kubelet", &self.programs.kubelet, &arguments)?);
        let works = async || {
            let request = http::Request::get("/healthz").body(String::new())?;
            let answer = crate::client::plain_http(HEALTH, request).await;
            Ok(matches!(answer, Ok((200, _))).then_some(()))
        };
        wait::value("kubelet works", works).await.with_context(|| self.log())
    }

    pub(crate) fn start_driver(&mut self) -> anyhow::Result<()> {
        let program = Self::driver_program()?;
        let arguments: Vec<String> = [
            format!("KUBECONFIG={}", self.account.display()),
            program.display().to_string(),
            format!("--node={NODE}"),
            format!("--devices={}", self.devices),
            format!("--broken={}", self.broken().display()),
            format!("--admin-address=127.0.0.1:{}", self.admin),
        ]
        .into_iter()
        .chain(self.flags.iter().cloned())
        .collect();
        self.driver = Some(Process::spawn(
            std::path::Path::new("/usr/bin/env"),
            "driver",
            &arguments,
            &self.directory,
        )?);
        Ok(())
    }

    /// Where kubelet finds static Pods.
    pub(crate) fn static_pods(&self) -> PathBuf {
        self.directory.join("static-pods")
    }

    /// Starts the driver as in a new Pod, whose token is a new one.
    pub(crate) async fn replace_driver(&mut self, world: &World) -> anyhow::Result<()> {
        kill(&mut self.driver).await?;
        let is_ready = async || {
            let node = world.client.get(NODES, "", NODE).await?;
            let conditions =
                node.and_then(|node| node["status"]["conditions"].as_array().cloned()).unwrap_or_default();
            let is_ready = conditions.iter().any(|of| of["type"] == "Ready" && of["status"] == "True");
            Ok(is_ready.then_some(()))
        };
        // A token is bound to a Node that is there.
        wait::value("the node is ready", is_ready).await.with_context(|| self.log())?;
        self.account = world.account_on("kube-system", "simulated-driver", NODE).await?;
        self.start_driver()?;
        self.registered().await
    }

    /// Ends the driver as it is uninstalled.
    pub(crate) async fn withdraw(&mut self) -> anyhow::Result<()> {
        kill(&mut self.driver).await?;
        self.flags.push("--withdraw".to_owned());
        self.start_driver()?;
        let serves = async || self.metrics().await.is_ok();
        wait::until("the driver serves", serves).await?;
        match self.driver.take() {
            Some(driver) => driver.stop().await.map(drop),
            None => Ok(()),
        }
    }

    /// Waits until kubelet knows the driver: a Pod that comes before is tried again after a minute.
    async fn registered(&self) -> anyhow::Result<()> {
        let is_known = async || {
            let metrics = self.metrics().await.unwrap_or_default();
            Ok(metrics.contains("dra_driver_registered 1").then_some(()))
        };
        wait::value("kubelet knows the driver", is_known).await.with_context(|| self.log())
    }

    /// The file that names broken devices.
    pub(crate) fn broken(&self) -> PathBuf {
        self.directory.join("broken")
    }

    /// The metrics of the driver.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        let request = http::Request::get("/metrics").body(String::new())?;
        Ok(crate::client::plain_http(self.admin, request).await?.1)
    }

    /// The memory that the driver takes now, in MiB.
    pub(crate) fn driver_memory(&self) -> anyhow::Result<u64> {
        let pid = self.driver.as_ref().and_then(Process::pid).context("the driver is gone")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
        Ok(kib.div_ceil(1024))
    }

    /// Whether kubelet has logged something with this text.
    pub(crate) fn kubelet_said(&self, text: &str) -> bool {
        self.kubelet.as_ref().is_some_and(|kubelet| kubelet.output().contains(text))
    }

    /// Kills kubelet.
    pub(crate) async fn kill_kubelet(&mut self) -> anyhow::Result<()> {
        kill(&mut self.kubelet).await
    }

    /// Kills the driver.
    pub(crate) async fn kill_driver(&mut self) -> anyhow::Result<()> {
        kill(&mut self.driver).await
    }

    /// Kills containerd; its shims and their containers go on.
    pub(crate) async fn kill_containerd(&mut self) -> anyhow::Result<()> {
        kill(&mut self.containerd).await
    }

    /// Kills everything at once, containers too, and empties /run, as a loss of power does.
    pub(crate) async fn lose_power(&mut self) -> anyhow::Result<()> {
        tokio::try_join!(kill(&mut self.kubelet), kill(&mut self.driver), kill(&mut self.containerd))?;
        let script = "pkill -9 containerd-shim; pkill -9 -x sleep; pkill -9 -x sh; \
                      for m in $(grep ' /run/' /proc/mounts | cut -d' ' -f2 | sort -r); do umount -l $m; done; \
                      rm -rf /run/*; exit 0";
        let out = Command::new("bash").args(["-c", script]).output().await.context("bash")?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    }

    /// Starts everything again.
    pub(crate) async fn boot(&mut self) -> anyhow::Result<()> {
        self.start_containerd().await?;
        self.start_driver()?;
        self.start_kubelet().await
    }

    /// The CDI files of the driver.
    pub(crate) fn cdi_files() -> Vec<String> {
        let entries = std::fs::read_dir("/var/run/cdi").into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// The records of the driver.
    pub(crate) fn records() -> usize {
        let directory = format!("/var/lib/kubelet/plugins/{DRIVER}/claims");
        std::fs::read_dir(directory).map_or(0, Iterator::count)
    }

    async fn ctr(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let ctr = self.programs.containerd.join("ctr");
        let out = Command::new(&ctr).args(["-n", "k8s.io"]).args(arguments).output().await.context("ctr")?;
        ensure!(out.status.success(), "ctr {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    }

    /// The ends of the logs, for people.
    pub(crate) fn log(&self) -> String {
        let end = |process: &Option<Process>| {
            let text = process.as_ref().map(Process::output).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines.iter().rev().take(15).rev().copied().collect::<Vec<_>>().join("\n")
        };
        format!(
            "containerd:\n{}\nkubelet:\n{}\ndriver:\n{}",
            end(&self.containerd),
            end(&self.kubelet),
            end(&self.driver)
        )
    }

    /// Stops everything.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        tokio::try_join!(kill(&mut self.kubelet), kill(&mut self.driver), kill(&mut self.containerd))?;
        Ok(())
    }
}

/// The port on which kubelet says that it works.
const HEALTH: u16 = 10_248;
const NODES: &str = "/api/v1/nodes";

async fn kill(process: &mut Option<Process>) -> anyhow::Result<()> {
    match process.take() {
        Some(process) => process.kill().await,
        None => Ok(()),
    }
}
