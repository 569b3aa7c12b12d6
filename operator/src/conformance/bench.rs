//! Objects of the kit in the cluster (nodes, devices and a namespace of its own), and its requests.

#![expect(clippy::indexing_slicing, reason = "what a JSON value does not have is null")]

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, bail};
use dragoman_crds::protocol::{ALLOCATOR, GATE};
use dragoman_machinery::api::{Api, Call, JSON, Repeat};
use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::refusal::Refusal;
use http::Method;
use serde_json::{Value, json};

/// The driver of the devices of the kit, the name of their class, and the domain of its labels.
pub(super) const DOMAIN: &str = "conformance.dragoman.dev";
/// The nodes of the kit, each with a pool of its name.
pub(super) const NODES: [&str; 2] = ["dragoman-conformance-a", "dragoman-conformance-b"];
/// The devices of each node.
pub(super) const DEVICES: usize = 2;
/// A finalizer of another owner, which has to stay.
pub(super) const KEEP: &str = "conformance.dragoman.dev/keep";

const OWNERS: &str = "/apis/dragoman.dev/v1alpha1/driverowners";
const DRA: &str = "/apis/resource.k8s.io/v1";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const LOOKS: Duration = Duration::from_millis(100);

/// A cluster with the objects of the kit.
pub(super) struct Bench {
    api: Api,
    /// The namespace of the run.
    pub(super) namespace: String,
    /// The name of the allocator that is judged.
    pub(super) allocator: String,
    /// Time that an allocator may take for one step.
    pub(super) patience: Duration,
}

impl Bench {
    /// Creates nodes, devices, a class and a namespace.
    pub(super) async fn set_up(api: Api, allocator: &str, patience: Duration) -> anyhow::Result<Self> {
        let namespace =
            format!("dragoman-conformance-{:x}", dragoman_machinery::clock::now().as_millisecond());
        let bench = Self { api, namespace, allocator: allocator.to_owned(), patience };
        bench.refuse_operator().await?;
        let labels = json!({"app.kubernetes.io/managed-by": "dragoman-conformance"});
        let named = |name: &str| json!({"name": name, "labels": labels});
        bench.create("/api/v1/namespaces", json!({"metadata": named(&bench.namespace)})).await?;
        let class = json!({"metadata": named(DOMAIN),
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DOMAIN:?}")}}]}});
        bench.create(&format!("{DRA}/deviceclasses"), class).await?;
        for node in NODES {
            let taint = json!({"key": DOMAIN, "effect": "NoSchedule"});
            let object = json!({"metadata": named(node), "spec": {"taints": [taint]}});
            bench.create("/api/v1/nodes", object).await?;
            let amounts = json!({"cpu": "8", "memory": "16Gi", "pods": "100"});
            let status = json!({"status": {"allocatable": amounts, "capacity": amounts}});
            bench.patch(&format!("/api/v1/nodes/{node}/status"), MERGE_PATCH, &status).await?;
            let devices: Vec<Value> =
                (0..DEVICES).map(|number| json!({"name": format!("device-{number}")})).collect();
            let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
            let slice = json!({"metadata": named(node),
                "spec": {"driver": DOMAIN, "nodeName": node, "pool": pool, "devices": devices}});
            bench.create(&format!("{DRA}/resourceslices"), slice).await?;
        }
        Ok(bench)
    }

    /// The operator would judge the same Pods as the kit.
    async fn refuse_operator(&self) -> anyhow::Result<()> {
        let leases = self.get("/apis/coordination.k8s.io/v1/leases").await?;
        let now = dragoman_machinery::clock::now().as_second();
        let is_live = |lease: &&Value| {
            let renewed = lease["spec"]["renewTime"].as_str().unwrap_or_default();
            let renewed = renewed.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
            lease["metadata"]["name"] == crate::controllers::LEASE_NAME && now - renewed < 60
        };
        match items(&leases["items"]).find(is_live) {
            None => Ok(()),
            Some(lease) => bail!(
                "the operator runs in namespace {}, and would judge the same Pods: scale it to zero for the time of \
                 this test",
                lease["metadata"]["namespace"]
            ),
        }
    }

    /// Removes everything again. What cannot be removed is named.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.clear_namespace().await?;
        let mut paths =
            vec![format!("/api/v1/namespaces/{}", self.namespace), format!("{DRA}/deviceclasses/{DOMAIN}")];
        for node in NODES {
            paths.extend([format!("{DRA}/resourceslices/{node}"), format!("/api/v1/nodes/{node}")]);
        }
        for path in paths {
            self.delete(&path).await?;
        }
        Ok(())
    }

