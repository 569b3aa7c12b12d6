//! Scenarios on a real node: kubelet, containerd and the simulated driver of `driver/examples`, with Dragoman in mode own.

mod attributes;
mod compared;
mod daemonset;
mod faults;
mod nodes;
mod pods;
mod resize;

use std::path::Path;

use serde_json::{Value, json};

use super::{Standalone, standalone};
use crate::client::{CLAIMS, EVENTS, PODS, SLICES, TEMPLATES};
use crate::control_plane::{Shape, Workloads};
use crate::dragoman::Dragoman;
use crate::node::{BOX, Machine, Parts};
use crate::wait;
use crate::world::{Bench, World};

/// The scenarios by lane: what works, and what goes wrong, which takes longer, because kubelet waits a minute before it tries
/// again.
pub(super) fn all() -> Vec<(&'static str, Standalone)> {
    let works = pods::all()
        .into_iter()
        .chain(attributes::all())
        .chain(compared::all())
        .chain(daemonset::all())
        .map(|scenario| ("node-pods", scenario));
    let fails = faults::all()
        .into_iter()
        .chain(nodes::all())
        .chain(resize::all())
        .map(|scenario| ("node-faults", scenario));
    works.chain(fails).collect()
}

/// A cluster with one real node.
struct Cluster {
    world: World,
    machine: Machine,
    /// `None` where the built-in controller is compared.
    dragoman: Option<Dragoman>,
}

impl Cluster {
    /// Starts one with so many devices.
    async fn start(bench: &Bench, name: &str, devices: usize) -> anyhow::Result<Self> {
        Self::start_with(bench, name, devices, &[]).await
    }

    /// As [`Self::start`], with flags for the driver.
    async fn start_with(bench: &Bench, name: &str, devices: usize, driver: &[&str]) -> anyhow::Result<Self> {
        Self::counting(bench, name, devices, driver, &[]).await
    }

    /// As [`Self::start_with`], where gates of Kubernetes are on.
    async fn counting(
        bench: &Bench,
        name: &str,
        devices: usize,
        driver: &[&str],
        on: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let shape = Shape { workloads: Workloads::OnRealNode, on, ..Shape::default() };
        let mut cluster =
            Self::of(bench, name, shape, &Parts { devices, flags: driver, gates: on, programs: &[] }).await?;
        cluster.dragoman = Some(cluster.world.dragoman("own", &[]).await?);
        Ok(cluster)
    }

    /// Starts one without Dragoman, and with or without the built-in claim controller.
    async fn bare(
        bench: &Bench,
        name: &str,
        devices: usize,
        driver: &[&str],
        built_in: bool,
    ) -> anyhow::Result<Self> {
        let shape = Shape { workloads: Workloads::OnRealNode, built_in, ..Shape::default() };
        Self::of(bench, name, shape, &Parts { devices, flags: driver, ..Parts::default() }).await
    }

    /// Starts one of a shape, with a node of these parts.
    async fn of(bench: &Bench, name: &str, shape: Shape, parts: &Parts<'_>) -> anyhow::Result<Self> {
        let world = World::start(bench, name, shape, 0, 0).await?;
        install(&world).await?;
        without_deployments(&world).await?;
        let mut machine = Machine::without_driver(&world, parts).await?;
        machine.replace_driver(&world).await?;
        let cluster = Self { world, machine, dragoman: None };
        cluster.devices(parts.devices).await?;
        Ok(cluster)
    }

    /// Starts Dragoman anew, with these flags.
    async fn restart_dragoman(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        if let Some(dragoman) = self.dragoman.take() {
            dragoman.stop().await?;
        }
        self.dragoman = Some(self.world.dragoman("own", flags).await?);
        Ok(())
    }

    /// Kills Dragoman, and starts it again.
    async fn kill_dragoman(&mut self) -> anyhow::Result<()> {
        if let Some(dragoman) = self.dragoman.take() {
            dragoman.kill().await?;
        }
        self.restart_dragoman(&[]).await
    }

    /// As the function of this name, for what was installed since.
    async fn without_deployments(&self) -> anyhow::Result<()> {
        without_deployments(&self.world).await
    }

