//! The kubelets of all nodes: Pods start, finish and are removed.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::Client;
use super::extended;
use super::follow::{Event, Follow};
use crate::api::{ApiServer, meta};

/// A Pod with this annotation runs until the annotation is removed, or until its grace period ends after
/// deletion.
pub const HOLD: &str = "simcluster.dragoman.dev/hold";

/// The minimum durations. The actual duration is drawn between this and twice this.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// From the assignment of a node until the Pod runs, if its claims are ready.
    pub start: Duration,
    /// From the start until the Pod succeeds.
    pub run: Duration,
    /// From deletion until the Pod has stopped.
    pub stop: Duration,
    /// Between two checks of claims that are not ready.
    pub look: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let millis = Duration::from_millis;
        Self { start: millis(100), run: millis(1000), stop: millis(100), look: millis(500) }
    }
}

/// A stand-in for all kubelets.
pub struct Kubelet {
    client: Client,
    pace: Pace,
    rng: Rng,
    /// The planned acts by time; the number orders acts of the same moment.
    due: BTreeMap<(Instant, u64), (String, String, Act)>,
    next: u64,
    /// The last planned act of each Pod, by uid, so that no act is planned twice.
    planned: BTreeMap<String, Act>,
}

/// The next act of a kubelet on a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Start,
    Finish,
    Remove,
}

impl Kubelet {
    /// Creates a kubelet. `seed` determines the durations.
    pub fn new(server: ApiServer, pace: Pace, seed: u64) -> Self {
        let client = Client::new(server, "kubelet", "kubelet/simcluster");
        Self {
            client,
            pace,
            rng: Rng::with_seed(seed),
            due: BTreeMap::new(),
            next: 0,
            planned: BTreeMap::new(),
        }
    }

    /// Runs Pods for as long as it is polled.
    pub async fn run(mut self) {
        let mut pods = Follow::new(self.client.clone(), "/api/v1/pods");
        loop {
            let first = self.due.first_key_value().map(|((at, _), _)| *at);
            tokio::select! {
                biased;
                () = at(first) => self.act(&pods),
                event = pods.next() => match event {
                    Event::Applied(pod) => self.plan(&pod),
                    Event::Deleted(pod) => {
                        self.planned.remove(meta::text(&pod, "uid"));
                    }
                },
            }
        }
    }

    /// Plans the next act on a Pod, unless it is planned already.
    fn plan(&mut self, pod: &Value) {
        let Some(act) = next_act(pod) else { return };
        let uid = meta::text(pod, "uid").to_owned();
        if self.planned.get(&uid) == Some(&act) {
            return;
        }
        self.planned.insert(uid, act);
        let wait = match act {
            Act::Start => self.pace.start,
            Act::Finish => self.pace.run,
            Act::Remove => self.pace.stop.max(unwilling(pod)),
        };
        self.after(wait, pod, act);
    }

    fn after(&mut self, wait: Duration, pod: &Value, act: Act) {
        let wait = wait.mul_f64(1.0 + self.rng.f64());
        let (namespace, name) = meta::name_of(pod);
        self.next += 1;
        self.due.insert((Instant::now() + wait, self.next), (namespace, name, act));
    }

    /// Performs the act that is due first.
    fn act(&mut self, pods: &Follow) {
        let Some((_, (namespace, name, act))) = self.due.pop_first() else { return };
        let Some(pod) = pods.get(&namespace, &name) else { return };
        let uid = meta::text(pod, "uid");
        // The name may belong to another Pod by now, and the Pod may need another act.
        if self.planned.get(uid) != Some(&act) || next_act(pod) != Some(act) {
            return;
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        match act {
            Act::Start if !self.has_its_claims(pod) => {
                let pod = pod.clone();
                self.after(self.pace.look, &pod, act);
            }
            Act::Start => self.say(&path, uid, "Running"),
            Act::Finish => self.say(&path, uid, "Succeeded"),
            Act::Remove => {
                if matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Running")) {
                    self.say(&path, uid, "Failed");
                }
                self.client.delete_at_once(&path, uid);
            }
        }
    }

    fn say(&self, path: &str, uid: &str, phase: &str) {
        let mut patch = json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
        let ready = if phase == "Running" { "True" } else { "False" };
        patch["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
        // The Pod may be gone by now; then the status is not needed.
        self.client.patch(&format!("{path}/status"), &patch);
    }

    /// Whether every claim of the Pod exists, is allocated, and is reserved for the Pod or its group.
    fn has_its_claims(&self, pod: &Value) -> bool {
        let (namespace, uid) = (meta::text(pod, "namespace"), meta::text(pod, "uid"));
        let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str();
        let entries = meta::items(&pod["spec"]["resourceClaims"]).map(|entry| claim_name(pod, entry));
        entries.chain(extended::made(pod).map(Some)).all(|name| {
            let Some(name) = name else { return false };
            let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
            let claim = self.client.get(&path);
            let consumers = meta::items(&claim.object["status"]["reservedFor"]);
            let mut mine = consumers.filter(|consumer| {
                consumer["uid"] == uid || (group.is_some() && consumer["name"].as_str() == group)
            });
            claim.is_success() && !claim.object["status"]["allocation"].is_null() && mine.next().is_some()
        })
    }
}

/// Returns the claim of an entry: the named one, or the one in the status of the Pod.
pub(super) fn claim_name<'a>(pod: &'a Value, entry: &'a Value) -> Option<&'a str> {
    entry["resourceClaimName"].as_str().or_else(|| {
        let mut statuses = meta::items(&pod["status"]["resourceClaimStatuses"]);
        statuses.find(|status| status["name"] == entry["name"])?["resourceClaimName"].as_str()
    })
}

fn next_act(pod: &Value) -> Option<Act> {
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return None;
    }
    if meta::is_deleting(pod) {
        return Some(Act::Remove);
    }
    match pod["status"]["phase"].as_str() {
        Some("Pending") => Some(Act::Start),
        Some("Running") if pod["metadata"]["annotations"][HOLD].is_null() => Some(Act::Finish),
        _ => None,
    }
}

/// Returns how long a Pod keeps running after it is told to stop.
fn unwilling(pod: &Value) -> Duration {
    let runs_on = pod["status"]["phase"] == "Running" && !pod["metadata"]["annotations"][HOLD].is_null();
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().filter(|_| runs_on);
    Duration::from_secs(grace.unwrap_or_default())
}

/// Waits until a moment, or for ever if there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
