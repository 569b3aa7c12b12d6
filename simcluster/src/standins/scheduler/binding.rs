//! The binding of a Pod: what kube-scheduler writes once it has decided, in its order and number of requests.

use std::sync::Arc;

use serde_json::{Value, json};

use super::cluster::{Chosen, Fit, Part, consumer_of};
use super::room::Amounts;
use crate::api::meta::{self, Name};
use crate::standins::client::{Client, Reply};
use crate::standins::extended;
use crate::standins::follow::Lag;

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// A binding under way.
pub(super) struct Binding {
    pub(super) client: Client,
    pub(super) pod: Arc<Value>,
    pub(super) fit: Fit,
    /// The device classes, which extended resources may be of.
    pub(super) classes: Vec<Arc<Value>>,
    /// The minor version of Kubernetes.
    pub(super) minor: u8,
    /// The time of the API server, which an allocation without a time is given.
    pub(super) now: jiff::Timestamp,
    /// The pause before each write to a claim, and before the binding.
    pub(super) lag: Option<Lag>,
}

/// Result of a binding.
pub(super) struct Ended {
    pub(super) pod: Arc<Value>,
    pub(super) is_bound: bool,
    /// Uids that stood for the claims which were to be allocated.
    pub(super) claims: Vec<String>,
    /// The claims as the API server returned them.
    pub(super) written: Vec<Value>,
}

pub(super) fn path_of((namespace, name): &Name) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

fn path_of_claim(claim: &Value) -> String {
    let (namespace, name) = meta::name_of(claim);
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
}

impl Binding {
    pub(super) async fn run(mut self) -> Ended {
        let allocates = self.fit.parts.iter().filter(|part| part.chosen.is_some());
        let claims = allocates.map(|part| part.in_flight(&self.pod).to_owned()).collect();
        let mut written = Vec::new();
        let is_bound = self.write(&mut written).await.is_some();
        if !is_bound {
            self.unreserve(&mut written).await;
        }
        Ended { pod: self.pod, is_bound, claims, written }
    }

    async fn pause(&mut self) {
        if let Some(lag) = &mut self.lag {
            tokio::time::sleep(lag.draw()).await;
        }
    }

