//! Watches a control plane while scenarios run on it, and judges every step: no device is promised
//! to two claims, and no more claims of running Pods than devices. The promises of the gate protocol are in `lab/judge`.

use std::sync::{Arc, Mutex, PoisonError};

use dragoman_simcluster::Promises;
use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::Client;

const WATCHED: [(&str, &str, &str, &str); 3] = [
    ("", "v1", "Pod", "pods"),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims.resource.k8s.io"),
    ("resource.k8s.io", "v1", "ResourceSlice", "resourceslices.resource.k8s.io"),
];

/// The watches of one control plane.
pub struct Judge {
    promises: Arc<Mutex<Promises>>,
    _watches: JoinSet<()>,
}

impl Judge {
    /// Starts watching.
    pub fn start(client: &Client) -> Self {
        let promises = Arc::<Mutex<Promises>>::default();
        let mut watches = JoinSet::new();
        for (group, version, kind, resource) in WATCHED {
            let found = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.kube.clone(), &found);
            watches.spawn(follow(api, resource, Arc::clone(&promises)));
        }
        Self { promises, _watches: watches }
    }

    /// Fails if a step broke the invariant.
    pub fn verdict(&self) -> anyhow::Result<()> {
        match locked(&self.promises).broken() {
            Some(why) => anyhow::bail!(why),
            None => Ok(()),
        }
    }
}

fn locked(promises: &Mutex<Promises>) -> std::sync::MutexGuard<'_, Promises> {
    promises.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(api: Api<DynamicObject>, resource: &'static str, promises: Arc<Mutex<Promises>>) {
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let value = |object: &DynamicObject| serde_json::to_value(object).unwrap_or(Value::Null);
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                locked(&promises).applied(resource, &value(&object));
            }
            Ok(watcher::Event::Delete(object)) => locked(&promises).deleted(resource, &value(&object)),
            // An object that went while the watch was cut holds nothing any more.
            Ok(watcher::Event::Init) => locked(&promises).relisted(resource),
            // The watcher goes on by itself after an error.
            Ok(watcher::Event::InitDone) | Err(_) => {}
        }
    }
}
