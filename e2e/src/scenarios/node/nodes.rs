//! The node itself: drained, deleted, with a broken device, with kubelet down.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Cluster, SERVE, SLICES, Standalone, container, pod, standalone};
use crate::client::{CLAIMS, EVENTS, PODS};
use crate::node::NODE;
use crate::wait;
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(a_node_is_drained_and_one_is_deleted),
        standalone!(a_broken_device_is_seen_and_left),
        standalone!(with_the_guard_no_pod_meets_a_device_that_is_in_use),
        standalone!(resize_and_static_pods),
        standalone!(a_driver_writes_its_own_slices_only_and_takes_them_with_it),
    ]
}

/// Waits, whatever it is told.
const STAY: &str = "while true; do sleep 1; done";

async fn kubectl(cluster: &Cluster, arguments: &str) -> anyhow::Result<Result<String, String>> {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    cluster.world.plane.kubectl(&arguments, "").await
}

async fn a_node_is_drained_and_one_is_deleted(bench: &Bench) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(bench, "node-drain", 4).await?;
    let ns = cluster.namespace("drain").await?;
    for name in ["a", "b"] {
        cluster.pod(&ns, &pod(name, SERVE)).await?;
        cluster.phase(&ns, name, "Running").await?;
    }
    kubectl(&cluster, "drain node-0 --force --ignore-daemonsets").await?.map_err(anyhow::Error::msg)?;
    cluster.nothing_is_left(&ns).await?;
    kubectl(&cluster, "uncordon node-0").await?.map_err(anyhow::Error::msg)?;
    cluster.pod(&ns, &pod("lost", SERVE)).await?;
    cluster.phase(&ns, "lost", "Running").await?;
    // The machine goes, and then its Node.
    cluster.machine.kill_kubelet().await?;
    kubectl(&cluster, "delete node node-0").await?.map_err(anyhow::Error::msg)?;
    let gone = async || {
        let claims = cluster.world.client.list(CLAIMS, &ns).await?;
        let slices = cluster.world.client.list(SLICES, "").await?;
        Ok((claims.is_empty() && slices.is_empty()).then_some(()))
    };
    wait::value("claims and slices end with the Node", gone).await?;
    // It comes back under its name: the driver publishes for the new Node, kubelet ends what was left. Tokens of Pods ended
    // with their Node.
    cluster.machine.start_kubelet().await?;
    cluster.machine.replace_driver(&cluster.world).await?;
    cluster.devices(4).await?;
    // kubelet looks once a minute for what a Pod left that it does not know any more.
    cluster.pod(&ns, &pod("next", "true")).await?;
    cluster.phase(&ns, "next", "Succeeded").await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// A device breaks under a Pod: its status says so, the Pod is evicted, and no other gets the device.
