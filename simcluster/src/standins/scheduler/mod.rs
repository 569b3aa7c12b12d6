//! A stand-in for kube-scheduler: it allocates devices first fit, and binds every Pod to a node.
//!
//! It decides by a cache that may be stale and counts Pods that are not bound yet. It writes beside its next decisions, takes
//! allocations back, moves less important Pods away, and counts nominated ones. The scenario
//! `the_stand_in_schedules_what_kube_scheduler_schedules` compares its writes with those of kube-scheduler.

mod binding;
mod cluster;
mod queue;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::binding::{Binding, Ended, path_of, take_back};
use self::cluster::{Cluster, Fit, Wait, wants_a_node};
use self::queue::{Queue, WaitsFor};
pub(super) use self::room::Amounts;
use self::room::{Victim, is_over, priority};
use super::client::Client;
use super::follow::{Event, Follow, Lag, sleep_until};
use crate::api::ApiServer;
use crate::api::meta::{self, Name};

/// A stand-in for kube-scheduler.
pub struct Scheduler {
    server: ApiServer,
    client: Client,
    cluster: Cluster,
    queue: Queue,
    /// Reason, message and nomination that were last written about each waiting Pod.
    said: BTreeMap<Name, String>,
    bindings: JoinSet<Ended>,
    lag: Option<Lag>,
    rng: Rng,
}

const ROOM: WaitsFor = WaitsFor { room: true, claims: false };
const CLAIMS: WaitsFor = WaitsFor { room: false, claims: true };
const ANYTHING: WaitsFor = WaitsFor { room: true, claims: true };

impl Scheduler {
    /// Creates a scheduler with an empty queue. It sees everything at once, and its writes take no time.
    pub fn new(server: ApiServer) -> Self {
        let client = Client::new(server.clone(), "system:kube-scheduler", "kube-scheduler/simcluster");
        Self {
            server,
            client,
            cluster: Cluster::default(),
            queue: Queue::default(),
            said: BTreeMap::new(),
            bindings: JoinSet::new(),
            lag: None,
            rng: Rng::with_seed(0),
        }
    }

    /// Makes the scheduler see every change up to `most` later, and pause for so long before each write to a
    /// claim and before a binding.
    #[must_use]
    pub fn lagging(self, most: Duration, seed: u64) -> Self {
        Self { lag: Some(Lag::new(most, seed)), rng: Rng::with_seed(seed), ..self }
    }