    /// Waits until so many devices are published, or more.
    async fn devices(&self, count: usize) -> anyhow::Result<()> {
        let what = format!("{count} devices are published");
        let published = async || {
            let slices = self.world.client.list(SLICES, "").await?;
            let devices = slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array()).map(Vec::len);
            Ok((devices.sum::<usize>() >= count).then_some(()))
        };
        wait::value(&what, published).await.map_err(|error| error.context(self.machine.log()))
    }

    /// A namespace with a template for one device.
    async fn namespace(&self, name: &str) -> anyhow::Result<String> {
        let ns = self.world.namespace(name).await?;
        self.world.client.create(TEMPLATES, &ns, &template("accelerator", &request("gpu"))).await?;
        Ok(ns)
    }

    async fn pod(&self, ns: &str, pod: &Value) -> anyhow::Result<()> {
        self.world.client.create(PODS, ns, pod).await?;
        Ok(())
    }

    /// Waits until a Pod is in a phase. kubelet tries a prepare that failed again after a minute or more; its own first read
    /// of a claim is refused where the API server does not know yet that the Pod is on its node.
    async fn phase(&self, ns: &str, pod: &str, phase: &str) -> anyhow::Result<Value> {
        let look = async || {
            let pod = self.world.client.get(PODS, ns, pod).await?;
            Ok(pod.filter(|pod| pod["status"]["phase"] == phase))
        };
        let reached = wait::value(&format!("the Pod {ns}/{pod} is {phase}"), look).await;
        reached.map_err(|error| error.context(self.machine.log()))
    }

    /// Returns the output of a container.
    async fn log(&self, ns: &str, pod: &str) -> anyhow::Result<String> {
        self.world.plane.kubectl(&["logs", pod, "--namespace", ns], "").await?.map_err(anyhow::Error::msg)
    }

    /// Waits until so many Pods of the namespace have succeeded.
    async fn succeeded(&self, ns: &str, count: usize) -> anyhow::Result<()> {
        let look = async || {
            let pods = self.world.client.list(PODS, ns).await?;
            let done = pods.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count();
            Ok((done >= count).then_some(()))
        };
        let reached = wait::value(&format!("{count} Pods have succeeded"), look).await;
        reached.map_err(|error| error.context(self.machine.log()))
    }

    /// Waits for the line of a container that begins so; returns the rest of it.
    async fn printed(&self, ns: &str, pod: &str, start: &str) -> anyhow::Result<String> {
        let what = format!("{pod} prints {start}");
        let printed = async || {
            let said = self.log(ns, pod).await.unwrap_or_default();
            Ok(said.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned))
        };
        wait::value(&what, printed).await
    }

    /// Waits until a Pod is gone.
    async fn gone(&self, ns: &str, pod: &str) -> anyhow::Result<()> {
        let gone = async || Ok(self.world.client.get(PODS, ns, pod).await?.is_none().then_some(()));
        wait::value(&format!("{pod} is gone"), gone).await
    }

    /// The Event of a Pod that met a driver which had prepared its device for another one.
    async fn refused(&self, ns: &str) -> anyhow::Result<Option<Value>> {
        let events = self.world.client.list(EVENTS, ns).await?;
        let is_it =
            |event: &Value| event["note"].as_str().is_some_and(|note| note.contains("is prepared for"));
        Ok(events.into_iter().find(is_it))
    }

    /// Requires that there is none.
    async fn no_device_was_promised_twice(&self, ns: &str) -> anyhow::Result<()> {
        let met = self.refused(ns).await?;
        anyhow::ensure!(met.is_none(), "a Pod met {met:?}");
        Ok(())
    }

    /// Waits until no claim of the namespace and no trace of one on the node is left.
    async fn nothing_is_left(&self, ns: &str) -> anyhow::Result<()> {
        let left = async || {
            let claims = self.world.client.list(CLAIMS, ns).await?;
            let (files, records) = (Machine::cdi_files(), Machine::records());
            Ok((claims.is_empty() && files.is_empty() && records == 0).then_some(()))
        };
        let outcome = wait::value("no claim, CDI file and record is left", left).await;
        outcome.map_err(|error| error.context(format!("{:?} {}", Machine::cdi_files(), self.machine.log())))
    }

    async fn stop(self) -> anyhow::Result<()> {
        if let Some(dragoman) = self.dragoman {
            dragoman.stop().await?;
        }
        self.machine.stop().await?;
        self.world.stop().await
    }
}

/// Our programs are processes beside the node, and not Pods on it.
async fn without_deployments(world: &World) -> anyhow::Result<()> {
    let none = ["scale", "deployment", "--all", "--namespace", "kube-system", "--replicas", "0"];
    world.plane.kubectl(&none, "").await?.map_err(anyhow::Error::msg).map(drop)
}

/// Installs the rights, the policy and the class of the driver, as they are shipped.
async fn install(world: &World) -> anyhow::Result<()> {
    for file in ["rights.yaml", "policy.yaml", "class.yaml"] {
        let path = world.bench.repository.join(Path::new("driver/examples/manifests")).join(file);
        let path = path.display().to_string();
        world.plane.kubectl(&["apply", "-f", &path], "").await?.map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// A request for one device.
fn request(name: &str) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": "simulated"}})
}

fn template(name: &str, request: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}}})
}

/// A Pod that runs a script in a container with a device of the template `accelerator`.
fn pod(name: &str, script: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 2,
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "accelerator"}],
        "containers": [container(script)],
    }})
}

fn container(script: &str) -> Value {
    json!({"name": "main", "image": BOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
        "resources": {"claims": [{"name": "gpu"}]}})
}

/// Waits to be told that it is over, as a service does.
const SERVE: &str = "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done";