async fn a_broken_device_is_seen_and_left(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::start(bench, "node-broken", 2).await?;
    let ns = cluster.namespace("broken").await?;
    // The taint of the device ends the Pod, which takes its time: its status can be read meanwhile.
    let mut stubborn = pod("user", &format!("env | grep UUID; trap '' TERM; {STAY}"));
    stubborn["spec"]["terminationGracePeriodSeconds"] = json!(15);
    cluster.pod(&ns, &stubborn).await?;
    cluster.phase(&ns, "user", "Running").await?;
    let device = |uuid: String| format!("accelerator-{}", uuid.rsplit('-').next().unwrap_or_default());
    let broken = device(cluster.printed(&ns, "user", "DRA_GPU_GPU_UUID=").await?);
    std::fs::write(cluster.machine.broken(), &broken).context("broken")?;
    let unhealthy = async || {
        let pod = cluster.world.client.get(PODS, &ns, "user").await?.context("gone")?;
        Ok(pod["status"].to_string().contains("\"health\":\"Unhealthy\"").then_some(()))
    };
    wait::value("the status of the Pod says that its device is unhealthy", unhealthy).await?;
    let note = cluster.world.event(&ns, "user", "DeviceUnhealthy").await?;
    ensure!(note.contains(&broken) && note.ends_with("is unhealthy: it is broken"), "{note}");
    for name in ["x", "y"] {
        cluster.pod(&ns, &pod(name, &format!("env | grep UUID; {SERVE}"))).await?;
    }
    let one = async || {
        let pods = cluster.world.client.list(PODS, &ns).await?;
        let is_running =
            |pod: &&Value| pod["metadata"]["name"] != "user" && pod["status"]["phase"] == "Running";
        Ok(pods.iter().find(is_running).and_then(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)))
    };
    let lucky = wait::value("one of two Pods gets the device that is left", one).await?;
    let got = device(cluster.printed(&ns, &lucky, "DRA_GPU_GPU_UUID=").await?);
    ensure!(got != broken, "{lucky} got the broken device");
    // It is mended, and the next Pod gets it.
    std::fs::write(cluster.machine.broken(), "").context("broken")?;
    cluster.gone(&ns, "user").await?;
    for name in ["x", "y"] {
        cluster.phase(&ns, name, "Running").await?;
        cluster.world.client.delete(PODS, &ns, name, None).await?;
    }
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// A Pod is deleted by force while kubelet is down, so that its container runs on (kubernetes/kubernetes#141471). Without the
/// guard the next Pod meets the refusal of the driver; with it the next Pod waits.
async fn with_the_guard_no_pod_meets_a_device_that_is_in_use(bench: &Bench) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(bench, "node-guard", 1).await?;
    let ns = cluster.namespace("unguarded").await?;
    take_by_force(&mut cluster, &ns).await?;
    cluster.machine.start_kubelet().await?;
    let meets = async || cluster.refused(&ns).await;
    wait::value("without the guard the next Pod meets a refusal", meets).await?;
    cluster.phase(&ns, "next", "Succeeded").await?;
    // kubelet looks once a minute for what it has to unprepare, and may take one to come back: the guard is longer.
    cluster.restart_dragoman(&["--hold-vanished-for", "150"]).await?;
    let ns = cluster.namespace("guarded").await?;
    take_by_force(&mut cluster, &ns).await?;
    cluster.machine.start_kubelet().await?;
    cluster.succeeded(&ns, 1).await?;
    cluster.no_device_was_promised_twice(&ns).await?;
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

/// A Pod has the only device, kubelet is killed, the Pod is deleted by force, and another one wants the device.
async fn take_by_force(cluster: &mut Cluster, ns: &str) -> anyhow::Result<()> {
    cluster.pod(ns, &pod("first", SERVE)).await?;
    cluster.phase(ns, "first", "Running").await?;
    cluster.machine.kill_kubelet().await?;
    cluster.world.client.delete(PODS, ns, "first", Some(0)).await?;
    cluster.pod(ns, &pod("next", "true")).await
}

/// Pods with claims are resized in place, without a restart; static Pods can have none. (1.36.3 refuses a Pod in which a
/// container names a claim, kubernetes/kubernetes#138641; 1.37.2 does not.)
async fn resize_and_static_pods(bench: &Bench) -> anyhow::Result<()> {
    let cluster = Cluster::start(bench, "node-resize", 4).await?;
    let ns = cluster.namespace("resize").await?;
    for (name, of_container) in [("by-pod", false), ("by-container", true)] {
        let mut pod = pod(name, SERVE);
        let mut container = container(SERVE);
        container["resources"] = json!({"requests": {"cpu": "100m"}});
        if of_container {
            container["resources"]["claims"] = json!([{"name": "gpu"}]);
        }
        pod["spec"]["containers"] = json!([container]);
        cluster.pod(&ns, &pod).await?;
        cluster.phase(&ns, name, "Running").await?;
    }
    let patch = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"200m"}}}]}}"#;
    let resize = async |name: &str| {
        let ask = ["patch", "pod", name, "--namespace", &ns, "--subresource", "resize", "--patch", patch];
        cluster.world.plane.kubectl(&ask, "").await
    };
    for name in ["by-pod", "by-container"] {
        let claims = cluster.world.client.list(CLAIMS, &ns).await?;
        resize(name).await?.map_err(anyhow::Error::msg)?;
        let resized = async || {
            let pod = cluster.world.client.get(PODS, &ns, name).await?.context("gone")?;
            let status = &pod["status"]["containerStatuses"][0];
            let is_new = status["resources"]["requests"]["cpu"] == "200m" && status["restartCount"] == 0;
            Ok(is_new.then_some(()))
        };
        wait::value(&format!("{name} has more cpu and was not restarted"), resized).await?;
        ensure!(cluster.world.client.list(CLAIMS, &ns).await? == claims, "a claim of {name} changed");
    }
    static_pods(&cluster).await?;
    for name in ["by-pod", "by-container"] {
        cluster.world.client.delete(PODS, &ns, name, None).await?;
    }
    cluster.nothing_is_left(&ns).await?;
    cluster.stop().await
}

