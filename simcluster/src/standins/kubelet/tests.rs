//! Kubelets on simcluster, in process and over HTTP.

use std::sync::atomic::{AtomicU32, Ordering};

use http::Method;
use http_body_util::Full;
use serde_json::json;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::*;
use crate::api::{Request, User};
use crate::api_handle::{ApiHandle, Broken, ResponseBody};
use crate::clock::Clock;
use crate::kinds::Profile;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

struct Cluster {
    server: ApiServer,
    refusals: Refusals,
    _kubelet: JoinSet<()>,
}

impl Cluster {
    fn new(kubelet: impl FnOnce(&ApiServer) -> Kubelet) -> Self {
        let server = ApiServer::new(Profile::default(), Clock::runtime(), 1);
        server.chronicle();
        let kubelet = kubelet(&server);
        let refusals = kubelet.refusals();
        let mut tasks = JoinSet::new();
        tasks.spawn(kubelet.run());
        Self { server, refusals, _kubelet: tasks }
    }

    /// A cluster with a kubelet in process, and one with a kubelet over HTTP.
    fn of_both_kinds() -> [Self; 2] {
        [
            Self::new(|server| Kubelet::new(server.clone(), Pace::default(), 1)),
            Self::new(|server| {
                Kubelet::over_http(service(server, |_| Box::pin(async { true })), Pace::default(), 1)
            }),
        ]
    }

    fn ask(&self, method: Method, path: &str, body: &Value) {
        let kind = if method == Method::PATCH { "merge-patch+json" } else { "json" };
        let answer = self.server.answer(&Request {
            method,
            path: path.to_owned(),
            content_type: format!("application/{kind}"),
            body: body.to_string().into_bytes(),
            user: User::admin(),
            ..Request::default()
        });
        assert!(answer.code < 300, "{path}: {:?}", answer.body);
    }

    /// Creates a Pod on a node.
    fn pod(&self, annotations: &Value, entries: &Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "annotations": annotations},
            "spec": {
                "nodeName": "node", "containers": [{"name": "main", "image": "none"}], "resourceClaims": entries,
            },
        });
        self.ask(Method::POST, PODS, &pod);
    }

    /// Creates a claim that is not allocated.
    fn claim(&self) {
        let request = json!({"name": "device", "exactly": {"deviceClassName": "class"}});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "claim"},
            "spec": {"devices": {"requests": [request]}},
        });
        self.ask(Method::POST, CLAIMS, &claim);
    }

    /// Allocates the claim, and reserves it for the Pod.
    fn make_the_claim_ready(&self) {
        let result = json!({"request": "device", "driver": "driver", "pool": "node", "device": "d"});
        let uid = self.server.all("pods")[0]["metadata"]["uid"].clone();
        let status = json!({
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": uid}],
        });
        self.ask(Method::PATCH, &format!("{CLAIMS}/claim/status"), &json!({"status": status}));
    }

    /// The phases that Pods have had, without repetitions, and `gone` for the end of a Pod.
    fn phases(&self) -> Vec<String> {
        let steps = self.server.chronicled(0).into_iter().filter(|step| step.resource == "pods");
        let phase = |pod: Arc<Value>| pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let mut phases: Vec<_> =
            steps.map(|step| step.after.map_or_else(|| "gone".to_owned(), phase)).collect();
        phases.dedup();
        phases
    }

    async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let wait = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let patience = Duration::from_mins(5);
        assert!(tokio::time::timeout(patience, wait).await.is_ok(), "not {what}: {:?}", self.phases());
    }

    async fn phase(&self, phase: &str) {
        self.until(phase, || self.phases().last().is_some_and(|last| last == phase)).await;
    }

    async fn refused(&self) {
        self.until("refused", || self.refusals.contains("default", "pod")).await;
        assert_eq!(self.phases(), ["Pending"]);
    }
}

/// The API server over HTTP. `passes` decides late and for each method whether a request is lost.
fn service<F>(
    server: &ApiServer,
    passes: F,
) -> impl tower::Service<
    http::Request<Vec<u8>>,
    Response = http::Response<ResponseBody>,
    Error = BoxError,
    Future: Send,
