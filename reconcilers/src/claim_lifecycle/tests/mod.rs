//! Behaviour of the pure part, on an index fed with ordinary API objects.

mod claims;
mod consumers;
mod drain;
mod index;
mod passes;
mod reclaim;
mod second_writer;
mod series;

use dragoman_machinery::controller::{Fed, Index as _, Keeps};
use dragoman_machinery::kind::Watchable;
use dragoman_machinery::watch::{StoreState as _, decode_item};
use dragoman_machinery::write::{Action, Write};
use dragoman_objects::{Meta, Pod, PodGroup, ResourceClaim, ResourceClaimTemplate};
use jiff::SignedDuration;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::claim_name::{Generation, claim_name};
use super::facts::ClaimFacts;
use super::key::Key;
use super::state::State;

/// An index and the objects to feed it with.
#[derive(Default)]
struct Cluster {
    state: State,
    version: u64,
}

/// The kinds that the index keeps.
#[derive(Clone, Copy)]
enum WatchedKind {
    Pods,
    Claims,
    Templates,
    Groups,
}

fn meta(object: &Value) -> Meta {
    serde_json::from_value(object["metadata"].clone()).expect("metadata")
}

fn decode<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|e| e.to_string())
}

/// When objects are read.
const NOW: Timestamp = Timestamp::constant(1000, 0);

/// So many seconds after [`NOW`], or before.
fn after(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

fn applied<T: Watchable>(state: &mut State, object: &Value) -> Vec<Key>
where
    State: Fed<T, Key = Key>,
{
    state.at(NOW);
    Fed::<T>::applied(state, &decode_item(object.to_string().as_bytes()).expect("metadata"))
}

impl Cluster {
    /// Every index is complete and empty; PodGroups are served.
    fn synced() -> Self {
        let mut cluster = Self::default();
        for watched in [WatchedKind::Pods, WatchedKind::Claims, WatchedKind::Templates, WatchedKind::Groups] {
            cluster.relist(watched, Vec::new());
        }
        cluster
    }

    fn stamp(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["namespace"] = json!("ns");
        object
    }

    fn apply(&mut self, watched: WatchedKind, object: Value) -> Vec<Key> {
        let object = self.stamp(object);
        match watched {
            WatchedKind::Pods => applied::<Pod>(&mut self.state, &object),
            WatchedKind::Claims => applied::<ResourceClaim>(&mut self.state, &object),
            WatchedKind::Templates => applied::<ResourceClaimTemplate>(&mut self.state, &object),
            WatchedKind::Groups => applied::<PodGroup>(&mut self.state, &object),
        }
    }

    fn pod(&mut self, pod: Value) -> Vec<Key> {
        self.apply(WatchedKind::Pods, pod)
    }

    fn claim(&mut self, claim: Value) -> Vec<Key> {
        self.apply(WatchedKind::Claims, claim)
    }

    fn delete(&mut self, watched: WatchedKind, object: Value) -> Vec<Key> {
        let meta = meta(&self.stamp(object));
        match watched {
            WatchedKind::Pods => Fed::<Pod>::deleted(&mut self.state, &meta),
            WatchedKind::Claims => Fed::<ResourceClaim>::deleted(&mut self.state, &meta),
            WatchedKind::Templates => Fed::<ResourceClaimTemplate>::deleted(&mut self.state, &meta),
            WatchedKind::Groups => Fed::<PodGroup>::deleted(&mut self.state, &meta),
        }
    }

    fn began(&mut self, watched: WatchedKind) {
        match watched {
            WatchedKind::Pods => Fed::<Pod>::began(&mut self.state),
            WatchedKind::Claims => Fed::<ResourceClaim>::began(&mut self.state),
            WatchedKind::Templates => Fed::<ResourceClaimTemplate>::began(&mut self.state),
            WatchedKind::Groups => Fed::<PodGroup>::began(&mut self.state),
        }
    }

    fn completed(&mut self, watched: WatchedKind, version: &str) -> Vec<Key> {
        match watched {
            WatchedKind::Pods => Fed::<Pod>::completed(&mut self.state, version),
            WatchedKind::Claims => Fed::<ResourceClaim>::completed(&mut self.state, version),
            WatchedKind::Templates => Fed::<ResourceClaimTemplate>::completed(&mut self.state, version),
            WatchedKind::Groups => Fed::<PodGroup>::completed(&mut self.state, version),
        }
    }

    /// The API server does not serve PodGroups.
    fn groups_unserved(&mut self) -> Vec<Key> {
        Keeps::<PodGroup>::unserved(&mut self.state)
    }

    /// A complete list that consists of `objects`.
    fn relist(&mut self, watched: WatchedKind, objects: Vec<Value>) -> Vec<Key> {
        self.began(watched);
        let mut dirty: Vec<_> = objects.into_iter().flat_map(|object| self.apply(watched, object)).collect();
        self.version += 1;
        dirty.extend(self.completed(watched, &self.version.to_string()));
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

/// A Pod of a node that is gone, ended by kube-controller-manager.
fn lost(uid: &str) -> Value {
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"});
    with(with(running(uid), "/status/phase", json!("Failed")), "/status/conditions", json!([condition]))
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
