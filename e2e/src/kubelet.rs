//! Plays the kubelet: Pods that have a node run, end and go.
//!
//! Like the real one it refuses a Pod whose claims are not reserved for it, sets a
//! terminal phase before a Pod that ran is removed, and removes Pods that are being
//! deleted.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};

use crate::client::{CLAIMS, Client, PODS};

/// On a Pod: it runs until it is told to end.
pub(crate) const HOLD: &str = "e2e.dragoman.dev/hold";

/// On a Pod: it is deleted as soon as it is done.
pub(crate) const REAP: &str = "e2e.dragoman.dev/reap";

/// A running stand-in.
pub(crate) struct Kubelet {
    task: tokio::task::JoinHandle<()>,
    refused: Arc<Mutex<HashSet<String>>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Act {
    Run,
    End,
    Remove,
}

impl Kubelet {
    /// Starts it for every Pod that has a node.
    pub(crate) fn start(client: Client) -> Self {
        let refused = Arc::<Mutex<HashSet<String>>>::default();
        let task = tokio::spawn(play(client, refused.clone()));
        Self { task, refused }
    }

    /// Names of the Pods it has refused at least once because a claim was not
    /// reserved for them.
    pub(crate) fn refused(&self) -> HashSet<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn play(client: Client, refused: Arc<Mutex<HashSet<String>>>) {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
    let api: Api<DynamicObject> = Api::all_with(client.kube.clone(), &resource);
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let started = Arc::<Mutex<HashSet<(String, Act)>>>::default();
    let pods = watcher(api, config).default_backoff().applied_objects();
    let each = pods.for_each(|pod| {
        // The watcher goes on by itself after an error.
        let Ok(pod) = pod else { return std::future::ready(()) };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let pod = serde_json::to_value(&pod).unwrap_or_default();
        if let Some(act) = next_act(&pod)
            && started.lock().unwrap_or_else(PoisonError::into_inner).insert((uid, act))
        {
            tokio::spawn(perform(client.clone(), pod, act, refused.clone()));
        }
        std::future::ready(())
    });
    each.await;
}

fn next_act(pod: &Value) -> Option<Act> {
    let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
    let held = pod["metadata"]["annotations"].get(HOLD).is_some();
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Some(Act::Remove);
    }
    match phase {
        "Pending" => Some(Act::Run),
        "Running" if !held => Some(Act::End),
        "Succeeded" if !pod["metadata"]["annotations"][REAP].is_null() => Some(Act::Remove),
        _ => None,
    }
}

async fn perform(client: Client, pod: Value, act: Act, refused: Arc<Mutex<HashSet<String>>>) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
    let status = async |phase: &str| {
        let patch = json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
        // A Pod that is gone by now needs no status any more.
        client.merge(PODS, &namespace, &format!("{name}/status"), &patch).await.is_ok()
    };
    match act {
        Act::Run => {
            while !reserved(&client, &pod, &uid).await {
                refused.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
                tokio::time::sleep(Duration::from_millis(200)).await;
                match client.get(PODS, &namespace, &name).await {
                    Ok(Some(live)) if live["metadata"]["uid"] == pod["metadata"]["uid"] => {}
                    _ => return,
                }
            }
            status("Running").await;
        }
        Act::End => {
            status("Succeeded").await;
        }
        Act::Remove => {
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            if phase == "Running" || phase == "Pending" {
                status("Failed").await;
            }
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
            if let Err(error) = client.delete_options(PODS, &namespace, &name, &options).await {
                eprintln!("cannot remove the Pod {namespace}/{name}: {error}");
            }
        }
    }
}

/// Whether every claim of the Pod is reserved for it or for its PodGroup.
async fn reserved(client: &Client, pod: &Value, uid: &str) -> bool {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str();
    let by_name = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
    let by_name = by_name.filter_map(|entry| entry["resourceClaimName"].as_str());
    let from_template = pod["status"]["resourceClaimStatuses"].as_array().into_iter().flatten();
    let from_template = from_template.filter_map(|entry| entry["resourceClaimName"].as_str());
    for claim in by_name.chain(from_template) {
        let Ok(Some(claim)) = client.get(CLAIMS, namespace, claim).await else { return false };
        let consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        if !consumers.iter().any(|c| c["uid"] == uid || (group.is_some() && c["name"].as_str() == group)) {
            return false;
        }
    }
    true
}