    /// Removes Pods and claims of a scenario; the devices are free then.
    pub(super) async fn clear_namespace(&self) -> anyhow::Result<()> {
        for pod in self.list("pods").await? {
            self.delete(&self.pod_path(text(&pod["metadata"]["name"]))).await?;
        }
        self.until("Pods are gone", async || Ok(self.list("pods").await?.is_empty().then_some(()))).await?;
        // The allocator may write until it sees that the Pods are gone.
        self.until("claims are gone", async || {
            for claim in self.claims().await? {
                let name = text(&claim["metadata"]["name"]).to_owned();
                self.free(&name).await?;
                let merge = json!({"metadata": {"finalizers": null}});
                match self.try_patch(&self.claim_path(&name), MERGE_PATCH, &merge).await {
                    Ok(_) | Err(Refusal::NotFound | Refusal::Invalid(_) | Refusal::Conflict) => {}
                    Err(refusal) => return Err(refusal.into()),
                }
                self.delete(&self.claim_path(&name)).await?;
            }
            Ok(self.claims().await?.is_empty().then_some(()))
        })
        .await
    }

    /// Takes allocation and reservations of a claim away.
    pub(super) async fn free(&self, claim: &str) -> anyhow::Result<()> {
        let merge = json!({"status": {"allocation": null, "reservedFor": null}});
        match self.try_patch(&format!("{}/status", self.claim_path(claim)), MERGE_PATCH, &merge).await {
            Ok(_) | Err(Refusal::NotFound) => Ok(()),
            Err(refusal) => Err(refusal).context(format!("claim {claim}")),
        }
    }