async fn static_pods(cluster: &Cluster) -> anyhow::Result<()> {
    let mut plain = pod("plain", SERVE);
    plain["spec"]["resourceClaims"] = Value::Null;
    plain["spec"]["containers"][0]["resources"] = json!({});
    plain["metadata"]["namespace"] = "default".into();
    let mut claiming = pod("claiming", SERVE);
    claiming["metadata"]["namespace"] = "default".into();
    let directory = cluster.machine.static_pods();
    for (file, pod) in [("plain.json", &plain), ("claiming.json", &claiming)] {
        std::fs::write(directory.join(file), pod.to_string()).context("static Pod")?;
    }
    cluster.phase("default", &format!("plain-{NODE}"), "Running").await?;
    let refused = async || Ok(cluster.machine.kubelet_said("claiming").then_some(()));
    wait::value("kubelet speaks of the static Pod with a claim", refused).await?;
    let pods = cluster.world.client.list(PODS, "default").await?;
    let claiming = pods.iter().find(|pod| pod["metadata"]["name"] == format!("claiming-{NODE}"));
    ensure!(claiming.is_none(), "a static Pod has a claim: {claiming:?}");
    for file in ["plain.json", "claiming.json"] {
        std::fs::remove_file(directory.join(file)).context("static Pod")?;
    }
    cluster.gone("default", &format!("plain-{NODE}")).await
}

async fn a_driver_writes_its_own_slices_only_and_takes_them_with_it(bench: &Bench) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(bench, "node-slices", 4).await?;
    let account = cluster.world.directory.join("simulated-driver.kubeconfig");
    let driver = crate::client::Client::from_kubeconfig(&account).await?;
    let slice = |node: &str, of: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "forged"},
            "spec": {"driver": of, "nodeName": node, "pool": {"name": "forged", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d"}]}})
    };
    for (slice, words) in [
        (slice("node-1", crate::node::DRIVER), "may not write ResourceSlices of node node-1"),
        (slice(NODE, "other.example.com"), "may not write ResourceSlices of another driver"),
    ] {
        let refused = driver.create(SLICES, "", &slice).await.err().context("a forged slice was taken")?;
        ensure!(refused.to_string().contains(words), "{refused}");
    }
    let event = |reason: &str, instance: &str| {
        json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "forged"}, "type": "Warning",
            "reason": reason, "action": "Watch", "note": "x", "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": crate::node::DRIVER, "reportingInstance": instance,
            "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}})
    };
    for (event, words) in [
        (event("Evicted", NODE), "in its own name only"),
        (event("DeviceUnhealthy", "node-1"), "may not write Events of another node"),
    ] {
        let refused =
            driver.create(EVENTS, "default", &event).await.err().context("a forged Event was taken")?;
        ensure!(refused.to_string().contains(words), "{refused}");
    }
    // A person deletes a slice: it comes back.
    let slices = cluster.world.client.list(SLICES, "").await?;
    let name = slices[0]["metadata"]["name"].as_str().context("name")?;
    cluster.world.client.delete(SLICES, "", name, None).await?;
    cluster.devices(4).await?;
    let metrics = cluster.machine.metrics().await?;
    ensure!(
        metrics.contains("dra_driver_registered 1") && metrics.contains("dra_driver_published_devices 4"),
        "{metrics}"
    );
    cluster.machine.withdraw().await?;
    let none = async || Ok(cluster.world.client.list(SLICES, "").await?.is_empty().then_some(()));
    wait::value("the slices are withdrawn", none).await?;
    cluster.stop().await
}
