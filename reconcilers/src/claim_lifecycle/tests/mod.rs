//! Behaviour of the pure part, on an index fed with ordinary API objects.

mod claims;
mod drain;
mod holders;
mod index;

use dragoman_crds::wire::Meta;
use dragoman_machinery::write::{Action, Write};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::index::{Index, Kept};
use super::key::Key;

/// An index and the objects to feed it with.
#[derive(Default)]
struct Cluster {
    index: Index,
    version: u64,
}

fn meta(object: &Value) -> Meta {
    serde_json::from_value(object["metadata"].clone()).expect("metadata")
}

fn decode<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|e| e.to_string())
}

impl Cluster {
    /// Every index is complete and empty; PodGroups are served.
    fn synced() -> Self {
        let mut cluster = Self::default();
        for kept in [Kept::Pods, Kept::Claims, Kept::Templates, Kept::Groups] {
            cluster.relist(kept, Vec::new());
        }
        cluster
    }

    fn stamp(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["namespace"] = json!("ns");
        object
    }

    fn apply(&mut self, kept: Kept, object: Value) -> Vec<Key> {
        let object = self.stamp(object);
        let meta = meta(&object);
        match kept {
            Kept::Pods => self.index.pod_applied(&meta, decode(object)),
            Kept::Claims => self.index.claim_applied(&meta, decode(object), 1000),
            Kept::Templates => self.index.template_applied(&meta, decode(object)),
            Kept::Groups => self.index.group_applied(&meta, decode(object)),
        }
    }

    fn pod(&mut self, pod: Value) -> Vec<Key> {
        self.apply(Kept::Pods, pod)
    }

    fn claim(&mut self, claim: Value) -> Vec<Key> {
        self.apply(Kept::Claims, claim)
    }

    fn delete(&mut self, kept: Kept, object: Value) -> Vec<Key> {
        let meta = meta(&self.stamp(object));
        match kept {
            Kept::Pods => self.index.pod_deleted(&meta),
            Kept::Claims => self.index.claim_deleted(&meta),
            Kept::Groups => self.index.group_deleted(&meta),
            Kept::Templates => {
                self.index.template_deleted(&meta);
                Vec::new()
            }
        }
    }

    /// A complete list that consists of `objects`.
    fn relist(&mut self, kept: Kept, objects: Vec<Value>) -> Vec<Key> {
        self.index.began(kept);
        let mut dirty: Vec<_> = objects.into_iter().flat_map(|object| self.apply(kept, object)).collect();
        self.version += 1;
        dirty.extend(self.index.completed(kept, &self.version.to_string()));
        dirty
    }
}

/// A Pod with an entry `gpu` from the template `one`.
fn pod(uid: &str) -> Value {
    json!({
        "metadata": {"name": "pod", "uid": uid},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]},
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("pointer");
    let mut at = &mut object;
    for part in parent.split('/').skip(1) {
        at = &mut at[part];
    }
    at[field] = value;
    object
}

fn running(uid: &str) -> Value {
    with(with(pod(uid), "/spec/nodeName", json!("node")), "/status/phase", json!("Running"))
}

fn succeeded(uid: &str) -> Value {
    with(running(uid), "/status/phase", json!("Succeeded"))
}

/// The claim that the status of a Pod names.
fn publishes(pod: Value, claim: &str) -> Value {
    with(pod, "/status/resourceClaimStatuses", json!([{"name": "gpu", "resourceClaimName": claim}]))
}

/// A claim generated for the entry `gpu` of the Pod with `uid`.
fn generated(name: &str, uid: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": format!("{name}-uid"),
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": uid, "controller": true}],
        },
    })
}

/// A claim of its user's own.
fn plain(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("{name}-uid")}})
}

/// Allocated and reserved for Pods called `pod` with these uids.
fn in_use(claim: Value, uids: &[&str]) -> Value {
    let consumers: Vec<_> =
        uids.iter().map(|uid| json!({"resource": "pods", "name": "pod", "uid": uid})).collect();
    let claim = with(claim, "/metadata/finalizers", json!(["resource.kubernetes.io/delete-protection"]));
    with(claim, "/status", json!({"allocation": {"devices": {}}, "reservedFor": consumers}))
}

fn template() -> Value {
    json!({"metadata": {"name": "one", "uid": "t"}, "spec": {"spec": {"devices": {}}}})
}

/// The JSON patch of a write. None may go out without its guards.
fn operations(write: &Write) -> Vec<String> {
    if let Action::Patch { guard, .. } | Action::Delete { guard } = &write.action {
        assert_eq!(guard.uid, format!("{}-uid", write.name));
        assert!(!guard.resource_version.is_empty(), "{write:?}");
    }
    match &write.action {
        Action::Patch { operations, .. } => {
            let text = |o: &Value| {
                format!("{} {}", o["op"].as_str().unwrap_or("?"), o["path"].as_str().unwrap_or("?"))
            };
            operations.iter().map(text).collect()
        }
        other => vec![other.verb().to_owned()],
    }
}
