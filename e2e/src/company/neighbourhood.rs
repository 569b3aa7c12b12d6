//! Objects that the cluster of a run has beside its nodes: devices of three drivers with three allocators,
//! classes of Pods and volumes, and the objects that a real cluster brings to every node.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::pods::{self, CARD, FOREIGN, FREE, IMPORTANT, OWNED_CARD, SLOW};
use super::{NODES, SHARED};
use crate::client::{CLAIMS, CLASSES, Client, PODS, TEMPLATES};
use crate::control_plane::{Process, Release};
use crate::objects::{self, DRIVER};
use crate::scenarios::gates::company::own;
use crate::scenarios::gates::python;
use crate::world::World;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const VOLUME_CLAIMS: &str = "/api/v1/{}/persistentvolumeclaims";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// The controller that binds volumes to their claims.
pub(super) const BINDER: &str = "persistentvolume-binder-controller";
const SELECTED: &str = "volume.kubernetes.io/selected-node";
const ALLOCATOR: &str = "example";
/// The devices of either other driver on a node.
const OTHERS: usize = 4;

/// The namespaces of a run.
pub(super) struct Spaces {
    /// That of gated Pods.
    pub(super) gated: String,
    /// That of Pods of others.
    pub(super) others: String,
    /// Release, which decides the form of PodGroups.
    pub(super) release: Release,
}

impl Spaces {
    pub(super) fn of(&self, is_gated: bool) -> &String {
        if is_gated { &self.gated } else { &self.others }
    }
}

/// Creates the objects that the Pods of a run need, and starts the allocator in Python, as the owner of its driver.
pub(super) async fn prepare(world: &World, spaces: &Spaces) -> anyhow::Result<Process> {
    let client = &world.client;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": IMPORTANT}, "value": 1000});
    client.create("/apis/scheduling.k8s.io/v1/priorityclasses", "", &class).await?;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": SLOW},
        "provisioner": "slow.e2e.dragoman.dev", "volumeBindingMode": "WaitForFirstConsumer"});
    client.create(STORAGE_CLASSES, "", &class).await?;
    for number in 0..SHARED {
        client.create(CLAIMS, &spaces.gated, &objects::claim(&format!("shared-{number}"))).await?;
    }
    for node in 0..NODES {
        client.create(PODS, &spaces.others, &pods::fixed(node)).await?;
    }
    client.merge(CLASSES, "", "e2e", &json!({"spec": {"extendedResourceName": OWNED_CARD}})).await?;
    driver(client, FREE, Some(CARD)).await?;
    driver(client, FOREIGN, None).await?;
    client.create(TEMPLATES, &spaces.others, &template(FREE, &json!({}))).await?;
    let labels = json!({"dragoman.dev/allocator": ALLOCATOR});
    client.create(TEMPLATES, &spaces.gated, &template(FOREIGN, &labels)).await?;
    own(world, DRIVER, "dragoman-allocator").await?;
    foreign_allocator(world).await
}

/// Devices of a driver on every node, which cost their node nothing, and their class.
async fn driver(client: &Client, name: &str, extended: Option<&str>) -> anyhow::Result<()> {
    let driver = format!("{name}.e2e.dragoman.dev");
    let mut class = objects::class();
    class["metadata"]["name"] = json!(name);
    class["spec"] = json!({"selectors": [{"cel": {"expression": format!("device.driver == {driver:?}")}}],
        "extendedResourceName": extended});
    client.create(CLASSES, "", &class).await?;
    for node in 0..NODES {
        let mut slice = objects::slice(&format!("node-{node}"), OTHERS);
        slice["metadata"]["name"] = json!(format!("{name}-{node}"));
        slice["spec"]["driver"] = json!(driver);
        client.create(SLICES, "", &slice).await?;
    }
    Ok(())
}

fn template(class: &str, labels: &Value) -> Value {
    let mut template = objects::template(class);
    template["spec"]["metadata"] = json!({"labels": labels});
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!(class);
    template
}

async fn foreign_allocator(world: &World) -> anyhow::Result<Process> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ALLOCATOR}});
    world.client.create("/api/v1/{}/serviceaccounts", "kube-system", &account).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": ALLOCATOR},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dragoman-allocator"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": ALLOCATOR}]});
    world.client.create(BINDINGS, "", &binding).await?;
    own(world, &format!("{FOREIGN}.e2e.dragoman.dev"), ALLOCATOR).await?;
    let kubeconfig = world.account("kube-system", ALLOCATOR).await?;
    python(world, "example.py", &[], ALLOCATOR, &kubeconfig)
}

/// Creates a claim for a volume.
pub(super) async fn volume(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": SLOW,
            "resources": {"requests": {"storage": "1Gi"}}}});
    client.create(VOLUME_CLAIMS, namespace, &claim).await?;
    Ok(())
}

/// Provisions volumes as slowly as a storage system does: each in the second look after kube-scheduler has chosen its node.
#[derive(Default)]
pub(super) struct Provisioner {
    looks: BTreeMap<String, u32>,
}

impl Provisioner {
    pub(super) async fn look(&mut self, client: &Client, spaces: &Spaces) -> anyhow::Result<()> {
        for namespace in [&spaces.gated, &spaces.others] {
            for claim in client.list(VOLUME_CLAIMS, namespace).await? {
                let Some(node) = claim["metadata"]["annotations"][SELECTED].as_str() else { continue };
                let uid = claim["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let looks = self.looks.entry(uid.clone()).or_default();
                *looks += 1;
                if *looks == 2 {
                    client.create(VOLUMES, "", &provisioned(&claim, &uid, node)).await?;
                }
            }
        }
        Ok(())
    }
}

fn provisioned(claim: &Value, uid: &str, node: &str) -> Value {
    let term =
        json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("volume-{uid}")},
    "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": SLOW,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "slow.e2e.dragoman.dev", "volumeHandle": uid},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
            "namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"]},
    }})
}
