//! The versions of each object that a watch saw, without what differs from run to run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use serde_json::{Value, json};

use crate::client::Client;

/// The versions of each object as text, without consecutive repetitions.
pub(super) type Histories = BTreeMap<String, Vec<String>>;

/// Everything seen, in the order of arrival: whether the object was deleted, and the object.
type Seen = Arc<Mutex<Vec<(bool, Value)>>>;

/// Records a namespace until dropped.
pub(crate) struct Recorder {
    seen: Seen,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Recorder {
    /// Starts the watches and waits until they are open.
    pub(crate) async fn start(client: &Client, namespace: &str, pod_groups: bool) -> Self {
        let seen = Seen::default();
        let mut kinds = vec![
            ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
            ApiResource::erase::<k8s_openapi::api::resource::v1::ResourceClaim>(&()),
            ApiResource::erase::<k8s_openapi::api::events::v1::Event>(&()),
        ];
        if pod_groups {
            kinds.push(ApiResource::erase::<k8s_openapi::api::scheduling::v1alpha2::PodGroup>(&()));
        }
        let mut tasks = Vec::new();
        for kind in kinds {
            let api: Api<DynamicObject> = Api::namespaced_with(client.kube.clone(), namespace, &kind);
            let (open, opened) = tokio::sync::oneshot::channel();
            tasks.push(tokio::spawn(follow(api, seen.clone(), open)));
            // A watch that cannot open shows as a missing history.
            tokio::time::timeout(Duration::from_secs(10), opened).await.ok();
        }
        Self { seen, tasks }
    }

    /// Every version so far, in the order of arrival: whether the object was deleted, and the object.
    pub(crate) fn seen(&self) -> Vec<(bool, Value)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The histories so far. `collected`: claims that the garbage collector deleted.
    ///
    /// The garbage collector acts at its own pace. It may delete a claim just before or just after the claim
    /// loses its finalizer. Its request is therefore left out of the histories. So is the version without
    /// the finalizer, which only one of the two orders shows. The deletion of the claim is compared.
    pub(super) fn histories(&self, collected: &BTreeSet<String>) -> Histories {
        let mut seen = self.seen();
        let names = Names::of(&seen);
        let mut histories = Histories::new();
        for (deleted, object) in &mut seen {
            let name = object["metadata"]["name"].as_str();
            let collected = object["kind"] == "ResourceClaim" && name.is_some_and(|n| collected.contains(n));
            if collected {
                object["metadata"]["deletionTimestamp"].take();
            }
            let Some((key, version)) = names.normalised(object) else { continue };
            let history = histories.entry(key).or_default();
            if *deleted {
                if collected
                    && let [.., held, let_go] = &history[..]
                    && !unprotected(held)
                    && unprotected(let_go)
                {
                    history.pop();
                }
                history.push("deleted".to_owned());
            } else if history.last() != Some(&version) {
                history.push(version);
            }
        }
        histories
    }
}

/// Whether a version of a claim carries no finalizer.
fn unprotected(version: &str) -> bool {
    version.contains("\"finalizers\":null")
}

async fn follow(api: Api<DynamicObject>, seen: Seen, open: tokio::sync::oneshot::Sender<()>) {
    let mut open = Some(open);
    let mut events = watch(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let (deleted, object) = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => (false, object),
            Ok(Event::Delete(object)) => (true, object),
            Ok(Event::InitDone) => {
                open.take().map(|open| open.send(()));
                continue;
            }
            Ok(Event::Init) | Err(_) => continue,
        };
        let object = serde_json::to_value(&object).unwrap_or_default();
        seen.lock().unwrap_or_else(PoisonError::into_inner).push((deleted, object));
    }
}

/// Labels for generated names that are the same on both sides.
struct Names(BTreeMap<String, String>);

impl Names {
    /// Labels each generated claim with its owner, its entry and a number: the second claim for an entry
    /// is `#2`.
    fn of(seen: &[(bool, Value)]) -> Self {
        let mut names = BTreeMap::new();
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for (_, object) in seen.iter().filter(|(_, o)| o["kind"] == "ResourceClaim") {
            let meta = &object["metadata"];
            let entry = meta["annotations"]["resource.kubernetes.io/pod-claim-name"].as_str();
            let owner = &meta["ownerReferences"][0];
            let name = meta["name"].as_str().unwrap_or_default();
            if let (Some(entry), Some(owner)) = (entry, owner["name"].as_str())
                && name.starts_with(owner)
                && !names.contains_key(name)
            {
                let base = format!("claim of {owner}/{entry}");
                let count = counts.entry(base.clone()).or_default();
                *count += 1;
                names.insert(name.to_owned(), format!("{base} #{count}"));
            }
        }
        Self(names)
    }

    fn label(&self, name: &Value) -> Value {
        let name = name.as_str().unwrap_or_default();
        self.0.get(name).map_or(name, String::as_str).into()
    }

    fn normalised(&self, object: &Value) -> Option<(String, String)> {
        let label = self.label(&object["metadata"]["name"]);
        let label = label.as_str().unwrap_or_default();
        match object["kind"].as_str()? {
            "ResourceClaim" => Some((label.to_owned(), claim_version(object).to_string())),
            kind @ ("Pod" | "PodGroup") => {
                let statuses =
                    object["status"]["resourceClaimStatuses"].as_array().cloned().unwrap_or_default();
                let names: Vec<_> = statuses
                    .iter()
                    .map(|s| json!([s["name"], self.label(&s["resourceClaimName"])]))
                    .collect();
                Some((format!("status of {kind} {label}"), json!(names).to_string()))
            }
            "Event" => self.event(object),
            _ => None,
        }
    }

    /// The comparable part of an Event of a claim controller. Of the note it is only the subject,
    /// `PodResourceClaim ENTRY`, because the rest is prose.
    fn event(&self, event: &Value) -> Option<(String, String)> {
        let reason = event["reason"].as_str()?;
        let source = event["deprecatedSource"]["component"].as_str().unwrap_or_default();
        let controller = event["reportingController"].as_str().unwrap_or_default();
        if !(source == "resource_claim"
            || controller == "resource_claim"
            || controller.starts_with("dragoman"))
        {
            return None;
        }
        let note = event["note"].as_str().unwrap_or_default();
        let about = note.split(':').next().unwrap_or_default();
        let regarding = &event["regarding"];
        let name = self.label(&regarding["name"]);
        let key = format!("events {reason} about {} {}", regarding["kind"].as_str()?, name.as_str()?);
        Some((key, format!("{} {about}", event["type"].as_str()?)))
    }
}

/// The comparable part of a version of a claim.
fn claim_version(claim: &Value) -> Value {
    let meta = &claim["metadata"];
    let consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    let consumers: Vec<_> =
        consumers.iter().map(|c| json!([c["apiGroup"], c["resource"], c["name"]])).collect();
    let owners = meta["ownerReferences"].as_array().cloned().unwrap_or_default();
    let owners: Vec<_> = owners
        .iter()
        .map(|o| json!([o["apiVersion"], o["kind"], o["name"], o["controller"], o["blockOwnerDeletion"]]))
        .collect();
    json!({
        "labels": meta["labels"], "annotations": meta["annotations"], "owners": owners,
        "finalizers": meta["finalizers"], "deleting": !meta["deletionTimestamp"].is_null(),
        "spec": claim["spec"], "allocated": !claim["status"]["allocation"].is_null(),
        "devices": claim["status"]["devices"], "reservedFor": consumers,
    })
}