    /// Places Pods for as long as it is polled.
    pub async fn run(mut self) {
        let mut follow = |path: &'static str| {
            Follow::new(self.client.clone(), path).lagging(self.lag.as_mut().map(Lag::another))
        };
        let mut pods = follow("/api/v1/pods");
        let mut claims = follow("/apis/resource.k8s.io/v1/resourceclaims");
        let mut slices = follow("/apis/resource.k8s.io/v1/resourceslices");
        let mut classes = follow("/apis/resource.k8s.io/v1/deviceclasses");
        let mut nodes = follow("/api/v1/nodes");
        loop {
            let now = Instant::now();
            let (next, due) = (self.queue.next(now), self.queue.due());
            tokio::select! {
                biased;
                Some(Ok(ended)) = self.bindings.join_next() => self.ended(ended).await,
                event = nodes.next() => self.node(event),
                event = classes.next() => {
                    match event {
                        Event::Applied(class) => self.cluster.class_applied(class),
                        Event::Deleted(class) => self.cluster.class_deleted(&class),
                    }
                    self.queue.wake(CLAIMS);
                }
                event = slices.next() => {
                    match event {
                        Event::Applied(slice) => self.cluster.devices.slice_applied(&slice),
                        Event::Deleted(slice) => self.cluster.devices.slice_deleted(&slice),
                    }
                    self.queue.wake(CLAIMS);
                }
                event = claims.next() => {
                    match event {
                        Event::Applied(claim) => self.cluster.claim_applied(claim),
                        Event::Deleted(claim) => self.cluster.claim_deleted(&claim),
                    }
                    self.queue.wake(CLAIMS);
                }
                event = pods.next() => self.pod(event),
                () = std::future::ready(()), if next.is_some() => {
                    if let Some(name) = next {
                        self.place(name).await;
                    }
                }
                () = sleep_until(due), if next.is_none() => {}
            }
        }
    }

    fn node(&mut self, event: Event) {
        match event {
            Event::Applied(node) => self.cluster.rooms.node_applied(&node),
            Event::Deleted(node) => self.cluster.rooms.node_deleted(meta::text(&node, "name")),
        }
        self.queue.wake(ANYTHING);
    }

    fn pod(&mut self, event: Event) {
        let (pod, is_deleted) = match event {
            Event::Applied(pod) => (pod, false),
            Event::Deleted(pod) => (pod, true),
        };
        let name = meta::name_of(&pod);
        let held = |pod: &Value| {
            let is_there =
                !pod["spec"]["nodeName"].is_null() || !pod["status"]["nominatedNodeName"].is_null();
            is_there && !is_over(pod)
        };
        let held_room = self.cluster.pods.get(&name).is_some_and(|before| held(before));
        if is_deleted || !wants_a_node(&pod) {
            self.forget(&name);
        } else if !self.cluster.rooms.is_assumed(meta::text(&pod, "uid")) {
            self.queue.add(&name, priority(&pod));
            let before = self.cluster.pods.get(&name);
            if before.is_some_and(|before| named(before) != named(&pod)) {
                self.queue.touch(&name);
            }
        }
        if held_room && (is_deleted || !held(&pod)) {
            self.queue.wake(ROOM);
        }
        if is_deleted { self.cluster.pod_deleted(&pod) } else { self.cluster.pod_applied(pod) }
    }

    fn forget(&mut self, name: &Name) {
        self.queue.forget(name);
        self.said.remove(name);
    }

    /// Finds a node for a Pod and begins to bind it, or makes room for it and says why it waits.
    async fn place(&mut self, name: Name) {
        self.queue.take(&name);
        self.cluster.counts = self.server.profile().has("DRANodeAllocatableResources");
        let pod = self.cluster.pods.get(&name).filter(|pod| wants_a_node(pod)).cloned();
        let Some(pod) = pod else { return self.forget(&name) };
        match self.cluster.attempt(&pod, &mut self.rng) {
            Ok(fit) => self.begin(pod, fit),
            Err(wait) => self.wait(&name, &pod, wait).await,
        }
    }

    fn begin(&mut self, pod: Arc<Value>, fit: Fit) {
        self.cluster.assume(&pod, &fit);
        let binding = Binding {
            client: self.client.clone(),
            pod,
            fit,
            classes: self.cluster.classes.values().cloned().collect(),
            minor: self.server.profile().minor,
            now: self.server.now(),
            lag: self.lag.as_mut().map(Lag::another),
        };
        self.bindings.spawn(binding.run());
    }

    async fn ended(&mut self, ended: Ended) {
        let Ended { pod, is_bound, claims, written } = ended;
        let (uid, name) = (meta::text(&pod, "uid"), meta::name_of(&pod));
        self.cluster.settle(uid, is_bound, &claims, written);
        // Another Pod may have the name by now.
        let is_it = |pod: &Arc<Value>| meta::text(pod, "uid") == uid;
        let known = self.cluster.pods.get(&name).filter(|pod| is_it(pod));
        if is_bound {
            if known.is_some() {
                self.forget(&name);
            }
            return;
        }
        let still_waits = known.is_some_and(|pod| wants_a_node(pod));
        self.queue.wake(ANYTHING);
        if still_waits {
            self.say(&name, &pod, "SchedulerError", "a write of the binding was refused", None).await;
            self.queue.fail(&name, Instant::now());
        }
    }

    async fn wait(&mut self, name: &Name, pod: &Value, wait: Wait) {
        if let Some(claim) = &wait.taken_back {
            take_back(&self.client, claim).await;
        }
        let (node, victims) = wait.nominated.unzip();
        for victim in victims.iter().flatten() {
            self.preempt(victim).await;
        }
        if let Some(why) = &wait.why {
            self.say(name, pod, "Unschedulable", why, node).await;
        }
        self.queue.wait(name, wait.waits_for, Instant::now());
    }

    async fn preempt(&self, victim: &Victim) {
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod"});
        let patch = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}});
        let path = path_of(&victim.name);
        self.client.patch(&format!("{path}/status"), &patch).await;
        self.client.delete(&path, &victim.uid).await;
    }

    /// Writes into the status of a Pod why it waits and where it is nominated, unless it says so.
    async fn say(&mut self, name: &Name, pod: &Value, reason: &str, why: &str, node: Option<String>) {
        let nomination = json!(node);
        let words = format!("{reason} {why} {nomination}");
        if self.said.get(name) == Some(&words) && pod["status"]["nominatedNodeName"] == nomination {
            return;
        }
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": why});
        let patch = json!({"metadata": {"uid": pod["metadata"]["uid"]},
            "status": {"conditions": [condition], "nominatedNodeName": nomination}});
        self.client.patch(&format!("{}/status", path_of(name)), &patch).await;
        self.said.insert(name.clone(), words);
    }
}

/// Returns the claims that the status of a Pod names.
fn named(pod: &Value) -> (&Value, &Value) {
    (&pod["status"]["resourceClaimStatuses"], &pod["status"]["extendedResourceClaimStatus"])
}
