//! Records what happens to Pods and claims, and what Events say of it, on a control plane, in the order of the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dragoman_judge::promises::{CLAIMS, EVENTS, PODS, key};
use dragoman_judge::record::{Event, RULES};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::Client;

const WATCHED: [(&str, &str, &str, &str); 4] = [
    ("", "v1", "Pod", PODS),
    ("resource.k8s.io", "v1", "ResourceClaim", CLAIMS),
    ("resource.k8s.io", "v1", "DeviceTaintRule", RULES),
    ("events.k8s.io", "v1", "Event", EVENTS),
];
#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    /// Number of times that a watch listed anew: states in between are lost.
    listed_anew: usize,
}

/// Records a control plane from its start to its drop.
pub(crate) struct Recorder {
    seen: Arc<Mutex<Seen>>,
    _watches: JoinSet<()>,
}

impl Recorder {
    /// Starts to record.
    pub(crate) fn start(client: &Client) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watches = JoinSet::new();
        for (group, version, kind, resource) in WATCHED {
            let found = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.kube.clone(), &found);
            watches.spawn(follow(api, resource, Arc::clone(&seen)));
        }
        Self { seen, _watches: watches }
    }

    /// The events so far, in the order of the API server, which was started so many times.
    ///
    /// # Errors
    /// A watch has missed changes although the API server went on.
    pub(crate) fn events(&self, starts: usize) -> anyhow::Result<Vec<Event>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let lists = WATCHED.len() * starts;
        anyhow::ensure!(seen.listed_anew <= lists, "a watch has listed anew: the record has a gap");
        let mut events = seen.events.clone();
        events.sort_by_key(Event::version);
        Ok(events)
    }
}

/// Follows the objects of a kind. What went while the API server was not there was there until the last event before that,
/// and counts as gone from then on: nothing that was free to others in truth is called taken.
async fn follow(api: Api<DynamicObject>, resource: &'static str, seen: Arc<Mutex<Seen>>) {
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let (mut known, mut unlisted) = (BTreeMap::<String, Value>::new(), BTreeMap::new());
    let (mut last, mut last_before) = (0, 0);
    let note = |last: &mut u64, object: Value, deleted: bool| {
        let event = Event { at: Timestamp::now(), resource: resource.to_owned(), deleted, object };
        *last = event.version().max(*last);
        seen.lock().unwrap_or_else(PoisonError::into_inner).events.push(event);
    };
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                let object = plain(&object);
                unlisted.remove(&key(&object));
                known.insert(key(&object), object.clone());
                note(&mut last, object, false);
            }
            Ok(watcher::Event::Delete(object)) => {
                let object = plain(&object);
                known.remove(&key(&object));
                note(&mut last, object, true);
            }
            Ok(watcher::Event::Init) => {
                seen.lock().unwrap_or_else(PoisonError::into_inner).listed_anew += 1;
                unlisted = known.clone();
                last_before = last;
            }
            Ok(watcher::Event::InitDone) => {
                for (gone, mut object) in std::mem::take(&mut unlisted) {
                    known.remove(&gone);
                    object["metadata"]["resourceVersion"] = last_before.to_string().into();
                    note(&mut last, object, true);
                }
            }
            // The watcher goes on by itself after an error.
            Err(_) => {}
        }
    }
}

/// An object without the field that nothing reads and that is larger than the rest.
fn plain(object: &DynamicObject) -> Value {
    let mut object = serde_json::to_value(object).unwrap_or(Value::Null);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}