    /// Creates a claim of so many devices for the allocator. `metadata` is merged.
    pub(super) async fn claim(&self, name: &str, count: usize, metadata: &Value) -> anyhow::Result<()> {
        let mut labels = json!({});
        labels[ALLOCATOR] = json!(self.allocator);
        let mut object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"devices": {"requests": [
            {"name": "device", "exactly": {"deviceClassName": DOMAIN, "count": count}}]}}});
        for (field, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][field] = value.clone();
        }
        self.create(&format!("{DRA}/namespaces/{}/resourceclaims", self.namespace), object).await.map(drop)
    }

    /// Creates a Pod that names these claims. It has the gate of the protocol, if it is to have it.
    pub(super) async fn pod(&self, name: &str, claims: &[&str], is_gated: bool) -> anyhow::Result<Value> {
        self.pod_behind(name, claims, if is_gated { &[GATE] } else { &[] }).await
    }

    /// Creates a Pod that names these claims and has these gates. No scheduler looks for it.
    pub(super) async fn pod_behind(
        &self,
        name: &str,
        claims: &[&str],
        gates: &[&str],
    ) -> anyhow::Result<Value> {
        let gates: Vec<Value> = gates.iter().map(|gate| json!({"name": gate})).collect();
        let entries: Vec<Value> =
            claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
        let named: Vec<Value> = claims.iter().map(|claim| json!({"name": claim})).collect();
        let object = json!({"metadata": {"name": name}, "spec": {
            "schedulerName": DOMAIN, "schedulingGates": gates, "resourceClaims": entries, "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none", "resources": {"claims": named}}]}});
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        self.until(&format!("Pod {name} is created"), async || match self.try_create(&path, &object).await {
            Ok(pod) => Ok(Some(pod)),
            // A new namespace takes a moment until it has its service account.
            Err(Refusal::Rbac(why) | Refusal::Invalid(why)) if why.contains("service account") => Ok(None),
            Err(refusal) => Err(refusal.into()),
        })
        .await
    }

    /// Opens all gates of a Pod but that of the protocol.
    pub(super) async fn open_others(&self, pod: &str) -> anyhow::Result<()> {
        let gates = json!([{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]);
        self.patch(&self.pod_path(pod), JSON_PATCH, &gates).await.map(drop)
    }

    /// Gives the devices of the kit to another allocator. Returns whether the cluster knows owners.
    pub(super) async fn own(&self) -> anyhow::Result<bool> {
        let labels = json!({"app.kubernetes.io/managed-by": "dragoman-conformance"});
        let owners = json!([{"namespace": self.namespace, "name": "another"}]);
        let object = json!({"apiVersion": "dragoman.dev/v1alpha1", "kind": "DriverOwner",
            "metadata": {"name": DOMAIN, "labels": labels}, "spec": {"owners": owners}});
        match self.try_create(OWNERS, &object).await {
            Ok(_) => Ok(true),
            Err(Refusal::NotFound | Refusal::Unserved(_)) => Ok(false),
            Err(refusal) => Err(refusal).context(OWNERS),
        }
    }

    /// Takes the owner away again.
    pub(super) async fn disown(&self) -> anyhow::Result<()> {
        self.delete(&format!("{OWNERS}/{DOMAIN}")).await
    }

    /// Deletes a Pod.
    pub(super) async fn end(&self, pod: &str) -> anyhow::Result<()> {
        self.delete(&self.pod_path(pod)).await
    }

    /// The claim as it is now.
    pub(super) async fn read(&self, claim: &str) -> anyhow::Result<Value> {
        self.get(&self.claim_path(claim)).await
    }

    /// All claims of the run.
    pub(super) async fn claims(&self) -> anyhow::Result<Vec<Value>> {
        self.list("resourceclaims").await
    }

    /// Changes annotations of a claim.
    pub(super) async fn annotate(&self, claim: &str, annotations: &Value) -> anyhow::Result<()> {
        let merge = json!({"metadata": {"annotations": annotations}});
        self.patch(&self.claim_path(claim), MERGE_PATCH, &merge).await.map(drop)
    }

    /// Deletes a claim: one with a finalizer stays.
    pub(super) async fn delete_claim(&self, claim: &str) -> anyhow::Result<()> {
        self.delete(&self.claim_path(claim)).await
    }

    /// Takes all finalizers off a claim that is being deleted.
    pub(super) async fn let_go(&self, claim: &str) -> anyhow::Result<()> {
        let merge = json!({"metadata": {"finalizers": null}});
        match self.try_patch(&self.claim_path(claim), MERGE_PATCH, &merge).await {
            Ok(_) | Err(Refusal::NotFound) => Ok(()),
            Err(refusal) => Err(refusal).context(format!("claim {claim}")),
        }
    }

    /// Allocates a device of a node to a claim, as another allocator would.
    pub(super) async fn allocate(
        &self,
        claim: &str,
        node: &str,
        device: usize,
        pod: &Value,
    ) -> anyhow::Result<()> {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let result = json!({"request": "device", "driver": DOMAIN, "pool": node, "device": format!("device-{device}")});
        let consumer =
            json!({"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
        let status = json!([{"op": "add", "path": "/status", "value": {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}},
            "reservedFor": [consumer]}}]);
        self.patch(&format!("{}/status", self.claim_path(claim)), JSON_PATCH, &status).await.map(drop)
    }

    /// Waits until something is there.
    ///
    /// # Errors
    /// It did not come, or a request is refused.
    pub(super) async fn until<T, F>(&self, what: &str, look: impl Fn() -> F) -> anyhow::Result<T>
    where
        F: Future<Output = anyhow::Result<Option<T>>>,
    {
        let end = tokio::time::Instant::now() + self.patience;
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            if tokio::time::Instant::now() >= end {
                bail!("waited {} s in vain until {what}", self.patience.as_secs());
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    fn claim_path(&self, name: &str) -> String {
        format!("{DRA}/namespaces/{}/resourceclaims/{name}", self.namespace)
    }

    fn pod_path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{name}", self.namespace)
    }

    /// Whether the API server keeps the time of an allocation, and kube-scheduler needs it: from 1.36 on.
    ///
    /// # Errors
    /// The version of the API server cannot be read.
    pub(super) async fn keeps_times(&self) -> anyhow::Result<bool> {
        let version = self.get("/version").await?;
        // Some distributions write `36+`.
        let minor = text(&version["minor"]).trim_end_matches(|c: char| !c.is_ascii_digit());
        Ok(minor.parse::<u32>().context("/version: minor")? >= 36)
    }

    async fn list(&self, plural: &str) -> anyhow::Result<Vec<Value>> {
        let group = if plural == "pods" { "/api/v1" } else { DRA };
        let list = self.get(&format!("{group}/namespaces/{}/{plural}", self.namespace)).await?;
        Ok(items(&list["items"]).cloned().collect())
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, "", None).await.with_context(|| path.to_owned())
    }

    async fn create(&self, path: &str, object: Value) -> anyhow::Result<Value> {
        self.try_create(path, &object).await.with_context(|| path.to_owned())
    }

    async fn try_create(&self, path: &str, object: &Value) -> Result<Value, Refusal> {
        self.call(Method::POST, path, "application/json", Some(object)).await
    }

    async fn patch(&self, path: &str, content_type: &'static str, body: &Value) -> anyhow::Result<Value> {
        self.try_patch(path, content_type, body).await.with_context(|| path.to_owned())
    }

    async fn try_patch(
        &self,
        path: &str,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Value, Refusal> {
        self.call(Method::PATCH, path, content_type, Some(body)).await
    }

    async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let now = json!({"gracePeriodSeconds": 0});
        match self.call(Method::DELETE, path, "application/json", Some(&now)).await {
            Ok(_) | Err(Refusal::NotFound | Refusal::Unserved(_)) => Ok(()),
            Err(refusal) => Err(refusal).with_context(|| path.to_owned()),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let (collection, name) = path.rsplit_once('/').unwrap_or_default();
        let name = if name == "status" { collection.rsplit('/').next().unwrap_or_default() } else { name };
        let call = Call {
            method,
            uri: path.to_owned(),
            body: body.map(ToString::to_string).unwrap_or_default().into(),
            content_type,
            accept: JSON,
            kind: RESOURCE_CLAIM,
            name: name.to_owned(),
            repeat: Repeat::Untaken,
        };
        dragoman_machinery::api::decode(&self.api.send(&call).await?)
    }
}

/// The elements of a list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A text.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