> + Clone
+ Send
+ Sync
+ 'static
where
    F: Fn(Method) -> BoxFuture<'static, bool> + Clone + Send + Sync + 'static,
{
    let handle = ApiHandle::new(server.clone(), User::admin());
    tower::service_fn(move |request: http::Request<Vec<u8>>| {
        let (handle, passes) = (handle.clone(), passes(request.method().clone()));
        async move {
            if !passes.await {
                return Err(BoxError::from(Broken::lost()));
            }
            Ok(handle.oneshot(request.map(|body| Full::new(Bytes::from(body)))).await?)
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_when_its_claim_is_allocated_and_reserved() {
    for cluster in Cluster::of_both_kinds() {
        cluster.pod(&json!({}), &json!([{"name": "device", "resourceClaimName": "claim"}]));
        cluster.refused().await;
        cluster.claim();
        cluster.make_the_claim_ready();
        cluster.phase("Succeeded").await;
        assert_eq!(cluster.phases(), ["Pending", "Running", "Succeeded"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_claim_of_its_extended_resources() {
    for cluster in Cluster::of_both_kinds() {
        cluster.claim();
        cluster.pod(&json!({}), &json!([]));
        let mapping =
            json!({"containerName": "main", "resourceName": "example.com/device", "requestName": "device"});
        let extended = json!({"resourceClaimName": "claim", "requestMappings": [mapping]});
        let status = json!({"status": {"extendedResourceClaimStatus": extended}});
        cluster.ask(Method::PATCH, &format!("{PODS}/pod/status"), &status);
        cluster.refused().await;
        cluster.make_the_claim_ready();
        cluster.phase("Running").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_to_be_reaped_is_removed_when_it_has_succeeded() {
    for cluster in Cluster::of_both_kinds() {
        cluster.pod(&json!({REAP: "true"}), &json!([]));
        cluster.phase("gone").await;
        assert_eq!(cluster.phases(), ["Pending", "Running", "Succeeded", "gone"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_pod_that_is_deleted_fails_after_its_grace_period() {
    for cluster in Cluster::of_both_kinds() {
        cluster.pod(&json!({HOLD: ""}), &json!([]));
        cluster.phase("Running").await;
        let began = Instant::now();
        cluster.ask(Method::DELETE, &format!("{PODS}/pod"), &json!({"gracePeriodSeconds": 20}));
        cluster.phase("gone").await;
        assert_eq!(cluster.phases(), ["Pending", "Running", "Failed", "gone"]);
        assert!(began.elapsed() >= Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_pod_finishes_when_it_is_let_go() {
    for cluster in Cluster::of_both_kinds() {
        cluster.pod(&json!({HOLD: ""}), &json!([]));
        cluster.phase("Running").await;
        cluster.ask(
            Method::PATCH,
            &format!("{PODS}/pod"),
            &json!({"metadata": {"annotations": {HOLD: null}}}),
        );
        cluster.phase("Succeeded").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_sent_again() {
    let patches = Arc::<AtomicU32>::default();
    let sent = Arc::clone(&patches);
    let passes = move |method: Method| -> BoxFuture<'static, bool> {
        let lost = method == Method::PATCH && !sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        Box::pin(async move { !lost })
    };
    let cluster = Cluster::new(|server| Kubelet::over_http(service(server, passes), Pace::default(), 1));
    cluster.pod(&json!({}), &json!([]));
    cluster.phase("Succeeded").await;
    assert_eq!(patches.load(Ordering::Relaxed), 3);
}

/// A slow start must not come after the end of its Pod.
#[tokio::test(start_paused = true)]
async fn a_pod_is_not_removed_while_it_is_being_started() {
    let patches = Arc::<AtomicU32>::default();
    let sent = Arc::clone(&patches);
    let passes = move |method: Method| -> BoxFuture<'static, bool> {
        let slow = method == Method::PATCH && sent.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(if slow { 10 } else { 0 })).await;
            true
        })
    };
    let cluster = Cluster::new(|server| Kubelet::over_http(service(server, passes), Pace::default(), 1));
    cluster.pod(&json!({}), &json!([]));
    cluster.until("being started", || patches.load(Ordering::Relaxed) == 1).await;
    cluster.ask(Method::DELETE, &format!("{PODS}/pod"), &json!({"gracePeriodSeconds": 1}));
    cluster.phase("gone").await;
    assert_eq!(cluster.phases(), ["Pending", "Running", "Failed", "gone"]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_run_after_a_restart_of_the_api_server() {
    for cluster in Cluster::of_both_kinds() {
        cluster.pod(&json!({REAP: ""}), &json!([]));
        cluster.phase("gone").await;
        cluster.server.restart(Profile::default());
        cluster.pod(&json!({}), &json!([]));
        cluster.phase("Succeeded").await;
    }
}