    /// Writes everything. `None` if a write is refused: the decision was based on an outdated state.
    async fn write(&mut self, written: &mut Vec<Value>) -> Option<()> {
        let status = format!("{}/status", path_of(&meta::name_of(&self.pod)));
        let (uid, node) = (self.pod["metadata"]["uid"].clone(), self.fit.node.clone());
        // Since Kubernetes 1.35 a Pod with claims is nominated first.
        if self.minor >= 35 && !self.fit.parts.is_empty() && self.pod["status"]["nominatedNodeName"] != node {
            let patch = json!({"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}});
            // Without the nomination the Pod is bound all the same.
            self.client.patch(&status, &patch).await;
        }
        let mut entries = Vec::new();
        for Part { claim, chosen, costs } in std::mem::take(&mut self.fit.parts) {
            let claim = if meta::text(&claim, "uid").is_empty() {
                self.made(&claim, chosen, &status).await?
            } else {
                self.reserve(Value::clone(&claim), chosen).await?
            };
            entries.extend((!costs.is_zero()).then(|| entry(&claim, costs, self.minor)));
            written.push(claim);
        }
        if !entries.is_empty() {
            self.pause().await;
            let patch = json!({"metadata": {"uid": uid}, "status": {"nodeAllocatableResourceClaimStatuses": entries}});
            self.client.patch(&status, &patch).await.is_success().then_some(())?;
        }
        self.pause().await;
        self.bind().await
    }

    /// Makes the claim for extended resources and names it in the status of the Pod. Otherwise it is removed again: the next attempt
    /// makes another one.
    async fn made(&mut self, claim: &Value, chosen: Option<Chosen>, status: &str) -> Option<Value> {
        let collection =
            format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims", meta::text(claim, "namespace"));
        let Reply { code: 201, object: made } = self.client.create(&collection, claim).await else {
            return None;
        };
        let reserved = self.reserve(made.clone(), chosen).await;
        let classes: Vec<&Value> = self.classes.iter().map(|class| &**class).collect();
        let naming = extended::naming(&self.pod, &classes, meta::text(&made, "name"));
        let is_named = reserved.is_some() && self.client.patch(status, &naming).await.is_success();
        if !is_named {
            self.client.delete_at_once(&path_of_claim(&made), meta::text(&made, "uid")).await;
        }
        reserved.filter(|_| is_named)
    }

    /// Allocates a claim if it gets devices, and reserves it. Returns it as the API server has it then.
    async fn reserve(&mut self, mut claim: Value, chosen: Option<Chosen>) -> Option<Value> {
        let consumer = consumer_of(&self.pod, &claim);
        let mut consumers: Vec<Value> = meta::items(&claim["status"]["reservedFor"]).cloned().collect();
        let is_reserved = consumers.iter().any(|known| known["uid"] == consumer["uid"]);
        if chosen.is_none() && is_reserved {
            return Some(claim);
        }
        let path = path_of_claim(&claim);
        let is_held = meta::items(&claim["metadata"]["finalizers"]).any(|finalizer| finalizer == FINALIZER);
        if chosen.is_some() && !is_held {
            let mut finalizers: Vec<Value> = meta::items(&claim["metadata"]["finalizers"]).cloned().collect();
            finalizers.push(json!(FINALIZER));
            meta::set(&mut claim, "finalizers", json!(finalizers));
            self.pause().await;
            let Reply { code: 200, object } = self.client.update(&path, &claim).await else { return None };
            claim = object;
        }
        if !is_reserved {
            consumers.push(consumer);
        }
        meta::put(&mut claim, &["status", "reservedFor"], json!(consumers));
        if let Some(chosen) = &chosen {
            meta::put(&mut claim, &["status", "allocation"], allocation(chosen, &self.fit.node));
        }
        // Also that of another allocator, which the API server refuses: an allocation never changes.
        if self.minor >= 36 && claim["status"]["allocation"]["allocationTimestamp"].is_null() {
            let now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            meta::put(&mut claim, &["status", "allocation", "allocationTimestamp"], json!(now));
        }
        self.pause().await;
        let Reply { code: 200, object } = self.client.update(&format!("{path}/status"), &claim).await else {
            return None;
        };
        Some(object)
    }

    async fn bind(&self) -> Option<()> {
        let (namespace, name) = meta::name_of(&self.pod);
        let (uid, node) = (&self.pod["metadata"]["uid"], &self.fit.node);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"kind": "Node", "name": node},
        });
        let path = path_of(&(namespace.clone(), name.clone()));
        if !self.client.create(&format!("{path}/binding"), &binding).await.is_success() {
            return None;
        }
        let regarding =
            json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid});
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": format!("{name}."), "namespace": namespace},
            "eventTime": null, "type": "Normal", "reason": "Scheduled", "action": "Binding", "regarding": regarding,
            "reportingController": "default-scheduler", "reportingInstance": "simcluster",
            "note": format!("Successfully assigned {namespace}/{name} to {node}"),
        });
        self.client.create(&format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), &event).await;
        Some(())
    }

    /// Takes the reservations of the Pod back, also those that another writer has made. Allocations stay.
    async fn unreserve(&mut self, written: &mut [Value]) {
        for claim in written {
            let consumer = consumer_of(&self.pod, claim);
            let others: Vec<Value> = meta::items(&claim["status"]["reservedFor"])
                .filter(|known| known["uid"] != consumer["uid"])
                .cloned()
                .collect();
            let mut without = claim.clone();
            meta::put(&mut without, &["status", "reservedFor"], json!(others));
            self.pause().await;
            let said = self.client.update(&format!("{}/status", path_of_claim(&without)), &without).await;
            if said.is_success() {
                *claim = said.object;
            }
        }
    }
}

/// Returns the entry in the status of a Pod for the amounts that a claim takes.
fn entry(claim: &Value, costs: Amounts, minor: u8) -> Value {
    let mut entry = json!({"resourceClaimName": meta::text(claim, "name"), "containers": []});
    if minor <= 36 {
        let resources: serde_json::Map<_, _> =
            costs.by_name().map(|(name, text)| (name.to_owned(), text.into())).collect();
        entry["resources"] = resources.into();
    } else {
        let mapping = costs.by_name().map(|(name, text)| json!({"name": name, "quantity": text}));
        entry["mapping"] = mapping.collect();
    }
    entry
}

/// Takes an allocation back from a claim. A refused write is not repeated: the next attempt decides anew.
pub(super) async fn take_back(client: &Client, claim: &Value) {
    let mut without = claim.clone();
    for field in ["allocation", "reservedFor", "devices"] {
        meta::put(&mut without, &["status", field], Value::Null);
    }
    client.update(&format!("{}/status", path_of_claim(claim)), &without).await;
}

fn allocation(chosen: &Chosen, node: &str) -> Value {
    let results: Vec<Value> = chosen
        .iter()
        .map(|(request, (driver, pool, device))| {
            json!({"request": request, "driver": driver, "pool": pool, "device": device})
        })
        .collect();
    let selector = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    json!({"devices": {"results": results}, "nodeSelector": selector})
}
