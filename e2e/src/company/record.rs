//! What happens to Pods and claims on a control plane, in the order of the API server, and what it says of the promises.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use dragoman_simcluster::HistoryStep;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;

use super::report::Report;
use crate::client::Client;
use crate::promises::gated::{CLAIMS, Cluster, Cpus, PODS, key};

const WATCHED: [(&str, &str, &str, &str); 3] = [
    ("", "v1", "Pod", PODS),
    ("resource.k8s.io", "v1", "ResourceClaim", CLAIMS),
    ("resource.k8s.io", "v1", "DeviceTaintRule", RULES),
];
/// The kind `DeviceTaintRule` in a record.
pub(super) const RULES: &str = "devicetaintrules.resource.k8s.io";

/// An event of a watch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Event {
    /// When it came.
    pub(crate) at: Timestamp,
    /// `plural.group`, or `plural` in the core group.
    pub(crate) resource: String,
    /// Whether the object was deleted.
    pub(crate) deleted: bool,
    /// The object as it is or was; its resourceVersion is that of the change.
    pub(crate) object: Value,
}

impl Event {
    fn version(&self) -> u64 {
        self.object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }
}

#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    /// How often a watch listed anew: states in between are lost.
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

/// Writes events to a file, a line each.
pub(crate) fn write(events: &[Event], file: &Path) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(file).with_context(|| file.display().to_string())?);
    for event in events {
        serde_json::to_writer(&mut out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Reads events from a file.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Event>> {
    let lines = BufReader::new(File::open(file).with_context(|| file.display().to_string())?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

/// Replays events, and judges each.
pub(crate) fn judge(events: &[Event], cpus: Cpus) -> Report {
    let (mut cluster, mut report) = (Cluster::new(cpus), Report::default());
    let mut known: BTreeMap<(String, String), Arc<Value>> = BTreeMap::new();
    for event in events {
        let place = (event.resource.clone(), key(&event.object));
        let before = known.remove(&place);
        let after = (!event.deleted).then(|| Arc::new(event.object.clone()));
        if let Some(after) = &after {
            known.insert(place, Arc::clone(after));
        }
        let step = HistoryStep { at: event.at, resource: event.resource.clone(), before, after };
        report.broken.extend(cluster.take(&step));
        report.take(&step, &cluster);
    }
    if let Some(last) = events.last() {
        report.end(last.at);
    }
    report
}
