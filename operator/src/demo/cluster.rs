//! The simulated cluster of the demo, and its Pods.

use dragoman_crds::crdgen;
use dragoman_crds::protocol::GATE;
use dragoman_simcluster::{
    ApiHandle, ApiServer, Clock, Driver, Kubelet, Pace, Profile, Request, Scheduler, User,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub(super) const CLAIMS: &str = "resourceclaims.resource.k8s.io";
pub(super) const NAMESPACE: &str = "demo";
const DRIVER: &str = "gpu.demo.dragoman.dev";
/// The devices of a node.
pub(super) const DEVICES: usize = 8;
/// The cpus of a node.
pub(super) const CPUS: usize = 32;
/// The cpus of its node that a device takes: kube-scheduler alone runs a Pod on every device, and
/// overcommits the node.
pub(super) const CPUS_OF_DEVICE: usize = 5;
/// The Pods that a node has room for.
pub(super) const ROOM: usize = CPUS / CPUS_OF_DEVICE;
/// The cpus of an ordinary Pod of the neighbours.
pub(super) const CPUS_OF_NEIGHBOUR: usize = 8;
/// So many Pods of the demo come for each Pod of the neighbours.
const NEIGHBOUR_OF: u32 = 5;
const NEIGHBOURS: &str = "neighbours";

/// A running cluster; it ends when this is dropped.
pub(super) struct Cluster {
    server: ApiServer,
    admin: ApiHandle,
    _standins: JoinSet<()>,
}

impl Cluster {
    /// Starts one with our own kinds, a class, a footprint of its devices, a namespace and a template in it.
    pub(super) fn start(nodes: u32, seed: u64) -> Self {
        let server = ApiServer::new(Profile::default(), Clock::Real, seed);
        server.chronicle();
        let mut standins = JoinSet::new();
        standins.spawn(server.clone().collect());
        standins.spawn(Driver::new(server.clone(), DRIVER, DEVICES).run());
        standins.spawn(Scheduler::new(server.clone()).run());
        standins.spawn(Kubelet::new(server.clone(), Pace::default(), seed).run());
        let admin = ApiHandle::new(server.clone(), User::admin());
        let cluster = Self { server, admin, _standins: standins };
        cluster.populate(nodes);
        cluster
    }

    pub(super) fn server(&self) -> &ApiServer {
        &self.server
    }

    fn create(&self, path: &str, object: &Value) {
        self.admin.ask(Request {
            method: http::Method::POST,
            path: path.to_owned(),
            user_agent: "dragoman-demo".to_owned(),
            body: object.to_string().into_bytes(),
            ..Request::default()
        });
    }

    fn populate(&self, nodes: u32) {
        for definition in crdgen::definitions() {
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
        }
        let footprint = json!({
            "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "gpu"},
            "spec": {"driver": DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": CPUS_OF_DEVICE.to_string()}}}},
        });
        self.create("/apis/dragoman.dev/v1alpha1/devicefootprints", &footprint);
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
        });
        self.create("/apis/resource.k8s.io/v1/deviceclasses", &class);
        for name in [NAMESPACE, NEIGHBOURS] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.create("/api/v1/namespaces", &namespace);
        }
        let holders = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "dragoman-holder"},
            "value": 1_000_000_000,
        });
        self.create("/apis/scheduling.k8s.io/v1/priorityclasses", &holders);
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one"},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
        });
        self.create("/apis/resource.k8s.io/v1/namespaces/demo/resourceclaimtemplates", &template);
        for number in 0..nodes {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}")},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": {"cpu": CPUS.to_string(), "memory": "128Gi", "pods": "110"},
                },
            });
            self.create("/api/v1/nodes", &node);
        }
    }

    /// Creates the Pods, behind the gate or not, and between them ordinary Pods of neighbours.
    pub(super) async fn create_pods(&self, pods: u32, is_gated: bool) {
        for number in 0..pods {
            if number % NEIGHBOUR_OF == 0 {
                self.create("/api/v1/namespaces/neighbours/pods", &neighbour(number / NEIGHBOUR_OF));
            }
            self.create("/api/v1/namespaces/demo/pods", &pod(number, is_gated));
            if number % 50 == 49 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The Pods of the demo in each phase. Other Pods may be there, made by kubectl.
    pub(super) fn phases(&self) -> Phases {
        let mut phases = Phases::default();
        for pod in self.server.all("pods") {
            if pod["metadata"]["namespace"] == NAMESPACE
                && pod["metadata"]["labels"]["dragoman.dev/demo"] == "true"
            {
                phases.count(pod["status"]["phase"].as_str().unwrap_or_default());
            }
        }
        phases
    }

    /// The claims of the Pods of the demo.
    pub(super) fn claims(&self) -> usize {
        let is_ours = |claim: &Value| {
            claim["metadata"]["ownerReferences"][0]["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("pod-"))
        };
        self.server.all(CLAIMS).iter().filter(|claim| is_ours(claim)).count()
    }
}

/// The Pods of neighbours beside so many of the demo.
pub(super) fn neighbours(pods: u32) -> u32 {
    pods.div_ceil(NEIGHBOUR_OF)
}

/// Number of Pods in each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Phases {
    pub(super) there: usize,
    pub(super) running: usize,
    pub(super) succeeded: usize,
    pub(super) failed: usize,
}

impl Phases {
    fn count(&mut self, phase: &str) {
        self.there += 1;
        match phase {
            "Running" => self.running += 1,
            "Succeeded" => self.succeeded += 1,
            "Failed" => self.failed += 1,
            _ => {}
        }
    }

    /// The Pods that have ended, of `pods` that were created; one that is gone has ended, too.
    pub(super) fn ended(&self, pods: usize) -> usize {
        self.succeeded + self.failed + pods.saturating_sub(self.there)
    }
}

/// An ordinary Pod: no claim, no gate.
fn neighbour(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{number}")},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none",
                "resources": {"requests": {"cpu": CPUS_OF_NEIGHBOUR.to_string()}}}],
        },
    })
}

fn pod(number: u32, is_gated: bool) -> Value {
    let gates = if is_gated { json!([{"name": GATE}]) } else { json!([]) };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "labels": {"dragoman.dev/demo": "true"}},
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": gates,
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        },
    })
}
